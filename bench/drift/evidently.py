"""PSI as Evidently computes it, for the comparison: its bins, its filling of empty ones.

What it does is Evidently 0.7.23's ``legacy/calculations/stattests``, files ``psi.py`` and
``utils.py`` (``get_binned_data``; Apache-2.0), in numpy alone: numbers with more than 20 values in
the reference fall into Sturges' bins over the reference and the window together, all else into a
bin a value; an empty bin counts as a share of 0.0001. Drift is a PSI of at least the threshold, 0.1
unless told otherwise, whatever the size of the window. Held against the original on this folder's
texts, it gave the same numbers to the last bit.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.drift.population import LABELS, STATISTICS
from measures.correlation import Floats

DEFAULT_THRESHOLD: Final = 0.1
_MOST_VALUES = 20
_EMPTY = 0.0001

Values = NDArray[np.float32]


def psi(reference: Values, windows: Sequence[Values]) -> Floats:
    """``[windows, statistics]`` of texts ``[texts, statistics]`` against the reference's."""
    found = [
        _column(reference[:, at], [window[:, at] for window in windows], numeric=name != LABELS)
        for at, name in enumerate(STATISTICS)
    ]
    return np.array(found).T


def _column(reference: Values, windows: Sequence[Values], *, numeric: bool) -> list[float]:
    """PSI of one statistic in each window."""
    known, times = np.unique(reference, return_counts=True)
    found = []
    for window in windows:
        if numeric and len(known) > _MOST_VALUES:
            edges = np.histogram_bin_edges(np.concatenate([reference, window]), bins="sturges")
            counts = [np.histogram(values, edges)[0] for values in (reference, window)]
        else:
            keys = np.union1d(known, window)
            counts = [np.zeros(len(keys), np.int64) for _ in range(2)]
            counts[0][np.searchsorted(keys, known)] = times
            counts[1] += np.bincount(np.searchsorted(keys, window), minlength=len(keys))
        p, q = (_filled(each / each.sum()) for each in counts)
        found.append(float(((p - q) * np.log(p / q)).sum()))
    return found


def _filled(shares: Floats) -> Floats:
    least = shares[shares > 0].min()
    return np.where(shares > 0, shares, least / 10**6 if least <= _EMPTY else _EMPTY)
