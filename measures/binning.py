"""Counts as histograms: added, laid out by bucket, and merged until each bin holds enough.

Chi-square tests rely on enough in each bin. The bins to merge are chosen by the reference alone,
never by what is tested against it. Pure.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contracts.windows import Sparse
from measures.correlation import Floats

Starts = NDArray[np.intp]


def add_counts(total: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Adds counts to ``total`` in place, at any depth of mappings."""
    for key, value in more.items():
        if isinstance(value, dict):
            add_counts(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value


def dense(counts: Sparse, buckets: int) -> NDArray[np.int64]:
    """``[buckets]`` of sparse counts; what lies outside joins the first or the last bucket."""
    found = np.zeros(buckets, dtype=np.int64)
    for bucket, count in counts.items():
        found[min(max(bucket, 0), buckets - 1)] += count
    return found


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
