"""Entities are runs of labelled tokens, with their places in the text.

That they are those of ``transformers``' pipeline is held by ``test_parity_with_transformers.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tiny_models import VOCABULARY, tokenizer

from contracts.manifest import TokenizerSpec
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.errors import EngineOutputError
from preprocess.observe import answered
from preprocess.tasks import HEADS, token_classification
from preprocess.tasks.head import Side
from preprocess.tasks.token_classification import Entity, entities
from preprocess.windows import WindowEncoder

LABELS = ("O", "B-FOOD", "I-FOOD", "WEATHER")
HEAD = HEADS[Task.TOKEN_CLASSIFICATION]
ENCODER = WindowEncoder(
    tokenizer().to_str().encode(),
    TokenizerSpec(max_tokens=8, pad_id=0, unk_id=1, vocabulary=VOCABULARY),
)
ONE_WINDOW = 6  # words that fit into one, beside its special tokens
WORDS = {"soup": 1, "warm": 2, "rain": 3, "sun": 3}  # word -> its label's column
_texts = st.lists(
    st.lists(st.sampled_from([*WORDS, "the", "a", "zzz"]), max_size=24).map(" ".join),
    min_size=1,
    max_size=4,
)


@dataclass(frozen=True)
class Found:
    """An answer of this task."""

    values: NDArray[np.float32]
    encoded: EncodedTexts
    labels: tuple[str, ...] = LABELS
    multi_label: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    ranges: NDArray[np.float32] | None = None


def scored(encoded: EncodedTexts, sure: float = 0.7) -> NDArray[np.float32]:
    """Each token's own label with a score of ``sure``."""
    rows = [ENCODER.token(token) for ids in encoded.ids for token in ids]
    values = np.full((len(rows), len(LABELS)), (1 - sure) / (len(LABELS) - 1), np.float32)
    for at, word in enumerate(rows):
        values[at, WORDS.get(word, 0)] = sure
    return values


def found(*texts: str, **options: Any) -> list[list[Entity]]:
    encoded = ENCODER.encode(texts)
    return entities(encoded, scored(encoded), LABELS, **options)


def test_neighbours_of_one_type_are_one_entity_unless_one_begins_another() -> None:
    text = "the soup warm soup and rain sun"
    shown = [(e.label, text[e.start : e.end], e.word) for e in found(text)[0]]
    assert shown == [
        ("FOOD", "soup warm", "soup warm"),
        ("FOOD", "soup", "soup"),
        ("WEATHER", "rain sun", "rain sun"),
    ]
    assert found("no", "")[1] == []


def test_without_aggregation_each_token_has_its_own_label() -> None:
    (each,) = found("soup warm the", strategy="none", ignored=["I-FOOD"])
    assert [(e.label, e.at) for e in each] == [("B-FOOD", 1), ("O", 3)]


@settings(max_examples=80, deadline=None)
@given(_texts)
def test_what_is_found_does_not_depend_on_where_windows_end(texts: list[str]) -> None:
    """Single tokens are found once each, at their places."""
    for text, each in zip(texts, found(*texts, strategy="none"), strict=True):
        named = [(text[e.start : e.end], e.label) for e in each]
        assert named == [(w, LABELS[WORDS[w]]) for w in text.split() if w in WORDS]
        assert [e.start for e in each] == sorted({e.start for e in each})


@settings(max_examples=80, deadline=None)
@given(_texts)
@example(["soup soup soup soup rain rain sun"])  # the second window begins within an entity
def test_entities_lie_in_order_and_apart(texts: list[str]) -> None:
    """Of those of two windows that overlap one is left out, with what it alone covers."""
    for strategy in ("simple", "first", "average", "max"):
        for text, each in zip(texts, found(*texts, strategy=strategy), strict=True):
            for one, other in pairwise(each):
                assert one.end <= other.start
            covered = {word for e in each for word in text[e.start : e.end].split()}
            labelled = WORDS.keys() & set(text.split())
            assert covered <= labelled
            if len(text.split()) <= ONE_WINDOW:
                assert covered == labelled


@given(
    scores=hnp.arrays(
        np.float32, st.tuples(st.integers(1, 12), st.just(3)), elements=st.sampled_from([0, 0.5, 1])
    ),
    cuts=st.sets(st.integers(1, 11)),
)
def test_words_are_scored_as_their_tokens_by_hand(
    scores: NDArray[np.float32], cuts: set[int]
) -> None:
    firsts = [0, *sorted(cut for cut in cuts if cut < len(scores))]
    words = np.split(scores, firsts[1:])
    by_hand = {
        "first": [word[0] for word in words],
        "average": [word.mean(axis=0) for word in words],
        "max": [max(word, key=lambda token: token.max()) for word in words],
    }
    for strategy, expected in by_hand.items():
        merged = token_classification._MERGED[strategy](scores, np.array(firsts))
        np.testing.assert_allclose(merged, expected, atol=1e-6)


def test_a_record_has_type_and_score_of_each_entity_and_says_where_there_is_none() -> None:
    encoded = ENCODER.encode(["soup and rain", "the"])
    one, other = answered(encoded, Task.TOKEN_CLASSIFICATION, scored(encoded), LABELS)
    assert one.entities is not None
    assert [label for label, _ in one.entities] == ["FOOD", "WEATHER"]
    assert [score for _, score in one.entities] == pytest.approx([0.7, 0.7])
    assert (one.label, other.label, other.entities) == (None, "O", [])
    assert HEAD.classes(LABELS) == ("O", "FOOD", "WEATHER")
    with pytest.raises(ValueError, match="rows of values"):
        answered(encoded, Task.TOKEN_CLASSIFICATION, scored(encoded)[:-1], LABELS)


def test_a_request_of_very_many_entities_records_the_first_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_classification, "MOST_RECORDED", 3)
    encoded = ENCODER.encode(["soup and soup", "soup and soup", "soup", "no"])
    records = answered(encoded, Task.TOKEN_CLASSIFICATION, scored(encoded), LABELS)
    assert [len(record.entities or ()) for record in records] == [2, 1, 0, 0]
    assert [record.label for record in records] == [None, None, None, "O"]


def test_two_versions_differ_by_the_entities_that_only_one_has_found() -> None:
    encoded = ENCODER.encode(["soup the rain", "the", "sun"])
    ours = scored(encoded)
    theirs = ours.copy()
    theirs[3] = theirs[0]  # rain is nothing to the other version
    apart = HEAD.difference(
        Side(ours, LABELS, encoded=encoded), Side(theirs, LABELS, encoded=encoded)
    )
    np.testing.assert_allclose(apart.distance, [1 / 3, 0, 0])
    assert apart.equal == [True, False, True, True]
    same = HEAD.difference(Side(ours, LABELS, encoded=encoded), Side(ours, LABELS, encoded=encoded))
    assert (same.distance.tolist(), same.equal) == ([0, 0, 0], [True] * 4)


def test_the_engines_output_is_cut_to_the_tokens_of_each_row() -> None:
    output = np.zeros((2, 5, 3), np.float32)
    values = HEAD.values(output, width=3)
    np.testing.assert_allclose(values, 1 / 3)
    assert [each.shape for each in HEAD.parts(values, [5, 2], [1, 1])] == [(5, 3), (2, 3)]
    (both,) = HEAD.parts(values, [5, 2], [2])
    assert both.shape == (7, 3)
    for broken in (output[0], output[:, :, :2], np.where(output == 0, np.nan, output)):
        with pytest.raises(EngineOutputError):
            HEAD.values(broken.astype(np.float32), width=3)


def test_the_output_of_a_packed_engine_is_cut_at_the_end_of_each_row() -> None:
    output = np.repeat(np.arange(7, dtype=np.float32)[:, None], 3, axis=1)
    output[:, 0] += np.arange(7)
    packed = HEAD.values(output, width=3, packed=True)
    first, second = HEAD.parts(packed, [5, 2], [1, 1])
    np.testing.assert_array_equal(np.concatenate([first, second]), packed)
    assert (first.shape, second.shape) == ((5, 3), (2, 3))
    assert [each.shape for each in HEAD.parts(packed, [1, 4, 2], [2, 1])] == [(5, 3), (2, 3)]
    for broken in (output[None], output[:, :2], np.where(output == 0, np.nan, output)):
        with pytest.raises(EngineOutputError):
            HEAD.values(broken.astype(np.float32), width=3, packed=True)


@given(_texts)
def test_marks_are_the_named_entities_in_the_order_of_their_places(texts: list[str]) -> None:
    encoded = ENCODER.encode(texts)
    answer = Found(scored(encoded), encoded)
    marks = HEAD.marks(answer, {"FOOD": 0.7})
    for each, entity in zip(marks, found(*texts), strict=True):
        assert [(mark.label, mark.start, mark.end) for mark in each] == sorted(
            ((e.label, e.start, e.end) for e in entity if e.label == "FOOD"),
            key=lambda one: one[1],
        )
        assert all((one.end or 0) <= (other.start or 0) for one, other in pairwise(each))
    assert HEAD.marks(answer, {"FOOD": 0.71, "WEATHER": 0.71}) == [[] for _ in texts]
