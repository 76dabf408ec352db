"""Where a rollout stands among its steps, and the routes that follow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_walk import ref

from contracts.endpoint import Arm, Phase
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec, RolloutState, ShadowStep, Step, WeightStep
from rollout import steps

ONE, TWO = ref("1"), ref("2")
SHADOW = ShadowStep(shadow=50)
WEIGHTS = st.lists(st.floats(0.1, 99.9), min_size=1, max_size=5, unique=True)


def spec(*weights: float, shadows: int = 1) -> RolloutSpec:
    walk: tuple[Step, ...] = (SHADOW,) * shadows
    return RolloutSpec(steps=(*walk, *(WeightStep(weight=weight) for weight in weights)))


def state(step: int = 0, promoted_at: float | None = None) -> RolloutState:
    return RolloutState(
        id="r",
        candidate=TWO,
        stable=ONE,
        step=step,
        began=0,
        step_began=0,
        promoted_at=promoted_at,
    )


@pytest.mark.parametrize(
    ("edited", "step", "weight", "was", "index"),
    [
        (spec(5, 25), 1, 5, Phase.CANARY, 1),  # nothing was edited
        (spec(5, 25, shadows=2), 1, 5, Phase.CANARY, 2),  # it stands elsewhere now
        (spec(7, 25), 1, 5, Phase.CANARY, 1),  # its own weight was edited
        (spec(7), 3, 5, Phase.CANARY, 1),  # no steps are left where it was
        (spec(7, shadows=3), 1, 5, Phase.CANARY, 3),  # callers stay callers
        (spec(7, shadows=3), 1, None, Phase.CANARY, 3),  # unloaded just now
        (spec(5, 25), 2, None, Phase.SHADOW, 0),  # copies stay copies
        (spec(5, 25, shadows=0), 2, None, Phase.SHADOW, 0),  # no copies are left
        (spec(shadows=2), 1, 5, Phase.CANARY, 1),  # no callers are left
    ],
)
def test_an_edit_keeps_the_candidate_in_its_place(
    edited: RolloutSpec, step: int, weight: float | None, was: Phase, index: int
) -> None:
    assert steps.index_after_edit(edited, step, weight, was) == index


@given(
    weights=WEIGHTS,
    step=st.integers(0, 9),
    shadows=st.integers(0, 2),
    promoted=st.booleans(),
    loaded=st.sets(st.sampled_from([ONE, TWO])),
    callers=st.booleans(),
    hold_back=st.floats(0.1, 49.9),
)
def test_weights_sum_to_a_hundred_and_nothing_unloaded_is_routed(
    weights: list[float],
    step: int,
    shadows: int,
    loaded: set[ModelRef],
    hold_back: float,
    *,
    promoted: bool,
    callers: bool,
) -> None:
    made = spec(*sorted(weights), shadows=shadows).model_copy(update={"hold_back": hold_back})
    at = state(step, promoted_at=1.0 if promoted else None)
    routes = steps.routes(made, at, loaded, callers=callers)
    assert sum(r.weight for r in routes if r.arm is not Arm.SHADOW) == pytest.approx(100)
    assert [r.ref for r in routes if r.arm is Arm.STABLE] == [TWO if promoted else ONE]
    assert all(r.arm is Arm.STABLE or r.ref in loaded for r in routes)
    if not callers and not promoted:
        assert all(r.arm is not Arm.CANARY for r in routes)


@pytest.mark.parametrize(("step", "words"), [(SHADOW, "shadow"), (WeightStep(weight=2.5), "2.5 %")])
def test_a_step_is_named_as_people_name_it(step: Step, words: str) -> None:
    assert steps.describe(step) == words
