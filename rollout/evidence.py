"""All that is known for and against a candidate: one immutable state, folded window by window.

The controller and the simulations of ``tests/support/verdicts`` fold with it alike, so that what is
simulated is what runs. It lives as JSON in the endpoint's record. Verdicts follow from the windows
in their order alone, however they are grouped into calls. No clock, no I/O.

A check that had enough evidence to fail at any window has failed for good. Otherwise it passes if
the evidence is enough to pass now; else it is unknown. Without data every check is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

from pydantic.alias_generators import to_camel

from contracts.features import PREDICTION
from contracts.rollout import CheckResult, Checks, OutputShiftCheck, StatisticCheck, Verdict
from contracts.windows import EvidenceCounts, WindowAggregate
from rollout.checks import rate_results, rates, shift
from rollout.checks import rows as rows_of
from rollout.checks.agreement import PairAgreement
from rollout.checks.drift import DRIFT, ArmAggregates, Drifts
from rollout.checks.labels import Arms
from rollout.checks.missing import ARM_SHARE, HUNG_UP, ArmShares, HangUps
from rollout.checks.outputs import OUTPUT_SHIFT, Outputs
from rollout.checks.own import OwnStatistics
from rollout.checks.rate_results import ComparisonSetting
from rollout.checks.rates import RateEvidence
from rollout.checks.rows import Lines, list_leading
from rollout.checks.same_space import SameSpace
from rollout.checks.score_agreement import ScoreAgreement
from rollout.checks.shift import ShiftTest
from rollout.checks.stage import ComparisonStage

__all__ = ["ArmAggregates", "ComparisonStage", "Evidence"]

SCHEMA_VERSION = 1
_PAIRED: Final[Mapping[str, type[PairAgreement]]] = {
    "agreement": PairAgreement,
    "score_agreement": ScoreAgreement,
    "same_space": SameSpace,
}
_OUTPUTS = OutputShiftCheck()  # what the test of answers goes by while no spec asks for it


@dataclass(frozen=True)
class Evidence:
    """The evidence of one rollout.

    Attributes:
        checks: as the spec asks for them.
        false_rollback: chance of failing an equal version, over all gating checks together.
        lines: the tolerances of ``checks``, as arrays.
        stage: which arms are compared.
        share: of callers, that the candidate has; 0 in shadow.
        is_last_step: whether the candidate is promoted after this step.
        history_windows: windows with traffic of stable before the canary.
        seconds: length of all windows that were compared.
        rates: errors, latency, quality, class shares.
        outputs: of labels or norms.
        own: users' statistics, and a regression's answers.
        pairs: what is compared in shadow text by text, by fields of ``checks``.
        drifts: against the reference profiles.
        hung_ups: callers who gave up.
        arm_shares: the arms' sizes against the split.
        steps_began: the step before and this one, unix seconds; the first step is its own.
    """

    checks: Checks
    false_rollback: float
    lines: Lines
    stage: ComparisonStage
    share: float
    history_windows: int
    seconds: float
    rates: RateEvidence
    outputs: Outputs
    own: OwnStatistics
    pairs: Mapping[str, PairAgreement]
    drifts: Drifts
    hung_ups: HangUps
    arm_shares: ArmShares
    is_last_step: bool = False
    steps_began: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def begin(
        cls,
        checks: Checks,
        false_rollback: float,
        labels: tuple[str, ...] = (),
        stage: ComparisonStage = ComparisonStage.SHADOW,
    ) -> Self:
        """Nothing known yet.

        Args:
            checks: the spec's.
            false_rollback: the spec's.
            labels: of stable's answers and profile; those beyond ``CLASSES_LIMIT`` share one class.
                None given: learnt from the first window that has some.
            stage: that the rollout begins with.
        """
        labels = tuple(sorted(labels)[: rows_of.CLASSES_LIMIT])
        of_rates = RateEvidence.begin(labels)
        return cls(
            checks=checks,
            false_rollback=false_rollback,
            lines=rows_of.lines(checks, of_rates.rows),
            stage=stage,
            share=0.0,
            history_windows=0,
            seconds=0.0,
            rates=of_rates,
            outputs=Outputs.begin(labels),
            own=OwnStatistics(),
            pairs={name: kind.begin() for name, kind in _PAIRED.items()},
            drifts=Drifts(),
            hung_ups=HangUps.begin(),
            arm_shares=ArmShares(),
        )

    def with_history(self, stable: EvidenceCounts, whole: WindowAggregate | None = None) -> Self:
        """Adds a window of stable before any canary, and its whole aggregate if there is one."""
        if stable.requests == 0:
            return self
        if (known := self._learn_answers(stable)) is not self:
            return known.with_history(stable, whole)
        return replace(
            self,
            history_windows=self.history_windows + 1,
            rates=self.rates.with_history(stable),
            outputs=self.outputs.with_history(stable),
            hung_ups=self.hung_ups.with_history(stable),
            own=self.own.with_history(whole, self._statistics) if whole else self.own,
        )

    def after(
        self,
        candidate: EvidenceCounts,
        stable: EvidenceCounts,
        seconds: float,
        arms: ArmAggregates | None = None,
        earlier: Arms | None = None,
    ) -> Self:
        """Returns a copy with the next window of both arms of this stage.

        A window in which an arm had no request tells nothing about either but by its feedback; in
        shadow, stable's traffic in it is one more window of its history.

        Args:
            candidate: its counts.
            stable: of the arm that it is compared with.
            seconds: length of the window.
            arms: the whole aggregates and profiles, for users' statistics and drift.
            earlier: in the bake, labels of what both versions answered in the step before it.
        """
        judged = self.after_answers(candidate, stable, seconds, arms, earlier)
        if self.stage is ComparisonStage.SHADOW:
            return judged
        hung_ups, arm_shares, checks = self.hung_ups, self.arm_shares, self.checks
        if checks.hung_up:
            hung_ups = hung_ups.after(candidate, stable, checks.hung_up, self.alpha)
        if checks.arm_share:
            share, alpha = self.share, self.alpha
            arm_shares = arm_shares.after(candidate, stable, share, checks.arm_share, alpha)
        return replace(judged, hung_ups=hung_ups, arm_shares=arm_shares)

    def after_answers(
        self,
        candidate: EvidenceCounts,
        stable: EvidenceCounts,
        seconds: float,
        arms: ArmAggregates | None,
        earlier: Arms | None = None,
    ) -> Self:
        """``after``, but for what is missing from the answers."""
        is_shadow = self.stage is ComparisonStage.SHADOW
        if candidate.requests == 0 or stable.requests == 0:
            aggregate = arms.stable if arms else None
            if is_shadow:
                return self.with_history(stable, aggregate)
            return self.with_feedback(candidate, stable, earlier)
        if (known := self._learn_answers(stable)) is not self:
            return known.after_answers(candidate, stable, seconds, arms, earlier)
        checks, alpha = self.checks, self.alpha
        pairs = failures = norms = None
        if is_shadow:
            pairs = rows_of.pair_labels(candidate, self.rates.labels)
            failures = rows_of.pair_errors(candidate)
            norms = self.outputs.pair_norms(candidate)
            if pairs is None and norms is None:
                stable = rows_of.drop_cached(stable)
        of_rates = self.rates.after(
            candidate,
            stable,
            self.stage,
            self.lines,
            alpha,
            share=self.share,
            pairs=pairs,
            failures=failures,
            earlier=earlier,
        )
        after = replace(
            self,
            history_windows=self.history_windows + is_shadow,
            seconds=self.seconds + seconds,
            rates=of_rates,
            hung_ups=self.hung_ups.with_history(stable) if is_shadow else self.hung_ups,
            outputs=self.outputs.after(
                candidate,
                stable,
                checks.output_shift or _OUTPUTS,
                alpha,
                caller_spread=self._caller_spread,
                before_canary=is_shadow,
                pairs=pairs if norms is None else norms,
                texts=self.rates.texts,
                is_alone=of_rates.is_alone,
                near=self.rates.shared_near,
            ),
        )
        if is_shadow:
            seen = {
                name: self.pairs[name].after_window(candidate, check, alpha)
                for name, check in _list_paired(checks)
            }
            after = replace(after, pairs={**self.pairs, **seen})
        if arms is None:
            return after
        return replace(
            after,
            own=self.own.after(
                arms.candidate, arms.stable, self._statistics, alpha, before_canary=is_shadow
            ),
            drifts=self.drifts.after(arms, checks.drift, alpha) if checks.drift else self.drifts,
        )

    def with_feedback(
        self, candidate: EvidenceCounts, stable: EvidenceCounts, earlier: Arms | None = None
    ) -> Self:
        """With the feedback of a window in which an arm of callers had no request."""
        if self.stage is ComparisonStage.SHADOW:
            return self
        rates = self.rates.with_feedback(candidate, stable, earlier)
        return self if rates is self.rates else replace(self, rates=rates)

    def next_stage(self, stage: ComparisonStage) -> Self:
        """In another step: what lets it pass is asked again, what fails it goes on."""
        is_end = self.stage is ComparisonStage.SHADOW is not stage
        return replace(
            self,
            stage=stage,
            rates=self.rates.next_stage(is_end_of_shadow=is_end),
            outputs=self.outputs.next_stage(is_end_of_shadow=is_end),
            own=self.own.next_stage(),
            hung_ups=self.hung_ups.next_stage(),
        )

    def begun_at(self, time: float, *, is_first: bool = False) -> Self:
        """With the time at which the step began, unix seconds."""
        return replace(self, steps_began=(time if is_first else self.steps_began[1], time))

    def with_share(self, share: float, *, is_last_step: bool = False) -> Self:
        """Takes this share of callers on the candidate: arms of few callers differ by who they are.

        0 in shadow, where both arms answer the same callers. ``is_last_step``: the candidate is
        promoted after it.
        """
        if (share, is_last_step) == (self.share, self.is_last_step):
            return self
        return replace(self, share=share, is_last_step=is_last_step)

    def with_checks(self, checks: Checks, false_rollback: float) -> Self:
        """Takes the checks of an edited spec: those with another tolerance begin again."""
        was = self.checks
        if checks == was and false_rollback == self.false_rollback:
            return self
        has_same_shift = _distance(was) == _distance(checks)
        return replace(
            self,
            checks=checks,
            false_rollback=false_rollback,
            lines=rows_of.lines(checks, self.rates.rows),
            rates=rates.edit_checks(self.rates, was, checks),
            outputs=self.outputs if has_same_shift else self.outputs.restart(),
            own=self.own.with_checks(self._list_compared(was), self._list_compared(checks)),
            pairs={
                name: self.pairs[name]
                if getattr(was, name) == getattr(checks, name)
                else kind.begin()
                for name, kind in _PAIRED.items()
            },
            drifts=self.drifts if was.drift == checks.drift else Drifts(),
            hung_ups=self.hung_ups if was.hung_up == checks.hung_up else HangUps.begin(),
            arm_shares=self.arm_shares if was.arm_share == checks.arm_share else ArmShares(),
        )

    def slow(self, evidence: EvidenceCounts) -> int:
        """Attempts of a window above stable's 95th percentile so far, for plots."""
        return sum(self.rates.slowness.count_slow(evidence)[0])

    @cached_property
    def alpha(self) -> float:
        """What each gating check may spend."""
        return self.false_rollback / max(1, len(_list_gating(self.checks)))

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The word of each check without figures: cheap enough to ask after each window."""
        checks = self.checks
        verdicts = rate_results.verdicts(self.rates, checks)
        if checks.output_shift:
            verdicts[OUTPUT_SHIFT] = shift.verdict(self.outputs.test or self._numbers)
        verdicts |= {to_camel(name): self.pairs[name].verdict for name, _ in _list_paired(checks)}
        if checks.drift:
            verdicts[DRIFT] = self.drifts.verdict
        if checks.hung_up:
            verdicts[HUNG_UP] = self.hung_ups.verdict
        if checks.arm_share:
            verdicts[ARM_SHARE] = self.arm_shares.verdict(checks.arm_share)
        return verdicts | self.own.verdicts(checks.statistics)

    def results(self) -> tuple[CheckResult, ...]:
        """What every check says, in the order in which people read them."""
        of_rates = rate_results.results(
            self.rates,
            self.checks,
            self.alpha,
            ComparisonSetting(self.stage, self.share, is_last_step=self.is_last_step),
        )
        if self.outputs.are_vectors or self._numbers is not None:
            what = "vectors" if self.outputs.are_vectors else "numbers"
            of_rates = tuple(_of_no_classes(result, what) for result in of_rates)
        return (*of_rates, *self._others())

    def to_json(self) -> dict[str, Any]:
        """A few KB of plain numbers; ``of_json`` gives the same state back, bit by bit."""
        return {
            "schema_version": SCHEMA_VERSION,
            "checks": self.checks.model_dump(mode="json", by_alias=True),
            "false_rollback": self.false_rollback,
            "stage": self.stage.value,
            "share": self.share,
            "is_last_step": self.is_last_step,
            "steps_began": list(self.steps_began),
            "history_windows": self.history_windows,
            "seconds": self.seconds,
            "rates": self.rates.to_json(),
            "outputs": self.outputs.to_json(),
            "own": self.own.to_json(),
            **{name: found.to_json() for name, found in self.pairs.items()},
            "drifts": self.drifts.to_json(),
            "hung_ups": self.hung_ups.to_json(),
            "arm_shares": self.arm_shares.to_json(),
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        """The state that ``to_json`` told.

        Raises:
            KeyError: a part is missing.
            ValueError: another schema version, or a part of another kind.
        """
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"evidence of schema {data['schema_version']} is not known")
        checks, of_rates = (
            Checks.model_validate(data["checks"]),
            RateEvidence.of_json(data["rates"]),
        )
        return cls(
            checks=checks,
            false_rollback=float(data["false_rollback"]),
            lines=rows_of.lines(checks, of_rates.rows),
            stage=ComparisonStage(data["stage"]),
            share=float(data["share"]),
            history_windows=int(data["history_windows"]),
            seconds=float(data["seconds"]),
            rates=of_rates,
            outputs=Outputs.of_json(data["outputs"]),
            own=OwnStatistics.of_json(data["own"]),
            pairs={name: kind.of_json(data[name]) for name, kind in _PAIRED.items()},
            drifts=Drifts.of_json(data["drifts"]),
            hung_ups=HangUps.of_json(data["hung_ups"]),
            arm_shares=ArmShares.of_json(data["arm_shares"]),
            is_last_step=bool(data["is_last_step"]),
            steps_began=(float(data["steps_began"][0]), float(data["steps_began"][1])),
        )

    def _learn_answers(self, stable: EvidenceCounts) -> Self:
        """Notes what stable's answers are, once there are some: labels, or vectors with a norm."""
        if self.outputs.test is not None:
            return self
        if stable.labels:
            labels = list_leading(stable.labels)
            of_rates = self.rates.with_labels(labels)
            lines = rows_of.lines(self.checks, of_rates.rows)
            return replace(self, rates=of_rates, lines=lines, outputs=Outputs.begin(labels))
        return replace(self, outputs=Outputs.of_norms()) if stable.norms else self

    @cached_property
    def _caller_spread(self) -> float:
        """The distance between the arms' labels that callers can make."""
        return float(self.rates.callers.distance(self.share)) if self.rates.labels else 0.0

    @property
    def _statistics(self) -> tuple[StatisticCheck, ...]:
        return self._list_compared(self.checks)

    def _list_compared(self, checks: Checks) -> tuple[StatisticCheck, ...]:
        """The statistics to compare: with a regression's answers, which are counted as one."""
        check, asked = checks.output_shift, checks.statistics
        is_known = self.outputs.test is not None or any(each.name == PREDICTION for each in asked)
        if check is None or is_known:
            return asked
        return (*asked, StatisticCheck(name=PREDICTION, distance=check.distance))

    @property
    def _numbers(self) -> ShiftTest | None:
        """The test of a regression's answers; None of others, and of what is not known yet."""
        return None if self.outputs.test is not None else self.own.tests.get(PREDICTION)

    def _of_outputs(self, check: OutputShiftCheck) -> CheckResult:
        if self._numbers is not None:
            limits = shift.limits(check.distance, self.alpha)
            return shift.result(self._numbers, OUTPUT_SHIFT, "answers", limits, check)
        return self.outputs.result(
            check, self.alpha, self._caller_spread, is_last_step=self.is_last_step
        )

    def _others(self) -> tuple[CheckResult, ...]:
        """Results of all checks but the rates."""
        checks, alpha = self.checks, self.alpha
        found = []
        if checks.output_shift:
            found.append(self._of_outputs(checks.output_shift))
        found += [
            self.pairs[name].result(check, alpha, self.stage)
            for name, check in _list_paired(checks)
        ]
        if checks.drift:
            found.append(self.drifts.result(checks.drift))
        if checks.hung_up:
            found.append(self.hung_ups.result(checks.hung_up, alpha))
        if checks.arm_share:
            found.append(self.arm_shares.result(checks.arm_share, alpha))
        return (*found, *self.own.results(checks.statistics, alpha))


def _list_gating(checks: Checks) -> tuple[object, ...]:
    """The checks that may fail a rollout; each spends an equal part of the error."""
    single = (getattr(checks, name) for name in Checks.model_fields if name != "statistics")
    every = (*single, *checks.statistics)
    return tuple(check for check in every if check is not None and check.gate)


def _list_paired(checks: Checks) -> list[tuple[str, Any]]:
    """The checks of pairs that the spec asks for, by their fields."""
    return [(name, check) for name in _PAIRED if (check := getattr(checks, name)) is not None]


def _distance(checks: Checks) -> float:
    return (checks.output_shift or _OUTPUTS).distance


def _of_no_classes(result: CheckResult, what: str) -> CheckResult:
    """Class shares do not apply to vectors and numbers, and hold nothing up."""
    if result.name != rates.CLASS_SHARE:
        return result
    return result.model_copy(update={"required": False, "reason": f"answers are {what}, no labels"})
