"""Where a version stands on its way, and which lines of history belong to it."""

import pytest

from contracts.endpoint import (
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Route,
    Transition,
)
from contracts.model import ModelRef
from contracts.rollout import (
    CheckResult,
    Outcome,
    RolloutSpec,
    RolloutState,
    ShadowStep,
    Step,
    Strategy,
    Verdict,
    WeightStep,
)
from rollout.checks import words
from rollout.view import RolloutView, StageView, StageWords, newest, of_preparation, of_rollout

COPIES, FIVE, HALF = ShadowStep(shadow=50), WeightStep(weight=5), WeightStep(weight=50)
SPEC = RolloutSpec(steps=(COPIES, FIVE, HALF))


def named(step: Step) -> str:
    return "copies" if isinstance(step, ShadowStep) else f"{step.weight:g}"


WORDS = StageWords(step=named, promoted="bake")


def state(step: int, outcome: Outcome | None = None, promoted: float | None = None) -> RolloutState:
    return RolloutState(
        id="r", candidate=NEW, stable=OLD, began=0, step=step, step_began=0,
        outcome=outcome, promoted_at=promoted,
    )  # fmt: skip


OLD, NEW = (ModelRef(model="m", version=v, package=v * 64) for v in "12")


def endpoint(spec: RolloutSpec = SPEC, **status: object) -> ModelEndpoint:
    return ModelEndpoint(
        metadata=Metadata(name="tone"),
        spec=EndpointSpec(model="m", rollout=spec),
        status=EndpointStatus.model_validate({"routes": (Route.all_callers(OLD),), **status}),
    )


def shown(stages: tuple[StageView, ...]) -> str:
    return " ".join(f"{stage.name}:{stage.mark.value}" for stage in stages)


def preparing(phase: Phase, *, spec: RolloutSpec = SPEC, **status: object) -> RolloutView:
    candidate = Candidate(version="2", phase=phase)
    return of_preparation(endpoint(spec, **status), candidate, WORDS)


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
        (state(1, Outcome.EXPIRED), "copies:done 5:left 50:todo bake:todo settled:todo"),
        (state(2, Outcome.SETTLED, 1), "copies:done 5:done 50:done bake:done settled:done"),
    ],
)
def test_a_rollout_stands_where_its_state_says(at: RolloutState, line: str) -> None:
    before = "converting:done verifying:done loading:done"
    assert shown(of_rollout(endpoint(), at, WORDS).stages) == f"{before} {line}"


def test_a_first_version_serves_once_it_is_loaded() -> None:
    line = preparing(Phase.LOADED, routes=()).stages
    assert shown(line) == "converting:done verifying:done loading:done serving:now"
    direct = SPEC.model_copy(update={"strategy": Strategy.DIRECT})
    assert preparing(Phase.LOADED, spec=direct).stages == line


@pytest.mark.parametrize(
    ("phase", "line"),
    [
        (Phase.CONVERTING, "converting:now verifying:todo loading:todo"),
        (Phase.VERIFYING, "converting:done verifying:now loading:todo"),
        (Phase.LOADING, "converting:done verifying:done loading:now"),
    ],
)
def test_a_version_is_prepared_before_its_rollout(phase: Phase, line: str) -> None:
    assert (
        shown(preparing(phase).stages)
        == f"{line} copies:todo 5:todo 50:todo bake:todo settled:todo"
    )


def test_a_later_version_has_its_rollout_ahead() -> None:
    history = (Transition(at=1.0, version="2", phase=Phase.VERIFYING),)
    line = shown(preparing(Phase.REJECTED, history=history).stages)
    assert line.startswith("converting:done verifying:failed loading:todo copies:todo 5:todo")


def test_the_lines_of_a_rollout_go_from_its_preparation_to_its_end() -> None:
    def line(at: float, phase: Phase, version: str = "2") -> Transition:
        return Transition(at=at, version=version, phase=phase)

    earlier = (line(1, Phase.LOADING), line(2, Phase.ROLLED_BACK))
    own = (line(3, Phase.LOADING), line(5, Phase.CANARY), line(9, Phase.ROLLED_BACK))
    later = (line(4, Phase.SERVING, "1"), line(10, Phase.WAITING))
    ended = state(1, Outcome.ROLLED_BACK).model_copy(update={"began": 4.5, "ended_at": 9.0})
    history = tuple(sorted((*earlier, *own, *later), key=lambda item: item.at))
    assert of_rollout(endpoint(history=history), ended).lines == own


def test_the_deadline_stands_still_while_a_rollout_is_paused() -> None:
    running = state(1).model_copy(update={"paused_seconds": 50.0})
    seen = newest(endpoint(rollout=running))
    assert (seen.deadline_seconds(100.0), seen.bake_seconds(100.0)) == (86400 + 50 - 100, None)
    paused = newest(endpoint(rollout=running.model_copy(update={"paused_at": 60.0})))
    assert paused.deadline_seconds(100.0) == paused.deadline_seconds(900.0) == 86400 + 50 - 60
    promoted = newest(endpoint(rollout=state(2, promoted=100.0)))
    assert (promoted.deadline_seconds(200.0), promoted.bake_seconds(200.0)) == (None, 3500.0)


@pytest.mark.parametrize("needs", [None, 800])
def test_a_rollout_that_has_ended_asks_for_no_more_requests(needs: int | None) -> None:
    said = [
        f"canary 1, stable 2: not yet known, {words.still_needed(needs)}",
        f"distance 0.1: not yet known whether less than 0.1, {words.still_needed(needs)}; few",
    ]
    checks = tuple(
        CheckResult(name=str(i), verdict=Verdict.UNKNOWN, reason=reason, needs=needs)
        for i, reason in enumerate(said)
    )
    going = state(1).model_copy(update={"checks": checks})
    assert of_rollout(endpoint(), going, WORDS).checks == checks
    ended = going.model_copy(update={"outcome": Outcome.SETTLED, "ended_at": 9.0})
    seen = of_rollout(endpoint(), ended, WORDS).checks
    assert [(check.reason, check.needs) for check in seen] == [
        ("canary 1, stable 2: not known when the rollout ended", None),
        ("distance 0.1: not known whether less than 0.1 when the rollout ended; few", None),
    ]
