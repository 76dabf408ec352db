"""What ends a rollout, and what keeps one in its step: one question a function. Pure.

It never decides what follows. Sentences name no figure that changes by itself, so that a status is
written only when something happened.
"""

from contracts.durations import format_duration, humanise
from contracts.endpoint import KEPT_LIMIT, EndpointStatus
from contracts.rollout import (
    CheckResult,
    RolloutState,
    ShadowStep,
    Strategy,
    Verdict,
    WeightStep,
)
from rollout import arm_traffic
from rollout.context import Observation, ReconcileContext
from rollout.steps import HISTORY_WINDOWS, arm, current, following

_IN_USE_SHARE = 0.1  # of the time that a space is kept: one asked for within it is in use


def list_failing(state: RolloutState) -> tuple[CheckResult, ...]:
    """Checks that end the rollout."""
    return tuple(check for check in state.checks if check.gate and check.verdict is Verdict.FAIL)


def list_required(state: RolloutState) -> tuple[CheckResult, ...]:
    """Checks that must pass before a step is over."""
    return tuple(check for check in state.checks if check.gate and check.required)


def is_over_deadline(state: RolloutState, context: ReconcileContext) -> bool:
    """Whether its time is up; the time for which it was paused does not count.

    There is none while a person moves an index before the cutover.
    """
    if state.paused_at is not None or state.passed_at is not None:
        return False
    return context.now - state.began - state.paused_seconds >= context.spec.deadline


def note_passing(state: RolloutState, context: ReconcileContext) -> RolloutState:
    """With since when all that a version of another vector space lacks is a person's word.

    From then on only a check that fails ends it: evidence that wavers does not stop a backfill.
    """
    if context.spec.strategy is not Strategy.CUTOVER:
        return stop_waiting(state, context.now)
    if state.passed_at is not None or explain_hold(state, context):
        return state
    passed_at = None if following(context.spec, state) else context.now
    return state.model_copy(update={"passed_at": passed_at})


def stop_waiting(state: RolloutState, now: float) -> RolloutState:
    """As if it had not passed yet, with as much of its deadline left as when it did."""
    seconds = state.paused_seconds + (0.0 if state.passed_at is None else now - state.passed_at)
    return state.model_copy(update={"passed_at": None, "paused_seconds": seconds})


def may_have_callers(state: RolloutState, context: ReconcileContext) -> bool:
    """Whether enough is known of stable to judge a candidate that callers meet."""
    return context.judge.history_windows(state) >= HISTORY_WINDOWS


def explain_hold(state: RolloutState, context: ReconcileContext) -> str:
    """Why a rollout stays in its step, in a sentence; empty if it may go on."""
    if state.paused_at is not None:
        return "paused"
    held = _by_surroundings(state, context) or _before_cutover(state)
    return held or _by_evidence(state, context)


def explain_no_room(status: EndpointStatus, context: ReconcileContext) -> str:
    """Why no further vector space can be kept, so that a cutover waits; empty if one can."""
    state, keep = status.rollout, context.spec.embedding.keep
    if state is None:
        return ""
    new = (state.candidate.space, state.stable.space)
    others = [each for each in status.kept if each.ref.space not in new]
    recent = keep * _IN_USE_SHARE
    if len(others) < KEPT_LIMIT or any(context.now - each.asked_at >= recent for each in others):
        return ""
    return (
        f"{len(others)} vector spaces that callers have left are kept, as many as may be, and each "
        f"was asked for in the last {format_duration(recent)}: move an index first, or lower "
        "spec.rollout.embedding.keep"
    )


def empty_arm(state: RolloutState, context: ReconcileContext) -> str:
    """Why the next step begins though this one had no caller, in a sentence; empty if it must not.

    The last step is never left so: a promotion needs every check to pass.
    """
    step, next_step = current(context.spec, state), following(context.spec, state)
    if not (isinstance(step, WeightStep) and isinstance(next_step, WeightStep)):
        return ""
    is_held = state.paused_at is not None or _by_surroundings(state, context)
    if is_held or context.now < state.step_began + context.spec.minimum_step:
        return ""
    traffic, share = state.traffic, step.weight / 100
    wait = context.spec.deadline * arm_traffic.WAIT_OF_DEADLINE
    if traffic is None or not arm_traffic.is_empty(traffic, share, state.looked_through, wait):
        return ""
    seconds = state.looked_through - traffic.since
    return (
        f"{arm_traffic.explain_missed(traffic, share)}: stable answered {traffic.named:,} requests "
        f"of theirs in {humanise(seconds)}, and version {state.candidate.version} none"
    )


def explain_settling(state: RolloutState, context: ReconcileContext) -> str:
    """Why a promoted version does not settle yet, in a sentence; empty if it may."""
    if state.paused_at is not None:
        return "paused"
    if state.promoted_at is None or context.now < state.promoted_at + context.spec.bake:
        return f"is watched for {format_duration(context.spec.bake)} after its promotion"
    if failed := list_failing(state):
        return f"{with_reasons(failed)}; version {state.stable.version} is not loaded to go back to"
    return _by_surroundings(state, context)


def is_over_bake(state: RolloutState, context: ReconcileContext) -> bool:
    """Whether a bake that could not settle has waited long enough for what it lacks."""
    if state.promoted_at is None or state.paused_at is not None:
        return False
    return context.now >= state.promoted_at + context.spec.bake + context.spec.deadline


def with_reasons(checks: tuple[CheckResult, ...]) -> str:
    """Checks and their reasons, in one line."""
    return "; ".join(f"{check.name}: {check.reason}" for check in checks)


def open_checks(state: RolloutState) -> tuple[CheckResult, ...]:
    """Required checks that have not passed."""
    return tuple(check for check in list_required(state) if check.verdict is not Verdict.PASS)


def absence(state: RolloutState, context: ReconcileContext) -> str:
    """That the candidate is not loaded, in a sentence; empty if it is."""
    if state.candidate in context.observed.loaded:
        return ""
    return f"version {state.candidate.version} is not loaded on every Triton"


def explain_uncounted(observed: Observation) -> str:
    """Why windows do not tell what the traffic is, in a sentence; empty if they do."""
    if observed.counting.holds:
        return f"waits for statistics: {observed.counting.sentence()}"
    if observed.windows is None:
        return "waits for statistics: window records can't be read"
    return ""


def _by_surroundings(state: RolloutState, context: ReconcileContext) -> str:
    stable, observed = state.stable, context.observed
    if absent := absence(state, context):
        return absent
    # In the bake the old version is a mere control, and may have gone.
    if state.promoted_at is None and stable not in observed.loaded:
        return f"version {stable.version}, the stable one, is not loaded on every Triton"
    return explain_uncounted(observed)


def _by_evidence(state: RolloutState, context: ReconcileContext) -> str:
    spec = context.spec
    next_step = following(spec, state)
    if spec.strategy is Strategy.SHADOW and next_step is None:
        return "stays in shadow until someone promotes or aborts it"
    if context.now < state.step_began + spec.minimum_step:
        return f"the step lasts at least {format_duration(spec.minimum_step)}"
    if not isinstance(next_step, ShadowStep) and not may_have_callers(state, context):
        known = context.judge.history_windows(state)
        return f"{known} of {HISTORY_WINDOWS} windows with traffic of the stable version are known"
    if not _is_at_work(state, context):
        return _without_traffic(state, context)
    if waiting := open_checks(state):
        return f"not yet known: {', '.join(check.name for check in waiting)}"
    return ""


def _before_cutover(state: RolloutState) -> str:
    if state.passed_at is None:
        return ""
    return (
        f"passed in shadow; its vectors can't be compared with those of version "
        f"{state.stable.version}, so that it has no caller before the cutover"
    )


def _without_traffic(state: RolloutState, context: ReconcileContext) -> str:
    step, traffic = current(context.spec, state), state.traffic
    if traffic is not None and isinstance(step, WeightStep) and arm_traffic.is_missed(traffic):
        return arm_traffic.explain_missed(traffic, step.weight / 100)
    return "no traffic has reached it in this step"


def _is_at_work(state: RolloutState, context: ReconcileContext) -> bool:
    """Whether the candidate was seen at work since the step began, by windows that are judged.

    A step that no check is required in would be over without any request, and one that traffic has
    left would go on by what was true an hour ago.
    """
    wanted = arm(current(context.spec, state))
    return any(
        found.package == state.candidate.package
        and found.arm is wanted
        and found.evidence.requests > 0
        for window in context.observed.windows or ()
        if state.step_began < window.start + window.seconds <= state.looked_through
        for found in window.aggregates
    )
