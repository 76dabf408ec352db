"""The evidence of many rollouts at once: ``rollout.evidence`` with a leading axis.

The arithmetic is production's (``measures``, ``rollout.checks.rows`` and ``.correlation``); what is
written anew here is how a window's counts are handed to it, for rollouts come by the thousand only
as arrays. ``tests/rollout/test_simulated_rollouts.py`` holds it to ``rollout.evidence``, window by
window.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from contracts.rollout import Checks, OutputShiftCheck
from measures.correlation import CAUTION, Floats, IntraclassCorrelation, RequestTexts
from measures.divergence import Shift
from measures.leaving_out import GROUPS, LeftOut
from measures.own_past import CallersAnswers, OwnPast
from measures.pairs import MOST, MOST_OF_RARE, Pairs, bet_to_pass
from measures.proportions import (
    HarmTest,
    NonInferiorityTest,
    StableHistory,
    Tolerance,
    WindowCounts,
)
from rollout.checks import slowness
from rollout.checks.callers import DEVIATIONS, MOST_CALLER_SPREAD, CallerVariation, GroupCounts
from rollout.checks.left_out import (
    ArmGroupCounts,
    ArmGroups,
    BakePast,
    WindowPrior,
    classes_by_group,
    without_groups,
)
from rollout.checks.rates import (
    BETA,
    CLASS_SHARE,
    ERROR_RATE,
    LATENCY,
    LEAST_TO_PASS,
    TESTS,
    with_newcomers,
)
from rollout.checks.rows import (
    CLASS_TEST,
    CLASSES,
    ERROR_TEST,
    ERRORS,
    KNOWN_ERRORS,
    LATENCY_TEST,
    PAIRED_ERRORS,
    CheckRows,
    lines,
    sum_strata,
)
from rollout.checks.rows import LATENCY as LATENCY_ROWS
from rollout.checks.share_cost import ShareCost
from rollout.checks.shift import limits
from rollout.checks.warmth import ArmWarmth, stake_part
from verdicts.traffic import BUCKETS, LABELS, LENGTHS, Arm, nobodys

OUTPUT_SHIFT = "outputShift"
NAMES = (ERROR_RATE, LATENCY, CLASS_SHARE, OUTPUT_SHIFT)  # of the checks that gate by default
CHECKS = Checks()
ROWS = CheckRows(LABELS)
LINES = lines(CHECKS, ROWS)
DISTANCE = OutputShiftCheck().distance

Yes = NDArray[np.bool_]
_State = TypeVar(
    "_State",
    HarmTest,
    NonInferiorityTest,
    Shift,
    IntraclassCorrelation,
    CallerVariation,
    RequestTexts,
    ArmGroups,
    OwnPast,
    ArmWarmth,
    ShareCost,
)


@dataclass(frozen=True)
class _PairCounts:
    """What a window of shadow tells by pairs; nothing in the rollouts that are not in shadow.

    Attributes:
        to_fail: ``[rollouts, tests, ALTERNATIVES]``, log e-values.
        to_pass: ``[rollouts, tests]``, likewise.
        arms: ``[rollouts, 4, rows]``, as ``Pairs.arms``.
        added: ``[rollouts, 3, rows]``, all pairs so far.
    """

    to_fail: Floats
    to_pass: Floats
    arms: Floats
    added: Floats

    @classmethod
    def of(cls, pairs: Pairs, told: Yes, before: Floats, test: int, rho: Floats) -> Self:
        """Of errors or classes, by their first test, where they are ``told``."""
        is_rare = test == ERROR_TEST
        rows, most = (PAIRED_ERRORS, MOST_OF_RARE) if is_rare else (slice(CLASSES, None), MOST)
        of_rows, rho = LINES.of(rows), rho[:, test : test + pairs.count.shape[-1]]
        wide = told[:, None, None]
        to_pass = pairs.log_to_pass(of_rows.pass_, bet_to_pass(before, of_rows.pass_, most), rho)
        return cls(
            np.where(wide, pairs.log_to_fail(of_rows.fail, rho), 0.0),
            np.where(told[:, None], to_pass, 0.0),
            np.where(wide, pairs.arms, 0.0),
            np.where(wide, pairs.add(before), before),
        )


@dataclass(frozen=True)
class BatchedEvidence:
    """A row a rollout.

    Attributes:
        alpha: of each gating check.
        past: ``[rollouts, 2, rows]``, stable's events and requests before the rollout.
        times: ``[rollouts, lengths, buckets]``, stable's latencies so far.
        correlation: ``[rollouts, tests]``.
        callers: how much they differ.
        answers: ``[rollouts, classes]``, correlation of the answers.
        texts: ``[rollouts, classes]``, how much those of one request resemble one another.
        harm: evidence to fail, as are ``shifts``.
        non_inferiority: evidence to pass, of the step, as are ``near``.
        failed: ``[rollouts, NAMES]``.
        paired: ``[rollouts, 3, rows of classes]``, of shadow, as is ``paired_errors``.
        left_out: evidence to fail without some callers and windows.
        without: ``[rollouts, GROUPS]``, as ``shifts``, without some callers.
        groups: requests of the step by callers' groups.
        own_past: how slow callers were before the canary.
        errors_past: how often they failed before it.
        beyond_callers: ``[rollouts, tests]``, log evidence to pass at wider lines, of the step.
        warmth: whether latency says anything against the version yet.
        share_cost: what a large share of callers costs.
    """

    alpha: float
    past: Floats
    times: NDArray[np.int64]
    correlation: IntraclassCorrelation
    callers: CallerVariation
    answers: IntraclassCorrelation
    texts: RequestTexts
    harm: HarmTest
    non_inferiority: NonInferiorityTest
    shifts: Shift
    near: Shift
    failed: Yes
    paired: Floats
    left_out: LeftOut
    without: Shift
    groups: ArmGroups
    own_past: OwnPast
    beyond_callers: Floats
    paired_errors: Floats
    errors_past: OwnPast
    warmth: ArmWarmth
    share_cost: ShareCost

    @classmethod
    def begin(cls, rollouts: int, false_rollback: float) -> Self:
        """Nothing known yet of so many."""
        shape, classes = (rollouts, ROWS.count), len(LABELS) + 1
        shift = Shift.begin(classes, (rollouts,))
        return cls(
            false_rollback / len(NAMES),
            np.zeros((rollouts, 2, ROWS.count)),
            np.zeros((rollouts, len(LENGTHS), BUCKETS), dtype=np.int64),
            _unknown(rollouts, len(ROWS.tests)),
            CallerVariation.begin(len(LABELS), (rollouts,)),
            _unknown(rollouts, classes),
            RequestTexts.begin(classes, (rollouts,)),
            HarmTest.begin(shape, ROWS.tests),
            NonInferiorityTest.begin(shape, ROWS.tests),
            shift,
            shift,
            np.zeros((rollouts, len(NAMES)), dtype=np.bool_),
            np.zeros((rollouts, 3, ROWS.count - CLASSES)),
            LeftOut.begin(len(ROWS.tests), (rollouts,)),
            Shift.begin(classes, (rollouts, GROUPS)),
            ArmGroups.begin((rollouts,)),
            OwnPast.begin((rollouts,)),
            np.zeros((rollouts, len(ROWS.tests))),
            np.zeros((rollouts, 3, 1)),
            OwnPast.begin((rollouts,)),
            ArmWarmth.begin((rollouts,)),
            ShareCost.begin((rollouts,)),
        )

    def with_history(self, stable: Arm) -> Self:
        """With a window of stable from before the rollouts."""
        e, n = self._counts(stable)
        return replace(
            self,
            past=self.past + np.stack([e, n], axis=1),
            times=_added(self.times, stable),
            own_past=self._own_past_after(stable),
            errors_past=self._errors_past_after(stable),
            correlation=_after(self.correlation, e, n),
            callers=self.callers.after(_grouped(stable)),
            answers=_answers_after(self.answers, stable),
            texts=_texts_after(self.texts, stable),
        )

    def after(self, candidate: Arm, stable: Arm, share: Floats, bake: Yes) -> Self:
        """With a window of both arms.

        ``share`` is that of the candidate's callers, 0 where it got copies; in ``bake`` stable is
        what holds back the old version.
        """
        shadow = share == 0
        e_c, n_c = self._counts(candidate)
        e_s, n_s = self._counts(stable)
        wide = shadow[:, None]
        table = _pairs(candidate)
        is_paired = shadow & table.any(axis=(1, 2))
        failures = _failures(candidate)
        tells_errors = shadow & failures.any(axis=(1, 2))
        elsewhere = np.zeros((len(shadow), ROWS.count), dtype=np.bool_)  # not compared by arms
        elsewhere[:, LATENCY_ROWS], elsewhere[:, CLASSES:] = wide, is_paired[:, None]
        elsewhere[:, ERRORS] = tells_errors[:, None]
        past = self.past + np.stack([e_s, n_s], axis=1) * elsewhere[:, None]
        correlation = _after_where(
            shadow, lambda: _after(self.correlation, e_s, n_s), self.correlation
        )
        requests = n_s.copy()
        every = WindowCounts(e_c.copy(), n_c.copy(), e_s.copy(), n_s.copy())
        for part in (e_c, n_c, e_s, n_s):
            part[elsewhere] = 0.0
        rho_of_tests = self._rho_of_tests()
        rho_of_rows = self._rho(rho_of_tests)
        of_classes = _PairCounts.of(
            Pairs.of(table, ROWS.count - CLASSES), is_paired, self.paired, CLASS_TEST, rho_of_tests
        )
        of_errors = _PairCounts.of(
            Pairs.of_event(failures), tells_errors, self.paired_errors, ERROR_TEST, rho_of_tests
        )
        to_fail, to_pass = (
            np.concatenate([one, np.zeros((len(shadow), CLASS_TEST - 1, *one.shape[2:])), two], 1)
            for one, two in (
                (of_errors.to_fail, of_classes.to_fail),
                (of_errors.to_pass, of_classes.to_pass),
            )
        )
        window = WindowCounts(e_c, n_c, e_s, n_s)
        history = StableHistory(self.past[:, 0], self.past[:, 1])
        asked = replace(limits(DISTANCE, self.alpha), caller_spread=self.callers.distance(share))
        one, other = _classes(candidate), _classes(stable)
        alike = np.where(is_paired, 1.0, self.texts.shared)
        of_request = np.where(is_paired, 1.0, self.texts.shared_effect)
        rho, within = self._answers_rho(alike), _of_classes(self.texts.effect)
        near, shared_near = self._near_effect(), np.where(is_paired, 1.0, self._shared_near())
        one = np.where(is_paired[:, None], table.sum(axis=1), one)
        other = np.where(is_paired[:, None], table.sum(axis=2), other)
        both = self._grouped(candidate), self._grouped(stable)
        rest = (
            _without(one, both[0].every, shadow),
            _without(other, both[1].every, shadow),
        )
        wider = replace(asked, caller_spread=np.asarray(asked.caller_spread)[:, None])
        apart = self._apart(share)
        wider_apart = self._with_newcomers(apart, (candidate, stable), n_c + n_s, share)
        fail = Tolerance(LINES.fail.a + wider_apart, LINES.fail.s)
        believed = WindowPrior(self.harm.theta_s(history), fail, rho_of_rows, within, near)
        log_s = believed.log_s(window, ROWS) + to_fail
        past_of_bake = BakePast(history, self.share_cost.factor(share), bake)
        log_s = past_of_bake.hold(log_s, window, believed)
        is_cold = ~shadow & self.warmth.is_cold(self.alpha)
        log_s[is_cold, LATENCY_TEST] = 0.0
        further = Tolerance(LINES.pass_.a + apart, LINES.pass_.s)
        beyond_callers = self.non_inferiority.log_s(
            window, history, further, rho_of_rows, ROWS.tests, within=within, near=near
        )
        of_groups = np.repeat(log_s[:, None], GROUPS, axis=1)
        if not shadow.all():  # where both arms answer the same callers, nobody is out
            without = without_groups(window, both, believed, ROWS, past_of_bake)
            of_groups = np.where(shadow[:, None, None, None], of_groups, without)
        of_groups[is_cold, :, LATENCY_TEST] = 0.0
        counted = _with_pairs(window.n_c, of_errors, requests)
        expected = believed.expected(replace(window, n_c=counted), ROWS)
        not_worse = (
            self.non_inferiority.after(
                window,
                history,
                LINES.pass_,
                rho_of_rows,
                ROWS.tests,
                within=within,
                near=near,
                paired=to_pass,
            )
            .counting(of_classes.arms, slice(CLASSES, None))
            .counting(of_errors.arms, PAIRED_ERRORS)
        )
        log_e = not_worse.log_e
        log_e[is_cold, LATENCY_TEST] = stake_part(
            self.non_inferiority.log_e[is_cold, LATENCY_TEST], log_e[is_cold, LATENCY_TEST]
        )
        after = replace(
            self,
            warmth=_after_where(
                shadow,
                lambda: self.warmth.with_copies(
                    every, history, LINES.fail, rho_of_tests[:, LATENCY_TEST]
                ),
                self.warmth.with_callers(),
            ),
            share_cost=_after_where(
                ~(shadow | bake | is_cold),
                lambda: self.share_cost.after(window, share),
                self.share_cost,
            ),
            past=past,
            own_past=_after_where(shadow, lambda: self._own_past_after(stable), self.own_past),
            errors_past=_after_where(
                shadow, lambda: self._errors_past_after(stable), self.errors_past
            ),
            times=_added(self.times, stable),
            correlation=correlation,
            callers=_after_where(~bake, lambda: self.callers.after(both[1].every), self.callers),
            answers=_after_where(
                shadow, lambda: _answers_after(self.answers, stable), self.answers
            ),
            texts=_after_where(shadow, lambda: _texts_after(self.texts, stable), self.texts),
            harm=self.harm.grow(log_s, window),
            left_out=self.left_out.after(log_s, of_groups, self.harm.windows + 1, expected),
            groups=_after_where(
                ~shadow, lambda: self.groups.after(*(arm.every for arm in both)), self.groups
            ),
            beyond_callers=self.beyond_callers + beyond_callers,
            non_inferiority=not_worse,
            paired=of_classes.added,
            paired_errors=of_errors.added,
            shifts=self.shifts.after(one, other, asked, rho, of_request, near=shared_near),
            near=self.near.after(one, other, asked, rho, of_request, near=shared_near),
            without=self.without.after(
                rest[0],
                rest[1],
                wider,
                rho[:, None],
                of_request[:, None],
                near=shared_near[:, None],
            ),
        )
        e_values = after.left_out.e_value(after.harm.windows, after.groups.is_alone[:, None])
        means = [e_values[:, TESTS[name]].mean(axis=1) for name in NAMES[:3]]
        shifted = after.shifts.failed & (
            after.without.failed.all(axis=1) | (after.groups.is_alone & ~shadow)
        )
        failing = np.stack([mean * self.alpha >= 1.0 for mean in means] + [shifted], 1)
        return replace(after, failed=self.failed | failing)

    def passed(self) -> Yes:
        """``[rollouts, NAMES]``: which checks pass as it stands."""
        test = self.non_inferiority
        asked = np.add.reduceat(test.n_c, ROWS.tests, axis=-1)
        passes = (asked >= LEAST_TO_PASS) & (test.e_value() * BETA >= 1.0)
        of_rates = [passes[:, TESTS[name]].all(axis=1) for name in NAMES[:3]]
        return np.stack([*of_rates, self.near.passed], axis=1) & ~self.failed

    def blurred(self, share: Floats, is_last_step: Yes) -> Yes:
        """``[rollouts, NAMES]``: which checks need not pass again that passed in shadow."""
        found = np.zeros((len(share), len(NAMES)), dtype=np.bool_)
        apart = self.callers.spread(ROWS, share)[:, CLASSES:].max(axis=1)
        line = np.asarray(LINES.pass_.a)[CLASSES:].max()
        found[:, NAMES.index(CLASS_SHARE)] = apart > MOST_CALLER_SPREAD * line
        found[:, NAMES.index(OUTPUT_SHIFT)] = (
            self.callers.distance(share) > MOST_CALLER_SPREAD * DISTANCE
        )
        seen = np.minimum(self.non_inferiority.n_c[:, CLASSES:].min(axis=1), self.near.n_c)
        found &= (seen >= LEAST_TO_PASS)[:, None]
        log_e = self.beyond_callers[:, TESTS[CLASS_SHARE]].min(axis=1)
        is_near = np.zeros(found.shape, dtype=np.bool_)
        is_near[:, NAMES.index(CLASS_SHARE)] = log_e >= -np.log(BETA)
        is_near[:, NAMES.index(OUTPUT_SHIFT)] = self.near.passed_beyond_callers
        return found & (is_near | ~is_last_step[:, None])

    def next_stage(self, moving: Yes) -> Self:
        """With the evidence to pass begun anew in those rollouts."""
        if not moving.any():
            return self
        rollouts = len(moving)
        begun = NonInferiorityTest.begin((rollouts, ROWS.count), ROWS.tests)
        near = Shift.begin(len(LABELS) + 1, (rollouts,))
        return replace(
            self,
            non_inferiority=_chosen(moving, begun, self.non_inferiority),
            near=_chosen(moving, near, self.near),
            share_cost=_chosen(moving, self.share_cost.next_stage(), self.share_cost),
            groups=_chosen(moving, ArmGroups.begin((rollouts,)), self.groups),
            beyond_callers=np.where(moving[:, None], 0.0, self.beyond_callers),
        )

    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        """Of some of the rollouts."""
        return replace(
            self,
            past=self.past[rows],
            times=self.times[rows],
            failed=self.failed[rows],
            paired=self.paired[rows],
            paired_errors=self.paired_errors[rows],
            beyond_callers=self.beyond_callers[rows],
            left_out=LeftOut(self.left_out.log_a[rows], self.left_out.block[rows]),
            **{
                name: _of_rows(getattr(self, name), rows)
                for name in (
                    "correlation",
                    "callers",
                    "answers",
                    "texts",
                    "harm",
                    "non_inferiority",
                    "shifts",
                    "near",
                    "groups",
                    "without",
                    "own_past",
                    "errors_past",
                    "warmth",
                    "share_cost",
                )
            },
        )

    def _apart(self, share: Floats) -> Floats:
        """``[rollouts, rows]``: ``Rates.spread``."""
        found = self.callers.spread(ROWS, share)
        found[:, LATENCY_ROWS] = DEVIATIONS * self.own_past.deviation(share)[:, None]
        found[:, KNOWN_ERRORS] = DEVIATIONS * self.errors_past.deviation(share)[:, None]
        return found

    def _with_newcomers(
        self, apart: Floats, arms: tuple[Arm, Arm], requests: Floats, share: Floats
    ) -> Floats:
        """``RateEvidence._with_newcomers``."""
        slow = [self._of_callers(arm) for arm in arms]
        failed = [_failed_of_callers(arm) for arm in arms]
        return with_newcomers(
            apart,
            self.own_past.newcomers(slow, sum_strata(requests, LATENCY_ROWS)),
            self.own_past.deviation_of_all(share),
            self.errors_past.newcomers(failed, sum_strata(requests, ERRORS)),
        )

    def _counts(self, arm: Arm) -> tuple[Floats, Floats]:
        """Events and requests, ``[rollouts, rows]``, as ``CheckRows.counts`` has them of one."""
        rollouts = len(arm.requests)
        e, n = np.zeros((rollouts, ROWS.count)), np.zeros((rollouts, ROWS.count))
        of_errors = _failed_of_callers(arm).by_stratum(self.errors_past.strata, *_attempts(arm))
        e[:, ERRORS], n[:, ERRORS] = (counts[..., 0] for counts in of_errors)
        for counts, of_strata in zip((e, n), self._latencies(arm), strict=True):
            for index, length in enumerate(LENGTHS):
                first = LATENCY_ROWS.start + slowness.LENGTHS.index(length)
                counts[:, first : LATENCY_ROWS.stop : len(slowness.LENGTHS)] = of_strata[..., index]
        labels = _answers(arm)
        e[:, CLASSES : CLASSES + len(LABELS)] = labels
        n[:, CLASSES:] = labels.sum(axis=1)[:, None]
        return e, n

    def _latencies(self, arm: Arm) -> tuple[Floats, Floats]:
        """Slow answers and all, ``[rollouts, STRATA, lengths]``: ``rows.latency_counts``."""
        slow, timed = self._timed(arm)
        return self._of_callers(arm).by_stratum(self.own_past.strata, slow, timed)

    def _timed(self, arm: Arm) -> tuple[Floats, Floats]:
        """Slow answers and all, ``[rollouts, lengths]``."""
        edges, known = self._edges
        buckets = arm.first[..., None] + np.arange(arm.times.shape[-1])
        slow = (arm.times * (buckets > edges[..., None])).sum(axis=-1)
        return np.where(known, slow, 0.0), np.where(known, arm.times.sum(axis=-1), 0.0)

    def _of_callers(self, arm: Arm) -> CallersAnswers:
        edges, known = self._edges
        of = arm.callers or nobodys()
        timed = known[of.row, of.length].astype(np.float64)
        is_later = arm.first[of.row, of.length] + of.time > edges[of.row, of.length]
        return CallersAnswers((of.row, of.bucket), of.length, is_later * timed, timed)

    def _own_past_after(self, stable: Arm) -> OwnPast:
        return self.own_past.after(self._of_callers(stable), *self._timed(stable))

    def _errors_past_after(self, stable: Arm) -> OwnPast:
        return self.errors_past.after(_failed_of_callers(stable), *_attempts(stable))

    def _grouped(self, arm: Arm) -> ArmGroupCounts:
        found = ArmGroupCounts.of(_grouped(arm), _failed_of_callers(arm), self.errors_past)
        times = self._of_callers(arm)
        lengths = np.array([slowness.LENGTHS.index(length) for length in LENGTHS])
        by_length = replace(times, length=lengths[times.length])
        return found.with_times(by_length, self.own_past)

    @cached_property
    def _edges(self) -> tuple[NDArray[np.intp], Yes]:
        """``[rollouts, lengths]``: ``Slowness.edges``, and where they are known."""
        cumulated = np.cumsum(self.times, axis=-1)
        totals = cumulated[..., -1]
        ranks = np.ceil(slowness.PERCENTILE * totals)
        return (cumulated < ranks[..., None]).sum(axis=-1), totals >= slowness.ENOUGH

    def _near_effect(self) -> Floats:
        """``[rollouts, rows]``: ``RateEvidence.near``."""
        within = _of_classes(self.texts.effect)
        return np.maximum(self.callers.near_effect(ROWS) / within, 1.0)

    def _shared_near(self) -> Floats:
        """``[rollouts]``: ``RateEvidence.shared_near``."""
        return np.maximum(self.callers.shared_near_effect / self.texts.shared_effect, 1.0)

    def _rho_of_tests(self) -> Floats:
        return self.correlation.subtract(_of_classes(self.texts.each)[:, ROWS.tests])

    def _rho(self, of_tests: Floats) -> Floats:
        of_row = ROWS.test_of_row
        requests = self.past[:, 1]
        whole = np.add.reduceat(requests, ROWS.tests, axis=-1)[:, of_row]
        part = np.where(requests > 0, whole / np.maximum(requests, 1.0), 1.0)
        rho: Floats = np.minimum(of_tests[:, of_row] * part, 1.0)
        return rho

    def _answers_rho(self, alike: Floats) -> Floats:
        """``IntraclassCorrelation.shared_beyond`` of each rollout."""
        known = self.answers
        windows, requests = known.windows[:, 0], known.requests[:, 0]
        p = known.events / np.maximum(known.requests, 1.0)
        over = np.where(p > 0, known.squares / np.where(p > 0, p, 1.0), 0.0).sum(axis=1)
        x = over / np.maximum((p > 0).sum(axis=1) - 1, 1) / np.maximum(windows - 1, 1.0)
        mean = requests / np.maximum(windows, 1.0)
        rho: Floats = CAUTION * np.maximum(0.0, (x - alike) / np.maximum(mean - 1, 1.0))
        return np.minimum(rho, 1.0)


def _unknown(rollouts: int, events: int) -> IntraclassCorrelation:
    zero = np.zeros((rollouts, events))
    return IntraclassCorrelation(zero, zero, zero, zero, zero, zero)


def _after(
    correlation: IntraclassCorrelation, events: Floats, requests: Floats
) -> IntraclassCorrelation:
    of_tests = (np.add.reduceat(part, ROWS.tests, axis=-1) for part in (events, requests))
    return correlation.after(*of_tests)


def _answers_after(correlation: IntraclassCorrelation, stable: Arm) -> IntraclassCorrelation:
    counts = _classes(stable)
    return correlation.after(counts, np.broadcast_to(counts.sum(axis=1)[:, None], counts.shape))


def _texts_after(texts: RequestTexts, stable: Arm) -> RequestTexts:
    neighbours, like = (
        np.zeros((len(stable.labels), len(LABELS) + 1)) if counts is None else _with_others(counts)
        for counts in (stable.neighbours, stable.like)
    )
    return texts.after(_with_others(stable.labels), neighbours, like)


def _of_classes(effect: Floats) -> Floats:
    """``[rollouts, classes]`` to ``[rollouts, rows]``: 1 elsewhere."""
    found = np.ones((len(effect), ROWS.count))
    found[:, CLASSES:] = effect
    return found


def _grouped(arm: Arm) -> GroupCounts:
    """Both classes and all others, of which there are none, behind errors and no feedback."""
    requests, errors, positive = (arm.groups[:, part].astype(np.float64) for part in range(3))
    answered, nothing = requests - errors, np.zeros(requests.shape)
    labels = _answers(arm)
    labelled = labels.sum(axis=1)
    every = (labelled, labelled, labelled)
    empty = np.zeros(len(labelled))
    return GroupCounts(
        np.stack([errors, nothing, answered - positive, positive, nothing], axis=1),
        np.stack([requests, nothing, answered, answered, answered], axis=1),
        np.stack([arm.errors, empty, *labels.T, empty], axis=1).astype(np.float64),
        np.stack([arm.requests, empty, *every], axis=1).astype(np.float64),
    )


def _without(classes: Floats, arm: GroupCounts, shadow: Yes) -> Floats:
    """``[rollouts, GROUPS, classes]``: without each group, but in shadow, where nobody is out."""
    of_groups = np.where(shadow[:, None, None], 0.0, classes_by_group(arm))
    return np.maximum(classes[:, None] - of_groups, 0.0)


def _pairs(arm: Arm) -> Floats:
    """Pairs by both labels and, behind them, all others, of which there are none."""
    if arm.pairs is None:
        return np.zeros((len(arm.requests), len(LABELS) + 1, len(LABELS) + 1))
    return np.pad(arm.pairs, ((0, 0), (0, 1), (0, 1)))


def _failures(arm: Arm) -> Floats:
    """Pairs by whether the original failed and whether the copy did."""
    return np.zeros((len(arm.requests), 2, 2)) if arm.failures is None else arm.failures


def _classes(arm: Arm) -> Floats:
    """Labels and, behind them, all others, of which there are none."""
    return _with_others(_answers(arm))


def _attempts(arm: Arm) -> tuple[Floats, Floats]:
    """Errors and requests of anybody, ``[rollouts, 1]``: they are not told by length."""
    return arm.errors[:, None].astype(np.float64), arm.requests[:, None].astype(np.float64)


def _failed_of_callers(arm: Arm) -> CallersAnswers:
    """``rows.errors_of_callers``."""
    of = arm.attempts
    if of is None:
        nothing, none = np.zeros(0, dtype=np.intp), np.zeros(0)
        return CallersAnswers((nothing, nothing), nothing, none, none)
    errors, requests = of.errors.astype(np.float64), of.requests.astype(np.float64)
    return CallersAnswers((of.row, of.bucket), np.zeros_like(of.row), errors, requests)


def _with_pairs(n_c: Floats, told: _PairCounts, requests: Floats) -> Floats:
    """The candidate's requests with pairs of errors, by stratum as stable's requests are."""
    counted, of_strata = n_c.copy(), requests[:, ERRORS]
    every = np.maximum(of_strata.sum(axis=1, keepdims=True), 1.0)
    counted[:, ERRORS] += told.arms[:, 1] * of_strata / every
    return counted


def _with_others(labels: NDArray[np.int64]) -> Floats:
    """``[rollouts, labels]`` to ``[rollouts, classes]``; ``np.pad`` takes ten times as long."""
    found = np.zeros((len(labels), labels.shape[1] + 1))
    found[:, :-1] = labels
    return found


def _answers(arm: Arm) -> NDArray[np.int64]:
    """``[rollouts, labels]``: those of a cache included."""
    return arm.labels if arm.cached is None else arm.labels + arm.cached


def _added(times: NDArray[np.int64], stable: Arm) -> NDArray[np.int64]:
    added = times.copy()
    buckets = stable.first[..., None] + np.arange(stable.times.shape[-1])
    rollouts, lengths = np.ogrid[: times.shape[0], : times.shape[1]]
    added[rollouts[..., None], lengths[..., None], buckets] += stable.times
    return added


def _after_where(yes: Yes, after: Callable[[], _State], before: _State) -> _State:
    """What ``after`` says where ``yes``; it is asked only if that is anywhere."""
    return _chosen(yes, after(), before) if yes.any() else before


def _chosen(yes: Yes, one: _State, other: _State) -> _State:
    """Each part of one state where ``yes``, else of the other."""
    return _made(one, lambda name: _where(yes, getattr(one, name), getattr(other, name)))


def _where(yes: Yes, one: Any, other: Any) -> object:  # an array, or a number of all
    if not isinstance(one, np.ndarray):
        return one
    flat = yes.reshape(len(yes), *(1,) * (one.ndim - 1))
    return np.where(flat, one, other)


def _of_rows(state: _State, rows: NDArray[np.intp]) -> _State:
    def part(name: str) -> object:
        value = getattr(state, name)
        return value[rows] if isinstance(value, np.ndarray) else value

    return _made(state, part)


def _made(like: _State, part: Callable[[str], Any]) -> _State:
    names = like.PARTS if isinstance(like, OwnPast) else like.__struct_fields__
    return type(like)(*(part(name) for name in names))
