"""Scores are probabilities, in the model's order; what is no number never leaves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from contracts.tasks import Task
from preprocess.errors import EngineOutputError
from preprocess.scores import best, class_scores, norms, top_k
from preprocess.tasks import HEADS

logits = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


@given(logits)
def test_single_label_scores_sum_to_1(values: NDArray[np.float32]) -> None:
    scores = class_scores(values, multi_label=False)
    assert scores.dtype == np.float32
    assert ((scores >= 0) & (scores <= 1)).all()
    if values.shape[1] > 1:
        np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)
        assert (np.take_along_axis(scores, values.argmax(axis=1)[:, None], 1) > 0).all()


@given(logits)
def test_multi_label_scores_are_each_on_their_own(values: NDArray[np.float32]) -> None:
    scores = class_scores(values, multi_label=True)
    assert ((scores >= 0) & (scores <= 1)).all()
    alone = class_scores(values[:, :1], multi_label=True)
    np.testing.assert_array_equal(scores[:, :1], alone)


def test_scores_are_those_of_the_formulas() -> None:
    values = np.array([[0.0, np.log(3.0)], [2.0, 2.0]], dtype=np.float32)
    np.testing.assert_allclose(
        class_scores(values, multi_label=False), [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6
    )
    np.testing.assert_allclose(class_scores(values, multi_label=True)[0], [0.5, 0.75], rtol=1e-6)


def test_a_single_class_is_scored_by_itself() -> None:
    assert class_scores(np.zeros((1, 1), np.float32), multi_label=False).tolist() == [[0.5]]


@given(logits, st.integers(1, 8))
def test_the_best_k_come_in_order_and_begin_with_the_best(
    values: NDArray[np.float32], k: int
) -> None:
    scores = class_scores(values, multi_label=True)
    labels = [f"label{i}" for i in range(values.shape[1])]
    everything, picked = top_k(scores, labels), top_k(scores, labels, k)
    for row, full, some, first in zip(scores, everything, picked, best(scores), strict=True):
        assert some == full[:k]
        assert [score for _, score in full] == sorted(row.tolist(), reverse=True)
        assert full[0][0] == labels[first]
        assert {label for label, _ in full} == set(labels)


def test_ties_keep_the_models_order() -> None:
    scores = np.array([[0.2, 0.4, 0.4]], dtype=np.float32)
    assert [label for label, _ in top_k(scores, ["a", "b", "c"])[0]] == ["b", "c", "a"]


def test_the_best_0_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        top_k(np.zeros((1, 2), np.float32), ["a", "b"], 0)
    with pytest.raises(ValueError, match="3 labels"):
        top_k(np.zeros((1, 2), np.float32), ["a", "b", "c"])


def test_vectors_pass_through_unchanged() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32)
    values = HEADS[Task.TEXT_EMBEDDING].values(vectors, width=2)
    assert values is vectors
    assert norms(values).tolist() == [5.0, 0.0]


def test_logits_become_probabilities() -> None:
    values = np.zeros((1, 2), np.float32)
    single = HEADS[Task.TEXT_CLASSIFICATION].values(values, width=2)
    assert single.tolist() == [[0.5, 0.5]]
    values = np.array([[-40.0, 40.0]], np.float32)
    multi = HEADS[Task.TEXT_CLASSIFICATION].values(values, width=2, multi_label=True)
    np.testing.assert_allclose(multi, [[0, 1]], atol=1e-15)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("task", list(Task))
def test_what_is_no_number_is_the_engines_error(task: Task, bad: float) -> None:
    output = np.zeros((3, *[4] * (HEADS[task].rank - 2), 2), np.float32)
    output[1, ..., 0] = bad
    with pytest.raises(EngineOutputError, match="for 1 texts"):
        HEADS[task].values(output, width=2)


@pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 2, 4)])
def test_another_shape_is_the_engines_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(EngineOutputError, match="not \\[texts, 2\\]"):
        HEADS[Task.TEXT_EMBEDDING].values(np.zeros(shape, np.float32), width=2)
