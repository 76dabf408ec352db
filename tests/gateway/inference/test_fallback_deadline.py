"""Where a version on trial fails, the one that stands in answers; both attempts are recorded."""

import asyncio

import numpy as np
import pytest
from gateway_world import FakeEngine, call_of, endpoint_of, loop_turns
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pipeline_world import ONE, TWO, World, world_of

from contracts.endpoint import Arm, ModelEndpoint
from contracts.model import DEFAULT_POOL
from gateway.engine.protocol import (
    EngineMissingModelError,
    EngineModelError,
    EngineTimeoutError,
)
from gateway.errors import DeadlineExceededError, ModelFailedError, OverloadedError
from gateway.inference.pipeline import fallback_deadline

ON_TRIAL = endpoint_of(ONE.ref, canary=TWO.ref, weight=100, rollout="r")
IN_BAKE = endpoint_of(TWO.ref, control=ONE.ref, weight=0.001, rollout="r")


def nan(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.full((len(ids), 2), np.nan, np.float32)


def too_wide(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.zeros((len(ids), 3), np.float32)


def too_few(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.zeros((len(ids) - 1, 2), np.float32)


def no_rows(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.zeros((), np.float32)


def second_version(engine: FakeEngine) -> FakeEngine:
    """A Triton on which version 2 does as this engine does."""
    return FakeEngine(others={TWO.name: engine})


def told(world: World) -> list[tuple[str, Arm, int, bool, bool]]:
    return [(e.version, e.arm, e.status, e.answered, e.repeated) for e in world.recorder.events]


@pytest.mark.parametrize(
    ("candidate", "status"),
    [
        (FakeEngine(error=EngineModelError("broken")), 502),
        (FakeEngine(error=EngineMissingModelError("gone")), 503),
        (FakeEngine(answer=nan), 502),
        (FakeEngine(answer=too_wide), 502),
        (FakeEngine(answer=too_few), 502),
    ],
)
@pytest.mark.parametrize(
    ("endpoint", "arms"),
    [(ON_TRIAL, (Arm.CANARY, Arm.STABLE)), (IN_BAKE, (Arm.STABLE, Arm.CONTROL))],
    ids=["canary", "bake"],
)
async def test_a_failed_attempt_of_a_version_on_trial_is_made_good_and_told(
    endpoint: ModelEndpoint, arms: tuple[Arm, Arm], candidate: FakeEngine, status: int
) -> None:
    async with world_of(endpoint, second_version(candidate)) as world:
        answer = await world.pipeline.predict(call_of("w1", sticky_key="somebody"))
    assert (answer.ref, answer.arm) == (ONE.ref, arms[1])
    assert told(world) == [
        ("2", arms[0], status, False, False),
        ("1", arms[1], 200, True, True),
    ]


async def test_a_mistake_of_ours_that_only_the_candidate_meets_costs_its_caller_nothing() -> None:
    engine = second_version(FakeEngine(answer=no_rows))
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with world_of(ON_TRIAL, engine) as world:
        answer = await world.pipeline.predict(call_of("w1"))
    assert answer.ref == ONE.ref
    assert told(world)[0] == ("2", Arm.CANARY, 500, False, False)


async def test_a_slow_candidate_is_cut_off_early_enough_for_stable() -> None:
    slow = FakeEngine(error=EngineTimeoutError("slow"))
    async with world_of(ON_TRIAL, second_version(slow)) as world:
        stable = world.endpoints.serving.batchers[DEFAULT_POOL][ONE.ref.package]
        for _ in range(60):
            stable.cost.observe("t:1", 4, 1, 5.0)
        answer = await world.pipeline.predict(call_of("w1", timeout=60.0))
        assert answer.ref == ONE.ref
        assert max(slow.timeouts) <= 60.0 - 2 * 5.0
        assert told(world) == [
            ("2", Arm.CANARY, 504, False, False),
            ("1", Arm.STABLE, 200, True, True),
        ]


async def test_where_both_fail_the_caller_hears_of_the_second() -> None:
    engine = FakeEngine(error=EngineModelError("both are broken"))
    async with world_of(ON_TRIAL, engine) as world:
        with pytest.raises(ModelFailedError):
            await world.pipeline.predict(call_of("w1"))
    assert told(world) == [
        ("2", Arm.CANARY, 502, False, False),
        ("1", Arm.STABLE, 502, True, True),
    ]


async def test_stable_is_never_made_good_by_a_candidate() -> None:
    endpoint = endpoint_of(ONE.ref, canary=TWO.ref, weight=0.001, rollout="r")
    engine = FakeEngine(error=EngineModelError("broken"), others={TWO.name: FakeEngine()})
    async with world_of(endpoint, engine) as world:
        with pytest.raises(ModelFailedError):
            await world.pipeline.predict(call_of("w1"))
    assert told(world) == [("1", Arm.STABLE, 502, True, False)]


async def test_a_caller_that_hangs_up_during_the_second_attempt_is_recorded_once() -> None:
    engine = second_version(FakeEngine(error=EngineModelError("broken")))
    engine.held = asyncio.Event()
    async with world_of(ON_TRIAL, engine) as world:
        request = asyncio.create_task(world.pipeline.predict(call_of("w1")))
        while not engine.works:
            await loop_turns(1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
    assert [(status, answered) for _, _, status, answered, _ in told(world)] == [
        (502, False),
        (499, True),
    ]


@pytest.mark.parametrize("seconds", [300.0, 30.0])
async def test_a_candidate_without_time_to_spare_gets_all_of_it(seconds: float) -> None:
    slow = FakeEngine(error=EngineTimeoutError("slow"))
    async with world_of(ON_TRIAL, second_version(slow)) as world:
        stable = world.endpoints.serving.batchers[DEFAULT_POOL][ONE.ref.package]
        for _ in range(60):
            stable.cost.observe("t:1", 4, 1, seconds)
        await world.pipeline.predict(call_of("w1", timeout=600.0))
    assert (slow.timeouts[0] > 600 - 60) is (seconds == 300.0)


async def test_a_candidate_without_time_to_spare_is_not_waited_for_if_its_triton_is_gone() -> None:
    gone = FakeEngine(error=EngineMissingModelError("gone"))
    async with world_of(ON_TRIAL, second_version(gone)) as world:
        stable, candidate = (
            world.endpoints.serving.batchers[DEFAULT_POOL][model.ref.package]
            for model in (ONE, TWO)
        )
        for _ in range(60):
            stable.cost.observe("t:1", 4, 1, 300.0)
        request = asyncio.create_task(world.pipeline.predict(call_of("w1", timeout=600.0)))
        while candidate.serves:
            await loop_turns(1)
        assert candidate.queued_rows == 0
        assert (await request).ref == ONE.ref


async def test_nobody_is_asked_again_when_the_time_is_over() -> None:
    slow = FakeEngine(held=asyncio.Event())
    async with world_of(ON_TRIAL, second_version(slow)) as world:
        stable = world.endpoints.serving.batchers[DEFAULT_POOL][ONE.ref.package]
        for _ in range(60):
            stable.cost.observe("t:1", 4, 1, 60.0)
        for timeout in (0.1, 1.0, 10.0, 100.0):  # on a busy machine some is over before it is sent
            with pytest.raises((DeadlineExceededError, OverloadedError)):
                await world.pipeline.predict(call_of("w1", timeout=timeout))
            if slow.works:
                break
        slow.release()
    assert told(world) == [("2", Arm.CANARY, 504, True, False)]


@given(st.floats(0, 1e6), st.floats(0.001, 600), st.floats(0, 100))
def test_a_first_attempt_gets_at_least_half_of_the_time_and_leaves_what_it_must(
    now: float, left: float, usual: float
) -> None:
    deadline = now + left
    until = fallback_deadline(now, deadline, usual)
    assert now + left / 2 - 1e-6 <= until <= deadline
    assert until == deadline or deadline - until >= 2 * usual - 1e-6


async def test_a_candidate_with_too_long_a_queue_is_passed_over_for_stable() -> None:
    held = FakeEngine(held=asyncio.Event())
    async with world_of(ON_TRIAL, second_version(held)) as world:
        candidate = world.endpoints.serving.batchers[DEFAULT_POOL][TWO.ref.package]
        for _ in range(60):
            candidate.cost.observe("t:1", 4, 1, 15.0)
        calls = [call_of("w1", request_id=str(number)) for number in range(3)]
        first = [asyncio.create_task(world.pipeline.predict(call)) for call in calls]
        await loop_turns()
        answer = await world.pipeline.predict(call_of("w1", timeout=12.0))
        assert (answer.ref, answer.arm) == (ONE.ref, Arm.STABLE)
        held.release()
        await asyncio.gather(*first)
    assert world.recorder.refusals == []


async def test_a_version_that_no_triton_holds_is_passed_over_in_the_bake_too() -> None:
    async with world_of(IN_BAKE, FakeEngine(holds={ONE.name})) as world:
        answer = await world.pipeline.predict(call_of("w1"))
    assert (answer.ref, answer.arm) == (ONE.ref, Arm.CONTROL)
