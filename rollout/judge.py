"""The judge that the machine gets: windows of an endpoint in, evidence and verdicts out.

Satisfies ``rollout.context.Judge``. It picks the arms of the stage from each window, by package and
arm, and keeps the rollout's evidence, results and plot in its state. Pure: it has no memory of its
own; profiles come from a function that it was given.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from contracts.endpoint import Arm
from contracts.model import ModelRef
from contracts.profile import ReferenceProfile
from contracts.rollout import RolloutSpec, RolloutState, SeriesPoint
from contracts.windows import EndpointWindow, EvidenceCounts, WindowAggregate
from rollout import steps
from rollout.checks.labels import Arms, about_answers
from rollout.checks.rows import leading
from rollout.checks.stage import TAKEN_UP_WINDOWS
from rollout.evidence import ArmAggregates, Evidence, Stage
from rollout.packed_evidence import packed, unpacked
from rollout.series import extended

Profiles = Callable[[ModelRef], ReferenceProfile | None]

_ARMS = {
    Stage.SHADOW: (Arm.SHADOW, Arm.STABLE),
    Stage.CANARY: (Arm.CANARY, Arm.STABLE),
    Stage.BAKE: (Arm.STABLE, Arm.CONTROL),
}


def _no_profiles(_: ModelRef) -> ReferenceProfile | None:
    return None


@dataclass(frozen=True)
class Judge:
    """Turns windows into evidence.

    Attributes:
        profiles: reference profile of a package, or None; drift is unknown without.
    """

    profiles: Profiles = _no_profiles

    def begin(
        self, spec: RolloutSpec, state: RolloutState, history: Sequence[EndpointWindow]
    ) -> RolloutState:
        """With fresh evidence that knows stable's past from these windows, oldest first."""
        aggregates = [
            aggregate
            for window in sorted(history, key=lambda window: window.start)
            if (aggregate := _aggregate(window, state.stable, Arm.STABLE)) is not None
        ]
        evidence = Evidence.begin(
            spec.checks, spec.false_rollback, self._labels(state, aggregates), stage(spec, state)
        ).with_share(share(spec, state), is_last_step=is_last_step(spec, state))
        evidence = evidence.begun_at(state.step_began, is_first=True)
        for aggregate in aggregates:
            evidence = evidence.with_history(aggregate.evidence, aggregate)
        return _with_evidence(state, evidence)

    def look(
        self, spec: RolloutSpec, state: RolloutState, windows: Sequence[EndpointWindow]
    ) -> RolloutState:
        """With the windows that end after ``state.looked_through`` judged, each once."""
        new = sorted(
            (window for window in windows if window.start + window.seconds > state.looked_through),
            key=lambda window: window.start,
        )
        was = self._evidence(spec, state)
        evidence = was.with_checks(spec.checks, spec.false_rollback).with_share(
            share(spec, state), is_last_step=is_last_step(spec, state)
        )
        if not new and evidence is was and state.checks:
            return state
        arms = _ARMS[evidence.stage]
        profiles = (self.profiles(state.candidate), self.profiles(state.stable)) if new else ()
        points = []
        for window in new:
            candidate = _aggregate(window, state.candidate, arms[0])
            stable = _aggregate(window, state.stable, arms[1])
            one = candidate.evidence if candidate else EvidenceCounts()
            other = stable.evidence if stable else EvidenceCounts()
            earlier = None
            if evidence.stage is not Stage.SHADOW:
                taken_up = state.step_began + TAKEN_UP_WINDOWS * window.seconds
                one, other = (about_answers(arm, window, taken_up) for arm in (one, other))
            if evidence.stage is Stage.BAKE:
                earlier = _before_promotion(window, state, evidence)
            labelled = (one, other, *(earlier or ()))
            if not any((candidate, stable, *(arm.feedback for arm in labelled))):
                continue
            points.append(_point(window, one, other, evidence, earlier))
            if candidate is not None and stable is not None:
                arms_seen = ArmAggregates(candidate, stable, *profiles)
                evidence = evidence.after(one, other, window.seconds, arms_seen, earlier)
            elif evidence.stage is not Stage.SHADOW:
                evidence = evidence.with_feedback(one, other, earlier)
            elif stable is not None:
                evidence = evidence.with_history(other, stable)
        through = max((window.start + window.seconds for window in new), default=0)
        return _with_evidence(state, evidence).model_copy(
            update={
                "looked_through": max(state.looked_through, float(through)),
                "series": extended(state.series, points),
            }
        )

    def next_stage(self, spec: RolloutSpec, state: RolloutState) -> RolloutState:
        """Ready for the step that the state has just entered."""
        evidence = self._evidence(spec, state).next_stage(stage(spec, state))
        evidence = evidence.begun_at(state.step_began)
        is_last = is_last_step(spec, state)
        return _with_evidence(state, evidence.with_share(share(spec, state), is_last_step=is_last))

    def history_windows(self, state: RolloutState) -> int:
        """How many windows with traffic of stable, before any canary, the evidence rests on."""
        return int(state.evidence.get("history_windows", 0))

    def _evidence(self, spec: RolloutSpec, state: RolloutState) -> Evidence:
        if state.evidence:
            return Evidence.of_json(unpacked(state.evidence))
        return Evidence.begin(
            spec.checks, spec.false_rollback, self._labels(state, ()), stage(spec, state)
        )

    def _labels(
        self, state: RolloutState, aggregates: Iterable[WindowAggregate]
    ) -> tuple[str, ...]:
        """Stable's labels, by its profile and its past: never by what the candidate answers."""
        counts: dict[str, int] = {}
        profile = self.profiles(state.stable)
        for labels in (
            profile.labels if profile else {},
            *(aggregate.evidence.labels for aggregate in aggregates),
        ):
            for label, count in labels.items():
                counts[label] = counts.get(label, 0) + count
        return leading(counts)


def stage(spec: RolloutSpec, state: RolloutState) -> Stage:
    """Which arms a rollout compares now."""
    if state.promoted_at is not None:
        return Stage.BAKE
    is_shadow = steps.arm(steps.current(spec, state)) is Arm.SHADOW
    return Stage.SHADOW if is_shadow else Stage.CANARY


def share(spec: RolloutSpec, state: RolloutState) -> float:
    """The share of callers that the candidate has now, 0 to 1; 0 while it gets copies."""
    if state.promoted_at is not None:
        return 1 - spec.hold_back / 100
    step = steps.current(spec, state)
    return steps.percent(step) / 100 if steps.arm(step) is Arm.CANARY else 0.0


def is_last_step(spec: RolloutSpec, state: RolloutState) -> bool:
    """Whether the candidate is promoted after the step that it is in."""
    return state.promoted_at is None and steps.following(spec, state) is None


def _aggregate(window: EndpointWindow, ref: ModelRef, arm: Arm) -> WindowAggregate | None:
    return next(
        (
            aggregate
            for aggregate in window.aggregates
            if aggregate.package == ref.package and aggregate.arm is arm
        ),
        None,
    )


def _before_promotion(window: EndpointWindow, state: RolloutState, evidence: Evidence) -> Arms:
    """Labels of what was answered in the last step, by the candidate as canary."""
    since = evidence.steps_began[0] + TAKEN_UP_WINDOWS * window.seconds
    arms = ((state.candidate, Arm.CANARY), (state.stable, Arm.STABLE))
    candidate, stable = (
        about_answers(found.evidence, window, since, state.step_began)
        if (found := _aggregate(window, ref, arm)) is not None
        else EvidenceCounts()
        for ref, arm in arms
    )
    return candidate, stable


def _with_evidence(state: RolloutState, evidence: Evidence) -> RolloutState:
    stored = packed(evidence.to_json())
    return state.model_copy(update={"evidence": stored, "checks": evidence.results()})


def _point(
    window: EndpointWindow,
    one: EvidenceCounts,
    other: EvidenceCounts,
    evidence: Evidence,
    earlier: Arms | None,
) -> SeriesPoint:
    before, before_of_stable = earlier or (EvidenceCounts(), EvidenceCounts())
    return SeriesPoint(
        start=window.start,
        seconds=window.seconds,
        candidate_requests=one.requests,
        candidate_errors=one.errors,
        candidate_slow=evidence.slow(one),
        stable_requests=other.requests,
        stable_errors=other.errors,
        stable_slow=evidence.slow(other),
        candidate_feedback=one.feedback + before.feedback,
        candidate_wrong=one.feedback_wrong + before.feedback_wrong,
        stable_feedback=other.feedback + before_of_stable.feedback,
        stable_wrong=other.feedback_wrong + before_of_stable.feedback_wrong,
    )
