import pytest

from contracts import way
from contracts.model import ModelRef
from contracts.rollout import (
    Outcome,
    RolloutSpec,
    RolloutState,
    ShadowStep,
    Step,
    Strategy,
    WeightStep,
)
from contracts.way import Mark, Words

COPIES, FIVE, HALF = ShadowStep(shadow=50), WeightStep(weight=5), WeightStep(weight=50)
SPEC = RolloutSpec(steps=(COPIES, FIVE, HALF))


def named(step: Step) -> str:
    return "copies" if isinstance(step, ShadowStep) else f"{step.weight:g}"


WORDS = Words(step=named, promoted="bake")


def state(step: int, outcome: Outcome | None = None, promoted: float | None = None) -> RolloutState:
    old, new = (ModelRef(model="m", version=v, package=v * 64) for v in "12")
    return RolloutState(
        id="r", candidate=new, stable=old, began=0, step=step, step_began=0,
        outcome=outcome, promoted_at=promoted,
    )  # fmt: skip


def shown(stages: tuple[way.Stage, ...]) -> str:
    return " ".join(f"{stage.name}:{stage.mark.value}" for stage in stages)


def test_the_strategy_shadow_walks_shadow_steps_alone() -> None:
    assert SPEC.planned == (COPIES, FIVE, HALF)
    shadow = SPEC.model_copy(update={"strategy": Strategy.SHADOW})
    assert shadow.planned == (COPIES,)
    bare = RolloutSpec(steps=(FIVE,), strategy=Strategy.SHADOW)
    assert bare.planned == (ShadowStep(shadow=100),)


def test_a_step_that_an_edit_removed_is_the_last_one() -> None:
    assert SPEC.step_at(1) == FIVE
    assert SPEC.step_at(7) == HALF


@pytest.mark.parametrize(
    ("at", "line"),
    [
        (state(1), "copies:done 5:now 50:todo bake:todo settled:todo"),
        (state(9), "copies:done 5:done 50:now bake:todo settled:todo"),
        (state(2, promoted=1), "copies:done 5:done 50:done bake:now settled:todo"),
        (state(2, Outcome.REVERTED, 1), "copies:done 5:done 50:done bake:failed settled:todo"),
        (state(0, Outcome.ROLLED_BACK), "copies:failed 5:todo 50:todo bake:todo settled:todo"),
        (state(1, Outcome.SUPERSEDED), "copies:done 5:left 50:todo bake:todo settled:todo"),
        (state(2, Outcome.SETTLED, 1), "copies:done 5:done 50:done bake:done settled:done"),
    ],
)
def test_a_rollout_stands_where_its_state_says(at: RolloutState, line: str) -> None:
    before = "converting:done verifying:done loading:done"
    assert shown(way.rollout(SPEC, WORDS, at)) == f"{before} {line}"


def test_a_first_version_serves_once_it_is_loaded() -> None:
    line = way.preparation(SPEC, WORDS, 3, Mark.NOW, is_first=True)
    assert shown(line) == "converting:done verifying:done loading:done serving:now"
    direct = SPEC.model_copy(update={"strategy": Strategy.DIRECT})
    assert way.preparation(direct, WORDS, 3, Mark.NOW, is_first=False) == line


def test_a_later_version_has_its_rollout_ahead() -> None:
    line = shown(way.preparation(SPEC, WORDS, 1, Mark.FAILED, is_first=False))
    assert line.startswith("converting:done verifying:failed loading:todo copies:todo 5:todo")
