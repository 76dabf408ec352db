"""Whether a peer's vectors are the original's: cosine, and the same ten neighbours. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEIGHBOURS = 10
# What the int8 file itself may differ by: a peer under these answers something else.
LEAST_COSINE = 0.95
LEAST_OVERLAP = 0.8

Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Likeness:
    """How like two sets of vectors are.

    Attributes:
        mean_cosine: over the texts.
        least_cosine: of any text.
        overlap: mean share of the ten nearest other texts that both have.
    """

    mean_cosine: float
    least_cosine: float
    overlap: float

    @property
    def right(self) -> bool:
        """Whether they are the same model's."""
        return self.least_cosine >= LEAST_COSINE and self.overlap >= LEAST_OVERLAP


def compare(original: Vectors, found: Vectors) -> Likeness:
    """Compares ``[texts, width]`` with ``[texts, width]``."""
    if original.shape != found.shape:
        raise ValueError(f"{found.shape} vectors, not {original.shape}")
    a, b = _normalised(original), _normalised(found)
    cosines = np.einsum("ij,ij->i", a, b)
    nearest_a, nearest_b = _nearest(a), _nearest(b)
    shared = [len(set(x) & set(y)) for x, y in zip(nearest_a, nearest_b, strict=True)]
    return Likeness(
        mean_cosine=float(cosines.mean()),
        least_cosine=float(cosines.min()),
        overlap=float(np.mean(shared)) / nearest_a.shape[1],
    )


def _normalised(vectors: Vectors) -> NDArray[np.float64]:
    values = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    if not np.isfinite(values).all() or not lengths.all():
        raise ValueError("a vector is zero or has numbers that are not finite")
    normalised: NDArray[np.float64] = values / lengths
    return normalised


def _nearest(vectors: NDArray[np.float64]) -> NDArray[np.intp]:
    """``[texts, 10]``: the nearest others of each, itself left out."""
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -np.inf)
    count = min(NEIGHBOURS, len(vectors) - 1)
    found: NDArray[np.intp] = np.argpartition(-likeness, count - 1, axis=1)[:, :count]
    return found
