"""Several texts after one prompt: how they begin, come and end together."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from gateway_world import FakeEngine, call_of, endpoint_of, loop_turns, text_of, writer_of
from msgspec.structs import replace
from pipeline_world import World, world_of

from contracts.endpoint import EndpointLimits
from gateway.calls import Call, Sampling
from gateway.engine.protocol import EngineModelError
from gateway.errors import ModelFailedError, OverloadedError
from gateway.inference.choices import Choices, begin_choices
from gateway.inference.generation import Generation

MODEL = writer_of(rows=4)
SAMPLING = Sampling(5, temperature=1.0, seed=7)


@asynccontextmanager
async def world(
    engine: FakeEngine | None = None, limits: EndpointLimits | None = None
) -> AsyncIterator[World]:
    async with world_of(endpoint_of(MODEL.ref, limits=limits), engine, more=(MODEL,)) as here:
        yield here


def calls(seconds: float = 60.0, caller: str | None = None) -> Callable[[int, Sampling], Call]:
    whole = call_of(text_of(3), timeout=seconds, request_id="r")

    def one(index: int, sampling: Sampling) -> Call:
        name = f"r.{index}" if index else "r"
        return replace(whole, sampling=sampling, part=index, request_id=name, caller=caller)

    return one


async def begin(here: World, count: int, sampling: Sampling = SAMPLING) -> Choices:
    return await begin_choices(Generation(here.pipeline), calls(), sampling, count)


async def test_each_text_is_an_event_and_a_row_and_they_come_in_turn() -> None:
    async with world() as here:
        choices = await begin(here, 3)
        assert here.budget.of("sentiment") == 3 * (3 + 5)
        indexes, texts = [], ["", "", ""]
        while (part := await choices.next()) is not None:
            index, piece = part
            indexes.append(index)
            texts[index] += piece or ""
        assert texts == [" w0 w1 w2 w0 w1"] * 3
        assert indexes == [0, 1, 2] * 6  # five pieces each, and the end
        assert (choices.prompt_tokens, choices.generated) == (3, 15)
        events = here.recorder.events
        assert sorted(event.request_id for event in events) == ["r", "r.1", "r.2"]
        assert [event.status for event in events] == [200] * 3
        assert here.budget.of("sentiment") == 0


async def test_each_text_chooses_by_a_seed_of_its_own_and_the_same_again() -> None:
    async with world() as here:
        for _ in range(2):
            await (await begin(here, 4)).whole()
        seeds = [prompt.seed for prompt in here.engine.prompts]
        assert seeds[0] == SAMPLING.seed
        assert len(set(seeds[:4])) == 4
        assert seeds[:4] == seeds[4:]
        await (await begin(here, 4, Sampling(5, temperature=1.0))).whole()
        assert len({prompt.seed for prompt in here.engine.prompts}) == 8


async def test_where_one_is_not_begun_none_is() -> None:
    limits = EndpointLimits(maxTokensInFlight=20, timeoutSeconds=60)  # type: ignore[call-arg]
    async with world(limits=limits) as here:
        with pytest.raises(OverloadedError):
            await begin(here, 3)
        assert all(stream.closed for stream in here.engine.streams)
        assert here.budget.of("sentiment") == 0
        await (await begin(here, 2)).whole()


async def test_one_that_breaks_off_ends_the_others() -> None:
    engine = FakeEngine(error=EngineModelError("no"), breaks_after=2)
    async with world(engine) as here:
        choices = await begin(here, 3)
        with pytest.raises(ModelFailedError):
            await choices.whole()
        assert all(stream.closed for stream in engine.streams)
        assert here.budget.of("sentiment") == 0
        assert set(here.statuses) <= {499, 502}
        assert 502 in here.statuses


async def test_a_caller_who_leaves_ends_all_texts() -> None:
    engine = FakeEngine(held=asyncio.Event(), breaks_after=1)
    async with world(engine) as here:
        choices = await begin(here, 3)
        reading = asyncio.create_task(choices.whole())
        await loop_turns(20)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await loop_turns(5)
        assert all(stream.closed for stream in engine.streams)
        assert here.statuses == [499] * 3
        assert here.budget.of("sentiment") == 0


async def test_a_caller_who_leaves_before_all_have_begun_leaves_nothing_behind() -> None:
    engine = FakeEngine(held=asyncio.Event(), breaks_after=0)
    async with world(engine) as here:
        beginning = asyncio.create_task(begin(here, 3))
        await loop_turns(20)
        assert len(engine.streams) == 1  # the others wait for the first one's token
        engine.release()
        engine.held = asyncio.Event()
        await loop_turns(20)
        assert len(engine.streams) == 3
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        assert all(stream.closed for stream in engine.streams)
        assert here.budget.of("sentiment") == 0
