"""Forms of vectors: fewer dimensions, unit length, numbers of one byte and of one bit.

It knows no task. Precisions are those of sentence-transformers' ``quantize_embeddings``.
"""

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
_STEPS = 255
_SIGNED = 128  # what a signed byte is less than an unsigned one


class VectorPrecision(StrEnum):
    """What the numbers of a vector are, by the names of sentence-transformers.

    ``binary`` and ``ubinary`` hold a bit a dimension, eight of them a number, the first one
    highest: 1 where the value is above 0.
    """

    FLOAT32 = "float32"
    INT8 = "int8"
    UINT8 = "uint8"
    BINARY = "binary"
    UBINARY = "ubinary"

    @property
    def by_ranges(self) -> bool:
        """Whether it needs to know which values a dimension usually has."""
        return self in (VectorPrecision.INT8, VectorPrecision.UINT8)


def unit(vectors: Vectors) -> Vectors:
    """The vectors at length 1, float32 ``[texts, dimension]``; one of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=vectors.copy(), where=lengths > 0)
    return scaled


def cosines(vectors: Vectors, dimensions: int | None = None) -> Vectors:
    """The cosine of each further vector to the first one, float32 ``[texts - 1]``.

    Args:
        vectors: float32 ``[texts, dimension]``; to one of zeros the cosine is 0.
        dimensions: that are compared, the first ones; all where it is None.
    """
    scaled = unit(vectors[:, :dimensions])
    found: Vectors = np.clip(scaled[1:] @ scaled[0], -1, 1)
    return found


def ranges_of(vectors: Vectors) -> Vectors:
    """The least and the largest value of each dimension, float32 ``[2, dimension]``."""
    both: Vectors = np.stack([vectors.min(axis=0), vectors.max(axis=0)]).astype(np.float32)
    return both


def quantise(
    vectors: Vectors, precision: VectorPrecision, ranges: Vectors | None = None
) -> NDArray[np.generic]:
    """The vectors in another precision.

    Args:
        vectors: float32 ``[texts, dimension]``.
        precision: of the result.
        ranges: float32 ``[2, dimension]``, which 255 equal steps divide; values beyond them get the
            first or the last step. Of int8 and uint8 only.

    Returns:
        ``[texts, dimension]``, or ``[texts, dimension / 8]`` rounded up for bits.

    Raises:
        ValueError: it needs ranges and there are none.
    """
    if precision is VectorPrecision.FLOAT32:
        return vectors
    if not precision.by_ranges:
        bits = np.packbits(vectors > 0, axis=1)
        if precision is VectorPrecision.UBINARY:
            return bits
        return (bits.astype(np.int16) - _SIGNED).astype(np.int8)
    if ranges is None:
        raise ValueError(f"{precision} needs the ranges of the dimensions")
    steps = (ranges[1] - ranges[0]) / np.float32(_STEPS)
    steps = np.where(steps == 0, np.float32(1), steps)
    codes: NDArray[np.float32] = np.clip(np.floor((vectors - ranges[0]) / steps), 0, _STEPS)
    if precision is VectorPrecision.UINT8:
        return codes.astype(np.uint8)
    return (codes - _SIGNED).astype(np.int8)
