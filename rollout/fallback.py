"""Notes in the history when a candidate loses its traffic for want of a Triton, and has it again.

Called by ``moves.routed`` at the end of each pass, with the routes of before and after. It never
sets a route: a step is kept through it, and no check hears of it.
"""

from contracts.endpoint import EndpointStatus, Route, Transition
from contracts.rollout import RolloutState
from rollout import gates, history, steps
from rollout.seen import Moment

_FELL_BACK = "fell back to version "


def noted(
    status: EndpointStatus, state: RolloutState, routes: tuple[Route, ...], moment: Moment
) -> EndpointStatus:
    """With a line of history where ``routes`` take the candidate's traffic away, or give it back.

    Args:
        status: with the routes that it had.
        state: the rollout that goes on.
        routes: those that it gets.
        moment: of the pass.
    """
    had, has = (any(r.ref == state.candidate for r in table) for table in (status.routes, routes))
    absent = gates.absence(state, moment)
    back = f"version {state.candidate.version} is loaded on every Triton again"
    if had and not has and absent:
        reason = f"{_FELL_BACK}{state.stable.version}: {absent}"
    elif has and not had and _is_back_from(status, state, back):
        reason = back
    else:
        return status
    line = Transition(
        at=moment.now,
        version=state.candidate.version,
        phase=steps.phase(steps.current(moment.spec, state)),
        reason=reason,
        step=state.step,
    )
    return history.with_line(status, line)


def _is_back_from(status: EndpointStatus, state: RolloutState, back: str) -> bool:
    """Whether the last that was noted here of this rollout is that it fell back."""
    turns = [
        line.reason
        for line in status.history
        if line.version == state.candidate.version
        and line.at >= state.began
        and (line.reason == back or line.reason.startswith(_FELL_BACK))
    ]
    return bool(turns) and turns[-1] != back
