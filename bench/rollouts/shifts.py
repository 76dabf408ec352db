"""Output shift and drift: wrong alarms without them, and how soon they are found.

The tests are ``measures.divergence`` and ``measures.monitoring`` as production runs them, on
independent answers.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from bench.findings import Finding, needed, share
from measures.correlation import Floats
from measures.divergence import Limits, Shift, jensen_shannon
from measures.monitoring import WEIGHTS, Bins, Monitors

CLASSES = (2, 3, 10)
LIMITS = Limits()
_WINDOW, _MOST = 200, 10_000


def shifted(shares: Floats, distance: float) -> Floats:
    """Shares at a Jensen-Shannon distance from others, moved toward the first class."""
    first = np.eye(len(shares))[0]
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        found = (1 - middle) * shares + middle * first
        near = np.sqrt(jensen_shannon(shares, found) / np.log(2)) < distance
        low, high = (middle, high) if near else (low, middle)
    moved: Floats = (1 - low) * shares + low * first
    return moved


def output_shift(rollouts: int) -> list[Finding]:
    """Fails and passes of candidates that are equal, on the boundary, and twice as far."""
    found = []
    for classes in CLASSES:
        for part, caught, passes in ((0.05, 600, 1000), (0.5, 1100, 2000)):
            where = f"{part:.0%}"
            of = f"{classes} classes"
            fails, passed = _run(classes, 0.0, part, rollouts)
            found.append(share(f"{of}, identical: fails", where, np.isfinite(fails), 0.005))
            found.append(needed(f"{of}, identical: passes", where, passed, passes))
            fails, passed = _run(classes, LIMITS.distance, part, rollouts)
            found.append(share(f"{of}, distance 0.1: fails", where, np.isfinite(fails), 0.02))
            found.append(share(f"{of}, distance 0.1: passes", where, np.isfinite(passed), 0.05))
            fails, _ = _run(classes, 2 * LIMITS.distance, part, rollouts)
            found.append(needed(f"{of}, distance 0.2: caught", where, fails, caught))
    return found


def _run(classes: int, distance: float, part: float, rollouts: int) -> tuple[Floats, Floats]:
    """Canary requests until fail and until pass, infinite for never."""
    rng = np.random.default_rng([4, classes, round(100 * distance), round(100 * part)])
    weights = 1.0 / np.arange(1, classes + 1)
    stable = weights / weights.sum()
    canary = shifted(stable, distance) if distance else stable
    shift = Shift.begin(classes, (rollouts,))
    fails, passes = np.full(rollouts, np.inf), np.full(rollouts, np.inf)
    while shift.n_c.max() < _MOST and np.isinf(np.minimum(fails, passes)).any():
        n_c = rng.binomial(_WINDOW, part, rollouts)
        shift = shift.after(
            rng.multinomial(n_c, canary).astype(np.float64),
            rng.multinomial(_WINDOW - n_c, stable).astype(np.float64),
            LIMITS,
        )
        fails = np.where(shift.failed & np.isinf(fails), shift.n_c, fails)
        first = shift.passed & np.isinf(passes) & np.isinf(fails)
        passes = np.where(first, shift.n_c, passes)
    return fails, passes


def drifts(rollouts: int) -> list[Finding]:
    """Wrong alarms of one window at a stated rate, and windows until a tenth of other texts."""
    rng = np.random.default_rng(5)
    rate, n = 0.01, 5000
    lengths, others = _lengths(24.0), _lengths(60.0)
    found = []
    for m in (100, 1000, 5000):
        alarms = np.array([
            _p_value(rng.multinomial(m, lengths), rng.multinomial(n, lengths)) < rate
            for _ in range(10 * rollouts)
        ])  # fmt: skip
        target = 2 * rate if m >= 1000 else None
        found.append(share(f"no drift, alarms at {rate:.0%} a window", f"m = {m}", alarms, target))
    mixed = 0.9 * lengths + 0.1 * others
    within = np.array([
        any(_p_value(rng.multinomial(1000, mixed), reference) < rate for _ in range(5))
        for reference in rng.multinomial(n, lengths, rollouts)
    ])  # fmt: skip
    missed = share("a tenth of other texts, missed in 5 windows", "m = 1000", ~within, 0.05)
    return [*found, missed]


def _p_value(window: NDArray[np.int64], reference: NDArray[np.int64]) -> float:
    """Chance of the chi-square of this window alone, or more, without drift."""
    bins = Bins.of(reference, float(window.sum()))
    found = Monitors.begin(bins).after(window).chi_square()[WEIGHTS.index(1.0)]
    return float(chdtrc(bins.degrees, found))


def _lengths(middle: float) -> Floats:
    """Shares of texts by tokens, over 20 bins, around a middle length."""
    at = np.geomspace(2, 512, 20)
    weights = np.exp(-0.5 * (np.log(at / middle) / 0.6) ** 2)
    result: Floats = weights / weights.sum()
    return result
