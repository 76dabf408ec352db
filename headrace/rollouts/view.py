"""A rollout as people look at it: where it is on its way, its weights, its checks, its time.

Called by ``headrace rollout status`` and ``headrace status``. Pure: an endpoint and the time in, a
``View`` out. It never says more than the stored status holds.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from contracts.endpoint import Candidate, ModelEndpoint, Phase
from contracts.rollout import (
    COMMAND_PREFIX,
    CheckResult,
    CommandOutcome,
    Outcome,
    RolloutSpec,
    RolloutState,
    Strategy,
)
from rollout import steps


class Mark(StrEnum):
    """Where a stage stands."""

    DONE = "done"
    NOW = "now"
    TODO = "todo"
    FAILED = "failed"
    LEFT = "left"  # the rollout ended here for another's sake


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage on the way to all callers."""

    name: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Arm:
    """Who gets what: percent of callers or, for a shadow, of copied requests."""

    arm: str
    version: str
    percent: float


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown of an endpoint's newest rollout; seconds are None where none count."""

    endpoint: str
    version: str | None
    against: str | None
    phase: str
    reason: str
    stages: tuple[Stage, ...]
    arms: tuple[Arm, ...]
    checks: tuple[CheckResult, ...] = ()
    paused: bool = False
    deadline_seconds: float | None = None
    bake_seconds: float | None = None
    next_version: str | None = None  # waits for this one to end
    commands_waiting: int = 0
    answers: tuple[CommandOutcome, ...] = ()  # to what people decided, oldest first

    def document(self) -> dict[str, Any]:
        """The view as JSON."""
        checks = [check.model_dump(mode="json", by_alias=True) for check in self.checks]
        answers = [answer.model_dump(mode="json") for answer in self.answers]
        return {**asdict(self), "checks": checks, "answers": answers}


_BEFORE = ("converting", "verifying", "loading")
_REACHED = {
    Phase.WAITING: 0,
    Phase.CONVERTING: 0,
    Phase.VERIFYING: 1,
    Phase.PUBLISHING: 1,
    Phase.LOADING: 2,
    Phase.LOADED: 3,
}
_OVER = {Phase.REJECTED, Phase.ROLLED_BACK, Phase.SUPERSEDED}


def view(endpoint: ModelEndpoint, now: float) -> View:
    """What there is to see now.

    Args:
        endpoint: as stored.
        now: unix time, seconds.
    """
    status = endpoint.status
    candidate, last = status.candidate, status.last_rollout
    if status.rollout is not None:
        return _going_on(endpoint, status.rollout, now)
    if candidate is not None and not (candidate.phase in _OVER and _is_of(last, candidate)):
        return _on_its_way(endpoint, candidate)
    if last is not None:
        return _ended(endpoint, last)
    stable = status.stable
    phase = Phase.WAITING if stable is None else Phase.SERVING
    return _view(endpoint, None if stable is None else stable.version, phase.value, "", ())


def in_brief(seen: View) -> str:
    """The rollout in a few words, for a table; empty where none is on."""
    if seen.deadline_seconds is None and seen.bake_seconds is None:
        return ""
    passed = sum(check.verdict == "pass" for check in seen.checks)
    now = next((stage.name for stage in seen.stages if stage.mark is Mark.NOW), seen.phase)
    words = [f"version {seen.version} at {now}"]
    if seen.paused:
        words.append("paused")
    if seen.checks:
        words.append(f"{passed} of {len(seen.checks)} checks pass")
    if seen.deadline_seconds is not None:
        words.append(f"{about(seen.deadline_seconds)} to the deadline")
    elif seen.bake_seconds is not None:
        words.append(f"{about(seen.bake_seconds)} of its bake left")
    return ", ".join(words)


def about(seconds: float) -> str:
    """A duration in its two largest units.

    >>> about(86399.0)
    '23h59m'
    """
    left = max(0, int(seconds))
    pieces: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or pieces:
            pieces.append(f"{count}{unit}" if count else "")
    return "".join(pieces[:2]) or "0s"


def _going_on(endpoint: ModelEndpoint, state: RolloutState, now: float) -> View:
    spec, candidate = endpoint.spec.rollout, endpoint.status.candidate
    own = candidate is not None and candidate.ref == state.candidate
    reason = candidate.reason if candidate is not None and own else ""
    until = now if state.paused_at is None else state.paused_at
    if state.promoted_at is None:
        at = _first_step(spec) + min(state.step, len(steps.planned(spec)) - 1)
        phase = steps.phase(steps.current(spec, state))
        deadline, bake = spec.deadline - (until - state.began - state.paused_seconds), None
    else:
        at, phase = len(_names(spec)) - 2, Phase.PROMOTED
        deadline, bake = None, spec.bake - (now - state.promoted_at)
    return _view(
        endpoint,
        state.candidate.version,
        phase.value,
        reason,
        _marked(_names(spec), at, Mark.NOW),
        against=state.stable.version,
        checks=state.checks,
        paused=state.paused_at is not None,
        deadline_seconds=None if deadline is None else max(0.0, deadline),
        bake_seconds=None if bake is None else max(0.0, bake),
        next_version=None if own or candidate is None else candidate.version,
    )


def _is_of(last: RolloutState | None, candidate: Candidate) -> bool:
    return last is not None and last.candidate.version == candidate.version


def _on_its_way(endpoint: ModelEndpoint, candidate: Candidate) -> View:
    stable = endpoint.status.stable
    spec = endpoint.spec.rollout
    direct = stable is None or spec.strategy is Strategy.DIRECT
    names = (*_BEFORE, "serving") if direct else _names(spec)
    if candidate.phase in _REACHED:
        stages = _marked(names, min(_REACHED[candidate.phase], len(names) - 1), Mark.NOW)
    else:
        mark = Mark.NOW if candidate.phase is Phase.BLOCKED else Mark.FAILED
        stages = _marked(names, _furthest(endpoint, candidate.version), mark)
    return _view(
        endpoint,
        candidate.version,
        candidate.phase.value,
        candidate.reason,
        stages,
        against=None if stable is None else stable.version,
    )


def _ended(endpoint: ModelEndpoint, state: RolloutState) -> View:
    spec = endpoint.spec.rollout
    names = _names(spec)
    at = min(_first_step(spec) + state.step, len(names) - 3)
    if state.promoted_at is not None:
        at = len(names) - 2
    if state.outcome is Outcome.SETTLED:
        stages = _marked(names, len(names), Mark.DONE)
    else:
        mark = Mark.LEFT if state.outcome is Outcome.SUPERSEDED else Mark.FAILED
        stages = _marked(names, at, mark)
    return _view(
        endpoint,
        state.candidate.version,
        "" if state.outcome is None else state.outcome.value,
        state.reason,
        stages,
        against=state.stable.version,
        checks=state.checks,
    )


def _view(
    endpoint: ModelEndpoint,
    version: str | None,
    phase: str,
    reason: str,
    stages: tuple[Stage, ...],
    **more: Any,  # noqa: ANN401 - the view's further fields
) -> View:
    return View(
        endpoint=endpoint.name,
        version=version,
        phase=phase,
        reason=reason,
        stages=stages,
        arms=tuple(
            Arm(route.arm.value, route.ref.version, route.weight)
            for route in endpoint.status.routes
        ),
        commands_waiting=sum(
            key.startswith(COMMAND_PREFIX) for key in endpoint.metadata.annotations
        ),
        answers=endpoint.status.commands,
        **{"against": None, **more},
    )


def _names(spec: RolloutSpec) -> tuple[str, ...]:
    walked = tuple(steps.named(step) for step in steps.planned(spec))
    return (*_BEFORE, *walked, "promoted", "settled")


def _first_step(spec: RolloutSpec) -> int:
    return len(_names(spec)) - 2 - len(steps.planned(spec))


def _furthest(endpoint: ModelEndpoint, version: str) -> int:
    """The stage that a version got to before it stuck, by the history."""
    reached = [
        _REACHED[line.phase]
        for line in endpoint.status.history
        if line.version == version and line.phase in _REACHED
    ]
    return min(reached[-1] if reached else 0, len(_BEFORE) - 1)


def _marked(names: tuple[str, ...], at: int, mark: Mark) -> tuple[Stage, ...]:
    """Stages before ``at`` are done, that one is marked, the others are to come."""
    return tuple(
        Stage(name, Mark.DONE if number < at else mark if number == at else Mark.TODO)
        for number, name in enumerate(names)
    )
