"""Vectors in fewer dimensions and in fewer bits are those of sentence-transformers, and ordered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from preprocess.vectors import VectorPrecision, quantise, ranges_of, unit

Floats = NDArray[np.float32]

vectors = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 20)),
    elements=st.integers(-4096, 4096).map(lambda number: number / 1024),  # exact in float32
)


@given(vectors)
def test_a_unit_vector_has_length_one_and_the_same_direction(values: Floats) -> None:
    made = unit(values)
    for before, after in zip(values, made, strict=True):
        length = np.linalg.norm(before)
        if length == 0:
            assert not after.any()
        elif length > 1e-6:
            assert np.linalg.norm(after) == pytest.approx(1.0, abs=1e-5)
            np.testing.assert_allclose(after * length, before, atol=1e-5)


@given(vectors)
def test_bits_say_which_values_are_above_zero(values: Floats) -> None:
    bits = quantise(values, VectorPrecision.UBINARY)
    assert bits.dtype == np.uint8
    unpacked = np.unpackbits(bits.astype(np.uint8), axis=1)[:, : values.shape[1]]
    np.testing.assert_array_equal(unpacked, values > 0)
    signed = quantise(values, VectorPrecision.BINARY)
    assert signed.dtype == np.int8
    np.testing.assert_array_equal(signed.astype(int) + 128, bits)


@given(values=vectors, others=vectors)
def test_bytes_lie_between_the_ranges_ends_and_keep_the_order(
    values: Floats, others: Floats
) -> None:
    width = min(values.shape[1], others.shape[1])
    ranges = ranges_of(values[:, :width])
    unsigned = quantise(others[:, :width], VectorPrecision.UINT8, ranges).astype(int)
    assert unsigned.min() >= 0
    assert unsigned.max() <= 255
    signed = quantise(others[:, :width], VectorPrecision.INT8, ranges).astype(int)
    np.testing.assert_array_equal(signed + 128, unsigned)
    steps = np.where(ranges[1] > ranges[0], (ranges[1] - ranges[0]) / 255, 1)
    inside = (others[:, :width] >= ranges[0]) & (others[:, :width] <= ranges[1])
    back = unsigned * steps + ranges[0]
    apart = np.abs(back - others[:, :width]) / steps
    assert (apart[inside] <= 1.01).all()
    np.testing.assert_array_equal(
        quantise(others[:, :width][:, :1], VectorPrecision.UINT8, ranges[:, :1]), unsigned[:, :1]
    )


def test_bytes_without_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="int8 needs the ranges"):
        quantise(np.ones((1, 2), np.float32), VectorPrecision.INT8)
