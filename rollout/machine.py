"""The life of a loaded version, from shadow to all callers or back, as a pure function.

``controller/rollouts.py`` calls ``advance`` in each pass, right after ``registry.plan``,
and writes what both make of the status in one conditional write. Everything it goes on from is in
the status and in what is seen: killed between two passes it loses nothing, and a pass with nothing
new changes nothing. It has no clock and does no I/O; it never touches ``generation``, never loads,
converts or counts anything, and takes no step forward without a pass or a person's word.

The way of a version reads downward from ``advance``: its beginning, its steps, its bake.
"""

from contracts.durations import written
from contracts.endpoint import Arm, EndpointStatus, Phase
from contracts.rollout import Outcome, RolloutSpec, RolloutState, Strategy
from rollout import commands, gates, moves, steps
from rollout.judging import Judge
from rollout.seen import Moment, Seen

__all__ = ["Seen", "advance"]


def advance(
    spec: RolloutSpec, status: EndpointStatus, seen: Seen, now: float, judge: Judge
) -> EndpointStatus:
    """The endpoint's next status.

    Args:
        spec: how versions are rolled out.
        status: as ``registry.plan`` left it.
        seen: the last observation.
        now: unix time, seconds.
        judge: turns windows into verdicts.

    Returns:
        The status with routes, packages, candidate, rollout, rejections, history and answers to
        commands brought up to date.
    """
    moment = Moment(spec, seen, now, judge)
    status = commands.answered(_as_the_spec_is_now(status, moment), moment)
    status = _moved(status, moment)
    if status.rollout is None:
        status = _moved(_begun(status, moment), moment)
    return moves.routed(status, moment)


def _as_the_spec_is_now(status: EndpointStatus, moment: Moment) -> EndpointStatus:
    """With the rollout in a step that the spec still has, and no time ahead of the clock."""
    if status.rollout is None:
        return status
    state = moves.in_the_past(status.rollout, moment.now)
    status = moves.with_state(status, state)
    if state.promoted_at is not None:
        return status
    weight = next((r.weight for r in status.routes if r.arm is Arm.CANARY), None)
    was = moves.phase(status, state) or steps.phase(steps.current(moment.spec, state))
    step = steps.place(moment.spec, state.step, weight, was)
    state = state.model_copy(update={"step": step})
    now_in = steps.current(moment.spec, state)
    if steps.phase(now_in) is not was:
        reason = f"the spec's steps were edited: now {steps.named(now_in)}"
        return moves.entered(status, state, step, moment, reason=reason)
    return moves.with_state(status, state)


def _begun(status: EndpointStatus, moment: Moment) -> EndpointStatus:
    """With a rollout of the version that waits for one, if there is what it needs."""
    waiting, seen = moves.waiting(status), moment.seen
    if waiting is None or moment.spec.strategy is Strategy.DIRECT:
        return status
    if waiting.ref not in seen.loaded or seen.target not in (None, waiting.ref.version):
        return status
    if held := gates.uncounted(seen):
        return moves.waits(status, held)
    return moves.begun(status, waiting, moment)


def _moved(status: EndpointStatus, moment: Moment) -> EndpointStatus:
    """With the rollout as far as it may be by now."""
    state = status.rollout
    if state is None:
        return status
    if state.promoted_at is not None:
        return _in_the_bake(status, state, moment)
    return _before_promotion(status, state, moment)


def _before_promotion(
    status: EndpointStatus, state: RolloutState, moment: Moment
) -> EndpointStatus:
    state = _judged(state, moment)
    held = gates.hold(state, moment)
    if (end := _end(state, moment, held)) is not None:
        outcome, reason = end
        return moves.ended(status, state, outcome, moment, reason=reason)
    if held:
        phase = steps.phase(steps.current(moment.spec, state))
        return moves.shown(moves.with_state(status, state), state, phase, held)
    return _moved(_forward(status, state, moment), moment)


def _end(state: RolloutState, moment: Moment, held: str) -> tuple[Outcome, str] | None:
    """How and why a rollout ends before its promotion; None where it goes on."""
    seen, spec = moment.seen, moment.spec
    if fault := _fault(state, moment):
        return Outcome.ROLLED_BACK, fault
    if seen.target not in (None, state.candidate.version):
        return Outcome.SUPERSEDED, f"version {seen.target} is wanted now"
    if spec.strategy is Strategy.DIRECT and state.candidate in seen.loaded:
        return Outcome.SETTLED, "the strategy is direct now"
    if gates.is_over_deadline(state, moment):
        missing = held or "steps were left"
        return Outcome.ROLLED_BACK, f"no verdict within {written(spec.deadline)}: {missing}"
    return None


def _forward(status: EndpointStatus, state: RolloutState, moment: Moment) -> EndpointStatus:
    """With the rollout one step on: what had to pass has passed."""
    names = ", ".join(check.name for check in gates.required(state))
    reason = f"passed: {names}" if names else "no check is required"
    if steps.following(moment.spec, state) is None:
        return moves.promoted(status, state, moment, reason=reason)
    return moves.entered(status, state, state.step + 1, moment, reason=reason)


def _in_the_bake(status: EndpointStatus, state: RolloutState, moment: Moment) -> EndpointStatus:
    state = _judged(state, moment)
    held = gates.settling(state, moment)
    if state.stable in moment.seen.loaded:
        version = state.stable.version
        if moment.seen.target == version != state.candidate.version:
            # What the spec wants is no verdict on the version: it may be tried again.
            reason = f"version {version} is wanted again"
            return moves.ended(status, state, Outcome.REVERTED, moment, reason=reason, reject=False)
        fault = _fault(state, moment)
        if not fault and gates.is_over_bake(state, moment):
            fault = gates.absence(state, moment)
        if fault:
            return moves.ended(status, state, Outcome.REVERTED, moment, reason=fault)
    if not held or gates.is_over_bake(state, moment):
        reason = held or f"no check failed in the bake of {written(moment.spec.bake)}"
        return moves.ended(status, state, Outcome.SETTLED, moment, reason=reason)
    return moves.shown(moves.with_state(status, state), state, Phase.PROMOTED, held)


def _fault(state: RolloutState, moment: Moment) -> str:
    """Why a version must go, empty where it may stay."""
    if state.candidate in moment.seen.failures:
        return moment.seen.failures[state.candidate]
    return gates.told(gates.failing(state))


def _judged(state: RolloutState, moment: Moment) -> RolloutState:
    """With all windows that are closed by now in its evidence."""
    windows = moment.seen.windows
    if windows is None:
        return state
    judge, spec = moment.judge, moment.spec
    is_new = moment.seen.newest_end > state.looked_through
    meets_callers = steps.phase(steps.current(spec, state)) is Phase.CANARY
    if (
        is_new
        and meets_callers
        and state.promoted_at is None
        and not gates.may_have_callers(state, moment)
    ):
        # No caller has met it yet, so that all there is is history.
        anew = state.model_copy(
            update={"evidence": {}, "checks": (), "looked_through": moment.seen.newest_end}
        )
        state = judge.begin(spec, anew, windows)
    return judge.look(spec, state, windows)
