"""The e-value of one window of two arms, against the null that the canary is within a tolerance.

An e-value is at least 0, and its mean is at most 1 while the null is true, whatever the base rate;
so 1/alpha and more is evidence at level alpha. It holds exactly for independent requests (``rho`` =
0).

Arrays throughout: all arguments broadcast. Pure.

Source: the block e-variable for two streams of Turner, Ly and Grunwald (arXiv 2106.02693): the
alternative's likelihood over that of the null's nearest point in Kullback-Leibler divergence.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from measures.correlation import Floats, design_effect

_NEWTON_STEPS = 3
_TINY = 1e-12


@dataclass(frozen=True)
class Tolerance:
    """The line ``p_c = a + s p_s``: above it the canary is worse than is tolerated.

    ``a`` at least 0 and ``s`` at least 1, so that both sides of it are convex.
    """

    a: Floats | float
    s: Floats | float

    def add_axis(self) -> Self:
        """With one more axis at the end, for the alternatives."""
        return type(self)(np.asarray(self.a)[..., None], np.asarray(self.s)[..., None])


@dataclass(frozen=True)
class WindowCounts:
    """Counts of one window: ``e`` events of ``n`` requests, canary and stable.

    The last axis holds rows: one a test, or one a stratum if a test is made of several.
    """

    e_c: Floats
    n_c: Floats
    e_s: Floats
    n_s: Floats

    def add_axis(self) -> Self:
        """With one more axis at the end, for the alternatives."""
        return type(self)(*(x[..., None] for x in (self.e_c, self.n_c, self.e_s, self.n_s)))


def log_e_value(
    window: WindowCounts,
    theta_c: Floats,
    theta_s: Floats,
    line: Tolerance,
    rho: Floats | float,
    *,
    within: Floats | float = 1.0,
) -> Floats:
    """The log of S, of one window; 0 if the alternative lies on the null's side of the line.

    Args:
        window: the counts.
        theta_c: the canary's rate under the alternative, chosen before the window was seen.
        theta_s: the same of stable.
        line: the tolerance; the null is either side of it.
        rho: intra-window correlation; each arm's log-likelihood is divided by its design effect.
        within: the part of the design effect that texts of one request make.
    """
    return np.where(
        theta_c > line.a + line.s * theta_s,
        log_ratio(window, theta_c, theta_s, line, rho, within=within),
        0.0,
    )


def log_ratio(
    window: WindowCounts,
    theta_c: Floats,
    theta_s: Floats,
    line: Tolerance,
    rho: Floats | float,
    *,
    within: Floats | float = 1.0,
) -> Floats:
    """The log of the alternative's likelihood over that of its projection on the line."""
    d_c, d_s = design_effect(window.n_c, rho, within), design_effect(window.n_s, rho, within)
    q_s = projection(theta_c, theta_s, line, window.n_c / d_c, window.n_s / d_s)
    canary = _log_likelihood_ratio(window.e_c, window.n_c, theta_c, line.a + line.s * q_s)
    stable = _log_likelihood_ratio(window.e_s, window.n_s, theta_s, q_s)
    return canary / d_c + stable / d_s


def log_e_value_of_one(
    events: Floats, requests: Floats, theta: Floats, most: Floats, rho: Floats | float
) -> Floats:
    """The log of an e-value that one arm's rate is at most ``most``, which was known before.

    0 if the alternative ``theta``, chosen before the window was seen, is not above it.
    """
    ratio = _log_likelihood_ratio(events, requests, theta, most)
    return np.where(theta > most, ratio / design_effect(requests, rho), 0.0)


def _log_likelihood_ratio(e: Floats, n: Floats, theta: Floats, q: Floats) -> Floats:
    theta, q = _clip(_TINY, theta, 1 - _TINY), _clip(_TINY, q, 1 - _TINY)
    ratio: Floats = e * np.log(theta / q) + (n - e) * np.log((1 - theta) / (1 - q))
    return ratio


def projection(
    theta_c: Floats, theta_s: Floats, line: Tolerance, weight_c: Floats, weight_s: Floats
) -> Floats:
    """q_s of the point on the line that is nearest in Kullback-Leibler divergence.

    The root of ``w_c s (theta_c - q_c) / (q_c (1 - q_c)) + w_s (theta_s - q_s) / (q_s (1 - q_s))``
    with ``q_c = a + s q_s``, between ``theta_s`` and ``(theta_c - a) / s``. Multiplied out it is a
    cubic with three real roots, one at most 0 and one beyond both rates: the middle one is ours.
    Vieta's trigonometric form gives it; Newton's steps mend what that loses near double roots.
    """
    a, s = line.a, line.s
    low = np.minimum(theta_s, (theta_c - a) / s)
    high = np.maximum(theta_s, (theta_c - a) / s)
    top = np.minimum(1.0, (1.0 - a) / s)
    low, high = _clip(_TINY, low, top - _TINY), _clip(_TINY, high, top - _TINY)
    w_c = weight_c / np.maximum(weight_c + weight_s, _TINY)
    w_s = 1.0 - w_c
    # w_c s (theta_c - a - s q) q (1 - q) + w_s (theta_s - q) (a + s q) (1 - a - s q), over s^2
    c_2 = -(w_c * (theta_c - a + s) + w_s * (theta_s * s + 1 - 2 * a)) / s
    c_1 = (w_c * s * (theta_c - a) + w_s * (theta_s * s * (1 - 2 * a) - a * (1 - a))) / (s * s)
    c_0 = w_s * theta_s * a * (1 - a) / (s * s)
    third = c_2 / 3
    p = np.maximum(third * third - c_1 / 3, _TINY)
    root = np.sqrt(p)
    cosine = _clip(-1.0, (third * (c_1 / 2 - third * third) - c_0 / 2) / (p * root), 1.0)
    start = 2 * root * np.sin(np.arccos(cosine) / 3 - np.pi / 6) - third
    q = _clip(low, start, high)
    for _ in range(_NEWTON_STEPS):
        value = ((q + c_2) * q + c_1) * q + c_0
        slope = (3 * q + 2 * c_2) * q + c_1
        q = _clip(low, q - value / np.minimum(slope, -_TINY), high)
    return q


def _clip(low: Floats | float, x: Floats, high: Floats | float) -> Floats:
    """``np.clip``, at a third of its cost for arrays as small as these."""
    inside: Floats = np.minimum(np.maximum(x, low), high)
    return inside
