"""Output shift: how far the arms' histograms of answers are apart, as one test over all classes.

It tests answers (labels, or norms of vectors), and each statistic of the users' own. The test to
fail goes on through the stages; the test to pass begins again at each. The classes are fixed by
stable's past before the first comparison, and nothing of the candidate chooses them.
"""

import math
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from msgspec.structs import replace
from scipy.special import chndtr

from contracts.rollout import CheckResult, Verdict
from measures.correlation import Floats, IntraclassCorrelation, RequestTexts
from measures.divergence import FIRST_LOOK, FIRST_LOOK_PER_CLASS, GROWTH, Shift, ShiftLimits
from measures.histograms import Starts, merge_bins, starts
from measures.leaving_out import GROUPS
from measures.state import SequentialState
from rollout.checks import words
from rollout.checks.rates import BETA

BINS = (
    20  # classes are bins up to this number; of more bins, each class holds a twentieth of the past
)
ENOUGH = 1000  # past values by which bins are merged to classes
_LOOKS_AHEAD = 60
_LN_2 = math.log(2.0)


@dataclass(frozen=True)
class Groups:
    """Counts of a window by callers' groups.

    Attributes:
        candidate: ``[GROUPS, bins]``.
        stable: the same of stable.
        is_alone: whether one group is nearly all of an arm, and can't be left out.
    """

    candidate: Floats
    stable: Floats
    is_alone: bool

    @classmethod
    def none(cls) -> Self:
        """Nobody is left out."""
        nobody = np.zeros((GROUPS, 1))
        return cls(nobody, nobody, is_alone=False)


class ShiftTest(SequentialState, frozen=True):
    """Evidence about one distribution.

    Attributes:
        past: ``[bins]``, stable's counts before the first comparison.
        at: first bin of each class; None until there was something to choose by.
        correlation: stable's traffic before the canary, a class.
        fails: evidence to fail.
        passes: evidence to pass, of this stage.
        without: as ``fails``, ``[GROUPS]``: without the callers of each group. None if they are
            not counted by group.
        has_failed: at some window the evidence was enough, with all callers and without any group.
    """

    past: Floats
    at: Starts | None
    correlation: IntraclassCorrelation
    fails: Shift
    passes: Shift
    without: Shift | None = None
    has_failed: bool = False

    @classmethod
    def begin(cls, bins: int, *, is_grouped: bool = False) -> Self:
        """Nothing known yet, of this number of bins; ``is_grouped`` if each bin is a class."""
        past = np.zeros(bins)
        at = classes(past) if bins <= BINS else None
        count = 1 if at is None else len(at)
        return cls(
            past,
            at,
            IntraclassCorrelation.begin(count),
            Shift.begin(count),
            Shift.begin(count),
            Shift.begin(count, (GROUPS,)) if is_grouped else None,
        )

    def with_history(self, stable: Floats) -> Self:
        """Returns a copy with a window of stable, ``[bins]``, from before the rollout."""
        if not stable.any():
            return self
        if self.at is None:
            return self._learn(stable, ENOUGH)
        return replace(
            self, correlation=_correlation_after(self.correlation, merge_bins(stable, self.at))
        )

    def after(
        self,
        candidate: Floats,
        stable: Floats,
        limits: ShiftLimits,
        texts: RequestTexts | None = None,
        groups: Groups | None = None,
        *,
        before_canary: bool,
        near: float = 1.0,
    ) -> Self:
        """Returns a copy with a window of both arms, each ``[bins]``; ``before_canary`` in shadow.

        ``texts`` tell how much the values of one request resemble one another; None: not known.
        ``groups`` of callers are left out one by one; None: nobody is. ``near``: this many
        requests count as one besides, for a caller's of near windows.
        """
        if not candidate.any() or not stable.any():
            return self
        if self.at is None:
            known = self._learn(stable, 0.0)
            return known.after(
                candidate, stable, limits, texts, groups, before_canary=before_canary, near=near
            )
        one, other = merge_bins(candidate, self.at), merge_bins(stable, self.at)
        alike, within = (1.0, 1.0) if texts is None else (texts.shared, texts.shared_effect)
        rho = self.correlation.shared_beyond(float(alike))
        fails = self.fails.after(one, other, limits, rho, within, near=near)
        without, is_left = self.without, True
        if without is not None:
            told = groups or Groups.none()
            rest = (
                np.maximum(one - told.candidate, 0.0),
                np.maximum(other - told.stable, 0.0),
            )
            without = without.after(rest[0], rest[1], limits, rho, within, near=near)
            is_left = told.is_alone or bool(without.failed.all())
        return replace(
            self,
            correlation=_correlation_after(self.correlation, other)
            if before_canary
            else self.correlation,
            fails=fails,
            passes=self.passes.after(one, other, limits, rho, within, near=near),
            without=without,
            has_failed=self._has_failed or (bool(fails.failed) and is_left),
        )

    def next_stage(self) -> Self:
        """Returns a copy with the evidence to pass begun again."""
        return replace(self, passes=Shift.begin(self.passes.p.shape[-1]))

    def restart(self) -> Self:
        """Returns a copy with no evidence, but what is known of stable."""
        count = self.passes.p.shape[-1]
        return replace(
            self,
            fails=Shift.begin(count),
            passes=Shift.begin(count),
            without=None if self.without is None else Shift.begin(count, (GROUPS,)),
            has_failed=False,
        )

    @property
    def _has_failed(self) -> bool:
        # Without groups all requests decide.
        return self.has_failed or (self.without is None and bool(self.fails.failed))

    @property
    def verdict(self) -> Verdict:
        """What the looks said so far."""
        if self._has_failed:
            return Verdict.FAIL
        return Verdict.PASS if bool(self.passes.passed) else Verdict.UNKNOWN

    def _learn(self, stable: Floats, enough: float) -> Self:
        """Returns a copy with more of the past, and with classes if that is enough."""
        past = self.past + stable
        if past.sum() < enough:
            return replace(self, past=past)
        at = classes(past)
        count = len(at)
        begun = Shift.begin(count)
        return replace(
            self,
            past=past,
            at=at,
            correlation=IntraclassCorrelation.begin(count),
            fails=begun,
            passes=begun,
        )


def verdict(test: ShiftTest | None) -> Verdict:
    """What a test says; unknown if there is none yet."""
    return Verdict.UNKNOWN if test is None else test.verdict


class Gate(Protocol):
    """What every check of a spec says of itself."""

    @property
    def gate(self) -> bool:
        """Whether it may fail a rollout."""
        ...

    @property
    def required(self) -> bool:
        """Whether it must pass."""
        ...


def result(
    test: ShiftTest | None,
    name: str,
    what: str,
    limits: ShiftLimits,
    check: Gate,
    *,
    is_settled: bool = False,
) -> CheckResult:
    """The result of one test.

    Args:
        test: None if there is none yet.
        name: of the check.
        what: the histograms are of.
        limits: that it is held to.
        check: as asked for.
        is_settled: it passed in shadow, and is not waited for.
    """
    if test is None or float(test.fails.n_c) == 0:
        return CheckResult(
            name=name,
            verdict=Verdict.UNKNOWN,
            reason=f"no {what} of both arms in one window yet",
            gate=check.gate,
            required=check.required,
        )
    outcome = test.verdict
    shown = test.fails if outcome is Verdict.FAIL else test.passes
    is_waited_for = outcome is Verdict.UNKNOWN and not is_settled
    missing = _needed_answers(test.passes, limits) if is_waited_for else None
    spread = float(limits.caller_spread)
    by_callers = f" beyond the {spread:.3f} that callers can make" if spread else ""
    distance, counted = float(shown.distance()), float(shown.n_c)
    ending = {
        Verdict.FAIL: f"more than the {limits.distance:g} that is tolerated{by_callers}",
        Verdict.PASS: f"less than the {limits.distance:g} that is tolerated",
        Verdict.UNKNOWN: (
            f"callers can make {spread:.3f} of it; passed in shadow, on the same requests"
            if is_settled
            else f"not yet known whether less than {limits.distance:g}, "
            f"{words.still_needed(missing)}"
        ),
    }[outcome]
    if outcome is Verdict.UNKNOWN and bool(test.fails.failed):
        ending = f"{ending}; {words.RESTS_ON_FEW}"
    return CheckResult(
        name=name,
        verdict=outcome,
        reason=(
            f"distance {distance:.3f} between the arms' {what}, over "
            f"{words.count(counted)} of the candidate's: {ending}"
        ),
        figures={
            "distance": distance,
            "tolerated": limits.distance,
            "candidate_requests": counted,
            "effective_size": float(shown.size()),
            "looks": float(shown.looks),
            "apart_by_callers": spread,
        },
        gate=check.gate,
        required=check.required and not (is_settled and outcome is Verdict.UNKNOWN),
        needs=missing,
    )


def _needed_answers(shift: Shift, limits: ShiftLimits) -> int | None:
    """The candidate's answers until an equal version passes, at this stage's ratio of the arms."""
    n_c, most = float(shift.n_c), int(shift.p.shape[-1]) - 1
    if n_c <= 0 or float(shift.size()) <= 0:
        return None
    first = max(FIRST_LOOK, FIRST_LOOK_PER_CLASS * (most + 1))
    ratio = float(shift.size()) / n_c
    seen = max(1.0, float(shift.occurring()) - 1)
    for look in range(int(shift.looks), int(shift.looks) + _LOOKS_AHEAD):
        n = first * GROWTH**look
        nats = n * ratio * limits.distance**2 * _LN_2
        spend = limits.beta / ((look + 1) * (look + 2))
        if nats >= 1.0 and float(chndtr(seen, seen, 8.0 * nats)) <= spend:
            return max(1, math.ceil(n - n_c))
    return None


def limits(distance: float, alpha: float, caller_spread: float = 0.0) -> ShiftLimits:
    """What is asked of a shift at the alpha of a check; callers make ``caller_spread`` at most."""
    return ShiftLimits(distance=distance, alpha=alpha, beta=BETA, caller_spread=caller_spread)


def classes(past: Floats) -> Starts:
    """First bin of each class: every bin if they are few, else so that each holds enough.

    What lies below and above all of the past are classes of their own: vectors of one norm, as
    normalised ones are, leave no other place where a norm that changed could show.
    """
    if len(past) <= BINS:
        return np.arange(len(past), dtype=np.intp)
    held = np.flatnonzero(past)
    beyond = [int(held[0]), int(held[-1]) + 1]
    chosen = {*starts(past, float(past.sum()) / BINS).tolist(), *beyond, 0}
    return np.array(sorted(first for first in chosen if first < len(past)), dtype=np.intp)


def _correlation_after(correlation: IntraclassCorrelation, stable: Floats) -> IntraclassCorrelation:
    return correlation.after(stable, np.full(len(stable), stable.sum()))
