"""Of a long text nothing waits but what was read of it, and that it was cut is still told."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from gateway_world import FakeEngine, call_of, endpoint_of
from msgspec.structs import replace
from pipeline_world import ONE, TWO, World, world_of

from gateway.calls import Answer, Call, memory_of

# One character beyond the BMP: all of them take four bytes.
LONG = "w1 \U0001f600 " + "w2 " * 300_000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_of(endpoint_of(ONE.ref), FakeEngine(held=asyncio.Event())) as found:
        yield found


async def waiting(world: World, call: Call) -> "asyncio.Task[Answer]":
    """A call that the engine holds."""
    task = asyncio.create_task(world.pipeline.predict(call))
    async with asyncio.timeout(60):
        while not world.budget.of(call.endpoint):  # noqa: ASYNC110 - a thread reads the text
            await asyncio.sleep(0.001)
    return task


async def test_a_long_text_waits_as_what_was_read_of_it(world: World) -> None:
    told: list[int] = []
    call = replace(call_of(LONG, "w1"), hold=told.append)
    task = await waiting(world, call)
    assert memory_of(call.texts, None) < 4 * 16 * 1024
    assert told == [memory_of(call.texts, None)]
    assert LONG.startswith(call.texts[0])
    assert call.texts[1] == "w1"
    world.engine.release()
    answer = await task
    assert answer.truncated == [True, False]
    (event,) = world.recorder.events
    assert [text.truncated for text in event.texts] == [True, False]


async def test_short_texts_are_left_alone(world: World) -> None:
    told: list[int] = []
    call = replace(call_of("w1 w2", "w1"), hold=told.append)
    task = await waiting(world, call)
    assert (call.texts, told) == (["w1 w2", "w1"], [])
    world.engine.release()
    assert (await task).truncated == [False, False]


async def test_what_another_tokeniser_may_read_is_kept_whole() -> None:
    """A shadow reads the texts that came."""
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, rollout="r")
    async with world_of(endpoint, FakeEngine(held=asyncio.Event())) as world:
        call = call_of(LONG)
        task = await waiting(world, call)
        assert call.texts == [LONG]
        world.engine.release()
        assert (await task).truncated == [True]
