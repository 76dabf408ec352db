"""The steps of a rollout: which one it is in, and the routes that follow. Pure.

It never decides whether a step is over.
"""

from collections.abc import Set as AbstractSet

from contracts.endpoint import Arm, Phase, Route
from contracts.model import ModelRef
from contracts.rollout import (
    RolloutSpec,
    RolloutState,
    ShadowStep,
    Step,
    Strategy,
    WeightStep,
)

# Windows of stable's traffic, before any caller gets the candidate, that the checks need to know
# how correlated it is.
HISTORY_WINDOWS = 20


def current(spec: RolloutSpec, state: RolloutState) -> Step:
    """The step that a rollout is in."""
    return spec.step_at(state.step)


def following(spec: RolloutSpec, state: RolloutState) -> Step | None:
    """The step behind the current one, if there is one."""
    steps = spec.planned
    return steps[state.step + 1] if state.step + 1 < len(steps) else None


def phase(step: Step) -> Phase:
    """The phase that a step is shown as."""
    return Phase.CANARY if isinstance(step, WeightStep) else Phase.SHADOW


def arm(step: Step) -> Arm:
    """The candidate's arm in a step."""
    return Arm.CANARY if isinstance(step, WeightStep) else Arm.SHADOW


def describe(step: Step) -> str:
    """The step in words: ``25 %`` or ``shadow``."""
    return f"{step.weight:g} %" if isinstance(step, WeightStep) else "shadow"


def percent(step: Step) -> float:
    """Percent of callers or, in shadow, of requests that are copied."""
    return step.weight if isinstance(step, WeightStep) else step.shadow


def index_after_edit(spec: RolloutSpec, step: int, weight: float | None, was: Phase) -> int:
    """Index of the step that a rollout is in, after the spec's steps may have been edited.

    It is the step with the weight that is routed now, wherever that stands. If there is none, it is
    the step with the same index, so that a step whose weight was edited stays. A rollout in shadow
    stays in a shadow step, and one with callers in a step with callers, if the spec has one. So an
    edit before the current step skips nothing.

    Args:
        spec: as it is now.
        step: index that the rollout had.
        weight: percent of callers that the candidate has now, None without any.
        was: phase that the rollout was shown in.
    """
    steps = spec.planned
    for index, item in enumerate(steps):
        if isinstance(item, WeightStep) and item.weight == weight:
            return index
    same = [index for index, item in enumerate(steps) if phase(item) is was]
    if not same:
        return 0 if was is Phase.SHADOW else len(steps) - 1
    return min(max(step, same[0]), same[-1])


def routes(
    spec: RolloutSpec, state: RolloutState, loaded: AbstractSet[ModelRef], *, callers: bool
) -> tuple[Route, ...]:
    """The routing table of a rollout that goes on.

    Nothing but stable is routed if the last observation did not show it loaded; stable always
    is, for there is nothing else to answer with.

    Args:
        spec: the rollout's spec.
        state: the rollout.
        loaded: what every Triton holds.
        callers: whether the candidate may have callers at all; false while history is short.
    """
    if state.promoted_at is not None:
        if state.stable not in loaded or spec.strategy is Strategy.CUTOVER:
            return (Route.all_callers(state.candidate),)
        return (
            Route(arm=Arm.STABLE, ref=state.candidate, weight=100 - spec.hold_back),
            Route(arm=Arm.CONTROL, ref=state.stable, weight=spec.hold_back),
        )
    if state.candidate not in loaded:
        return (Route.all_callers(state.stable),)
    step = current(spec, state)
    if isinstance(step, ShadowStep):
        shadow = Route(arm=Arm.SHADOW, ref=state.candidate, weight=step.shadow)
        return (Route.all_callers(state.stable), shadow)
    if not callers:
        return (Route.all_callers(state.stable),)
    return (
        Route(arm=Arm.CANARY, ref=state.candidate, weight=step.weight),
        Route(arm=Arm.STABLE, ref=state.stable, weight=100 - step.weight),
    )
