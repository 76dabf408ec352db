"""Merging the bins of a histogram until each holds enough: what chi-square tests rely on.

The bins to merge are chosen by the reference alone, never by what is tested against it. Pure.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.correlation import Floats

Starts = NDArray[np.intp]


def starts(reference: ArrayLike, least: float) -> Starts:
    """First bin of each merged bin, such that each holds at least ``least`` of the reference.

    Neighbours merge, from the left; what is too small at the right end joins the last one.

    Args:
        reference: ``[bins]`` counts or shares.
        least: what a merged bin must hold, in the unit of ``reference``.

    Returns:
        ``[merged bins]``, growing from 0; ``[0]`` alone where all of it holds less.
    """
    found = [0]
    held = 0.0
    for index, count in enumerate(np.asarray(reference, dtype=np.float64)):
        if held >= least and held > 0:
            found.append(index)
            held = 0.0
        held += float(count)
    if len(found) > 1 and (held < least or held == 0):
        found.pop()
    return np.array(found, dtype=np.intp)


def merged(counts: ArrayLike, at: Starts) -> Floats:
    """Counts ``[..., bins]`` by merged bin, ``[..., merged bins]``."""
    return np.add.reduceat(np.asarray(counts, dtype=np.float64), at, axis=-1)
