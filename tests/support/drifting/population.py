"""Real texts by what is measured of each, the stock that simulated traffic is drawn from.

It never holds a text: only the numbers that the gateway records of each, in ``texts.npz``. The
program that measured them is in the history at d00a56c0 (``bench/drift/measure_texts.py``).
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.statistics import EDGES, Statistic
from measures.correlation import Floats
from measures.observation import observed

FILE: Final = Path(__file__).parent / "texts.npz"
MOVIES: Final = "movie-reviews"
PRODUCTS: Final = "product-reviews"
EDITORIALS: Final = "editorials"
TWEETS: Final = "tweets"
GERMAN: Final = "german"
DOMAINS: Final = (MOVIES, PRODUCTS, EDITORIALS, TWEETS, GERMAN)
LABELS: Final = "labels"  # as contracts.metrics names this statistic
NUMERIC: Final = (
    Statistic.TOKENS,
    Statistic.WORDS,
    Statistic.UNK_TOKENS,
    Statistic.UNK_SHARE,
    Statistic.TOKENS_PER_WORD,
    Statistic.SCORE,
)
STATISTICS: Final = (*(each.value for each in NUMERIC), LABELS)
CLEAR_RATING: Final = 0.5  # as in examples/sentiment: nearer to zero people do not agree on a side


@dataclass(frozen=True)
class Texts:
    """The texts of one domain, an entry a text.

    Attributes:
        domain: one of ``DOMAINS``.
        tokens: int16, special tokens included.
        words: int16.
        unk: int16, unknown tokens.
        positive: whether the model says so.
        score: float32, probability of the label that it gives.
        rating: float32, -4 to 4, the mean of at least 15 people; NaN where nobody was asked.
    """

    domain: str
    tokens: NDArray[np.int16]
    words: NDArray[np.int16]
    unk: NDArray[np.int16]
    positive: NDArray[np.bool_]
    score: NDArray[np.float32]
    rating: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Whether people agree on a side, so that the answer is right or wrong."""
        found: NDArray[np.bool_] = np.abs(self.rating) >= CLEAR_RATING
        return found

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the answer is people's; means nothing where ``clear`` is false."""
        found: NDArray[np.bool_] = self.positive == (self.rating > 0)
        return found

    def values(self) -> Floats:
        """``[texts, statistics]`` in the order of ``STATISTICS``, by production's definitions."""
        records = [
            TextRecord(int(tokens), int(words), int(unk), truncated=False, score=float(score))
            for tokens, words, unk, score in zip(
                self.tokens, self.words, self.unk, self.score, strict=True
            )
        ]
        seen = observed(records)
        return np.stack([*(seen[each] for each in NUMERIC), self.positive.astype(float)], axis=1)


_ARRAYS: Final = tuple(each.name for each in fields(Texts) if each.name != "domain")


def widths() -> tuple[int, ...]:
    """Bins of each of ``STATISTICS``: production's edges, and a bin a label."""
    return (*(len(EDGES[each].upper) + 1 for each in NUMERIC), 2)


def one_hot(values: Floats) -> NDArray[np.float32]:
    """``[texts, all bins]``: 1 in the bin of each statistic, statistics side by side.

    Args:
        values: as ``Texts.values`` gives them.
    """
    found = []
    for column, (statistic, width) in enumerate(zip(STATISTICS, widths(), strict=True)):
        if statistic == LABELS:
            bins = values[:, column].astype(int)
        else:
            upper = np.asarray(EDGES[Statistic(statistic)].upper)
            bins = np.searchsorted(upper, values[:, column], side="left")
        found.append(np.eye(width, dtype=np.float32)[bins])
    return np.concatenate(found, axis=1)


def read(file: Path = FILE) -> dict[str, Texts]:
    """The committed measurements by domain."""
    with np.load(file) as held:
        return {
            domain: Texts(domain, *(held[f"{domain}/{name}"] for name in _ARRAYS))
            for domain in DOMAINS
        }


def write(parts: list[Texts], file: Path = FILE) -> None:
    """Stores measurements of all domains."""
    np.savez_compressed(
        file, **{f"{part.domain}/{name}": getattr(part, name) for part in parts for name in _ARRAYS}
    )
