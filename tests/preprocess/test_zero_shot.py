"""A text with labels of the caller's becomes pairs, and their logits scores of these labels."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.errors import ParameterError
from preprocess.tasks import HEADS
from preprocess.tasks.head import Side
from preprocess.tasks.zero_shot import MOST_CHARACTERS

HEAD = HEADS[Task.ZERO_SHOT_CLASSIFICATION]
MODEL = ("contradiction", "neutral", "entailment")
labels = st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5, unique=True)


@dataclass(frozen=True)
class Answer:
    values: NDArray[np.float32]
    parameters: Mapping[str, Any]
    labels: tuple[str, ...] = MODEL
    encoded: EncodedTexts | None = None
    multi_label: bool = False
    ranges: NDArray[np.float32] | None = None


@given(labels, st.lists(st.text(), min_size=1, max_size=4))
def test_each_text_meets_each_label_in_order(candidates: list[str], texts: list[str]) -> None:
    parameters = {"candidate_labels": candidates, "hypothesis_template": "It is {}!"}
    times = HEAD.rows_of_text(parameters)
    rows, pairs = HEAD.rows(texts, None, parameters)
    assert times == len(candidates)
    assert rows == [text for text in texts for _ in candidates]
    assert pairs == [f"It is {label}!" for label in candidates] * len(texts)
    # The encoder tokenises a text once where it meets the same object again.
    assert all(rows[at] is texts[at // times] for at in range(len(rows)))


def test_a_label_is_put_into_the_template_as_it_is() -> None:
    parameters = {"candidate_labels": ["{}", "{0.__class__}"]}
    _, pairs = HEAD.rows(["a"], None, parameters)
    assert pairs == ["This example is {}.", "This example is {0.__class__}."]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({}, "parameters.candidate_labels: no label"),
        ({"candidate_labels": []}, "parameters.candidate_labels: no label"),
        ({"candidate_labels": ["a", " "]}, r"parameters.candidate_labels\[1\]: the label is empty"),
        ({"candidate_labels": ["a", "b", "a"]}, r"candidate_labels\[2\]: 'a' is there twice"),
        ({"candidate_labels": ["a"], "hypothesis_template": "It is."}, "hypothesis_template"),
        ({"candidate_labels": ["a"], "hypothesis_template": ""}, "hypothesis_template"),
        ({"candidate_labels": ["a"], "hypothesis_template": "{} {}"}, "hypothesis_template"),
        ({"candidate_labels": ["a"], "hypothesis_template": "{0}"}, "hypothesis_template"),
    ],
)
def test_what_is_no_question_is_refused_by_its_place(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        HEAD.rows(["a"] * HEAD.rows_of_text(parameters), None, parameters)


@pytest.mark.parametrize(
    ("candidates", "template", "place"),
    [
        (
            [str(at) for at in range(64)],
            "\U0001f600 {}" + "x" * (MOST_CHARACTERS // 64),
            "template",
        ),
        (["a", "b" * MOST_CHARACTERS], "{}", "candidate_labels"),
    ],
)
def test_sentences_are_counted_before_they_are_made(
    candidates: list[str], template: str, place: str
) -> None:
    parameters = {"candidate_labels": candidates, "hypothesis_template": template}
    tracemalloc.start()
    try:
        with pytest.raises(ParameterError, match=f"{place}: the sentences of .* at most 1048576"):
            HEAD.rows(["a"], None, parameters)
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()


def test_second_texts_are_not_the_callers() -> None:
    with pytest.raises(ParameterError, match="text_pair"):
        HEAD.rows(["a"], ["b"], {"candidate_labels": ["c"]})


def scores_of(answer: Answer) -> NDArray[np.float32]:
    scores = HEAD.outputs(answer)["SCORES"]
    assert isinstance(scores, np.ndarray)
    return scores


def logits(*rows: tuple[float, float, float]) -> NDArray[np.float32]:
    return np.array(rows, np.float32)


def test_one_label_of_all_is_by_softmax_over_entailment() -> None:
    values = logits((9, 0, 0), (0, 9, float(np.log(3))), (0, 0, 0), (0, 0, 0))
    (first, second) = HEAD.predictions(Answer(values, {"candidate_labels": ["a", "b"]}))
    assert first["labels"] == ["b", "a"]
    assert first["scores"] == pytest.approx([0.75, 0.25])
    assert second == {"labels": ["a", "b"], "scores": [0.5, 0.5]}  # equal ones as they came


@pytest.mark.parametrize("candidates", [["a"], ["a", "b"]])
def test_labels_on_their_own_are_by_entailment_against_contradiction(
    candidates: list[str],
) -> None:
    values = logits(*[(0, 50, float(np.log(3)))] * len(candidates))
    answer = Answer(values, {"candidate_labels": candidates, "multi_label": len(candidates) > 1})
    np.testing.assert_allclose(scores_of(answer), [[0.75] * len(candidates)], rtol=1e-6)
    assert HEAD.outputs(answer)["LABEL"] == ["a"]


@pytest.mark.parametrize(
    ("names", "contradicted"),
    [
        (("entailment", "neutral", "contradiction"), 2),
        (("neutral", "contradiction", "ENTAILMENT"), 1),
        (("not_entailment", "entailment"), 0),
        (("no", "entailed"), 0),
        (("entails", "other", "no"), 2),
    ],
)
def test_contradiction_is_told_by_its_name(names: tuple[str, ...], contradicted: int) -> None:
    entailed = next(at for at, name in enumerate(names) if name.lower().startswith("entail"))
    values = np.zeros((1, len(names)), np.float32)
    values[0, entailed] = np.log(3)
    answer = Answer(values, {"candidate_labels": ["a"]}, labels=names)
    np.testing.assert_allclose(scores_of(answer), [[0.75]], rtol=1e-6)
    values[0, contradicted] = np.log(3)
    np.testing.assert_allclose(scores_of(answer), [[0.5]], rtol=1e-6)


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.sampled_from([2, 4, 6]), st.just(3)),
        elements=st.floats(-(2.0**100), 2.0**100, width=32),
    ),
    st.booleans(),
)
def test_scores_are_probabilities_however_far_apart_logits_are(
    values: NDArray[np.float32], multi_label: bool
) -> None:
    answer = Answer(values, {"candidate_labels": ["a", "b"], "multi_label": multi_label})
    scores = scores_of(answer)
    assert scores.shape == (len(values) // 2, 2)
    assert ((scores >= 0) & (scores <= 1)).all()
    if not multi_label:
        np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)


def test_records_and_copies_go_by_the_models_own_labels() -> None:
    values = logits((0, 0, 5), (5, 0, 0))
    encoded = EncodedTexts([[1], [1]], None, [1, 1], [1, 1], [0, 0], [False, False])
    records = HEAD.records(encoded, values, MODEL)
    assert [record.label for record in records] == ["entailment", "contradiction"]
    others = logits((0, 0, 5), (0, 5, 0))
    apart = HEAD.difference(Side(values, MODEL), Side(others, MODEL))
    assert apart.equal == [True, False]
    assert apart.distance[0] == pytest.approx(0)
    assert 0.9 < apart.distance[1] <= 1


def test_a_template_that_is_too_long_to_be_looked_through_is_refused() -> None:
    parameters = {"candidate_labels": ["a"], "hypothesis_template": "x" * 70_000 + "{}"}
    with pytest.raises(ParameterError, match="70002 characters"):
        HEADS[Task.ZERO_SHOT_CLASSIFICATION].rows_of_text(parameters)
