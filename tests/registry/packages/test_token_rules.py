"""Which tokens may come next, beside a plain reading of the same rules."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.packages.token_rules import find_forced_last, mask_forbidden

START, END, VOCABULARY = 0, 1, 6
LOGITS = np.arange(VOCABULARY, dtype=np.float32)
TOKEN = st.integers(0, VOCABULARY - 1)
WRITTEN = st.lists(TOKEN, max_size=12).map(lambda text: [START, *text])


def open_to(rules: dict[str, Any], tokens: list[int]) -> set[int]:
    return set(np.flatnonzero(np.isfinite(mask_forbidden(LOGITS, rules, tokens, (END,)))).tolist())


@pytest.mark.parametrize(
    ("rules", "tokens", "banned"),
    [
        ({}, [START], set()),
        ({"forced_bos_token_id": 4}, [START], {0, 1, 2, 3, 5}),
        ({"forced_bos_token_id": 4}, [START, 4], set()),
        ({"bad_words_ids": [[2], [5]]}, [START], {2, 5}),
        ({"bad_words_ids": [[3, 2]]}, [START, 3], {2}),
        ({"bad_words_ids": [[3, 2]]}, [START, 4], set()),
        ({"bad_words_ids": [[9]]}, [START], set()),  # beyond the vocabulary
        ({"min_new_tokens": 2}, [START, 3], {END}),
        ({"min_new_tokens": 2}, [START, 3, 3], set()),
        ({"no_repeat_ngram_size": 2}, [START, 3, 4, 3], {4}),
        ({"no_repeat_ngram_size": 1}, [START, 3, 4], {START, 3, 4}),
        ({"no_repeat_ngram_size": 3}, [START, 3], set()),
    ],
)
def test_what_may_not_come_next(rules: dict[str, Any], tokens: list[int], banned: set[int]) -> None:
    assert open_to(rules, tokens) == set(range(VOCABULARY)) - banned


@given(WRITTEN, st.integers(1, 4))
def test_no_sequence_is_written_twice(tokens: list[int], size: int) -> None:
    def sequences(text: list[int]) -> list[tuple[int, ...]]:
        return [tuple(text[at : at + size]) for at in range(len(text) - size + 1)]

    before = set(sequences(tokens))
    free = {
        token for token in range(VOCABULARY) if not before & set(sequences([*tokens, token])[-1:])
    }
    assert open_to({"no_repeat_ngram_size": size}, tokens) == (free or set(range(VOCABULARY)))


def test_where_all_is_forbidden_nothing_is() -> None:
    rules = {"bad_words_ids": [[token] for token in range(VOCABULARY)]}
    assert open_to(rules, [START]) == set(range(VOCABULARY))


def test_what_may_come_keeps_its_logits_and_the_array_stays_as_it_was() -> None:
    before = LOGITS.copy()
    found = mask_forbidden(LOGITS, {"bad_words_ids": [[2]]}, [START], ())
    assert np.array_equal(np.delete(found, 2), np.delete(before, 2))
    assert np.array_equal(LOGITS, before)


def test_the_last_of_as_many_tokens_as_were_asked_for_is_forced() -> None:
    rules = {"forced_eos_token_id": 0}
    assert [find_forced_last(rules, [START, *range(count)], 3) for count in range(3)] == [
        None,
        None,
        0,
    ]
    assert find_forced_last({}, [START, 1, 2], 3) is None
