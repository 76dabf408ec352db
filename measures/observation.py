"""What is measured of each text: from text records to a value for every statistic.

Reference profiles and windows of live traffic both use it, so that the two are always measured the
same way. It never sees a text, and it never guesses a value that the record does not have.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contracts.events import TextRecord
from contracts.statistics import Edges, Statistic


def observe(records: Sequence[TextRecord]) -> dict[Statistic, NDArray[np.float64]]:
    """Values of every statistic over some texts.

    ``UNK_SHARE`` is UNK tokens over tokens, ``TOKENS_PER_WORD`` tokens over words; tokens include
    the special ones, as the record says. A text without a word counts as one word, a text without
    a token as one token, so that both ratios have one value a text. Each entity has a score.

    Args:
        records: any number of texts, answered or not.

    Returns:
        float64 arrays, one value a record for what is known of the text itself. ``SCORE``,
        ``VECTOR_NORM``, ``NON_ZEROS`` and ``GENERATED_TOKENS`` have one value for each record that
        carries them, and may be empty.
    """
    tokens = np.array([record.tokens for record in records], dtype=np.float64)
    words = np.array([record.words for record in records], dtype=np.float64)
    unk = np.array([record.unk for record in records], dtype=np.float64)
    return {
        Statistic.TOKENS: tokens,
        Statistic.WORDS: words,
        Statistic.UNK_TOKENS: unk,
        Statistic.UNK_SHARE: unk / np.maximum(tokens, 1),
        Statistic.TOKENS_PER_WORD: tokens / np.maximum(words, 1),
        Statistic.SCORE: np.array(
            [
                score
                for record in records
                for score in (record.score, *(score for _, score in record.entities or ()))
                if score is not None
            ],
            np.float64,
        ),
        Statistic.VECTOR_NORM: np.array(
            [r.norm for r in records if r.norm is not None], np.float64
        ),
        Statistic.NON_ZEROS: np.array(
            [r.non_zeros for r in records if r.non_zeros is not None], np.float64
        ),
        Statistic.GENERATED_TOKENS: np.array(
            [r.generated for r in records if r.generated is not None], np.float64
        ),
    }


def histogram(edges: Edges, values: ArrayLike) -> tuple[int, ...]:
    """How many values lie in each bucket of these edges, and in the last one to infinity.

    A value belongs to the first bucket whose upper edge is at least the value.

    Raises:
        ValueError: a value is NaN, so that no bucket is right for it.
    """
    flat = np.asarray(values, dtype=np.float64)
    missing = int(np.isnan(flat).sum())
    if missing:
        raise ValueError(f"{missing} of {flat.size} values are NaN")
    buckets = np.searchsorted(edges.upper, flat, side="left")
    return tuple(np.bincount(buckets, minlength=len(edges.upper) + 1).tolist())
