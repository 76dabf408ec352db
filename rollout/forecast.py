"""What a rollout at an endpoint's settings would find, and when, told from its traffic. Pure.

Traffic like that of the windows that are given is drawn many times, and the tests that judge a
rollout (``measures.proportions``, with the spec's tolerances, the correlation of requests, also of
one caller's in near windows, and the spread of callers that were learnt from these windows) judge
it. In the first step with callers, latency is cold. Seeds are fixed.

Conditions: requests come evenly over time, and independently; a fault is there from a step's first
request on, and no copy shows it; each step is told by itself; nothing is left out of the evidence.
Shadow is told for errors alone, as if every request were mirrored. ``outputShift``, ``quality``,
``agreement``, ``scoreAgreement`` and users' statistics are not told.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec.structs import replace as replace_state
from numpy.typing import NDArray

from contracts.endpoint import Arm
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec, ShadowStep, Step
from contracts.windows import AGE_STRIDE, LABEL_AGES, EndpointWindow, Sparse, WindowAggregate
from measures.correlation import Floats
from measures.histograms import add_counts
from measures.proportions import (
    HarmTest,
    NonInferiorityTest,
    StableHistory,
    Tolerance,
    WindowCounts,
)
from rollout import arm_traffic, steps
from rollout.checks import rates as tests
from rollout.checks.left_out import WindowPrior
from rollout.checks.rates import BETA, LEAST_TO_PASS, RateEvidence
from rollout.checks.rows import CLASSES, choose_compared, lines, list_leading
from rollout.checks.warmth import COLD_WINDOWS, stake_part
from rollout.evidence import Evidence

SECONDS = 10.0  # of a window
_DRAWN = 40
_SEED = 15
_SAME_LENGTH = 150  # windows, then they are twice as long: a day takes some 900
_CERTAINLY_EMPTY = 0.05  # probability of an empty arm that is worth a word


@dataclass(frozen=True)
class Fault:
    """A fault of one check: its rows' rates with it."""

    check: str
    name: str
    rates: Floats


@dataclass(frozen=True)
class StepForecast:
    """What one step finds.

    Attributes:
        name: ``shadow`` or ``5 %``.
        requests: an hour, of the candidate.
        empty: the probability that no caller is assigned to the arm.
        found: fault -> hours until half of the drawn rollouts found it; infinite if that is
            later than the deadline, and absent if the step does not judge it.
        passes: hours until half of the rollouts of an equal version pass the step.
    """

    name: str
    requests: float
    empty: float
    found: dict[str, float] = field(default_factory=dict)
    passes: float = math.inf


@dataclass(frozen=True)
class LabelDelays:
    """How long labels take, in seconds after the answer; infinite beyond 30 days.

    Attributes:
        hourly: labels an hour.
        right: by when half and nine tenths of those that say right have come.
        wrong: the same, of those that say wrong; both 0 where there are none.
    """

    hourly: float
    right: tuple[float, float]
    wrong: tuple[float, float]

    @property
    def longest(self) -> float:
        """By when nine tenths of either kind have come."""
        return max(self.right[1], self.wrong[1])


@dataclass(frozen=True)
class Forecast:
    """What a rollout would find.

    Attributes:
        requests: an hour, of all arms.
        callers: about how many have a name; infinite if they are more than can be told.
        unnamed: share of requests without a caller's name.
        deadline_hours: of the spec.
        steps: in their order.
        labels: how long they take; None if none came.
    """

    requests: float
    callers: float
    unnamed: float
    deadline_hours: float
    steps: tuple[StepForecast, ...] = ()
    labels: LabelDelays | None = None

    @property
    def passes_hours(self) -> float:
        """Hours in which an equal version passes all steps, half of the time."""
        return sum(step.passes for step in self.steps)

    def warnings(self) -> tuple[str, ...]:
        """What is likely to keep a rollout from a verdict, a sentence each."""
        said = [
            f"At {step.name} none of about {self.callers:.0f} callers is assigned to the arm, with "
            f"a probability of {step.empty:.0%}. The next step then begins after a 24th of the "
            "deadline; the last step would wait for the deadline."
            for step in self.steps
            if step.empty >= _CERTAINLY_EMPTY
        ]
        if self.labels is not None and self.labels.longest / 3600 > self.deadline_hours:
            said.append(
                "Not even nine in ten labels come within the deadline of "
                f"{self.deadline_hours:g} h: quality would be judged by the first of them."
            )
        hours = self.passes_hours
        if hours > self.deadline_hours:
            takes = "more than can be told" if math.isinf(hours) else f"about {hours:.0f} h"
            said.append(
                f"A version as good as the stable one takes {takes} to pass all steps, and the "
                f"deadline is {self.deadline_hours:g} h: it would expire. Use fewer steps or "
                "larger weights, a wider pass, or a longer deadline."
            )
        return tuple(said)


def forecast(
    spec: RolloutSpec, stable: ModelRef, windows: Sequence[EndpointWindow], seconds: float
) -> Forecast:
    """What a rollout against ``stable`` would find.

    Args:
        spec: of the rollout.
        stable: the version that answers.
        windows: closed ones, oldest first.
        seconds: for how long these windows tell the traffic, quiet times included.
    """
    counted = [
        found
        for window in windows
        for found in window.aggregates
        if found.package == stable.package and found.arm is Arm.STABLE and found.evidence.requests
    ]
    hours = max(seconds, SECONDS) / 3600
    requests = sum(found.evidence.requests for found in counted)
    groups = {group for found in counted for group in found.evidence.group_requests}
    named = sum(sum(found.evidence.group_requests.values()) for found in counted)
    callers = arm_traffic.estimated_callers(len(groups))
    unnamed = 1 - named / requests if requests else 0.0
    delays = _label_delays(stable, windows, hours)
    told = Forecast(requests / hours, callers, unnamed, spec.deadline / 3600, labels=delays)
    if not counted:
        return told
    learnt = _PriorEvidence(spec, _evidence(spec, counted), max(1.0, seconds / SECONDS))
    first = next((step for step in spec.planned if not isinstance(step, ShadowStep)), None)
    made = tuple(_step(learnt, step, told, is_cold=step is first) for step in spec.planned)
    return replace(told, steps=made)


def _label_delays(
    stable: ModelRef, windows: Sequence[EndpointWindow], hours: float
) -> LabelDelays | None:
    every: Sparse = {}
    wrong: Sparse = {}
    for window in windows:
        for found in window.aggregates:
            if found.package == stable.package:
                add_counts(every, found.evidence.aged_feedback)
                add_counts(wrong, found.evidence.aged_wrong)
    if not every:
        return None
    right = {aged: count - wrong.get(aged, 0) for aged, count in every.items()}
    return LabelDelays(sum(every.values()) / hours, _half_and_most(right), _half_and_most(wrong))


def _half_and_most(aged: Sparse) -> tuple[float, float]:
    """By when half and nine tenths of these labels had come, by the ends of their classes."""
    ends = (*LABEL_AGES, math.inf)
    ages = np.repeat([ends[at // AGE_STRIDE] for at in aged], list(aged.values()))
    if not len(ages):
        return 0.0, 0.0
    half, most = np.quantile(ages, [0.5, 0.9], method="higher")
    return float(half), float(most)


@dataclass(frozen=True)
class _PriorEvidence:
    """What is known before a rollout: the evidence of its windows, also of those without any."""

    spec: RolloutSpec
    evidence: Evidence
    windows: float


def _evidence(spec: RolloutSpec, counted: Sequence[WindowAggregate]) -> Evidence:
    labels: dict[str, int] = {}
    for found in counted:
        for label, count in found.evidence.labels.items():
            labels[label] = labels.get(label, 0) + count
    evidence = Evidence.begin(spec.checks, spec.false_rollback, list_leading(labels))
    for found in counted:
        evidence = evidence.with_history(found.evidence)
    return evidence


def _step(learnt: _PriorEvidence, step: Step, told: Forecast, *, is_cold: bool) -> StepForecast:
    spec, rates = learnt.spec, learnt.evidence.rates
    is_shadow = isinstance(step, ShadowStep)
    percent = steps.percent(step) / 100
    # Of the requests: copies are beside stable's own, callers are taken from it.
    arms = (percent, 1.0) if is_shadow else (percent, 1 - percent)
    found: dict[str, float] = {}
    passes = 0.0
    for name in (tests.ERROR_RATE, tests.LATENCY, tests.CLASS_SHARE):
        check = choose_compared(spec.checks)[tests.IN_ORDER.index(name)]
        if not tests.list_enabled(spec.checks)[name] or (is_shadow and name != tests.ERROR_RATE):
            continue
        share = 0.0 if is_shadow else percent
        cold = COLD_WINDOWS if is_cold and name == tests.LATENCY else 0
        drawn = _SimulatedCheck(learnt, name, arms, share, cold)
        if not drawn.rows.size:
            continue
        if check.gate:
            found.update(drawn.until_found())
        is_hidden = not is_shadow and rates.is_hidden_by_callers(name, check.pass_, percent)
        if check.gate and check.required and not (name == tests.CLASS_SHARE and is_hidden):
            passes = max(passes, drawn.until_passed())
    # Requests without a name are spread one by one: with some of them no arm stays empty.
    is_by_callers = not is_shadow and told.unnamed * told.requests * percent < 1
    empty = (1 - percent) ** told.callers if is_by_callers else 0.0
    return StepForecast(steps.describe(step), told.requests * percent, empty, found, passes)


class _SimulatedCheck:
    """One check in one step, over traffic that is drawn like the windows' own.

    Args:
        learnt: of the windows.
        name: of the check.
        arms: shares of the requests that candidate and stable get.
        share: of callers, that the candidate has; 0 in shadow.
        cold: windows, the first ones, that only report.
    """

    def __init__(
        self,
        learnt: _PriorEvidence,
        name: str,
        arms: tuple[float, float],
        share: float,
        cold: int,
    ) -> None:
        spec, rates = learnt.spec, learnt.evidence.rates
        limits = lines(spec.checks, rates.rows)
        in_check = np.isin(
            rates.rows.test_of_row, np.arange(len(rates.rows.tests))[tests.TESTS[name]]
        )
        self.rows = np.flatnonzero(in_check & (rates.past[1] > 0))
        self._name, self._arms, self._cold = name, arms, cold
        self._alpha = learnt.evidence.alpha
        self._longest = spec.deadline
        self._past = StableHistory(*rates.past[:, self.rows])
        self._requests = rates.past[1, self.rows] / learnt.windows
        self._rates = rates.past[0, self.rows] / np.maximum(rates.past[1, self.rows], 1.0)
        self._rho = rates.rho[self.rows]
        self._within, self._near = rates.within[self.rows], rates.near[self.rows]
        apart = rates.spread(share)
        self._fail = Tolerance(
            np.asarray(limits.fail.a + apart)[self.rows], np.asarray(limits.fail.s)[self.rows]
        )
        self._pass = Tolerance(
            np.asarray(limits.pass_.a)[self.rows], np.asarray(limits.pass_.s)[self.rows]
        )
        of_test = rates.rows.test_of_row[self.rows]
        self._tests = np.flatnonzero(np.diff(of_test, prepend=-1))
        self._labels = _labels(rates, self.rows) if name == tests.CLASS_SHARE else ()

    def until_found(self) -> dict[str, float]:
        """Hours until half of the drawn rollouts found each fault."""
        faults = _faults(self._name, self._rates, self._labels)
        of_candidate = np.repeat(np.stack([fault.rates for fault in faults]), _DRAWN, axis=0)
        test = HarmTest.begin(of_candidate.shape, self._tests)
        hours = np.full(len(of_candidate), np.inf)
        for number, (window, rho, at) in enumerate(self._draw(of_candidate)):
            theta_s = test.theta_s(self._past)
            believed = WindowPrior(theta_s, self._fail, rho, self._within, self._near)
            log_s = np.add.reduceat(believed.log_of_rows(window), self._tests, axis=-2)
            test = test.grow(log_s * (number >= self._cold), window)
            failed = test.e_value().mean(axis=-1) * self._alpha >= 1
            hours = np.where(failed & np.isinf(hours), at, hours)
            if np.isfinite(hours).all():
                break
        of_faults = hours.reshape(len(faults), _DRAWN)
        return {
            fault.name: float(np.quantile(of_one, 0.5, method="higher"))
            for fault, of_one in zip(faults, of_faults, strict=True)
        }

    def until_passed(self) -> float:
        """Hours until half of the drawn rollouts of an equal version pass."""
        of_candidate = np.tile(self._rates, (_DRAWN, 1))
        test = NonInferiorityTest.begin(of_candidate.shape, self._tests)
        hours = np.full(_DRAWN, np.inf)
        for number, (window, rho, at) in enumerate(self._draw(of_candidate)):
            before, of_design = test.log_e, {"within": self._within, "near": self._near}
            test = test.after(window, self._past, self._pass, rho, self._tests, **of_design)
            if number < self._cold:
                test = replace_state(test, log_e=stake_part(before, test.log_e))
            seen = np.add.reduceat(test.n_c, self._tests, axis=-1).min(axis=-1)
            passed = (seen >= LEAST_TO_PASS) & (test.e_value().min(axis=-1) * BETA >= 1)
            hours = np.where(passed & np.isinf(hours), at, hours)
            if np.isfinite(hours).all():
                break
        return float(np.quantile(hours, 0.5, method="higher"))

    def _draw(self, of_candidate: Floats) -> Iterator[tuple[WindowCounts, Floats, float]]:
        """Windows of growing length up to the deadline, with their correlation and end in hours."""
        rng, seconds, count = np.random.default_rng(_SEED), 0.0, 0
        while seconds < self._longest:
            length = 2.0 ** (count // _SAME_LENGTH)
            n_c, n_s = (
                rng.poisson(self._requests * part * length, of_candidate.shape)
                for part in self._arms
            )
            e_c, e_s = rng.binomial(n_c, of_candidate), rng.binomial(n_s, self._rates)
            parts = (part.astype(np.float64) for part in (e_c, n_c, e_s, n_s))
            count, seconds = count + 1, seconds + SECONDS * length
            # A design effect is of a window's requests, and a long one stands for several.
            yield WindowCounts(*parts), self._rho / length, seconds / 3600


def _labels(rates: RateEvidence, rows: NDArray[np.intp]) -> tuple[tuple[str, bool], ...]:
    found = (rates.rows.directions[row - CLASSES] for row in rows)
    return tuple((direction.label, direction.grows) for direction in found)


def _faults(name: str, rates: Floats, labels: Sequence[tuple[str, bool]]) -> tuple[Fault, ...]:
    if name == tests.ERROR_RATE:
        return tuple(
            Fault(
                name,
                f"errors, {points} {'point' if points == 1 else 'points'} more",
                np.minimum(rates + points / 100, 1.0),
            )
            for points in (1, 5, 10)
        )
    if name == tests.LATENCY:
        return tuple(
            Fault(name, f"slow answers, {times} times as many", np.minimum(rates * times, 1.0))
            for times in (2, 5)
        )
    return tuple(
        Fault(name, f"a label, {points} points rarer", _rarer(rates, labels, points / 100))
        for points in (5, 10, 20)
    )


def _rarer(rates: Floats, labels: Sequence[tuple[str, bool]], less: float) -> Floats:
    """With the most frequent label rarer, and the next one more frequent by as much."""
    growing = {label: rates[i] for i, (label, grows) in enumerate(labels) if grows}
    ranked = sorted(growing, key=lambda label: -growing[label])
    moved = {ranked[0]: -less, **({ranked[1]: less} if len(ranked) > 1 else {})}
    signs = np.array([moved.get(label, 0.0) * (1 if grows else -1) for label, grows in labels])
    found: Floats = np.clip(rates + signs, 0.0, 1.0)
    return found
