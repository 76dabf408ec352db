"""The one view model of a rollout: for the command line, the page ``/ui``, MLflow's report. Pure.

A ``RolloutView`` holds nothing but what follows from the stored endpoint. Each rendering decides
what it draws of it, and how it names a step.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from contracts.backfills import list_backfills
from contracts.endpoint import Candidate, ModelEndpoint, Phase, Transition
from contracts.instants import date_and_time
from contracts.rollout import (
    COMMAND_PREFIX,
    CheckResult,
    CommandOutcome,
    Outcome,
    RolloutSpec,
    RolloutState,
    ShadowStep,
    Step,
    Strategy,
)
from contracts.status_events import is_own
from rollout import steps
from rollout.checks import words as words_of_checks

# A version that came to one of these has ended its way.
ENDS: Final = frozenset(
    {Phase.REJECTED, Phase.ROLLED_BACK, Phase.SUPERSEDED, Phase.SETTLED, Phase.EXPIRED}
)


class StageMark(StrEnum):
    """Where a stage stands."""

    DONE = "done"
    NOW = "now"
    AHEAD = "todo"
    FAILED = "failed"
    LEFT = "left"  # the rollout ended here without a verdict on the version


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage on the way to all callers."""

    name: str
    mark: StageMark


@dataclass(frozen=True, slots=True)
class StageWords:
    """What stages are called: each step, and the time between promotion and the end."""

    step: Callable[[Step], str]
    promoted: str


def _with_percent(step: Step) -> str:
    return f"shadow {step.shadow:g} %" if isinstance(step, ShadowStep) else f"{step.weight:g} %"


BRIEF: Final = StageWords(step=steps.describe, promoted="promoted")
FULL: Final = StageWords(step=_with_percent, promoted="bake")


@dataclass(frozen=True, slots=True)
class ArmView:
    """Who gets what: percent of callers or, for a shadow, of copied requests."""

    arm: str
    version: str
    percent: float


@dataclass(frozen=True, slots=True)
class RolloutView:
    """All that is shown of a version's way.

    Attributes:
        endpoint: its name.
        version: None if the endpoint has none yet.
        against: the version that it is compared with.
        phase: of the version, or how its rollout ended.
        reason: why it is where it is.
        stages: its way, in the words of who draws it.
        arms: who gets what now.
        checks: results of the rollout's checks.
        paused_at: since when the deadline stands still; None if it does not.
        deadline_at: unix time at which it expires without a verdict, if it is not paused
            before; None if no deadline counts.
        bake_ends_at: unix time of the end of its bake; None before and after.
        next_version: waits for this one to end.
        commands_waiting: commands that the controller has not answered.
        answers: to what people decided, oldest first.
        lines: of history: the version's way from its preparation to its end, oldest first.
        spaces: vector spaces that the endpoint holds, and who gets which.
    """

    endpoint: str
    version: str | None
    against: str | None
    phase: str
    reason: str
    stages: tuple[StageView, ...]
    arms: tuple[ArmView, ...]
    checks: tuple[CheckResult, ...] = ()
    paused_at: float | None = None
    deadline_at: float | None = None
    bake_ends_at: float | None = None
    next_version: str | None = None
    commands_waiting: int = 0
    answers: tuple[CommandOutcome, ...] = ()
    lines: tuple[Transition, ...] = ()
    spaces: tuple["SpaceView", ...] = ()

    def deadline_seconds(self, now: float) -> float | None:
        """Seconds to the deadline; None if none counts."""
        if self.deadline_at is None:
            return None
        return max(0.0, self.deadline_at - (now if self.paused_at is None else self.paused_at))

    def bake_seconds(self, now: float) -> float | None:
        """Seconds of the bake that are left; None outside of it."""
        return None if self.bake_ends_at is None else max(0.0, self.bake_ends_at - now)


@dataclass(frozen=True, slots=True)
class SpaceView:
    """A vector space that Tritons hold, and who gets it; the times are of one that is kept."""

    space: str
    version: str
    who: str
    asked_at: float | None = None
    leaves_at: float | None = None


def newest(endpoint: ModelEndpoint, words: StageWords = BRIEF) -> RolloutView:
    """The newest version: its rollout, its preparation, or where it ended."""
    status = endpoint.status
    candidate, last = status.candidate, status.last_rollout
    if status.rollout is not None:
        return of_rollout(endpoint, status.rollout, words)
    if candidate is not None and not (candidate.phase in ENDS and _is_of(last, candidate)):
        return of_preparation(endpoint, candidate, words)
    if last is not None:
        return of_rollout(endpoint, last, words)
    stable = status.stable
    phase = Phase.WAITING if stable is None else Phase.SERVING
    return _view(endpoint, None if stable is None else stable.version, phase.value, "", ())


def of_rollout(
    endpoint: ModelEndpoint, state: RolloutState, words: StageWords = BRIEF
) -> RolloutView:
    """A rollout, as it goes on or as it ended."""
    spec, candidate = endpoint.rollout_spec, endpoint.status.candidate
    version, is_on = state.candidate.version, state.outcome is None
    own = is_own(candidate, state)
    reason = candidate.reason if candidate is not None and own and is_on else state.reason
    waits = candidate is not None and not own and is_on
    deadline = state.began + state.paused_seconds + spec.deadline
    return _view(
        endpoint,
        version,
        _phase(spec, state),
        reason,
        _stages_of_rollout(spec, state, words),
        against=state.stable.version,
        checks=list_checks(state),
        paused_at=state.paused_at,
        deadline_at=deadline
        if is_on and state.promoted_at is None and state.passed_at is None
        else None,
        bake_ends_at=None
        if state.promoted_at is None or not is_on
        else state.promoted_at + spec.bake,
        next_version=candidate.version if candidate is not None and waits else None,
        lines=_lines(endpoint.status.history, state),
    )


def list_checks(state: RolloutState) -> tuple[CheckResult, ...]:
    """What its checks say; once it has ended, none asks for more requests."""
    if state.outcome is None:
        return state.checks
    return tuple(
        check.model_copy(update={"needs": None, "reason": words_of_checks.conclude(check.reason)})
        for check in state.checks
    )


def of_preparation(
    endpoint: ModelEndpoint, candidate: Candidate, words: StageWords = BRIEF
) -> RolloutView:
    """A version that is not compared yet: converted, loaded, waiting, blocked or rejected."""
    stable = endpoint.status.stable
    if candidate.phase in _REACHED:
        at, mark = _REACHED[candidate.phase], StageMark.NOW
    else:
        at = _furthest(endpoint, candidate.version)
        mark = StageMark.NOW if candidate.phase is Phase.BLOCKED else StageMark.FAILED
    spec = endpoint.rollout_spec
    direct = stable is None or spec.strategy is Strategy.DIRECT
    names = (*_BEFORE, "serving") if direct else _names(spec, words)
    return _view(
        endpoint,
        candidate.version,
        candidate.phase.value,
        candidate.reason,
        _mark_stages(names, min(at, len(names) - 1), mark),
        against=None if stable is None else stable.version,
    )


def list_spaces(endpoint: ModelEndpoint) -> tuple[SpaceView, ...]:
    """The current space, the next one and those that are kept; none if it gives no vectors."""
    status, state = endpoint.status, endpoint.status.rollout
    stable, keep = status.stable, endpoint.spec.rollout.embedding.keep
    if stable is None or not stable.space:
        return ()
    found = {stable.space: SpaceView(stable.space, stable.version, "all who name no space")}
    new = None if status.candidate is None else status.candidate.ref
    if new is not None and new.space:
        has_passed = state is not None and state.passed_at is not None
        who = "who names it or next: it waits for its cutover" if has_passed else "who names it"
        found.setdefault(new.space, SpaceView(new.space, new.version, who))
    if state is not None and state.promoted_at is not None:
        left = state.stable
        found.setdefault(left.space, SpaceView(left.space, left.version, "who names it"))
    for each in status.kept:
        times = each.asked_at, each.asked_at + keep
        view = SpaceView(each.ref.space, each.ref.version, "who names it", *times)
        found.setdefault(view.space, view)
    for told in list_backfills(endpoint.metadata.annotations):
        if told.space in found:
            view = found[told.space]
            done = f"{told.done:,} of {told.rows:,} texts re-embedded in {told.output}"
            who = f"{view.who}; {done} ({date_and_time(told.at)} UTC)"
            found[told.space] = replace(view, who=who)
    return tuple(found.values())


def is_preparing(candidate: Candidate | None) -> bool:
    """Whether a version moves towards its rollout: it is not blocked, and has not ended."""
    return candidate is not None and candidate.phase in _REACHED


def _view(
    endpoint: ModelEndpoint,
    version: str | None,
    phase: str,
    reason: str,
    stages: tuple[StageView, ...],
    **more: Any,  # noqa: ANN401 - the view's further fields
) -> RolloutView:
    return RolloutView(
        endpoint=endpoint.name,
        version=version,
        phase=phase,
        reason=reason,
        stages=stages,
        arms=tuple(
            ArmView(route.arm.value, route.ref.version, route.weight)
            for route in endpoint.status.routes
        ),
        commands_waiting=sum(
            key.startswith(COMMAND_PREFIX) for key in endpoint.metadata.annotations
        ),
        answers=endpoint.status.commands,
        spaces=list_spaces(endpoint),
        **{"against": None, **more},
    )


def _is_of(last: RolloutState | None, candidate: Candidate) -> bool:
    return last is not None and last.candidate.version == candidate.version


def _phase(spec: RolloutSpec, state: RolloutState) -> str:
    if state.outcome is not None:
        return state.outcome.value
    if state.promoted_at is not None:
        return Phase.PROMOTED.value
    return steps.phase(steps.current(spec, state)).value


def _lines(history: Iterable[Transition], state: RolloutState) -> tuple[Transition, ...]:
    """The candidate's lines, from its preparation for this rollout to the rollout's end."""
    lines = tuple(
        line
        for line in history
        if line.version == state.candidate.version
        and (state.ended_at is None or line.at <= state.ended_at)
    )
    before = [i for i, line in enumerate(lines) if line.phase in ENDS and line.at < state.began]
    return lines[before[-1] + 1 :] if before else lines


# Stages

_BEFORE: Final = ("converting", "verifying", "loading")
# The stage that a version is in before it is compared.
_REACHED: Final = {
    Phase.WAITING: 0,
    Phase.CONVERTING: 0,
    Phase.VERIFYING: 1,
    Phase.PUBLISHING: 1,
    Phase.LOADING: 2,
    Phase.LOADED: 3,
}
_ENDED: Final = {
    None: StageMark.NOW,
    Outcome.ROLLED_BACK: StageMark.FAILED,
    Outcome.REVERTED: StageMark.FAILED,
    Outcome.SUPERSEDED: StageMark.LEFT,
    Outcome.EXPIRED: StageMark.LEFT,
}


def _stages_of_rollout(
    spec: RolloutSpec, state: RolloutState, words: StageWords
) -> tuple[StageView, ...]:
    names = _names(spec, words)
    if state.outcome is Outcome.SETTLED:
        return _mark_stages(names, len(names), StageMark.DONE)
    at = len(_BEFORE) + min(state.step, len(spec.planned) - 1)
    if state.promoted_at is not None:
        at = len(names) - 2
    return _mark_stages(names, at, _ENDED[state.outcome])


def _furthest(endpoint: ModelEndpoint, version: str) -> int:
    """The stage that a version got to before it stopped, by the history."""
    reached = [
        _REACHED[line.phase]
        for line in endpoint.status.history
        if line.version == version and line.phase in _REACHED
    ]
    return min(reached[-1] if reached else 0, len(_BEFORE) - 1)


def _names(spec: RolloutSpec, words: StageWords) -> tuple[str, ...]:
    return (*_BEFORE, *map(words.step, spec.planned), words.promoted, "settled")


def _mark_stages(names: tuple[str, ...], at: int, mark: StageMark) -> tuple[StageView, ...]:
    """Stages before ``at`` are done, that one is marked, the others are ahead."""
    return tuple(
        StageView(
            name, StageMark.DONE if number < at else mark if number == at else StageMark.AHEAD
        )
        for number, name in enumerate(names)
    )
