"""Anytime-valid tests of two proportions: is the canary's rate worse than stable's, is it no worse.

It takes the counts of both arms over the same window of traffic. Evidence is built window by window
and multiplied, so that it stays valid under continuous looking, under shares that change and under
a base rate that moves for both arms.

All functions work on arrays: the last axis of the counts holds rows (one a test, or one a stratum
of a test), any axes before it are independent (none in a rollout, one a rollout in the
simulations), so that what is simulated is the code that runs. Pure: no clock, no randomness, no
I/O, and no verdict: a caller compares ``e_value`` with its own 1/alpha.

Sources: a window's e-value is that of ``measures.evalue``. A long healthy past must not hide a late
fault, so a test is a mixture over all windows in which a fault may begin: the e-processes of Shin,
Ramdas and Rinaldo, E-detectors (arXiv 2203.03532), section 2, with a prior over the beginning in
place of a sum, which keeps the chance of a false alarm over all time.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from measures.correlation import Floats
from measures.evalue import Tolerance, WindowCounts, log_e_value, log_ratio
from measures.state import SequentialState

__all__ = ["HarmTest", "NonInferiorityTest", "StableHistory", "Tests", "Tolerance", "WindowCounts"]

ODDS_RATIOS = (1.5, 2.0, 4.0, 10.0)
DIFFERENCES = (0.01, 0.05, 0.2)
ALTERNATIVES = len(ODDS_RATIOS) + len(DIFFERENCES)
HORIZON = 1000  # windows, 2.8 hours; weights of later beginnings fall with their number
PRIOR = 500.0  # requests that the past counts for, at most

# First row of each test, growing from 0, if a test has several rows (strata): evidence of the
# strata of one window multiplies. None: every row is a test.
Tests = NDArray[np.intp] | None


@dataclass(frozen=True)
class StableHistory:
    """Stable's past: ``events`` of ``requests``, before the canary began."""

    events: Floats
    requests: Floats

    def prior(self) -> tuple[Floats, Floats]:
        """``(E0, N0)``: at most ``PRIOR`` requests' worth of the historic rate."""
        n0 = np.minimum(PRIOR, self.requests)
        return n0 * self.events / np.maximum(self.requests, 1.0), n0


class HarmTest(SequentialState, frozen=True):
    """Evidence that the canary is worse than ``a + s p_s``; goes on through all stages.

    Against the null that ``p_c <= a + s p_s`` in every window, wherever the rates move.

    Attributes:
        log_a: ``[..., tests, ALTERNATIVES]``, log of the restart mixture A of each alternative.
        windows: how many were seen.
        e_s: ``[..., rows]``, stable's events since the canary began.
        n_s: ``[..., rows]``, stable's requests since.
    """

    log_a: Floats
    windows: int
    e_s: Floats
    n_s: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = (), tests: Tests = None) -> Self:
        """No evidence yet, for counts of this shape."""
        of_tests = shape if tests is None else (*shape[:-1], len(tests))
        zero = np.zeros(shape)
        return cls(np.full((*of_tests, ALTERNATIVES), -np.inf), 0, zero, zero)

    def after(
        self,
        window: WindowCounts,
        past: StableHistory,
        line: Tolerance,
        rho: Floats | float = 0.0,
        tests: Tests = None,
        *,
        within: Floats | float = 1.0,
        paired: Floats | float = 0.0,
    ) -> Self:
        """With one more window.

        Args:
            window: counts ``[..., rows]``; a row in which an arm has no requests changes nothing.
            past: stable's, before the canary began; the same at each call.
            line: the tolerance, which broadcasts against the rows.
            rho: intra-window correlation, in the same shape.
            tests: if a test has several rows; the same at each call.
            within: the part of the design effect that texts of one request make, as ``rho``.
            paired: ``[..., tests, ALTERNATIVES]``, log e-values of this window's pairs
                (``measures.pairs``), in the tests whose rows have none of the canary's requests.
        """
        log_s = log_evidence(window, self.theta_s(past), line, rho, tests, within=within) + paired
        return self.grow(log_s, window)

    def theta_s(self, past: StableHistory) -> Floats:
        """``[..., rows]``: stable's rate as it is believed before the next window."""
        e0, n0 = past.prior()
        theta: Floats = (self.e_s + e0 + 0.5) / (self.n_s + n0 + 1.0)
        return theta

    def grow(self, log_s: Floats, window: WindowCounts) -> Self:
        """With the log e-values of one more window, ``[..., tests, ALTERNATIVES]``."""
        t = self.windows + 1
        return replace(
            self,
            log_a=log_s + np.logaddexp(self.log_a, math.log(restart_weight(t))),
            windows=t,
            e_s=self.e_s + window.e_s,
            n_s=self.n_s + window.n_s,
        )

    def e_value(self) -> Floats:
        """``[..., tests]``: at least 1/alpha is evidence at level alpha, whenever one looks."""
        with np.errstate(over="ignore"):  # infinite evidence is evidence
            e: Floats = np.exp(self.log_a).mean(axis=-1) + weigh_unspent(self.windows)
        return e


class NonInferiorityTest(SequentialState, frozen=True):
    """Evidence that the canary is not worse than ``a' + s' p_s``; begun again at each stage.

    Against the null that ``p_c >= a' + s' p_s`` in every window. The alternative is that both arms
    have one rate, learnt from both arms' past windows. No restarts.

    Attributes:
        log_e: ``[..., tests]``.
        e_c: ``[..., rows]``, as are the other sums since the stage began.
    """

    log_e: Floats
    e_c: Floats
    n_c: Floats
    e_s: Floats
    n_s: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = (), tests: Tests = None) -> Self:
        """No evidence yet, for counts of this shape."""
        zero = np.zeros(shape)
        return cls(
            zero if tests is None else np.zeros((*shape[:-1], len(tests))), zero, zero, zero, zero
        )

    def after(
        self,
        window: WindowCounts,
        past: StableHistory,
        line: Tolerance,
        rho: Floats | float = 0.0,
        tests: Tests = None,
        *,
        within: Floats | float = 1.0,
        near: Floats | float = 1.0,
        paired: Floats | float = 0.0,
    ) -> Self:
        """With one more window; the arguments are those of ``HarmTest.after``.

        ``paired`` is ``[..., tests]`` here; each row is divided by ``near``.
        """
        log_s = self.log_s(window, past, line, rho, tests, within=within, near=near)
        return replace(
            self,
            log_e=self.log_e + log_s + paired,
            e_c=self.e_c + window.e_c,
            n_c=self.n_c + window.n_c,
            e_s=self.e_s + window.e_s,
            n_s=self.n_s + window.n_s,
        )

    def log_s(
        self,
        window: WindowCounts,
        past: StableHistory,
        line: Tolerance,
        rho: Floats | float = 0.0,
        tests: Tests = None,
        *,
        within: Floats | float = 1.0,
        near: Floats | float = 1.0,
    ) -> Floats:
        """``[..., tests]``: log of what the next window says; the arguments are ``after``'s.

        The line may be another one in each window, if it is known before the window.
        """
        e0, n0 = past.prior()
        theta = (self.e_s + self.e_c + e0 + 0.5) / (self.n_s + self.n_c + n0 + 1.0)
        below = theta < line.a + line.s * theta
        log_s = np.where(below, log_ratio(window, theta, theta, line, rho, within=within), 0.0)
        log_s = log_s / near
        return log_s if tests is None else np.add.reduceat(log_s, tests, axis=-1)

    def counting(self, arms: Floats, rows: slice) -> Self:
        """With what was seen as pairs, ``[..., 4, rows]`` of those: it is no evidence."""
        e_c, n_c, e_s, n_s = np.moveaxis(arms, -2, 0)
        more = {"e_c": e_c, "n_c": n_c, "e_s": e_s, "n_s": n_s}
        changed = {}
        for name, counts in more.items():
            changed[name] = getattr(self, name).copy()
            changed[name][..., rows] += counts
        return replace(self, **changed)

    def e_value(self) -> Floats:
        """``[..., tests]``: at least 1/beta is evidence at level beta, whenever one looks."""
        with np.errstate(over="ignore"):  # infinite evidence is evidence
            e: Floats = np.exp(self.log_e)
        return e


def log_evidence(
    window: WindowCounts,
    theta_s: Floats,
    line: Tolerance,
    rho: Floats | float = 0.0,
    tests: Tests = None,
    *,
    within: Floats | float = 1.0,
) -> Floats:
    """``[..., tests, ALTERNATIVES]``: what a window says of each alternative, to fail.

    The arguments are those of ``HarmTest.after``; ``theta_s`` is stable's rate, as it was believed
    before the window.
    """
    theta_s = theta_s[..., None]
    log_s = log_e_value(
        window.add_axis(),
        alternatives(theta_s),
        theta_s,
        line.add_axis(),
        np.asarray(rho)[..., None],
        within=np.asarray(within)[..., None],
    )
    return log_s if tests is None else np.add.reduceat(log_s, tests, axis=-2)


def alternatives(theta_s: Floats) -> Floats:
    """The rates of a bad canary that are tried: ``[..., 1]`` to ``[..., ALTERNATIVES]``."""
    return np.concatenate(
        [ratio * theta_s / (1 - theta_s + ratio * theta_s) for ratio in ODDS_RATIOS]
        + [np.minimum(theta_s + step, (1 + theta_s) / 2) for step in DIFFERENCES],
        axis=-1,
    )


def restart_weight(t: int) -> float:
    """Weight of a start at window ``t`` (from 1), above 0 for all time; together they make 1.

    Half is on the first. For large ``t`` it is about ``1 / (2 t log^2 t)``, which falls as slowly
    as weights with a sum can, but for slower logarithms (Rissanen, Annals of Statistics 11, 1983).
    A fault that begins at window ``t`` costs ``log 1 / weight`` more evidence than one that was
    there from the start: 7.9 at window 100, 10.2 at 2,000 and 12.2 at 8,640, the last of a day.
    """
    return weigh_unspent(t - 1) - weigh_unspent(t)


def weigh_unspent(t: int) -> float:
    """Weight of the starts after window ``t``: 1 before the first, and never 0."""
    return 1.0 if t == 0 else 0.5 / (1 + math.log1p(t / HORIZON))
