"""A rollout as people look at it: where it is on its way, its weights, its checks, its time.

Called by ``headrace rollout status`` and ``headrace status``. Pure: an endpoint and the time in, a
``View`` out. It never says more than the stored status holds.
"""

from dataclasses import asdict, dataclass
from typing import Any

from contracts import way
from contracts.endpoint import Candidate, ModelEndpoint, Phase
from contracts.rollout import COMMAND_PREFIX, CheckResult, CommandOutcome, RolloutState
from contracts.way import Mark, Stage
from rollout import steps


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


_WORDS = way.Words(step=steps.named, promoted="promoted")
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
        phase = steps.phase(steps.current(spec, state))
        deadline, bake = spec.deadline - (until - state.began - state.paused_seconds), None
    else:
        phase = Phase.PROMOTED
        deadline, bake = None, spec.bake - (now - state.promoted_at)
    return _view(
        endpoint,
        state.candidate.version,
        phase.value,
        reason,
        way.rollout(spec, _WORDS, state),
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
    if candidate.phase in way.REACHED:
        at, mark = way.REACHED[candidate.phase], Mark.NOW
    else:
        at = _furthest(endpoint, candidate.version)
        mark = Mark.NOW if candidate.phase is Phase.BLOCKED else Mark.FAILED
    spec, is_first = endpoint.spec.rollout, stable is None
    return _view(
        endpoint,
        candidate.version,
        candidate.phase.value,
        candidate.reason,
        way.preparation(spec, _WORDS, at, mark, is_first=is_first),
        against=None if stable is None else stable.version,
    )


def _ended(endpoint: ModelEndpoint, state: RolloutState) -> View:
    return _view(
        endpoint,
        state.candidate.version,
        "" if state.outcome is None else state.outcome.value,
        state.reason,
        way.rollout(endpoint.spec.rollout, _WORDS, state),
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


def _furthest(endpoint: ModelEndpoint, version: str) -> int:
    """The stage that a version got to before it stuck, by the history."""
    reached = [
        way.REACHED[line.phase]
        for line in endpoint.status.history
        if line.version == version and line.phase in way.REACHED
    ]
    return min(reached[-1] if reached else 0, len(way.BEFORE) - 1)
