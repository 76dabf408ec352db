"""How far a histogram is from a reference: significance by Pearson's chi-square, size by PSI.

PSI's value without drift is about ``(B - 1)(1/n + 1/m)``: it has no meaning without the
bins and both sizes, so it is never a test here, only the size that is reported, less that value.
It never decides what size matters, and it promises nothing about windows that depend on one another
(hour of day): the null has to be calibrated on the endpoint's own traffic before anyone is paged.

Sources: Pearson's two-sample chi-square test; Yurdakul and Naranjo, Statistical properties of the
population stability index (2020), for PSI's distribution.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc

from measures.binning import merged, starts
from measures.correlation import Floats

LEAST = 10.0  # expected counts a bin: with fewer, the chi-square's tail is wrong


@dataclass(frozen=True)
class Drift:
    """A histogram against a reference.

    Attributes:
        chi_square: Pearson's statistic of the two samples, over the merged bins.
        degrees: merged bins less one; 0: too little was counted to tell anything.
        p_value: chance of such a statistic or more without drift.
        psi: population stability index over the merged bins, half a count added to each.
        expected_psi: what it would be without drift.
    """

    chi_square: float
    degrees: int
    p_value: float
    psi: float
    expected_psi: float

    @property
    def excess(self) -> float:
        """PSI beyond what equal samples would show, at least 0."""
        return max(0.0, self.psi - self.expected_psi)


def drift(window: ArrayLike, reference: ArrayLike, effect: float = 1.0) -> Drift:
    """Compares the counts of a window with those of a reference.

    Args:
        window: ``[bins]`` counts.
        reference: ``[bins]`` counts, of the same edges. Bins merge by it alone.
        effect: design effect of the window's counts, at least 1: so many count as one.

    Raises:
        ValueError: the bins are not the same.
    """
    seen, known = np.asarray(window, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if seen.shape != known.shape or seen.ndim != 1:
        raise ValueError(f"{seen.shape} bins can't be compared with {known.shape}")
    m, n = float(seen.sum()) / effect, float(known.sum())
    if m <= 0 or n <= 0:
        return Drift(0.0, 0, 1.0, 0.0, 0.0)
    at = starts(known / n * min(m, n), LEAST)
    seen, known = merged(seen, at) / effect, merged(known, at)
    degrees = len(at) - 1
    if degrees == 0:
        return Drift(0.0, 0, 1.0, 0.0, 0.0)
    statistic = float(chi_square(seen / m, known / n, m, n))
    return Drift(
        chi_square=statistic,
        degrees=degrees,
        p_value=float(chdtrc(degrees, statistic)),
        psi=float(stability_index(seen, known)),
        expected_psi=degrees * (1 / m + 1 / n),
    )


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
