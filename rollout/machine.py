"""The life of a loaded version, from shadow to all callers or back, as a pure function.

Each pass of the controller calls ``advance`` right after ``registry.reconcile.plan``, and writes
what both make of the status in one conditional write. Everything that it goes on from is in the
status and in what is observed: killed between two passes it loses nothing, and a pass with nothing
new changes nothing. It has no clock and does no I/O; it never touches ``generation``, never loads,
converts or counts anything, and takes no step forward without a pass, a person's word, or an arm
that no caller is assigned to.

The way of a version reads downward from ``advance``: its beginning, its steps, its bake.
"""

from collections.abc import Callable
from dataclasses import replace

from contracts.durations import format_duration
from contracts.endpoint import KEPT_LIMIT, Arm, EndpointStatus, KeptSpace, Phase
from contracts.rollout import Outcome, RolloutSpec, RolloutState, StepTraffic, Strategy
from contracts.status_events import HistoryNote, apply, show_on_its_way
from rollout import arm_traffic, commands, gates, status_updates, steps
from rollout.context import Judge, Observation, ReconcileContext

_ASKED_STEP = 0.01  # of the time for which a space is kept: a status is not written more often


def advance(
    spec: RolloutSpec,
    status: EndpointStatus,
    observed: Observation,
    now: float,
    judge: Judge,
    *,
    spec_of: Callable[[EndpointStatus], RolloutSpec] | None = None,
) -> EndpointStatus:
    """The endpoint's next status, with its routes, records and answers to commands.

    Args:
        spec: how versions are rolled out.
        status: as ``registry.reconcile.plan`` left it.
        observed: the last observation.
        now: unix time, seconds.
        judge: turns windows into verdicts.
        spec_of: how the next version is rolled out, if not by ``spec`` too: its vector space may
            be another one where that of the version before was not.
    """
    context = ReconcileContext(spec, observed, now, judge)
    status = _restart_without_evidence(_follow_spec(status, context), context)
    status = commands.answer_commands(status, context)
    status = _advance(status, context)
    if status.rollout is None:
        context = replace(context, spec=spec_of(status)) if spec_of else context
        status = _advance(_begin(status, context), context)
    status = _drop_refused(status_updates.update_routes(status, context), context)
    return _drop_unasked(status, context)


def _follow_spec(status: EndpointStatus, context: ReconcileContext) -> EndpointStatus:
    """Puts the rollout in a step that the spec still has, and no time ahead of the clock."""
    if status.rollout is None:
        return status
    state = status_updates.move_to_past(status.rollout, context.now)
    status = status_updates.with_state(status, state)
    if state.promoted_at is not None:
        return status
    weight = next((r.weight for r in status.routes if r.arm is Arm.CANARY), None)
    was = status_updates.phase(status, state) or steps.phase(steps.current(context.spec, state))
    step = steps.index_after_edit(context.spec, state.step, weight, was)
    state = state.model_copy(update={"step": step})
    now_in = steps.current(context.spec, state)
    if steps.phase(now_in) is not was:
        reason = f"the spec's steps were edited: now {steps.describe(now_in)}"
        return status_updates.enter_step(status, state, step, context, reason=reason)
    return status_updates.with_state(status, state)


def _restart_without_evidence(status: EndpointStatus, context: ReconcileContext) -> EndpointStatus:
    """Restarts a rollout whose evidence is lost: none goes on by a part of it."""
    state = status.rollout
    if state is None or state.evidence:
        return status
    return status_updates.begin_again(
        status, state, context, reason="its evidence is lost, so that it begins again"
    )


def _begin(status: EndpointStatus, context: ReconcileContext) -> EndpointStatus:
    """Begins a rollout of the version that waits for one, if there is what it needs."""
    waiting, observed = status_updates.find_waiting(status), context.observed
    if waiting is None or context.spec.strategy is Strategy.DIRECT:
        return status
    if waiting.ref not in observed.loaded or observed.target not in (None, waiting.ref.version):
        return status
    if held := gates.explain_uncounted(observed):
        return status_updates.waits(status, held)
    return status_updates.begin(status, waiting, context)


def _advance(status: EndpointStatus, context: ReconcileContext) -> EndpointStatus:
    """Moves the rollout as far as it may be by now."""
    state = status.rollout
    if state is None:
        return status
    if state.promoted_at is not None:
        return _in_the_bake(status, state, context)
    return _before_promotion(status, state, context)


def _before_promotion(
    status: EndpointStatus, state: RolloutState, context: ReconcileContext
) -> EndpointStatus:
    state = gates.note_passing(_judge_windows(state, context), context)
    held = gates.explain_hold(state, context)
    if (end := _end(state, context, held)) is not None:
        outcome, reason = end
        return status_updates.end_rollout(status, state, outcome, context, reason=reason)
    if held:
        if empty := gates.empty_arm(state, context):
            following = state.step + 1
            status = status_updates.enter_step(status, state, following, context, reason=empty)
            return _advance(status, context)
        phase = steps.phase(steps.current(context.spec, state))
        return show_on_its_way(status_updates.with_state(status, state), state, phase, held)
    return _advance(_forward(status, state, context), context)


def _end(state: RolloutState, context: ReconcileContext, held: str) -> tuple[Outcome, str] | None:
    """How and why a rollout ends before its promotion; None if it goes on."""
    observed, spec = context.observed, context.spec
    if fault := _fault(state, context):
        return Outcome.ROLLED_BACK, fault
    if observed.target not in (None, state.candidate.version):
        return Outcome.SUPERSEDED, f"version {observed.target} is wanted now"
    if spec.strategy is Strategy.DIRECT and state.candidate in observed.loaded:
        return Outcome.SETTLED, "the strategy is direct now"
    if gates.is_over_deadline(state, context):
        missing = held or "steps were left"
        lacking = arm_traffic.describe_lack(state, gates.open_checks(state), context.now)
        reason = f"no verdict within {format_duration(spec.deadline)}: {missing}"
        return Outcome.EXPIRED, f"{reason}; {lacking}" if lacking else reason
    return None


def _forward(
    status: EndpointStatus, state: RolloutState, context: ReconcileContext
) -> EndpointStatus:
    """Moves the rollout one step on: what had to pass has passed."""
    names = ", ".join(check.name for check in gates.list_required(state))
    reason = f"passed: {names}" if names else "no check is required"
    if steps.following(context.spec, state) is None:
        return status_updates.promote(status, state, context, reason=reason)
    return status_updates.enter_step(status, state, state.step + 1, context, reason=reason)


def _in_the_bake(
    status: EndpointStatus, state: RolloutState, context: ReconcileContext
) -> EndpointStatus:
    state = _judge_windows(state, context)
    held = gates.explain_settling(state, context)
    if state.stable in context.observed.loaded:
        version = state.stable.version
        if context.observed.target == version != state.candidate.version:
            # What the spec wants is no verdict on the version: it may be tried again.
            reason = f"version {version} is wanted again"
            return status_updates.end_rollout(
                status, state, Outcome.REVERTED, context, reason=reason, reject=False
            )
        outcome, fault = Outcome.REVERTED, _fault(state, context)
        if not fault and gates.is_over_bake(state, context):  # what Tritons lack is no verdict
            outcome, fault = Outcome.EXPIRED, gates.absence(state, context)
        if fault:
            return status_updates.end_rollout(status, state, outcome, context, reason=fault)
    if not held or gates.is_over_bake(state, context):
        reason = held or f"no check failed in the bake of {format_duration(context.spec.bake)}"
        return status_updates.end_rollout(status, state, Outcome.SETTLED, context, reason=reason)
    return show_on_its_way(status_updates.with_state(status, state), state, Phase.PROMOTED, held)


def _fault(state: RolloutState, context: ReconcileContext) -> str:
    """Why a version must go, empty if it may stay."""
    if state.candidate in context.observed.failures:
        return context.observed.failures[state.candidate]
    return gates.with_reasons(gates.list_failing(state))


def _judge_windows(state: RolloutState, context: ReconcileContext) -> RolloutState:
    """Adds all windows that are closed by now to the evidence."""
    windows = context.observed.windows
    if windows is None:
        return state
    judge, spec, through = context.judge, context.spec, state.looked_through
    is_new = context.observed.newest_end > state.looked_through
    meets_callers = steps.phase(steps.current(spec, state)) is Phase.CANARY
    if (
        is_new
        and meets_callers
        and state.promoted_at is None
        and not gates.may_have_callers(state, context)
    ):
        # No caller has met it yet, so that all there is is history.
        fresh = state.model_copy(
            update={"evidence": {}, "checks": (), "looked_through": context.observed.newest_end}
        )
        state = judge.begin(spec, fresh, windows)
    looked = judge.look(spec, state, windows)
    return looked.model_copy(update={"traffic": _traffic(looked, through, context)})


def _traffic(state: RolloutState, through: float, context: ReconcileContext) -> StepTraffic | None:
    """With the requests of windows that end after ``through`` in the step's counts."""
    step = steps.current(context.spec, state)
    return arm_traffic.after(
        state,
        context.observed.windows or (),
        through,
        steps.arm(step),
        longest_seconds=context.spec.controller_timeout,
        is_routed=gates.may_have_callers(state, context) and not gates.absence(state, context),
    )


def _drop_refused(status: EndpointStatus, context: ReconcileContext) -> EndpointStatus:
    """Drops the vector spaces that no Triton can answer in, for their packages' own fault."""
    for each in status.kept:
        if (why := context.observed.failures.get(each.ref)) is not None:
            status = _drop(status, each, f"its package is refused: {why}", context.now)
    return status


def _drop(status: EndpointStatus, left: KeptSpace, why: str, now: float) -> EndpointStatus:
    reason = f"its vector space {left.ref.space} leaves: {why}"
    kept = tuple(each for each in status.kept if each != left)
    status = apply(status, HistoryNote(now, left.ref.version, reason))
    return status.model_copy(update={"kept": kept})


def _drop_unasked(status: EndpointStatus, context: ReconcileContext) -> EndpointStatus:
    """Drops the vector spaces that nobody has asked for in a long time, if that can be known."""
    windows, keep = context.observed.windows, context.spec.embedding.keep
    if not status.kept or windows is None or gates.explain_uncounted(context.observed):
        return status
    asked = {
        found.package: min(float(window.start + window.seconds), context.now)
        for window in windows
        for found in window.aggregates
        if found.arm is Arm.FORCED
    }
    kept = []
    for each in status.kept:
        at = asked.get(each.ref.package, 0.0)
        asked_at = at if at - each.asked_at >= keep * _ASKED_STEP else each.asked_at
        kept.append(each.model_copy(update={"asked_at": asked_at}))
    status = status.model_copy(update={"kept": tuple(kept)})
    for each in sorted(kept, key=lambda each: each.asked_at):
        if context.now >= each.asked_at + keep:
            why = f"nobody asked for it in {format_duration(keep)}"
        elif len(status.kept) > KEPT_LIMIT:
            why = f"{KEPT_LIMIT} are kept, and it was not asked for the longest"
        else:
            break
        status = _drop(status, each, why, context.now)
    return status
