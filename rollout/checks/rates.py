"""Errors, latency, quality and class shares: the tests of two proportions, as one state.

Evidence to fail adds up over all stages; evidence to pass begins again at each. Latency is not
judged in shadow, since mirrored requests have low priority. It writes no sentence
(``rollout.checks.rate_results`` does) and knows no clock.

The tests of classes share their alpha as one mixture: the mean of their e-values is an e-value
while none of them is worse, and is never less than what splitting alpha over them would leave.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from contracts.rollout import Checks, ToleranceLine
from contracts.windows import EvidenceCounts
from measures.correlation import Floats, IntraclassCorrelation, RequestTexts
from measures.leaving_out import GROUPS, LeftOut
from measures.own_past import OwnPast
from measures.pairs import MOST, MOST_OF_RARE, Pairs, bet_to_pass
from measures.proportions import (
    ALTERNATIVES,
    HarmTest,
    NonInferiorityTest,
    StableHistory,
    Tolerance,
    WindowCounts,
    weigh_unspent,
)
from measures.state import SequentialState
from rollout.checks import labels as of_labels
from rollout.checks import rows as at
from rollout.checks.callers import DEVIATIONS, MOST_CALLER_SPREAD, CallerVariation, GroupCounts
from rollout.checks.labels import Labelling, in_blocks
from rollout.checks.left_out import (
    ArmGroupCounts,
    ArmGroups,
    BakePast,
    WindowPrior,
    without_groups,
)
from rollout.checks.rows import CheckRows, Lines
from rollout.checks.share_cost import ShareCost
from rollout.checks.slowness import Slowness
from rollout.checks.stage import ComparisonStage
from rollout.checks.warmth import ArmWarmth, stake_part

BETA = 0.05  # chance that a version on the line of ``pass`` passes in a stage
LEAST_TO_PASS = 100  # the candidate's requests in a stage

ERROR_RATE, LATENCY, QUALITY, CLASS_SHARE = "errorRate", "latency", "quality", "classShare"
TESTS = {
    ERROR_RATE: slice(at.ERROR_TEST, at.ERROR_TEST + 1),
    LATENCY: slice(at.LATENCY_TEST, at.LATENCY_TEST + 1),
    QUALITY: slice(at.QUALITY_TEST, at.QUALITY_TEST + 1),
    CLASS_SHARE: slice(at.CLASS_TEST, None),
}

IN_ORDER = (ERROR_RATE, LATENCY, QUALITY, CLASS_SHARE)  # of ``rows.choose_compared``


class RateEvidence(SequentialState, frozen=True):
    """Evidence of all tests of two proportions.

    Attributes:
        labels: whose shares are tested; none while they are not known.
        slowness: stable's latencies so far.
        correlation: stable's traffic before the canary, a test.
        callers: how much stable's callers differ.
        past: stable's events and requests before the rollout, ``[2, rows]``.
        harm: evidence to fail.
        non_inferiority: evidence to pass, of this stage.
        beyond_callers: ``[tests]``, log evidence that the candidate is no further than the line to
            pass and what callers can set the arms apart, of this stage.
        sums: events and requests of candidate and stable since the rollout began, ``[4, rows]``.
        windows: how many were compared in this stage.
        failed: names of checks whose evidence was enough to fail at some window.
        settled: names of checks that passed in shadow, on the same requests.
        paired: ``[3, rows of classes]``, shadow's pairs so far, those that gained the class and
            those that lost it; None before the first.
        paired_errors: ``[3, 1]``, the same of those in which only the shadow or only stable failed.
        left_out: the evidence to fail without some callers and windows, by which it is decided.
        groups: requests of this stage by callers' groups.
        feedback: ``[4, 1 + groups, rows of quality]``, labels that wait to be compared
            (``labels.counted``); None without any.
        labelling: who labels, and how.
        warmth: whether latency says anything against the version yet.
        share_cost: what a large share of callers costs.
        texts: of stable's requests before the canary, how much they resemble one another, a class;
            None while the labels are not known.
        own_past: how slow each of stable's callers was before the canary.
        errors_past: the same, of how often each failed.
    """

    labels: tuple[str, ...]
    slowness: Slowness
    correlation: IntraclassCorrelation
    callers: CallerVariation
    past: Floats
    harm: HarmTest
    non_inferiority: NonInferiorityTest
    sums: Floats
    left_out: LeftOut
    groups: ArmGroups
    own_past: OwnPast
    errors_past: OwnPast
    beyond_callers: Floats
    labelling: Labelling
    windows: int = 0
    failed: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    paired: Floats | None = None
    paired_errors: Floats | None = None
    texts: RequestTexts | None = None
    feedback: Floats | None = None
    warmth: ArmWarmth = ArmWarmth.begin()
    share_cost: ShareCost = ShareCost.begin()

    @classmethod
    def begin(cls, labels: tuple[str, ...]) -> Self:
        """Nothing known yet."""
        rows = CheckRows.of(labels)
        shape = (rows.count,)
        return cls(
            labels,
            Slowness.begin(),
            IntraclassCorrelation.begin(len(rows.tests)),
            CallerVariation.begin(len(labels)),
            np.zeros((2, rows.count)),
            HarmTest.begin(shape, rows.tests),
            NonInferiorityTest.begin(shape, rows.tests),
            np.zeros((4, rows.count)),
            left_out=LeftOut.begin(len(rows.tests)),
            groups=ArmGroups.begin(),
            own_past=OwnPast.begin(),
            beyond_callers=np.zeros(len(rows.tests)),
            errors_past=OwnPast.begin(),
            labelling=Labelling.begin(),
        )

    def with_labels(self, labels: tuple[str, ...]) -> Self:
        """Returns a copy with the rows of classes, which were not known before."""
        more = CheckRows.of(labels).count - self.rows.count
        # As if they had been there, without evidence: the weights of the starts so far.
        spent = 1 - weigh_unspent(self.harm.windows)
        log_a = np.full((more, self.harm.log_a.shape[-1]), np.log(spent) if spent else -np.inf)
        harm = replace(
            self.harm,
            log_a=np.concatenate([self.harm.log_a, log_a]),
            e_s=_lengthen(self.harm.e_s, more),
            n_s=_lengthen(self.harm.n_s, more),
        )
        return replace(
            self,
            labels=labels,
            correlation=self.correlation.widen(more),
            callers=self.callers.with_labels(len(labels)),
            past=_lengthen(self.past, more),
            harm=harm,
            non_inferiority=NonInferiorityTest(
                *(_lengthen(part, more) for part in structs.astuple(self.non_inferiority))
            ),
            sums=_lengthen(self.sums, more),
            beyond_callers=_lengthen(self.beyond_callers, more),
            left_out=self.left_out.join(
                LeftOut.following(harm), slice(self.harm.log_a.shape[-2], None)
            ),
        )

    def with_history(self, stable: EvidenceCounts) -> Self:
        """Returns a copy with a window of stable from before the rollout."""
        e, n = self._counts(stable)
        return replace(
            self,
            slowness=self.slowness.after(stable),
            own_past=self._extend_own_past(stable),
            errors_past=self._extend_errors_past(stable),
            correlation=self._correlation_after(e, n),
            callers=self._callers_after(stable),
            texts=self._texts_after(stable),
            past=self.past + np.stack([e, n]),
            labelling=self.labelling.with_history(stable),
        )

    def after(
        self,
        candidate: EvidenceCounts,
        stable: EvidenceCounts,
        stage: ComparisonStage,
        lines: Lines,
        alpha: float,
        *,
        share: float,
        pairs: Floats | None = None,
        failures: Floats | None = None,
        earlier: of_labels.Arms | None = None,
    ) -> Self:
        """Adds a window of both arms. In shadow, stable's traffic still tells its correlation.

        Args:
            candidate: its counts.
            stable: the same of stable.
            stage: which arms these are.
            lines: the tolerances of the rows.
            alpha: of each check.
            share: of callers, that the candidate has; 0 in shadow, where it has copies.
            pairs: of shadow, both versions' answers to the same requests (``rows.pair_labels``), by
                which classes are judged; None: by all requests of both arms.
            failures: the same, of whether they failed at them (``rows.pair_errors``), by which
                errors are judged.
            earlier: in the bake, labels of what both versions answered in the step before it.
        """
        e_c, n_c = self._counts(candidate)
        e_s, n_s = self._counts(stable)
        seen, past, correlation = np.stack([e_c, n_c, e_s, n_s]), self.past, self.correlation
        texts, waiting, labelling = self.texts, self.feedback, self.labelling
        is_cold, warmth = self.is_cold(stage, alpha), self.warmth.with_callers()
        blocks = np.zeros((4, 1 + GROUPS, at.QUALITY.stop - at.QUALITY.start))
        told = self._pair_windows(pairs, failures)
        if stage is ComparisonStage.SHADOW:
            correlation, texts = self._correlation_after(e_s, n_s), self._texts_after(stable)
            labelling = labelling.with_history(stable)
            warmth = self._warmth_after_copies(WindowCounts(e_c, n_c, e_s, n_s), lines)
            # What is not compared by arms is one more window of stable's past.
            past = past.copy()
            for part in (at.LATENCY, *(each.of_test for each in told)):
                past[:, part] += np.stack([e_s[part], n_s[part]])
                for counts in (e_c, n_c, e_s, n_s):
                    counts[part] = 0.0
        else:
            labels = _labels((candidate, stable), earlier)
            seen[:, at.QUALITY], labelling = labels[:, 0], labelling.after(labels.sum(axis=-1))
            blocks, waiting = in_blocks(labels, self._waiting_feedback)
            for counts, block in zip((e_c, n_c, e_s, n_s), blocks, strict=True):
                counts[at.QUALITY] = block[0]
        to_fail, to_pass = self._by_pairs(told, lines)
        window, history, tests = WindowCounts(e_c, n_c, e_s, n_s), self._history, self.rows.tests
        spread = self.spread(share)
        fail = Tolerance(
            lines.fail.a + self._with_newcomers(spread, (candidate, stable), n_c + n_s, share),
            lines.fail.s,
        )
        believed = WindowPrior(self.harm.theta_s(history), fail, self.rho, self.within, self.near)
        log_s = believed.log_s(window, self.rows) + to_fail
        bake = BakePast.of(history, self.share_cost.factor(share), stage)
        log_s = bake.hold(log_s, window, believed)
        not_worse = self.non_inferiority.after(
            window,
            history,
            lines.pass_,
            self.rho,
            tests,
            within=self.within,
            near=self.near,
            paired=to_pass,
        )
        if is_cold:
            log_s, not_worse = self._reporting_only(log_s, not_worse)
        harm = self.harm.grow(log_s, window)
        if stage is ComparisonStage.SHADOW:
            of_groups, groups = np.repeat(log_s[None], GROUPS, axis=0), self.groups
        else:
            both = (
                self._count_groups(candidate, blocks[:2, 1:]),
                self._count_groups(stable, blocks[2:, 1:]),
            )
            of_groups = without_groups(window, both, believed, self.rows, bake)
            of_groups[..., at.LATENCY_TEST, :] *= not is_cold
            groups = self.groups.after(*(arm.every for arm in both))
        wide = Tolerance(lines.pass_.a + spread, lines.pass_.s)
        beyond_callers = self.beyond_callers + self.non_inferiority.log_s(
            window, history, wide, self.rho, tests, within=self.within, near=self.near
        )
        counted = window.n_c.copy()
        for each in told:
            not_worse = not_worse.counting(each.pairs.arms, each.rows)
            counted[each.of_test] = each.spread(seen[3, each.of_test])
            seen[:, each.of_test] = 0.0
            seen[:, each.rows] = each.pairs.arms
        expected = believed.expected(WindowCounts(e_c, counted, e_s, n_s), self.rows)
        after = replace(
            self,
            slowness=self.slowness.after(stable),
            own_past=self._extend_own_past(stable)
            if stage is ComparisonStage.SHADOW
            else self.own_past,
            errors_past=self._extend_errors_past(stable)
            if stage is ComparisonStage.SHADOW
            else self.errors_past,
            correlation=correlation,
            callers=self.callers if stage is ComparisonStage.BAKE else self._callers_after(stable),
            past=past,
            harm=harm,
            non_inferiority=not_worse,
            paired=_add_pairs(told, at.CLASS_TEST, self.paired),
            paired_errors=_add_pairs(told, at.ERROR_TEST, self.paired_errors),
            texts=texts,
            sums=self.sums + seen,
            windows=self.windows + 1,
            feedback=waiting,
            labelling=labelling,
            left_out=self.left_out.after(log_s, of_groups, harm.windows, expected),
            groups=groups,
            beyond_callers=beyond_callers,
            warmth=warmth,
            share_cost=self.share_cost
            if is_cold or stage is not ComparisonStage.CANARY
            else self.share_cost.after(window, share),
        )
        if after.e_values.max() * alpha < 1.0:  # no mean is more than that
            return after
        failing = [name for name in TESTS if after.evidence_to_fail(name) * alpha >= 1.0]
        return replace(after, failed=self.failed.union(failing)) if failing else after

    def with_feedback(
        self,
        candidate: EvidenceCounts,
        stable: EvidenceCounts,
        earlier: of_labels.Arms | None = None,
    ) -> Self:
        """With the feedback of a window in which one arm had no request, and is not compared."""
        told = _labels((candidate, stable), earlier)
        if not told.any():
            return self
        sums = self.sums.copy()
        sums[:, at.QUALITY] += told[:, 0]
        labelling = self.labelling.after(told.sum(axis=-1))
        return replace(self, sums=sums, labelling=labelling, feedback=self._waiting_feedback + told)

    def next_stage(self, *, is_end_of_shadow: bool = False) -> Self:
        """Returns a copy with the evidence to pass begun again."""
        begun = NonInferiorityTest.begin((self.rows.count,), self.rows.tests)
        settled = self.settled
        if is_end_of_shadow:
            settled = frozenset(name for name in TESTS if self.has_passed(name))
        return replace(
            self,
            non_inferiority=begun,
            windows=0,
            settled=settled,
            feedback=None,
            labelling=self.labelling.next_stage(),
            share_cost=self.share_cost.next_stage(),
            groups=ArmGroups.begin(),
            beyond_callers=np.zeros(len(self.rows.tests)),
        )

    def restart(self, name: str) -> Self:
        """Returns a copy with a check begun again, whose tolerance was changed."""
        tests = TESTS[name]
        in_test = np.isin(self.rows.test_of_row, np.arange(len(self.rows.tests))[tests])
        spent = 1 - weigh_unspent(self.harm.windows)
        log_a, log_e = self.harm.log_a.copy(), self.non_inferiority.log_e.copy()
        beyond_callers = self.beyond_callers.copy()
        log_a[tests] = np.log(spent) if spent else -np.inf
        log_e[tests] = beyond_callers[tests] = 0.0
        n_c, e_c = (
            np.where(in_test, 0.0, self.non_inferiority.n_c),
            np.where(in_test, 0.0, self.non_inferiority.e_c),
        )
        return replace(
            self,
            harm=(harm := replace(self.harm, log_a=log_a)),
            left_out=self.left_out.join(LeftOut.following(harm), tests),
            non_inferiority=replace(self.non_inferiority, log_e=log_e, n_c=n_c, e_c=e_c),
            failed=self.failed - {name},
            settled=self.settled - {name},
            beyond_callers=beyond_callers,
            warmth=self.warmth.forget_copies() if name == LATENCY else self.warmth,
        )

    def is_cold(self, stage: ComparisonStage, alpha: float) -> bool:
        """Whether latency only reports in the next window."""
        return stage is not ComparisonStage.SHADOW and bool(self.warmth.is_cold(alpha))

    def evidence_to_fail(self, name: str) -> float:
        """The e-value of a check; 1 of one that has no tests yet."""
        values = self.e_values[TESTS[name]]
        return float(values.mean()) if len(values) else 1.0

    def rests_on_few(self, name: str, alpha: float) -> bool:
        """Whether a check would fail, were no group of callers and no window left out."""
        values = np.minimum(self.harm.e_value()[TESTS[name]], 1e300)
        return bool(len(values) and values.mean() * alpha >= 1.0 and name not in self.failed)

    def evidence_to_pass(self, name: str) -> float:
        """The least e-value of a check's tests, which must all pass; 1 without any."""
        log_e = self.non_inferiority.log_e[TESTS[name]]
        return float(np.exp(min(log_e.min(), 700.0))) if len(log_e) else 1.0

    def has_passed(self, name: str) -> bool:
        """Whether the evidence, as it stands, is enough to pass in this stage."""
        return (
            self.requests_in_stage(name) >= LEAST_TO_PASS
            and self.evidence_to_pass(name) * BETA >= 1.0
        )

    def is_hidden_by_callers(self, name: str, line: ToleranceLine, share: float) -> bool:
        """Whether a version like stable may not pass, for other callers are in the other arm.

        Args:
            name: of the check.
            line: to pass.
            share: of callers, that the candidate has.
        """
        return bool(self.caller_spread(name, share) > MOST_CALLER_SPREAD * line.absolute)

    def has_passed_beyond_callers(self, name: str) -> bool:
        """Whether it passes at lines that are wider by what callers can set the arms apart."""
        log_e = self.beyond_callers[TESTS[name]]
        is_enough = bool(len(log_e)) and float(log_e.min()) >= -np.log(BETA)
        return self.requests_in_stage(name) >= LEAST_TO_PASS and is_enough

    def missing_evidence(self, *, beyond_callers: bool) -> Floats:
        """``[tests]``: the logarithm by which evidence to pass must grow still."""
        log_e = self.beyond_callers if beyond_callers else self.non_inferiority.log_e
        needed: Floats = np.maximum(-np.log(BETA) - log_e, 0.0)
        return needed

    def caller_spread(self, name: str, share: float) -> float:
        """How far apart the shares of a check can be with one version in both arms, at most."""
        tests = np.arange(len(self.rows.tests))[TESTS[name]]
        of_check = np.isin(self.rows.test_of_row, tests)
        is_met = of_check & (self.non_inferiority.n_c > 0)
        of_rows = self.spread(share)[is_met if is_met.any() else of_check]
        return float(of_rows.max(initial=0.0))

    def spread(self, share: float) -> Floats:
        """``[rows]``: how far the arms' shares can be apart with one version in both.

        Of latency, and of errors of callers with a past, it is what is left within strata.
        """
        found = self.callers.spread(self.rows, share)
        found[at.LATENCY] = DEVIATIONS * self.own_past.deviation(share)
        found[at.KNOWN_ERRORS] = DEVIATIONS * self.errors_past.deviation(share)
        return found

    def _with_newcomers(
        self,
        spread: Floats,
        arms: tuple[EvidenceCounts, EvidenceCounts],
        requests: Floats,
        share: float,
    ) -> Floats:
        """``spread`` in a window with these ``requests``, ``[rows]``, of newcomers too.

        If names change, nobody knows who was slow or failed before.
        """
        slow = [self.slowness.of_callers(arm) for arm in arms]
        failed = [at.errors_of_callers(arm) for arm in arms]
        return with_newcomers(
            spread,
            self.own_past.newcomers(slow, at.sum_strata(requests, at.LATENCY)),
            self.own_past.deviation_of_all(share),
            self.errors_past.newcomers(failed, at.sum_strata(requests, at.ERRORS)),
        )

    def requests_in_stage(self, name: str) -> float:
        """The candidate's requests that a check rests on in this stage: of its smallest test."""
        of_tests = np.add.reduceat(self.non_inferiority.n_c, self.rows.tests)[TESTS[name]]
        return float(of_tests.min()) if len(of_tests) else 0.0

    def is_paired(self, name: str) -> bool:
        """Whether shadow told of a check by pairs."""
        seen = {ERROR_RATE: self.paired_errors, CLASS_SHARE: self.paired}
        return seen.get(name) is not None

    @property
    def is_alone(self) -> bool:
        """Whether one group of callers is nearly all of an arm, and can't be left out."""
        return bool(self.groups.is_alone)

    @property
    def rows(self) -> CheckRows:
        """Which rows there are."""
        return CheckRows.of(self.labels)

    @cached_property
    def e_values(self) -> Floats:
        """Of all tests, to fail: finite, and without the callers and windows that say most."""
        is_alone = np.full(len(self.rows.tests), self.is_alone)
        is_alone[TESTS[QUALITY]] = self.labelling.is_alone
        return self.left_out.e_value(self.harm.windows, is_alone)

    @cached_property
    def rho(self) -> Floats:
        """``rho_of_tests``, ``[rows]``.

        A slow minute is slow for every length: a stratum's rho is that of all of its test's
        requests, over the stratum's share of them, so that all strata get the design effect of the
        whole window.
        """
        of_tests = self.rho_of_tests[self.rows.test_of_row]
        requests = self.past[1]
        whole = np.add.reduceat(requests, self.rows.tests)[self.rows.test_of_row]
        return np.minimum(
            of_tests * np.where(requests > 0, whole / np.maximum(requests, 1.0), 1.0), 1.0
        )

    @cached_property
    def rho_of_tests(self) -> Floats:
        """Intra-window correlation, ``[tests]``, beyond what texts of one request make."""
        alike = self._of_classes(None if self.texts is None else self.texts.each)
        return self.correlation.subtract(alike[self.rows.tests])

    @cached_property
    def within(self) -> Floats:
        """The part of the design effect that texts of one request make, ``[rows]``."""
        return self._of_classes(None if self.texts is None else self.texts.effect)

    @cached_property
    def near(self) -> Floats:
        """What evidence is divided by besides, for callers' requests of near windows, ``[rows]``.

        Texts of one request are a caller's as well, and count once.
        """
        return np.maximum(self.callers.near_effect(self.rows) / self.within, 1.0)

    @property
    def shared_near(self) -> float:
        """The same of all classes together."""
        of_texts = 1.0 if self.texts is None else float(self.texts.shared_effect)
        return max(1.0, float(self.callers.shared_near_effect) / of_texts)

    def _of_classes(self, effect: Floats | None) -> Floats:
        """``[classes]`` to ``[rows]``: 1 elsewhere; a class that falls is the one that grows."""
        found = np.ones(self.rows.count)
        if effect is not None:
            found[at.CLASSES :] = np.resize(effect, self.rows.count - at.CLASSES)
        return found

    def _extend_own_past(self, stable: EvidenceCounts) -> OwnPast:
        if not stable.caller_latency:
            return self.own_past
        slow, timed = np.array(self.slowness.count_slow(stable), dtype=np.float64)
        return self.own_past.after(self.slowness.of_callers(stable), slow, timed)

    def _extend_errors_past(self, stable: EvidenceCounts) -> OwnPast:
        if not stable.caller_requests:
            return self.errors_past
        failed, attempts = (np.array([float(of)]) for of in (stable.errors, stable.requests))
        return self.errors_past.after(at.errors_of_callers(stable), failed, attempts)

    def _counts(self, arm: EvidenceCounts) -> tuple[Floats, Floats]:
        return self.rows.counts(arm, self.slowness, self.own_past, self.errors_past)

    def _warmth_after_copies(self, window: WindowCounts, lines: Lines) -> ArmWarmth:
        rho = self.rho_of_tests[at.LATENCY_TEST]
        return self.warmth.with_copies(window, self._history, lines.fail, rho)

    def _reporting_only(
        self, log_s: Floats, not_worse: NonInferiorityTest
    ) -> tuple[Floats, NonInferiorityTest]:
        """A cold window: latency says nothing to fail, and part of what it says to pass."""
        of_latency = at.LATENCY_TEST
        log_s, log_e = log_s.copy(), not_worse.log_e.copy()
        log_s[of_latency] = 0.0
        before = self.non_inferiority.log_e[of_latency]
        log_e[of_latency] = stake_part(before, log_e[of_latency])
        return log_s, replace(not_worse, log_e=log_e)

    def _count_groups(self, arm: EvidenceCounts, labels: Floats) -> ArmGroupCounts:
        every, failed = GroupCounts.of(arm, self.labels), at.errors_of_callers(arm)
        found = ArmGroupCounts.of(every, failed, self.errors_past, labels)
        return found.with_times(self.slowness.of_callers(arm), self.own_past)

    @property
    def _history(self) -> StableHistory:
        """Stable's past; of answers of an earlier step it is that of all answers."""
        past = self.past.copy()
        past[:, at.QUALITY] = past[:, at.QUALITY.start, None]
        return StableHistory(*past)

    def _texts_after(self, stable: EvidenceCounts) -> RequestTexts | None:
        if not self.labels:
            return None
        before = self.texts or RequestTexts.begin(len(self.labels) + 1)
        events = np.array(at.by_label(stable.labels, self.labels), dtype=np.float64)
        return before.after(events, *at.neighbours(stable, self.labels))

    def _pair_windows(
        self, pairs: Floats | None, failures: Floats | None
    ) -> "tuple[_PairedWindow, ...]":
        """What a window of shadow tells by pairs."""
        found = []
        if failures is not None:
            of_errors = Pairs.of_event(failures)
            found.append(
                _PairedWindow(of_errors, at.PAIRED_ERRORS, at.ERROR_TEST, self.paired_errors)
            )
        if pairs is not None:
            of_classes = Pairs.of(pairs, self.rows.count - at.CLASSES)
            rows = slice(at.CLASSES, self.rows.count)
            found.append(_PairedWindow(of_classes, rows, at.CLASS_TEST, self.paired))
        return tuple(found)

    def _by_pairs(self, told: "tuple[_PairedWindow, ...]", lines: Lines) -> tuple[Floats, Floats]:
        """Log e-values of a window's pairs to fail, ``[tests, ALTERNATIVES]``, and to pass."""
        to_fail = np.zeros((len(self.rows.tests), ALTERNATIVES))
        to_pass = np.zeros(len(self.rows.tests))
        for each in told:
            of_rows = lines.of(each.rows)
            tests = slice(each.test, each.test + each.rows.stop - each.rows.start)
            rho = self.rho_of_tests[tests]
            most = MOST_OF_RARE if each.test == at.ERROR_TEST else MOST
            bet = bet_to_pass(each.before, of_rows.pass_, most)
            to_fail[tests] = each.pairs.log_to_fail(of_rows.fail, rho)
            to_pass[tests] = each.pairs.log_to_pass(of_rows.pass_, bet, rho)
        return to_fail, to_pass

    @property
    def _waiting_feedback(self) -> Floats:
        if self.feedback is not None:
            return self.feedback
        return np.zeros((4, 1 + GROUPS, at.QUALITY.stop - at.QUALITY.start))

    def _correlation_after(self, events: Floats, requests: Floats) -> IntraclassCorrelation:
        tests = self.rows.tests
        return self.correlation.after(
            np.add.reduceat(events, tests), np.add.reduceat(requests, tests)
        )

    def _callers_after(self, stable: EvidenceCounts) -> CallerVariation:
        return self.callers.after(GroupCounts.of(stable, self.labels))


@dataclass(frozen=True)
class _PairedWindow:
    """Pairs of one window, the rows and the first test that they are of, and all those before."""

    pairs: Pairs
    rows: slice
    test: int
    before: Floats | None

    @property
    def of_test(self) -> slice:
        """All rows of the test: pairs of errors are not told by stratum of callers."""
        return at.ERRORS if self.test == at.ERROR_TEST else self.rows

    def spread(self, requests: Floats) -> Floats:
        """How many pairs there are, a row of the test; errors' strata as their requests are."""
        if self.test != at.ERROR_TEST:
            return self.pairs.count
        found: Floats = self.pairs.count * requests / max(float(requests.sum()), 1.0)
        return found


def _add_pairs(told: tuple[_PairedWindow, ...], test: int, before: Floats | None) -> Floats | None:
    """All pairs of one kind so far, with this window's."""
    of_test = next((each for each in told if each.test == test), None)
    return before if of_test is None else of_test.pairs.add(before)


def with_newcomers(spread: Floats, slow: Floats, deviation: Floats, failed: Floats) -> Floats:
    """How far callers can set arms apart in a window, some of whom have no past.

    Args:
        spread: ``[..., rows]``, of callers who have one.
        slow: ``[...]``, of latency, ``OwnPast.newcomers`` of the window.
        deviation: ``[...]``, of latency, ``OwnPast.deviation_of_all``.
        failed: ``[...]``, as ``slow``, of errors.
    """
    found = spread.copy()
    of_latency = found[..., at.UNKNOWN_LATENCY]
    found[..., at.UNKNOWN_LATENCY] = np.maximum(
        of_latency, (DEVIATIONS * slow * deviation)[..., None]
    )
    found[..., at.ERRORS.start] *= np.maximum(failed, 1.0)
    return np.minimum(found, 1.0)


def _labels(arms: of_labels.Arms, earlier: of_labels.Arms | None) -> Floats:
    """``[4, 1 + groups, rows of quality]``: of this step's answers, and of the one before."""
    nothing = (EvidenceCounts(), EvidenceCounts())
    both = (of_labels.count_labels(arms), of_labels.count_labels(earlier or nothing))
    return np.stack(both, axis=-1)


def list_enabled(checks: Checks) -> dict[str, bool]:
    """Which of these checks were asked for."""
    return {
        ERROR_RATE: checks.error_rate is not None,
        LATENCY: checks.latency is not None,
        QUALITY: checks.quality is not None,
        CLASS_SHARE: checks.class_share is not None,
    }


def edit_checks(rates: RateEvidence, was: Checks, now: Checks) -> RateEvidence:
    """The evidence under edited checks: those whose tolerance changed begin again."""
    for name, one, other in zip(
        IN_ORDER, at.choose_compared(was), at.choose_compared(now), strict=True
    ):
        if (one.fail, one.pass_) != (other.fail, other.pass_):
            rates = rates.restart(name)
    return rates


def _lengthen(part: Floats, more: int) -> Floats:
    return np.concatenate([part, np.zeros((*part.shape[:-1], more))], axis=-1)
