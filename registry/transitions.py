"""How an endpoint's status changes on a version's way to ``Loaded``, one change a function.

Values alone. Called by ``plan.py``, which decides which change it is; it never decides itself, and
never touches a rollout.
"""

from contracts import rejections
from contracts.endpoint import (
    HISTORY_LIMIT,
    Arm,
    Candidate,
    EndpointStatus,
    Phase,
    Rejection,
    Route,
    Transition,
)
from contracts.model import ModelRef
from contracts.rollout import Outcome
from registry.observed import Package, Version

FIRST_RETRY_SECONDS = 5.0
LAST_RETRY_SECONDS = 300.0


def retry_seconds(attempts: int) -> float:
    """The wait after so many faults of the environment in a row: doubles from 5 s to 5 minutes."""
    return min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(attempts - 1, 16))


def named(status: EndpointStatus, package: Package) -> EndpointStatus:
    """With the package among those that every Triton must hold."""
    if package.ref in status.packages:
        return status
    return status.model_copy(update={"packages": (*status.packages, package.ref)})


def promoted(status: EndpointStatus, package: Package, now: float) -> EndpointStatus:
    """With all traffic on the package; the version before it stays loaded for now."""
    others = tuple(ref for ref in status.packages if ref != package.ref)
    line = Transition(at=now, version=package.ref.version, phase=Phase.SERVING)
    return status.model_copy(
        update={
            "routes": (Route(arm=Arm.STABLE, ref=package.ref, weight=100),),
            "packages": (package.ref, *others),
            "candidate": None,
            "task": package.signature.task,
            "history": _history(status, line),
        }
    )


def rejected(
    status: EndpointStatus,
    target: Version,
    reason: str,
    now: float,
    *,
    refused: ModelRef | None = None,
) -> EndpointStatus:
    """With a version that is not tried again, and without the package that Triton refused."""
    routed = {route.ref for route in status.routes}
    rejection = Rejection(version=target.number, options=target.options, reason=reason, at=now)
    line = Transition(at=now, version=target.number, phase=Phase.REJECTED, reason=reason)
    update = {
        "packages": tuple(ref for ref in status.packages if ref in routed or ref != refused),
        "candidate": Candidate(
            version=target.number, phase=Phase.REJECTED, reason=reason, options=target.options
        ),
        "history": _history(status, line),
    }
    return rejections.added(status.model_copy(update=update), rejection)


def blocked(
    status: EndpointStatus, candidate: Candidate, reason: str, now: float
) -> EndpointStatus:
    """With a candidate that waits longer after each fault of the environment in a row."""
    attempts = candidate.attempts + 1
    update = {"attempts": attempts, "retry_at": now + retry_seconds(attempts)}
    return with_candidate(
        status, in_phase(candidate, Phase.BLOCKED, reason).model_copy(update=update), now
    )


def retired(status: EndpointStatus, now: float, keep_seconds: float) -> EndpointStatus:
    """Without the packages that nothing needs and whose time to stay has passed."""
    serving = [line.at for line in status.history if line.phase is Phase.SERVING]
    if serving and now - serving[-1] < keep_seconds:
        return status
    needed = _needed(status, now, keep_seconds)
    packages = tuple(ref for ref in status.packages if ref in needed)
    return status.model_copy(update={"packages": packages})


def _needed(status: EndpointStatus, now: float, keep_seconds: float) -> set[ModelRef]:
    """What is routed, on its way, judged, or may be gone back to."""
    needed = {route.ref for route in status.routes}
    if status.candidate is not None and status.candidate.ref is not None:
        needed.add(status.candidate.ref)
    if status.rollout is not None:
        needed |= {status.rollout.candidate, status.rollout.stable}
    last = status.last_rollout
    if last is not None and last.outcome is Outcome.SETTLED:
        settled_at = last.ended_at or 0.0
        if now - settled_at < keep_seconds:  # for an undo
            needed.add(last.stable)
    return needed


def with_candidate(status: EndpointStatus, candidate: Candidate, now: float) -> EndpointStatus:
    """With the candidate as it is now, and a line of history where its phase is a new one."""
    line = Transition(
        at=now, version=candidate.version, phase=candidate.phase, reason=candidate.reason
    )
    last = status.history[-1] if status.history else None
    phases = (Phase.WAITING,) if candidate.attempts == 0 else (Phase.WAITING, Phase.CONVERTING)
    same = (
        last is not None
        and (last.version, last.phase) == (line.version, line.phase)
        and (line.phase is not Phase.BLOCKED or last.reason == line.reason)
    )
    update: dict[str, object] = {"candidate": candidate}
    if not same and candidate.phase not in phases:
        update["history"] = _history(status, line)
    return status.model_copy(update=update)


def showing(status: EndpointStatus, shown: Candidate | None) -> EndpointStatus:
    """With what to show where nothing is on its way: a rejected version, or nothing."""
    return status if status.candidate == shown else status.model_copy(update={"candidate": shown})


def in_phase(candidate: Candidate, phase: Phase, reason: str = "") -> Candidate:
    """The candidate in another phase."""
    return candidate.model_copy(update={"phase": phase, "reason": reason})


def _history(status: EndpointStatus, line: Transition) -> tuple[Transition, ...]:
    return (*status.history, line)[-HISTORY_LIMIT:]
