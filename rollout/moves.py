"""How a rollout changes an endpoint's status, one change a function. Values alone.

Called by ``machine.py`` and ``commands.py``, which decide which change it is; it never decides
itself. Routes of a rollout that goes on follow from its state at the end of each pass (``routed``),
so that no change here needs to set them.
"""

from hashlib import blake2b
from typing import NamedTuple

from contracts.endpoint import Candidate, EndpointStatus, Phase, Transition
from contracts.model import ModelRef
from contracts.rollout import Outcome, RolloutState
from rollout import fallback, gates, history, steps
from rollout.seen import Moment

_ENDS = {
    Outcome.SETTLED: Phase.SETTLED,
    Outcome.ROLLED_BACK: Phase.ROLLED_BACK,
    Outcome.REVERTED: Phase.ROLLED_BACK,
    Outcome.SUPERSEDED: Phase.SUPERSEDED,
}


class Waiting(NamedTuple):
    """A version that every Triton holds, and the one that it will be compared with."""

    ref: ModelRef
    options: str
    stable: ModelRef


def waiting(status: EndpointStatus) -> Waiting | None:
    """The version that waits for its rollout, if one does."""
    candidate, stable = status.candidate, status.stable
    if status.rollout is not None or candidate is None or candidate.phase is not Phase.LOADED:
        return None
    if candidate.ref is None or stable is None or stable == candidate.ref:
        return None
    return Waiting(candidate.ref, candidate.options, stable)


def begun(status: EndpointStatus, waiting: Waiting, moment: Moment) -> EndpointStatus:
    """With a rollout in its first step."""
    ref, options, stable = waiting
    name = blake2b(f"{ref.package}:{moment.now!r}".encode(), digest_size=6).hexdigest()
    through = moment.seen.newest_end
    state = RolloutState(
        id=f"v{ref.version}-{name}",
        candidate=ref,
        options=options,
        stable=stable,
        began=moment.now,
        step_began=max(moment.now, through),
        looked_through=through,
    )
    state = moment.judge.begin(moment.spec, state, moment.seen.windows or ())
    return _in_step(status, state, moment, reason=f"compared with version {stable.version}")


def entered(
    status: EndpointStatus, state: RolloutState, step: int, moment: Moment, *, reason: str
) -> EndpointStatus:
    """With the rollout in another step. Only what is seen from now on lets it pass."""
    before = state.checks
    state = state.model_copy(
        update={
            "step": step,
            "step_began": max(moment.now, state.looked_through),
            "checks": (),
        }
    )
    state = moment.judge.next_stage(moment.spec, state)
    return _in_step(status, state, moment, reason=reason, figures=history.figures(before))


def promoted(
    status: EndpointStatus, state: RolloutState, moment: Moment, *, reason: str, by: str = ""
) -> EndpointStatus:
    """With the candidate as the stable version, watched for the time of the bake."""
    before = state.checks
    state = resumed(state, moment.now).model_copy(
        update={
            "promoted_at": moment.now,
            "step_began": max(moment.now, state.looked_through),
            "checks": (),
        }
    )
    state = moment.judge.next_stage(moment.spec, state)
    line = Transition(
        at=moment.now,
        version=state.candidate.version,
        phase=Phase.PROMOTED,
        reason=reason,
        by=by,
        step=state.step,
        figures=history.figures(before),
    )
    status = status.model_copy(update={"packages": _first(state.candidate, status.packages)})
    return shown(history.with_line(with_state(status, state), line), state, Phase.PROMOTED)


def ended(
    status: EndpointStatus,
    state: RolloutState,
    outcome: Outcome,
    moment: Moment,
    *,
    reason: str,
    by: str = "",
    reject: bool = True,
) -> EndpointStatus:
    """With the rollout at its end: all callers on the version that came out of it.

    Args:
        status: as it was.
        state: the rollout; it may be one that settled earlier and is undone now.
        outcome: how it ends.
        moment: of the pass.
        reason: for people.
        by: who decided; empty for Headrace itself.
        reject: not to try the version again, unless a person asks for it. A version that settled
            or was superseded is never rejected.
    """
    now = moment.now
    state = resumed(state, now).model_copy(
        update={"ended_at": now, "outcome": outcome, "reason": reason}
    )
    winner = state.candidate if outcome is Outcome.SETTLED else state.stable
    line = Transition(
        at=now,
        version=state.candidate.version,
        phase=_ENDS[outcome],
        reason=reason,
        by=by,
        step=state.step,
        figures=history.figures(state.checks),
    )
    update: dict[str, object] = {
        "routes": (steps.alone(winner),),
        "packages": _first(winner, _not_refused(status.packages, winner, moment)),
        "rollout": None,
        "last_rollout": state,
    }
    status = history.with_line(status.model_copy(update=update), line)
    if outcome in (Outcome.SETTLED, Outcome.SUPERSEDED):
        return _not_shown(status, state)
    status = shown(status, state, Phase.ROLLED_BACK, reason)
    return history.with_rejection(status, state, reason, now) if reject else status


def paused(state: RolloutState, now: float) -> RolloutState:
    """With the deadline stopped."""
    return state.model_copy(update={"paused_at": now})


def resumed(state: RolloutState, now: float) -> RolloutState:
    """With the deadline running, and the time of the pause counted."""
    if state.paused_at is None:
        return state
    seconds = state.paused_seconds + max(0.0, now - state.paused_at)
    return state.model_copy(update={"paused_at": None, "paused_seconds": seconds})


def with_state(status: EndpointStatus, state: RolloutState) -> EndpointStatus:
    """With the rollout's state."""
    return status.model_copy(update={"rollout": state})


def in_the_past(state: RolloutState, now: float) -> RolloutState:
    """With no time ahead of the clock, so that one set back can't put off the deadline for long."""
    update: dict[str, object] = {
        "began": min(state.began, now),
        "step_began": min(state.step_began, max(now, state.looked_through)),
    }
    if state.paused_at is not None:
        update["paused_at"] = min(state.paused_at, now)
    if state.promoted_at is not None:
        update["promoted_at"] = min(state.promoted_at, now)
    return state.model_copy(update=update)


def shown(
    status: EndpointStatus, state: RolloutState, phase: Phase, reason: str = ""
) -> EndpointStatus:
    """With the rollout's version shown as on its way, unless a newer one is by now."""
    if status.candidate is not None and not is_own(status.candidate, state):
        return status
    candidate = Candidate(
        version=state.candidate.version,
        phase=phase,
        reason=reason,
        # One that is rolled back need not stay loaded.
        ref=None if phase is Phase.ROLLED_BACK else state.candidate,
        options=state.options,
    )
    return status.model_copy(update={"candidate": candidate})


def waits(status: EndpointStatus, reason: str) -> EndpointStatus:
    """With the reason why a candidate's rollout does not begin."""
    if status.candidate is None:
        return status
    candidate = status.candidate.model_copy(update={"reason": reason})
    return status.model_copy(update={"candidate": candidate})


def phase(status: EndpointStatus, state: RolloutState) -> Phase | None:
    """The phase that the rollout was last shown in, None where that can't be told."""
    candidate = status.candidate
    if candidate is None or not is_own(candidate, state):
        return None
    return candidate.phase if candidate.phase in (Phase.SHADOW, Phase.CANARY) else None


def is_own(candidate: Candidate | None, state: RolloutState) -> bool:
    """Whether a candidate is the rollout's, and not one that comes after it."""
    return candidate is not None and candidate.ref == state.candidate


def routed(status: EndpointStatus, moment: Moment) -> EndpointStatus:
    """With the routes that follow from the rollout that goes on, and what they need loaded."""
    state = status.rollout
    if state is None:
        return status
    callers = gates.may_have_callers(state, moment)
    routes = steps.routes(moment.spec, state, moment.seen.loaded, callers=callers)
    needed = (*status.packages, state.stable, state.candidate)
    update = {"routes": routes, "packages": tuple(dict.fromkeys(needed))}
    return fallback.noted(status, state, routes, moment).model_copy(update=update)


def _in_step(
    status: EndpointStatus,
    state: RolloutState,
    moment: Moment,
    *,
    reason: str,
    figures: dict[str, float] | None = None,
) -> EndpointStatus:
    step = steps.current(moment.spec, state)
    line = Transition(
        at=moment.now,
        version=state.candidate.version,
        phase=steps.phase(step),
        reason=reason,
        step=state.step,
        figures={"percent": steps.percent(step), **(figures or {})},
    )
    status = history.with_line(with_state(status, state), line)
    return shown(status, state, steps.phase(step))


def _not_shown(status: EndpointStatus, state: RolloutState) -> EndpointStatus:
    if not is_own(status.candidate, state):
        return status
    return status.model_copy(update={"candidate": None})


def _not_refused(
    packages: tuple[ModelRef, ...], stable: ModelRef, moment: Moment
) -> tuple[ModelRef, ...]:
    """Without what a Triton refused, so that nobody tries to load it again."""
    failures = moment.seen.failures
    return tuple(ref for ref in packages if ref == stable or ref not in failures)


def _first(ref: ModelRef, packages: tuple[ModelRef, ...]) -> tuple[ModelRef, ...]:
    return (ref, *(item for item in packages if item != ref))
