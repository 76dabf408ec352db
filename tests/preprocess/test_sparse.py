"""Sparse vectors: the weights that are told, how many they are, and how far two versions' are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from tiny_models import VOCABULARY, tokenizer

from contracts.manifest import TokenizerSpec
from contracts.tasks import Task
from preprocess.encoder import TextEncoder
from preprocess.tasks import HEADS
from preprocess.tasks.head import Side
from preprocess.tasks.sparse import weights

Floats = NDArray[np.float32]
HEAD = HEADS[Task.SPARSE_EMBEDDING]
ENCODER = TextEncoder(
    tokenizer().to_str().encode(),
    TokenizerSpec(max_tokens=16, pad_id=0, unk_id=1, vocabulary=VOCABULARY),
)
numbers = st.just(0.0) | st.floats(2**-10, 8, width=32)


def pair_of(texts: int, vocabulary: int) -> st.SearchStrategy[tuple[Floats, Floats]]:
    one = arrays.arrays(np.float32, (texts, vocabulary), elements=numbers)
    return st.tuples(one, one)


pairs = st.tuples(st.integers(1, 4), st.integers(1, 12)).flatmap(lambda shape: pair_of(*shape))


@given(pairs)
def test_the_weights_that_are_told_are_all_that_are_not_zero(both: tuple[Floats, Floats]) -> None:
    values, _ = both
    for row, told in zip(values, weights(values), strict=True):
        indices = [each["index"] for each in told]
        assert indices == sorted(set(indices))
        rebuilt = np.zeros_like(row)
        rebuilt[np.array(indices, int)] = [each["value"] for each in told]
        np.testing.assert_array_equal(rebuilt, row)
        assert all(each["value"] > 0 for each in told)


@given(pairs)
def test_the_distance_is_weighted_jaccards(both: tuple[Floats, Floats]) -> None:
    ours, theirs = both
    apart = HEAD.difference(Side(ours, ()), Side(theirs, ())).distance
    assert ((apart >= 0) & (apart <= 1)).all()
    back = HEAD.difference(Side(theirs, ()), Side(ours, ())).distance
    np.testing.assert_allclose(apart, back)
    for row, other, distance in zip(ours, theirs, apart, strict=True):
        if np.array_equal(row, other):
            assert distance == 0
        elif not (row * other).any():
            assert distance == 1


def test_another_vocabulary_is_as_far_as_can_be() -> None:
    apart = HEAD.difference(
        Side(np.ones((2, 3), np.float32), ()), Side(np.ones((2, 4), np.float32), ())
    )
    assert apart.distance.tolist() == [1.0, 1.0]


def test_records_have_the_number_of_weights_and_the_length() -> None:
    values = np.array([[0, 3, 4], [0, 0, 0]], np.float32)
    records = HEAD.records(ENCODER.encode(["good film", "no"]), values, ())
    assert [(each.norm, each.non_zeros) for each in records] == [(5.0, 2), (0.0, 0)]


def test_what_a_graph_leaves_below_zero_is_no_weight() -> None:
    output = np.array([[-0.5, 0.0, 0.5]], np.float32)
    assert HEAD.values(output, width=3).tolist() == [[0.0, 0.0, 0.5]]
