"""Vectors become a few cells of their directions: the same everywhere, alike for near vectors."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from contracts.events import VECTOR_PARTITIONS as PARTITIONS
from contracts.events import VECTOR_PLANES
from preprocess.directions import CELLS, MOST_TEXTS, _planes, cells_of

Floats = NDArray[np.float32]

# Odd multiples of a power of two, so that sums are exact and no vector lies on a plane.
_odd = st.integers(-512, 511).map(lambda number: (2 * number + 1) / 1024)
vectors = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 40), st.integers(0, 9).map(lambda half: 2 * half + 1)),
    elements=_odd,
)


def normal(texts: int, dimension: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(size=(texts, dimension)).astype(np.float32)


@given(vectors)
def test_each_vector_has_one_cell_of_each_partition_and_their_order_is_lost(values: Floats) -> None:
    found = cells_of(values)
    texts = len(values[:: -(-len(values) // MOST_TEXTS)])
    assert list(found) == sorted(found)
    assert [cell // CELLS for cell in found] == sorted([*range(PARTITIONS)] * texts)
    assert len(found) <= PARTITIONS * MOST_TEXTS
    if len(values) <= MOST_TEXTS:
        alone = [cell for value in values for cell in cells_of(value[None])]
        assert sorted(alone) == list(found)


@given(values=vectors, length=st.sampled_from([0.25, 2.0, 64.0]))
def test_length_does_not_matter_and_the_opposite_direction_has_the_opposite_cells(
    values: Floats, length: float
) -> None:
    one = values[:1]
    found = cells_of(one)
    assert cells_of(one * np.float32(length)) == found
    ends = [(2 * (cell // CELLS) + 1) * CELLS - 1 for cell in found]  # first and last, added up
    assert list(cells_of(-one)) == [end - cell for end, cell in zip(ends, found, strict=True)]


def test_near_vectors_share_cells_and_others_do_not() -> None:
    one, other = normal(200, 384), normal(200, 384, seed=2)

    def shared(mine: Floats, theirs: Floats) -> float:
        pairs = zip(mine, theirs, strict=True)
        return float(np.mean([len({*cells_of(a[None])} & {*cells_of(b[None])}) for a, b in pairs]))

    assert shared(one, one + 0.05 * other) > 0.8 * PARTITIONS
    assert shared(one, other) < 0.1 * PARTITIONS


def test_the_cells_are_those_of_every_release_and_of_any_dimension() -> None:
    steps = np.arange(1, 8, dtype=np.float32) * np.array([1, -1, 1, 1, -1, -1, 1], np.float32)
    assert list(cells_of(steps[None])) == [2, 116, 179, 209]
    assert np.array_equal(_planes(384)[:100], _planes(100))
    whole = _planes(4096)
    assert set(np.unique(whole)) == {-1.0, 1.0}
    assert abs(whole.T @ whole - 4096 * np.eye(PARTITIONS * VECTOR_PLANES)).max() < 6 * 64


def test_vectors_of_zeros_and_what_is_no_number_have_cells_too() -> None:
    strange = np.array([[0, 0, 0], [np.nan, 1, 2], [3e38, -3e38, 3e38]], np.float32)
    assert len(cells_of(strange)) == 3 * PARTITIONS
    assert cells_of(np.empty((0, 3), np.float32)) == b""
