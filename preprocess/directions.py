"""Cells of vectors' directions, by a seeded hyperplane hash: what of vectors is counted for drift.

A text's vector falls into one cell of each of four partitions of all directions. A partition is
made by six hyperplanes through the origin, and a cell's bits say on which side of each the vector
lies: near vectors share cells, and lengths do not matter. The planes are the same in every process
and release, so that counts of any two gateways add.

Source: Charikar, Similarity estimation techniques from rounding algorithms (2002); planes of signs
alone: Achlioptas, Database-friendly random projections (2003).
"""

from functools import lru_cache
from hashlib import shake_256

import numpy as np

from contracts.events import VECTOR_PARTITIONS, VECTOR_PLANES
from preprocess.vectors import Vectors

CELLS = 2**VECTOR_PLANES  # of a partition
MOST_TEXTS = 16  # of a request: so it takes as long for a thousand texts as for these
_PLACES = 2 ** np.arange(VECTOR_PLANES, dtype=np.float32)
_OFFSETS = CELLS * np.arange(VECTOR_PARTITIONS, dtype=np.float32)


def cells_of(vectors: Vectors) -> bytes:
    """The cells of a request's vectors: one of each partition of each, all sorted.

    Of more than ``MOST_TEXTS``, of that many that are taken evenly.

    Args:
        vectors: float32 ``[texts, dimension]``, of any length.
    """
    some = vectors[:: max(1, -(-len(vectors) // MOST_TEXTS))]
    with np.errstate(over="ignore", invalid="ignore"):  # infinity has a side, and NaN gets one
        products = some @ _planes(vectors.shape[1])
    sides = products.reshape(-1, VECTOR_PARTITIONS, VECTOR_PLANES) > 0
    return np.sort((sides @ _PLACES + _OFFSETS).astype(np.uint8), axis=None).tobytes()


@lru_cache(maxsize=16)
def _planes(dimension: int) -> Vectors:
    """Float32 ``[dimension, planes]`` of 1 and -1, in the order of the cells' bits.

    Vectors of fewer dimensions have the first ones' signs.
    """
    signs = [
        np.unpackbits(np.frombuffer(_digest(plane, dimension), np.uint8), count=dimension)
        for plane in range(VECTOR_PARTITIONS * VECTOR_PLANES)
    ]
    found: Vectors = np.ascontiguousarray(2 * np.stack(signs, axis=1).astype(np.float32) - 1)
    return found


def _digest(plane: int, dimension: int) -> bytes:
    return shake_256(f"headrace hyperplane {plane}".encode()).digest(-(-dimension // 8))
