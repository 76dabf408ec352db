"""Answers as users' own code may change them: numbers alone, and nothing else."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import VOCABULARY, asking_tokenizer, tokenizer

from contracts.manifest import SpanSpec, TokenizerSpec
from contracts.tasks import CLASSES, MARKED, Task
from preprocess.edits import EditError, form_of, is_editable, shown, taken
from preprocess.encoder import EncodedTexts, TextEncoder
from preprocess.tasks import HEADS, Head
from preprocess.tasks.head import Values

LABELS = ("negative", "positive")
CLASSIFIER, VECTORS = HEADS[Task.TEXT_CLASSIFICATION], HEADS[Task.TEXT_EMBEDDING]
TOKENS, QUESTIONS = HEADS[Task.TOKEN_CLASSIFICATION], HEADS[Task.QUESTION_ANSWERING]
_SPEC = TokenizerSpec(
    max_tokens=16, pad_id=0, unk_id=1, vocabulary=VOCABULARY, spans=SpanSpec(most_labels=1)
)
_words = st.lists(st.sampled_from(["soup", "was", "cold", "zzz"]), max_size=30).map(" ".join)


def encoder_of(head: Head) -> TextEncoder:
    made = asking_tokenizer() if head is QUESTIONS else tokenizer()
    return head.encoder(made.to_str().encode(), _SPEC)


ENCODERS = {task: encoder_of(head) for task, head in HEADS.items()}


def encoded(head: Head, *texts: str) -> EncodedTexts:
    pairs = list(texts) if head is QUESTIONS else None
    return ENCODERS[head.task].encode(["soup was"] * len(texts) if pairs else list(texts), pairs)


def values_of(head: Head, of: EncodedTexts, width: int = 2) -> Values:
    rows = sum(head.sizes(of.tokens))
    return np.random.default_rng(7).random((rows, width), np.float32)


@pytest.mark.parametrize("task", HEADS)
@given(texts=st.lists(_words, min_size=1, max_size=4))
def test_answers_that_come_back_as_they_were_change_nothing(task: Task, texts: list[str]) -> None:
    head = HEADS[task]
    of = encoded(head, *texts)
    values, labels = values_of(head, of), () if head.kinds - {CLASSES, MARKED} else LABELS
    if not is_editable(head):
        with pytest.raises(EditError, match=str(task)):
            form_of(head, labels, of)
        return
    form = form_of(head, labels, of)
    items = shown(form, values)
    assert len(items) == len(texts)
    back = taken(form, items, values)
    assert back.dtype == np.float32
    assert np.array_equal(back, values)


def test_the_number_of_a_label_is_what_the_caller_gets() -> None:
    of = encoded(CLASSIFIER, "soup", "cold")
    values = np.array([[0.9, 0.1], [0.4, 0.6]], np.float32)
    items = shown(form_of(CLASSIFIER, LABELS, of), values)
    assert items[1] == pytest.approx({"negative": 0.4, "positive": 0.6})
    items[1] = {"positive": 0, "negative": 1}  # in whatever order
    back = taken(form_of(CLASSIFIER, LABELS, of), items, values)
    assert back == pytest.approx(np.array([[0.9, 0.1], [1, 0]]))


def test_a_token_is_shown_with_its_place_in_the_text() -> None:
    of = encoded(TOKENS, "cold soup", "")
    values = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [0.5, 0.5]] + [[0, 1]] * 2, np.float32)
    first, second = shown(form_of(TOKENS, LABELS, of), values)
    assert [(token["start"], token["end"]) for token in first] == [(0, 4), (5, 9)]
    assert first[1]["scores"] == pytest.approx({"negative": 0.2, "positive": 0.8})
    assert second == []
    first[1]["scores"] = {"negative": 1, "positive": 0}
    back = taken(form_of(TOKENS, LABELS, of), [first, second], values)
    assert np.flatnonzero((back != values).any(axis=1)).tolist() == [2]


def test_vectors_may_come_back_as_arrays() -> None:
    of = encoded(VECTORS, "soup")
    values = np.array([[3.0, 4.0]], np.float32)
    back = taken(form_of(VECTORS, (), of), [np.array([0.6, 0.8])], values)
    assert back == pytest.approx(np.array([[0.6, 0.8]]))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "as many answers as it got: 1, not 0"),
        ("text", "as many answers as it got: 1, not 4"),
        (7, "not int"),
        ([[0.5, 0.5]], "answer 0: expected a dictionary"),
        ([{"positive": 1.0}], "its labels must stay: negative, positive"),
        ([{"positive": 1.0, "other": 0.0}], "its labels must stay"),
        ([{"positive": "1", "negative": 0}], "str is no number"),
        ([{"positive": True, "negative": 0}], "bool is no number"),
        ([{"positive": None, "negative": 0}], "NoneType is no number"),
        ([{"positive": 1.5, "negative": 0}], "from 0 to 1"),
        ([{"positive": math.nan, "negative": 0}], "from 0 to 1"),
    ],
)
def test_what_can_t_be_an_answer_is_refused_with_a_sentence(given: Any, sentence: str) -> None:
    of = encoded(CLASSIFIER, "soup")
    with pytest.raises(EditError, match=sentence):
        taken(form_of(CLASSIFIER, LABELS, of), given, values_of(CLASSIFIER, of))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([[1.0]], "answer 0: expected 2 numbers, not 1"),
        ([{"a": 1}], "expected a list of 2 numbers"),
        (["ab"], "expected a list of 2 numbers"),
        ([[math.inf, 0]], "infinity"),
        ([[1e39, 0]], "too large for float32"),
    ],
)
def test_a_vector_keeps_its_dimension(given: Any, sentence: str) -> None:
    of = encoded(VECTORS, "soup")
    with pytest.raises(EditError, match=sentence):
        taken(form_of(VECTORS, (), of), given, values_of(VECTORS, of))


@pytest.mark.parametrize("given", [[[]], [7], [[{}, {}]], [[{"scores": {"positive": 1}}] * 2]])
def test_tokens_stay_as_many_as_they_were(given: Any) -> None:
    of = encoded(TOKENS, "cold soup")
    with pytest.raises(EditError):
        taken(form_of(TOKENS, LABELS, of), given, values_of(TOKENS, of))


def test_a_probability_that_rounding_has_moved_is_one_still() -> None:
    of = encoded(CLASSIFIER, "soup")
    moved = [{"negative": -1e-7, "positive": 1.0000001}]
    form = form_of(CLASSIFIER, LABELS, of)
    assert taken(form, moved, values_of(CLASSIFIER, of)).tolist() == [[0.0, 1.0]]
