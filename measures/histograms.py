"""Counts as histograms: added, laid out by bucket, merged to bins, and compared with a reference.

The bins to merge are chosen only by the reference, never by what is tested against it.
Significance is Pearson's chi-square, size is the population stability index (PSI). PSI's value
without drift is about ``(B - 1)(1/n + 1/m)``: it has no meaning without the bins and both sizes, so
it is never a test here, only the size that is reported, less that value. Nothing is promised about
windows that depend on one another (hour of day): the null has to be calibrated on the endpoint's
own traffic before anyone is paged. Pure.

Sources: Pearson's two-sample chi-square test; Yurdakul and Naranjo, Statistical properties of the
population stability index (2020), for PSI's distribution.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contracts.windows import Sparse
from measures.correlation import Floats

Starts = NDArray[np.intp]

LEAST = 10.0  # expected counts a bin: with fewer, the chi-square's tail is wrong


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
        ``[merged bins]``, growing from 0; only ``[0]`` if all of it holds less.
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


def merge_bins(counts: ArrayLike, at: Starts) -> Floats:
    """Counts ``[..., bins]`` by merged bin, ``[..., merged bins]``."""
    return np.add.reduceat(np.asarray(counts, dtype=np.float64), at, axis=-1)


def chi_square(q: Floats, r: Floats, m: Floats | float, n: Floats | float) -> Floats:
    """``[...]``: ``sum (q - r)^2 / pooled / (1/m + 1/n)`` over ``[..., bins]`` of shares.

    With counts' shares this is Pearson's statistic of two samples of m and n. ``m`` need not be a
    count: for exponentially weighted shares it is ``W^2 / W2`` windows' worth of them.
    """
    m, n = np.asarray(m, dtype=np.float64), np.asarray(n, dtype=np.float64)
    pooled = (m[..., None] * q + n[..., None] * r) / (m + n)[..., None]
    held = np.where(pooled > 0, pooled, 1.0)  # a bin that both lack differs by nothing
    total: Floats = ((q - r) ** 2 / held).sum(axis=-1) / (1 / m + 1 / n)
    return total


def stability_index(window: Floats, reference: Floats) -> Floats:
    """``[...]``: PSI of counts ``[..., bins]``, half a count added to each bin."""
    one, other = window + 0.5, reference + 0.5
    p, q = one / one.sum(axis=-1, keepdims=True), other / other.sum(axis=-1, keepdims=True)
    total: Floats = ((p - q) * np.log(p / q)).sum(axis=-1)
    return total
