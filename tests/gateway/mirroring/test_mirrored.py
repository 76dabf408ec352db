"""Two answers to one text, compared: the arithmetic is worked out here by hand."""

from dataclasses import replace

import numpy as np
import pytest
from gateway_world import manifest_of, model_of
from hypothesis import given
from hypothesis import strategies as st

from contracts.tasks import Task
from gateway.mirroring.mirrored import pair
from gateway.packages import ServedModel

ONE, TWO = model_of("1"), model_of("2")


def like(model: ServedModel, **fields: object) -> ServedModel:
    return replace(model, manifest=model.manifest.model_copy(update=fields))


def rows(*values: list[float]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array(values, np.float32)


def test_labels_are_equal_or_not_and_scores_differ_by_total_variation() -> None:
    pairing = pair(ONE, rows([0.9, 0.1], [0.4, 0.6]), TWO, rows([0.7, 0.3], [0.6, 0.4]), 0.25)
    assert (pairing.version, pairing.seconds) == ("1", 0.25)
    assert pairing.equal == [True, False]
    assert pairing.distance == pytest.approx([0.2, 0.2])  # (|.9-.7| + |.1-.3|) / 2


def test_a_pairing_tells_the_label_and_the_score_that_the_caller_got() -> None:
    turned = like(TWO, labels=("positive", "negative"))
    pairing = pair(ONE, rows([0.9, 0.1], [0.4, 0.6]), turned, rows([0.7, 0.3], [0.6, 0.4]), 0.25)
    assert pairing.labels == ["negative", "positive"]
    assert pairing.scores == pytest.approx([0.9, 0.6])


def test_each_label_of_a_multi_label_model_is_a_distribution_of_its_own() -> None:
    one, two = like(ONE, multi_label=True), like(TWO, multi_label=True)
    pairing = pair(one, rows([0.9, 0.8]), two, rows([0.9, 0.4]), 0.0)
    assert pairing.distance == pytest.approx([0.2])  # (0 + .4) / 2


def test_labels_are_compared_by_name() -> None:
    turned = like(TWO, labels=("positive", "negative"))
    pairing = pair(ONE, rows([0.9, 0.1]), turned, rows([0.1, 0.9]), 0.0)
    assert (pairing.equal, pairing.distance) == ([True], [0.0])
    wider = like(TWO, labels=("negative", "positive", "mixed"))
    pairing = pair(ONE, rows([0.9, 0.1]), wider, rows([0.2, 0.1, 0.7]), 0.0)
    assert pairing.equal == [False]
    assert pairing.distance == pytest.approx([0.7])  # (.7 + 0 + .7) / 2


VECTORS = like(ONE, task=Task.TEXT_EMBEDDING, labels=(), dimension=2)


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ([1.0, 0.0], [2.0, 0.0], 0.0),
        ([1.0, 0.0], [0.0, 1.0], 0.5),
        ([1.0, 0.0], [-3.0, 0.0], 1.0),
        ([0.0, 0.0], [1.0, 0.0], 1.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
    ],
)
def test_vectors_differ_by_their_angle(
    one: list[float], other: list[float], distance: float
) -> None:
    pairing = pair(VECTORS, rows(one), VECTORS, rows(other), 0.0)
    assert (pairing.equal, pairing.labels, pairing.scores) == ([], [], [])
    assert pairing.distance == pytest.approx([distance])


def test_a_pairing_tells_the_norms_of_the_vectors_that_the_caller_got() -> None:
    encoded = ONE.encoder.encode(["w1", "w2"])
    values = rows([3.0, 4.0], [1.0, 0.0])
    pairing = pair(VECTORS, values, VECTORS, 2 * values, 0.0, encoded=(encoded, encoded))
    assert pairing.norms == pytest.approx([5.0, 1.0])
    labels = pair(ONE, values, TWO, values, 0.0, encoded=(encoded, encoded))
    assert labels.norms == []


def test_vectors_of_different_dimensions_have_nothing_in_common() -> None:
    pairing = pair(VECTORS, rows([1.0, 0.0]), VECTORS, rows([1.0, 0.0, 0.0]), 0.0)
    assert pairing.distance == [1.0]


@given(st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4).map(list), min_size=1, max_size=5))
def test_a_distance_lies_between_0_and_1_and_is_0_to_oneself(scores: list[list[float]]) -> None:
    table = rows(*scores)
    table /= np.maximum(table.sum(axis=1, keepdims=True), 1e-3)
    labelled = like(ONE, labels=("a", "b", "c", "d"))
    assert pair(labelled, table, labelled, table, 0.0).distance == [0.0] * len(scores)
    other = pair(labelled, table, labelled, table[:, ::-1], 0.0)
    assert all(0 <= distance <= 1 for distance in other.distance)
    assert manifest_of().labels  # the world's own models are classifiers
