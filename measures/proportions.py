"""Anytime-valid tests of two proportions: is the canary's rate worse than stable's, is it no worse.

Called by the rollout's checks after every window of traffic, with the counts of both arms over the
same window. Evidence is built window by window and multiplied, so that it stays valid under
continuous looking, under shares that change and under a base rate that moves for both arms.

All functions work on arrays: the last axis of a state is the alternative, any axes before it are
independent tests (none in a rollout, one a rollout in the simulations), so that what is simulated
is the code that runs. Pure: no clock, no randomness, no I/O.

Sources: the block e-variable for two streams is by Turner, Ly and Grunwald (arXiv 2106.02693); the
restart mixture is the Shiryaev-Roberts style mixture over starting times of an e-process.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ODDS_RATIOS = (1.5, 2.0, 4.0, 10.0)
DIFFERENCES = (0.01, 0.05, 0.2)
ALTERNATIVES = len(ODDS_RATIOS) + len(DIFFERENCES)
HORIZON = 1000  # windows over which restarts spend their weight
_BISECTIONS = 50
_TINY = 1e-12


@dataclass(frozen=True)
class Tolerance:
    """The line ``p_c = a + s p_s``: above it the canary is worse than is tolerated."""

    a: float
    s: float


@dataclass(frozen=True)
class Window:
    """Counts of one window: ``e`` events of ``n`` requests, canary and stable."""

    e_c: Floats
    n_c: Floats
    e_s: Floats
    n_s: Floats


@dataclass(frozen=True)
class History:
    """Stable's past: ``events`` of ``requests``, before the canary began; capped as a prior."""

    events: Floats
    requests: Floats

    def prior(self) -> tuple[Floats, Floats]:
        """``(E0, N0)``: at most 500 requests' worth of the historic rate."""
        n0 = np.minimum(500.0, self.requests)
        rate = self.events / np.maximum(self.requests, 1.0)
        return n0 * rate, n0


def odds_times(p: Floats, ratio: float) -> Floats:
    """The probability whose odds are ``ratio`` times those of ``p``."""
    return ratio * p / (1 - p + ratio * p)


def design_effect(n: Floats, rho: Floats | float) -> Floats:
    """``1 + (n - 1) rho``, at least 1: how many requests count as one."""
    return np.maximum(1.0, 1.0 + (n - 1.0) * rho)


def intra_window_correlation(events: Floats, requests: Floats) -> float:
    """rho of clumpy traffic, from consecutive stable windows (1-d, in order of time).

    Successive differences leave slow drift out. 1.5 times the estimate, for being too careful costs
    less than being wrong. Needs ten windows; 0 where there is nothing to learn from.
    """
    held = requests > 0
    events, requests = events[held], requests[held]
    if len(requests) < 2:
        return 0.0
    p = events.sum() / requests.sum()
    if not 0 < p < 1:
        return 0.0
    rates = events / requests
    scale = p * (1 - p) * (1 / requests[1:] + 1 / requests[:-1])
    x = float(np.mean((rates[1:] - rates[:-1]) ** 2 / scale))
    mean = float(requests.mean())
    return 1.5 * max(0.0, (x - 1.0) / max(mean - 1.0, 1.0))


def log_e_value(
    window: Window, theta_c: Floats, theta_s: Floats, line: Tolerance, rho: Floats | float
) -> Floats:
    """log S of one window: the alternative's likelihood over its projection on ``q_c = a + s q_s``.

    ``theta_*`` broadcast against the counts. 0 where the alternative lies on the null's side.
    """
    weight_c = window.n_c / design_effect(window.n_c, rho)
    weight_s = window.n_s / design_effect(window.n_s, rho)
    share_c = 1.0 / design_effect(window.n_c, rho)
    share_s = 1.0 / design_effect(window.n_s, rho)
    above = theta_c > line.a + line.s * theta_s
    return (
        _log_ratio(window, theta_c, theta_s, line, (weight_c, weight_s), (share_c, share_s)) * above
    )


def _log_ratio(
    window: Window,
    theta_c: Floats,
    theta_s: Floats,
    line: Tolerance,
    weights: tuple[Floats, Floats],
    shares: tuple[Floats, Floats],
) -> Floats:
    q_s = _project(theta_c, theta_s, line, weights)
    q_c = np.clip(line.a + line.s * q_s, _TINY, 1 - _TINY)
    q_s = np.clip(q_s, _TINY, 1 - _TINY)
    t_c, t_s = np.clip(theta_c, _TINY, 1 - _TINY), np.clip(theta_s, _TINY, 1 - _TINY)
    canary = window.e_c * np.log(t_c / q_c) + (window.n_c - window.e_c) * np.log(
        (1 - t_c) / (1 - q_c)
    )
    stable = window.e_s * np.log(t_s / q_s) + (window.n_s - window.e_s) * np.log(
        (1 - t_s) / (1 - q_s)
    )
    return shares[0] * canary + shares[1] * stable


def _project(
    theta_c: Floats, theta_s: Floats, line: Tolerance, weights: tuple[Floats, Floats]
) -> Floats:
    """q_s of the point on the line nearest in Kullback-Leibler divergence, by bisection."""
    low, high = np.broadcast_arrays(theta_s, (theta_c - line.a) / line.s)
    low, high = np.minimum(low, high).copy(), np.maximum(low, high).copy()
    top = min(1.0, (1.0 - line.a) / line.s)
    low, high = np.clip(low, _TINY, top - _TINY), np.clip(high, _TINY, top - _TINY)
    for _ in range(_BISECTIONS):
        q_s = (low + high) / 2
        q_c = line.a + line.s * q_s
        slope = weights[0] * line.s * (theta_c - q_c) / np.maximum(q_c * (1 - q_c), _TINY)
        slope = slope + weights[1] * (theta_s - q_s) / np.maximum(q_s * (1 - q_s), _TINY)
        low, high = np.where(slope > 0, q_s, low), np.where(slope > 0, high, q_s)
    return (low + high) / 2


@dataclass(frozen=True)
class Worse:
    """Evidence that the canary is worse than ``a + s p_s``; goes on through all stages."""

    log_a: Floats  # [..., alternatives]
    windows: int
    e_s: Floats  # stable's events and requests since the canary began
    n_s: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> "Worse":
        zero = np.zeros(shape)
        return cls(np.full((*shape, ALTERNATIVES), -np.inf), 0, zero, zero)

    def after(
        self, window: Window, past: History, line: Tolerance, rho: Floats | float = 0.0
    ) -> "Worse":
        """With one more window."""
        e0, n0 = past.prior()
        theta_s = ((self.e_s + e0 + 0.5) / (self.n_s + n0 + 1.0))[..., None]
        theta_c = np.concatenate(
            [odds_times(theta_s, ratio) for ratio in ODDS_RATIOS]
            + [np.minimum(theta_s + step, (1 + theta_s) / 2) for step in DIFFERENCES],
            axis=-1,
        )
        wide = Window(*(x[..., None] for x in (window.e_c, window.n_c, window.e_s, window.n_s)))
        rho = rho[..., None] if isinstance(rho, np.ndarray) and rho.ndim else rho
        log_s = log_e_value(wide, theta_c, theta_s, line, rho)
        t = self.windows + 1
        log_w = np.log(restart_weight(t)) if t <= HORIZON else -np.inf
        return replace(
            self,
            log_a=log_s + np.logaddexp(self.log_a, log_w),
            windows=t,
            e_s=self.e_s + window.e_s,
            n_s=self.n_s + window.n_s,
        )

    def e_value(self) -> Floats:
        """At least 1/alpha is evidence at level alpha, at any time."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_a).mean(axis=-1) + unspent(self.windows)


def restart_weight(t: int) -> float:
    """Weight of a start at window ``t`` (from 1): half on the first, the rest over the horizon."""
    return (0.5 if t == 1 else 0.0) + 1 / (2 * HORIZON)


def unspent(t: int) -> float:
    """Weight of the starts after window ``t``."""
    if t == 0:
        return 1.0
    return max(0.0, 0.5 - min(t, HORIZON) / (2 * HORIZON))


@dataclass(frozen=True)
class NotWorse:
    """Evidence that the canary is not worse than ``a' + s' p_s``; begun anew at each stage."""

    log_e: Floats
    e_c: Floats
    n_c: Floats
    e_s: Floats
    n_s: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> "NotWorse":
        zero = np.zeros(shape)
        return cls(zero, zero, zero, zero, zero)

    def after(
        self, window: Window, past: History, line: Tolerance, rho: Floats | float = 0.0
    ) -> "NotWorse":
        """With one more window."""
        e0, n0 = past.prior()
        theta = (self.e_s + self.e_c + e0 + 0.5) / (self.n_s + self.n_c + n0 + 1.0)
        weights = (
            window.n_c / design_effect(window.n_c, rho),
            window.n_s / design_effect(window.n_s, rho),
        )
        shares = (1 / design_effect(window.n_c, rho), 1 / design_effect(window.n_s, rho))
        below = theta < line.a + line.s * theta
        log_s = _log_ratio(window, theta, theta, line, weights, shares) * below
        return NotWorse(
            self.log_e + log_s,
            self.e_c + window.e_c,
            self.n_c + window.n_c,
            self.e_s + window.e_s,
            self.n_s + window.n_s,
        )
