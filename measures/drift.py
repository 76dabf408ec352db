"""How far histograms are from a reference: significance by Pearson's chi-square, size by PSI.

PSI's value without drift is about ``(B - 1)(1/n + 1/m)``: it has no meaning without the
bins and both sizes, so it is never a test here, only the size that is reported, less that value.
It never decides what size matters, and it promises nothing about windows that depend on one another
(hour of day): the null has to be calibrated on the endpoint's own traffic before anyone is paged.

Sources: Pearson's two-sample chi-square test; Yurdakul and Naranjo, Statistical properties of the
population stability index (2020), for PSI's distribution.
"""

import numpy as np

from measures.correlation import Floats

LEAST = 10.0  # expected counts a bin: with fewer, the chi-square's tail is wrong


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
