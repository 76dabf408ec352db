"""Which tokens may come next, by what a version's own generation config forces and forbids.

Beside Triton's model this file stands alone (``triton/generation_model``), and parity asks the same
code: so it takes plain values, and imports numpy and nothing of Headrace. The rules are those of
``contracts.manifest.TokenRules``, with what ``generate`` of ``transformers`` makes of them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

BAD_WORDS, NO_REPEAT, FEWEST = "bad_words_ids", "no_repeat_ngram_size", "min_new_tokens"
FORCED_FIRST, FORCED_LAST = "forced_bos_token_id", "forced_eos_token_id"


def mask_forbidden(
    logits: np.ndarray, rules: Mapping[str, Any], tokens: Sequence[int], stops: Collection[int]
) -> np.ndarray:
    """The logits ``[vocabulary]``, at minus infinity if a token may not come next.

    Args:
        logits: as the model gives them; they are not changed.
        rules: by their names; those that are not there forbid nothing.
        tokens: of the decoder so far, which begin with the one that stands before the text.
        stops: tokens that end a text.
    """
    if not rules:
        return logits
    written = len(tokens) - 1
    first = rules.get(FORCED_FIRST)
    if first is not None and written == 0:
        kept = np.full_like(logits, -np.inf)
        kept[first] = 0
        return kept
    banned = _find_forbidden(rules, list(tokens))
    if written < rules.get(FEWEST, 0):
        banned.update(stops)
    kept = logits.copy()
    kept[[token for token in banned if token < len(kept)]] = -np.inf
    # If nothing is left, forbidding all of it chooses nothing.
    return kept if np.isfinite(kept).any() else logits


def find_forced_last(rules: Mapping[str, Any], tokens: Sequence[int], most: int) -> int | None:
    """The token that has to end a text of ``most`` tokens, if the next one is its last."""
    last = rules.get(FORCED_LAST)
    return last if last is not None and len(tokens) == most else None


def _find_forbidden(rules: Mapping[str, Any], tokens: list[int]) -> set[int]:
    """What would complete words that are forbidden, or repeat a sequence."""
    banned = set()
    for *before, last in rules.get(BAD_WORDS, ()):
        if not before or tokens[-len(before) :] == before:
            banned.add(last)
    size = rules.get(NO_REPEAT, 0)
    if 0 < size <= len(tokens):
        before = tokens[len(tokens) - size + 1 :]
        for place in range(len(tokens) - size + 1):
            if tokens[place : place + size - 1] == before:
                banned.add(tokens[place + size - 1])
    return banned
