"""How a rollout changes an endpoint's status, one change a function. Only values.

It makes a rollout's next state and says what happened as an event of ``contracts.status_events``,
which writes it. It never decides which change it is. Routes of a rollout that goes on follow from
its state at the end of each pass (``update_routes``): no other change here needs to set them.
"""

from hashlib import blake2b
from typing import NamedTuple

from contracts.endpoint import EndpointStatus, Phase, Route
from contracts.model import ModelRef
from contracts.rollout import Outcome, RolloutState
from contracts.status_events import (
    HistoryNote,
    Promotion,
    RolloutEnding,
    StepEntered,
    apply,
    is_own,
)
from rollout import arm_traffic, gates, steps
from rollout.context import ReconcileContext

_FELL_BACK = "fell back to version "


class WaitingVersion(NamedTuple):
    """A version that every Triton holds, and the one that it will be compared with."""

    ref: ModelRef
    options: str
    stable: ModelRef
    claims_space: bool = False


def find_waiting(status: EndpointStatus) -> WaitingVersion | None:
    """The version that waits for its rollout, if one does."""
    candidate, stable = status.candidate, status.stable
    if status.rollout is not None or candidate is None or candidate.phase is not Phase.LOADED:
        return None
    if candidate.ref is None or stable is None or stable == candidate.ref:
        return None
    return WaitingVersion(candidate.ref, candidate.options, stable, candidate.claims_space)


def begin(
    status: EndpointStatus,
    waiting: WaitingVersion,
    context: ReconcileContext,
    *,
    reason: str = "",
    by: str = "",
) -> EndpointStatus:
    """With a rollout in its first step; ``reason`` and ``by`` if a person had it begin."""
    ref, options, stable, claims_space = waiting
    name = blake2b(f"{ref.package}:{context.now!r}".encode(), digest_size=6).hexdigest()
    through = context.observed.newest_end
    state = RolloutState(
        id=f"v{ref.version}-{name}",
        candidate=ref,
        options=options,
        claims_space=claims_space,
        stable=stable,
        began=context.now,
        step_began=max(context.now, through),
        traffic=arm_traffic.begin_step(max(context.now, through)),
        looked_through=through,
    )
    state = context.judge.begin(context.spec, state, context.observed.windows or ())
    reason = reason or f"compared with version {stable.version}"
    return _in_step(status, state, context, reason=reason, by=by)


def begin_again(
    status: EndpointStatus, state: RolloutState, context: ReconcileContext, *, reason: str
) -> EndpointStatus:
    """Puts a rollout back to its first step or the start of its bake; its deadline stays."""
    through = max(context.observed.newest_end, state.looked_through)
    began = max(context.now, through)
    is_promoted = state.promoted_at is not None
    state = gates.stop_waiting(state, context.now).model_copy(
        update={
            "step": state.step if is_promoted else 0,
            "step_began": began,
            "promoted_at": context.now if is_promoted else None,
            "traffic": None if is_promoted else arm_traffic.begin_step(began),
            "looked_through": through,
            "checks": (),
            "series": (),
        }
    )
    state = context.judge.begin(context.spec, state, context.observed.windows or ())
    if is_promoted:
        return apply(status, Promotion(context.now, state, reason))
    return _in_step(status, state, context, reason=reason)


def enter_step(
    status: EndpointStatus,
    state: RolloutState,
    step: int,
    context: ReconcileContext,
    *,
    reason: str,
    by: str = "",
) -> EndpointStatus:
    """Puts the rollout into another step. Only what is seen from now on lets it pass."""
    figures = state.figures
    began = max(context.now, state.looked_through)
    traffic = arm_traffic.begin_step(began)
    update = {"step": step, "step_began": began, "traffic": traffic, "checks": ()}
    state = gates.stop_waiting(state, context.now).model_copy(update=update)
    state = context.judge.next_stage(context.spec, state)
    return _in_step(status, state, context, reason=reason, by=by, figures=figures)


def promote(
    status: EndpointStatus,
    state: RolloutState,
    context: ReconcileContext,
    *,
    reason: str,
    by: str = "",
) -> EndpointStatus:
    """Makes the candidate the stable version, watched for the time of the bake."""
    figures = state.figures
    state = resume(state, context.now).model_copy(
        update={
            "passed_at": None,
            "promoted_at": context.now,
            "step_began": max(context.now, state.looked_through),
            "traffic": None,
            "checks": (),
        }
    )
    state = context.judge.next_stage(context.spec, state)
    return apply(status, Promotion(context.now, state, reason, by=by, figures=figures))


def end_rollout(
    status: EndpointStatus,
    state: RolloutState,
    outcome: Outcome,
    context: ReconcileContext,
    *,
    reason: str,
    by: str = "",
    reject: bool = True,
) -> EndpointStatus:
    """Ends the rollout: all callers get the version that came out of it.

    Args:
        status: as it was.
        state: the rollout; it may be one that settled earlier and is undone now.
        outcome: how it ends.
        context: of the pass.
        reason: for people.
        by: who decided; empty for Headrace itself.
        reject: not to try the version again, unless a person asks for it.
    """
    event = RolloutEnding(
        context.now,
        resume(state, context.now),
        outcome,
        reason,
        by=by,
        refused=context.observed.failures.keys(),
        reject=reject,
    )
    return apply(status, event)


def pause(state: RolloutState, now: float) -> RolloutState:
    """Stops the deadline."""
    return state.model_copy(update={"paused_at": now})


def resume(state: RolloutState, now: float) -> RolloutState:
    """Lets the deadline run again, and counts the time of the pause."""
    if state.paused_at is None:
        return state
    seconds = state.paused_seconds + max(0.0, now - state.paused_at)
    return state.model_copy(update={"paused_at": None, "paused_seconds": seconds})


def with_state(status: EndpointStatus, state: RolloutState) -> EndpointStatus:
    """Returns the status with the rollout's state."""
    return status.model_copy(update={"rollout": state})


def move_to_past(state: RolloutState, now: float) -> RolloutState:
    """Moves times ahead of the clock to now, so that no clock puts off the deadline for long."""
    update: dict[str, object] = {
        "began": min(state.began, now),
        "step_began": min(state.step_began, max(now, state.looked_through)),
    }
    if state.traffic is not None:
        since = min(state.traffic.since, max(now, state.looked_through))
        update["traffic"] = state.traffic.model_copy(update={"since": since})
    for name in ("paused_at", "passed_at", "promoted_at"):
        if (at := getattr(state, name)) is not None:
            update[name] = min(at, now)
    return state.model_copy(update=update)


def waits(status: EndpointStatus, reason: str) -> EndpointStatus:
    """Returns the status with the reason why a candidate's rollout does not begin."""
    if status.candidate is None:
        return status
    candidate = status.candidate.model_copy(update={"reason": reason})
    return status.model_copy(update={"candidate": candidate})


def phase(status: EndpointStatus, state: RolloutState) -> Phase | None:
    """The phase that the rollout was last shown in, None if that can't be told."""
    candidate = status.candidate
    if candidate is None or not is_own(candidate, state):
        return None
    return candidate.phase if candidate.phase in (Phase.SHADOW, Phase.CANARY) else None


def update_routes(status: EndpointStatus, context: ReconcileContext) -> EndpointStatus:
    """Sets the routes that follow from the rollout that goes on, and what they need loaded."""
    state = status.rollout
    if state is None:
        return status
    callers = gates.may_have_callers(state, context)
    routes = steps.routes(context.spec, state, context.observed.loaded, callers=callers)
    needed = (*status.packages, state.stable, state.candidate)
    update = {"routes": routes, "packages": tuple(dict.fromkeys(needed))}
    return _note_fallback(status, state, routes, context).model_copy(update=update)


def _in_step(
    status: EndpointStatus,
    state: RolloutState,
    context: ReconcileContext,
    *,
    reason: str,
    by: str = "",
    figures: dict[str, float] | None = None,
) -> EndpointStatus:
    step = steps.current(context.spec, state)
    figures = {"percent": steps.percent(step), **(figures or {})}
    event = StepEntered(context.now, state, steps.phase(step), reason, by=by, figures=figures)
    return apply(status, event)


def _note_fallback(
    status: EndpointStatus,
    state: RolloutState,
    routes: tuple[Route, ...],
    context: ReconcileContext,
) -> EndpointStatus:
    """Notes if the candidate loses its traffic for want of a Triton, or has it again.

    The step is kept through it, and no check hears of it.
    """
    version = state.candidate.version
    had, has = (any(r.ref == state.candidate for r in table) for table in (status.routes, routes))
    absent = gates.absence(state, context)
    back = f"version {version} is loaded on every Triton again"
    if had and not has and absent:
        reason = f"{_FELL_BACK}{state.stable.version}: {absent}"
    elif has and not had and _is_back_from(status, state, back):
        reason = back
    else:
        return status
    shown_as = steps.phase(steps.current(context.spec, state))
    note = HistoryNote(context.now, version, reason, step=state.step, phase=shown_as)
    return apply(status, note)


def _is_back_from(status: EndpointStatus, state: RolloutState, back: str) -> bool:
    """Whether the last that was noted of this rollout's traffic is that it fell back."""
    turns = [
        line.reason
        for line in status.history
        if line.version == state.candidate.version
        and line.at >= state.began
        and (line.reason == back or line.reason.startswith(_FELL_BACK))
    ]
    return bool(turns) and turns[-1] != back
