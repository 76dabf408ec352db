"""Rows with a request's labels, and the entities that are chosen among scored spans."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tiny_models import VOCABULARY, WORDS, tokenizer

from contracts.events import NO_ENTITY
from contracts.manifest import SpanSpec, TokenizerSpec
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.errors import InvalidTextError, ParameterError
from preprocess.labelled_words import LENGTH_BASE, EntityEncoder, joined_labels
from preprocess.tasks import HEADS
from preprocess.tasks.entity_recognition import OTHER_LABEL, entities
from preprocess.tasks.head import NAMED, Side

HEAD = HEADS[Task.ENTITY_RECOGNITION]
LABELS = ("film", "food")
WIDEST, MOST_LABELS, MOST_TOKENS, MOST_WORDS = 3, 4, 24, 9


def encoder(*, marks: bool = True) -> EntityEncoder:
    made = tokenizer()
    if marks:
        made.add_special_tokens(["<<ENT>>", "<<SEP>>"])
    spec = TokenizerSpec(
        max_tokens=MOST_TOKENS, pad_id=0, unk_id=1, vocabulary=VOCABULARY + 2,
        spans=SpanSpec(widest=WIDEST, most_labels=MOST_LABELS, most_words=MOST_WORDS),
    )  # fmt: skip
    return EntityEncoder(made.to_str().encode(), spec)


ENCODER = encoder()
ENT, SEP = (ENCODER.tokenizer.token_to_id(mark) for mark in ("<<ENT>>", "<<SEP>>"))


def encode(*texts: str, labels: tuple[str, ...] = LABELS) -> EncodedTexts:
    return ENCODER.encode(texts, [joined_labels(labels)] * len(texts))


def names(encoded: EncodedTexts, row: int = 0) -> list[str]:
    return [ENCODER.token(token) for token in encoded.ids[row]]


def test_a_row_is_labels_with_marks_and_then_the_words_with_their_numbers() -> None:
    encoded = encode("good soup, not cold")
    assert names(encoded) == [
        *("[CLS]", "<<ENT>>", "film", "<<ENT>>", "[UNK]", "<<SEP>>"),
        *("good", "soup", "[UNK]", "not", "cold", "[SEP]"),
    ]
    assert encoded.type_ids == [[0, -1, 0, -2, 0, -LENGTH_BASE - 5, 1, 2, 3, 4, 5, 0]]
    assert encoded.windows is not None
    assert encoded.windows.offsets == [[(0, 4), (5, 9), (9, 10), (11, 14), (15, 19)]]
    assert encoded.windows.statistics == [(12, 4, 1, False)]


@given(st.lists(st.text(max_size=200), min_size=1, max_size=4), st.integers(1, MOST_LABELS))
def test_a_text_is_one_row_within_the_models_bounds_whatever_it_holds(
    texts: list[str], count: int
) -> None:
    labels = WORDS[:count]
    try:
        encoded = encode(*texts, labels=labels)
    except InvalidTextError:
        return
    windows, types = encoded.windows, encoded.type_ids
    assert windows is not None
    assert types is not None
    assert len(encoded) == len(texts)
    assert all(len(row) <= MOST_TOKENS for row in encoded.ids)
    for row, (laid, places) in enumerate(zip(types, windows.offsets, strict=True)):
        assert len(laid) == encoded.tokens[row]
        assert len(places) <= MOST_WORDS
        assert [each for each in laid if each > 0] == list(range(1, len(places) + 1))
        assert [each for each in laid if -LENGTH_BASE < each < 0] == [
            -1 - at for at in range(count)
        ]
        assert min(laid) == -LENGTH_BASE - len(places)
        assert all(texts[row][start:end].strip() for start, end in places)


def test_what_a_row_has_no_room_for_is_cut_and_said_to_be() -> None:
    encoded = encode("good " * 8, "good " * 9, "good " * 10, "good " * 5000)
    assert encoded.windows is not None
    assert [len(places) for places in encoded.windows.offsets] == [8, 9, 9, 9]
    assert encoded.truncated_texts() == [False, False, True, True]


REFUSED = [
    ((*WORDS[:4], "more"), "there are 5, and the model takes 4 at most"),
    (("a <<ENT>> b",), "a label holds one of the model's own marks"),
    (("soup " * 30,), "leaves none to a text"),
]


@pytest.mark.parametrize(("labels", "words"), REFUSED)
def test_labels_that_make_no_row_are_refused(labels: tuple[str, ...], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        encode("soup", labels=labels)


def scored(words: int) -> st.SearchStrategy[NDArray[np.float32]]:
    # Few different values, so that ties come up.
    levels = st.sampled_from([0.1, 0.5, 0.6, 0.7, 0.9])
    return hnp.arrays(np.float32, (words, WIDEST, MOST_LABELS), elements=levels)


def greedy(
    scores: NDArray[np.float32], threshold: float, *, multi_label: bool
) -> Iterator[tuple[int, int, int]]:
    """The rule as the package writes it: each span against all that are chosen."""
    words = len(scores)
    spans = [
        (first, first + further, label)
        for first, further, label in zip(
            *np.nonzero(scores[:, :, : len(LABELS)] > np.float32(threshold)), strict=True
        )
        if first + further < words
    ]
    chosen: list[tuple[int, int, int]] = []
    for one in sorted(spans, key=lambda at: -scores[at[0], at[1] - at[0], at[2]]):
        for other in chosen:
            same = one[:2] == other[:2]
            if (same and not multi_label) or (
                not same and not (one[0] > other[1] or other[0] > one[1])
            ):
                break
        else:
            chosen.append(one)
    yield from sorted(chosen, key=lambda each: each[0])


@given(st.data(), st.integers(0, 7), st.sampled_from([0.0, 0.5, 0.65]), st.booleans())
def test_the_spans_that_are_chosen_are_those_of_the_packages_own_rule(
    data: st.DataObject, words: int, threshold: float, multi_label: bool
) -> None:
    encoded = encode(" ".join(["good"] * words))
    scores = data.draw(scored(words))
    values = np.zeros((encoded.tokens[0], WIDEST * MOST_LABELS), np.float32)
    values[:words] = scores.reshape(words, WIDEST * MOST_LABELS)
    (found,) = entities(encoded, values, threshold=threshold, multi_label=multi_label)
    assert encoded.windows is not None
    places = encoded.windows.offsets[0]
    assert [(each.start, each.end, each.label, each.score) for each in found] == [
        (places[first][0], places[last][1], LABELS[label], scores[first, last - first, label])
        for first, last, label in greedy(scores, threshold, multi_label=multi_label)
    ]


def values_of(encoded: EncodedTexts, *found: tuple[int, int, int]) -> NDArray[np.float32]:
    """Of one text: word, further words and label of what is found."""
    scores = np.zeros((encoded.tokens[0], WIDEST, MOST_LABELS), np.float32)
    for at in found:
        scores[at] = 0.75
    return scores.reshape(-1, WIDEST * MOST_LABELS)


def test_entities_are_counted_by_the_labels_that_the_endpoint_names() -> None:
    texts, pairs = HEAD.rows(
        ["the good soup"], None, {"labels": list(LABELS), NAMED: ("person", "food")}
    )
    encoded = ENCODER.encode(texts, pairs)
    values = values_of(encoded, (0, 0, 0), (2, 0, 1))
    (record,) = HEAD.records(encoded, values, ())
    assert record.entities == [(OTHER_LABEL, 0.75), ("food", 0.75)]
    (record,) = HEAD.records(encoded, values_of(encoded), ())
    assert (record.label, record.entities) == (NO_ENTITY, [])


def test_a_label_is_found_from_its_own_threshold_on() -> None:
    encoded = encode("the good soup")
    values = values_of(encoded, (0, 1, 0), (0, 0, 1), (2, 0, 1))
    found = entities(encoded, values, thresholds={"film": 0.76, "food": 0.75})
    assert [(each.start, each.label) for each in found[0]] == [(0, "food"), (9, "food")]
    assert entities(encoded, values, thresholds={"person": 0.1}) == [[]]


def test_two_versions_are_apart_by_the_entities_that_only_one_has_found() -> None:
    encoded = encode("the good soup")
    ours, theirs = (
        Side(values_of(encoded, *found), (), encoded=encoded)
        for found in ([(0, 0, 0), (2, 0, 1)], [(2, 0, 1)])
    )
    apart = HEAD.difference(ours, theirs)
    assert apart.distance.tolist() == [pytest.approx(1 / 3)]
    assert apart.equal == [False, True]
