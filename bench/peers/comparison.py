"""How like the original's vectors a server's are: cosine. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Likeness:
    """How like two sets of vectors are, over the texts and of the least like one."""

    mean_cosine: float
    least_cosine: float


def compare(original: Vectors, found: Vectors) -> Likeness:
    """Compares ``[texts, width]`` with ``[texts, width]``."""
    if original.shape != found.shape:
        raise ValueError(f"{found.shape} vectors, not {original.shape}")
    cosines = np.einsum("ij,ij->i", _normalised(original), _normalised(found))
    return Likeness(mean_cosine=float(cosines.mean()), least_cosine=float(cosines.min()))


def _normalised(vectors: Vectors) -> NDArray[np.float64]:
    values = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    if not np.isfinite(values).all() or not lengths.all():
        raise ValueError("a vector is zero or has numbers that are not finite")
    normalised: NDArray[np.float64] = values / lengths
    return normalised
