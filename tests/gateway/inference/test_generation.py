"""Prompts on their way through the gateway's core."""

import asyncio
from contextlib import AbstractAsyncContextManager
from time import monotonic

import pytest
from gateway_world import FakeEngine, call_of, endpoint_of, loop_turns, text_of, writer_of
from msgspec.structs import replace
from pipeline_world import World, world_of

from contracts.endpoint import Arm, EndpointLimits, ModelEndpoint
from contracts.model import DEFAULT_POOL
from gateway.calls import Sampling
from gateway.engine.protocol import (
    EngineBusyError,
    EngineModelError,
    EngineProcessGoneError,
    EngineUnavailableError,
)
from gateway.errors import (
    DeadlineExceededError,
    InvalidInputError,
    ModelFailedError,
    ModelUnavailableError,
    OverloadedError,
)
from gateway.inference.generation import Generation, Text
from gateway.packages import ServedModel

ONE, TWO = writer_of("1"), writer_of("2")


def world(
    engine: FakeEngine | None = None,
    endpoint: ModelEndpoint | None = None,
    *more: ServedModel,
) -> AbstractAsyncContextManager[World]:
    """An endpoint that writes, of version 1 if no other is named."""
    endpoint = endpoint or endpoint_of(ONE.ref)
    return world_of(endpoint, engine, more=(ONE, TWO, *more))


async def begin(
    world: World,
    tokens: int = 3,
    *,
    most: int = 5,
    seconds: float = 60.0,
    stops: tuple[str, ...] = (),
) -> Text:
    call = call_of(text_of(tokens), timeout=seconds)
    return await Generation(world.pipeline).begin(
        replace(call, sampling=Sampling(most, stops=stops))
    )


async def read(text: Text) -> str:
    return "".join([piece async for piece in text])


async def test_a_text_comes_in_pieces_and_its_end_is_one_event() -> None:
    async with world() as here:
        text = await begin(here)
        assert here.budget.of("sentiment") == 3 + 5
        assert here.recorder.events == []
        assert await read(text) == " w0 w1 w2 w0 w1"
        assert (text.finish, text.prompt_tokens, text.generated) == ("length", 3, 5)
        assert here.budget.of("sentiment") == 0
        (event,) = here.recorder.events
        (record,) = event.texts
        assert (event.status, event.answered, event.arm) == (200, True, Arm.STABLE)
        assert (record.tokens, record.generated, record.label) == (3, 5, "length")
        assert all(stream.closed for stream in here.engine.streams)


async def test_bulk_requests_spare_callers_of_texts() -> None:
    async with world() as here:
        share = here.endpoints.serving.batchers[DEFAULT_POOL][ONE.ref.package].share
        assert not share.report(monotonic()).spared
        await read(await begin(here))
        report = share.report(monotonic())
        assert report.spared
        assert sum(report.busy.values()) > 0


async def test_a_token_that_ends_the_text_is_counted_and_not_shown() -> None:
    ends = writer_of("3", stop_ids=(4,))  # the token of w2
    async with world(None, endpoint_of(ends.ref), ends) as here:
        text = await begin(here)
        assert await read(text) == " w0 w1"
        assert (text.finish, text.generated) == ("stop", 3)


async def test_a_stop_text_ends_the_text_and_the_stream() -> None:
    async with world() as here:
        text = await begin(here, most=20, stops=("w1",))
        assert await read(text) == " w0 "
        assert (text.finish, text.generated) == ("stop", 2)
        assert here.engine.streams[0].closed
        assert here.recorder.events[0].texts[0].label == "stop"


async def test_a_caller_who_leaves_stops_the_engine_and_frees_the_tokens() -> None:
    engine = FakeEngine(held=asyncio.Event(), breaks_after=2)
    async with world(engine) as here:
        text = await begin(here)
        assert await anext(text) == " w0"
        reading = asyncio.create_task(read(text))
        await loop_turns(20)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert engine.streams[0].closed
        (event,) = here.recorder.events
        assert (event.status, event.texts[0].generated, event.texts[0].label) == (499, 2, None)
        assert here.budget.of("sentiment") == 0


async def test_a_caller_who_leaves_before_the_first_token_frees_all_too() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with world(engine) as here:
        beginning = asyncio.create_task(begin(here))
        await loop_turns(20)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        assert engine.streams[0].closed
        assert here.statuses == [499]
        assert here.budget.of("sentiment") == 0


async def test_a_text_that_is_closed_unread_is_a_caller_who_left() -> None:
    async with world() as here:
        text = await begin(here)
        text.close()
        text.close()
        assert here.statuses == [499]
        assert here.budget.of("sentiment") == 0
        assert await read(text) == ""


@pytest.mark.parametrize(
    ("error", "told", "status"),
    [
        (EngineModelError("no"), ModelFailedError, 502),
        (EngineUnavailableError("gone"), ModelUnavailableError, 503),
        (EngineProcessGoneError("gone"), ModelUnavailableError, 503),
    ],
)
async def test_a_text_that_breaks_off_is_told_and_recorded(
    error: Exception, told: type[Exception], status: int
) -> None:
    async with world(FakeEngine(error=error, breaks_after=2)) as here:  # type: ignore[arg-type]
        text = await begin(here)
        assert [await anext(text), await anext(text)] == [" w0", " w1"]
        with pytest.raises(told):
            await anext(text)
        assert await read(text) == ""
        (event,) = here.recorder.events
        assert (event.status, event.texts[0].generated, event.texts[0].label) == (status, 2, None)
        assert here.budget.of("sentiment") == 0
        assert not any(
            batcher.replicas[0].busy
            for batcher in here.endpoints.serving.batchers[DEFAULT_POOL].values()
        )


async def test_a_text_that_is_too_late_ends_at_its_deadline() -> None:
    engine = FakeEngine(held=asyncio.Event(), breaks_after=1)
    async with world(engine) as here:
        with pytest.raises(DeadlineExceededError):
            await read(await begin(here, seconds=0.2))
        assert here.statuses == [504]
        assert all(stream.closed for stream in engine.streams)


async def test_a_first_token_that_is_too_late_is_504() -> None:
    async with world(FakeEngine(held=asyncio.Event())) as here:
        with pytest.raises(DeadlineExceededError):
            await begin(here, seconds=0.2)
        assert here.statuses == [504]


async def test_a_triton_that_takes_no_more_prompts_is_an_overload() -> None:
    async with world(FakeEngine(error=EngineBusyError("queue is full"))) as here:
        with pytest.raises(OverloadedError):
            await begin(here)
        assert here.statuses == [503]


async def test_no_more_texts_are_begun_than_a_model_has_rows_twice() -> None:
    async with world(FakeEngine(held=asyncio.Event(), breaks_after=1)) as here:
        texts = [await begin(here) for _ in range(4)]
        with pytest.raises(OverloadedError):
            await begin(here)
        for text in texts:
            text.close()


async def test_prompt_and_text_have_to_fit_the_model() -> None:
    async with world() as here:
        with pytest.raises(InvalidInputError, match=r"^max_tokens: .* 30 tokens, .* 2 are left"):
            await begin(here, 30, most=3)
        with pytest.raises(InvalidInputError, match=r"^prompt: .* more than the 32 tokens"):
            await begin(here, 40, most=3)
        assert here.statuses == [422, 422]
        assert await read(await begin(here, 30, most=2)) == " w0 w1"


async def test_after_an_encoder_prompt_and_text_have_to_fit_each() -> None:
    model = writer_of("3", start_id=0)
    async with world(None, endpoint_of(model.ref), model) as here:
        with pytest.raises(InvalidInputError, match=r"^max_tokens: 33 are more than the 32"):
            await begin(here, 30, most=33)
        with pytest.raises(InvalidInputError, match=r"^prompt: .* 32 tokens .* of a prompt"):
            await begin(here, 40, most=3)
        text = await begin(here, 30, most=32)
        assert await read(text)
        assert text.generated == 32


async def test_a_text_after_an_encoder_goes_on_from_no_prompt() -> None:
    model = writer_of("3", start_id=0)
    async with world(None, endpoint_of(model.ref), model) as here:
        assert await read(await begin(here, 3, most=2)) == "w0 w1"


async def test_tokens_to_be_written_count_before_they_are() -> None:
    limits = EndpointLimits(maxTokensInFlight=12, timeoutSeconds=60)  # type: ignore[call-arg]
    async with world(None, endpoint_of(ONE.ref, limits=limits)) as here:
        text = await begin(here, 3, most=8)
        with pytest.raises(OverloadedError):
            await begin(here, 1, most=8)
        text.close()
        (await begin(here, 1, most=8)).close()


async def test_a_candidate_that_gives_no_token_is_made_good_by_stable() -> None:
    broken = FakeEngine(error=EngineModelError("no"))
    engine = FakeEngine(others={TWO.name: broken})
    endpoint = endpoint_of(ONE.ref, canary=TWO.ref, weight=99.99, rollout="r")
    async with world(engine, endpoint) as here:
        text = await begin(here)
        assert text.arm is Arm.STABLE
        await read(text)
        failed, made_good = here.recorder.events
        assert (failed.version, failed.status, failed.answered) == ("2", 502, False)
        assert (made_good.version, made_good.status, made_good.answered) == ("1", 200, True)
        assert made_good.repeated
        # A second try chooses as the first one did.
        assert broken.prompts[0].seed == engine.prompts[0].seed


async def test_a_lost_triton_before_the_first_token_is_no_failure_while_another_serves() -> None:
    async with world() as here:
        batcher = here.endpoints.serving.batchers[DEFAULT_POOL][ONE.ref.package]
        away = FakeEngine(here=False)
        lost, *_ = batcher.replicas
        spare = type(lost)(here.engine, "t:2", ONE.name, 2, 2)
        spare.breaker.succeed()
        lost.engine = away
        batcher.replicas = (lost, spare)
        assert await read(await begin(here)) == " w0 w1 w2 w0 w1"
        assert here.statuses == [200]


async def test_seconds_are_of_the_first_token_and_of_the_rest() -> None:
    async with world() as here:
        await read(await begin(here))
        latency = here.recorder.events[0].latency
        assert latency.wait > 0
        assert latency.infer > 0
        assert latency.total >= latency.wait + latency.infer


async def test_a_shadow_writes_the_same_text_and_is_compared_token_by_token() -> None:
    """Of the candidate's text the last two tokens differ, as its model ends texts with them."""
    other = writer_of("3", stop_ids=(3,))  # the token of w1
    endpoint = endpoint_of(ONE.ref, shadow=other.ref, rollout="r")
    async with world(None, endpoint, other) as here:
        await read(await begin(here, 3, most=5))
        while here.shadows.out or here.shadows.waiting:
            await loop_turns()
        ours, theirs = sorted(here.recorder.events, key=lambda event: event.arm is Arm.SHADOW)
        assert theirs.arm is Arm.SHADOW
        assert not theirs.answered
        (record,) = theirs.texts
        assert (record.generated, record.label) == (2, "stop")
        assert theirs.pairing is not None
        assert theirs.pairing.distance == [0.6]
        assert theirs.pairing.equal == [False]
        assert theirs.pairing.labels == ["length"]
        latency = ours.latency
        seconds = latency.tokenise + latency.wait + latency.infer
        assert theirs.pairing.seconds == pytest.approx(seconds / 5)
        first, second = here.engine.prompts
        assert first.seed == second.seed


@pytest.mark.parametrize("tokens", [0, 2], ids=["before its first token", "in its middle"])
async def test_a_text_that_stable_failed_at_is_copied_and_told_by_how_both_ended(
    tokens: int,
) -> None:
    other = writer_of("3")
    endpoint = endpoint_of(ONE.ref, shadow=other.ref, rollout="r")
    broken = FakeEngine(
        error=EngineModelError("no"), breaks_after=tokens, others={other.name: FakeEngine()}
    )
    async with world(broken, endpoint, other) as here:
        with pytest.raises(ModelFailedError):
            await read(await begin(here, 3, most=5))
        while here.shadows.out or here.shadows.waiting:
            await loop_turns()
        (copy,) = (event for event in here.recorder.events if event.arm is Arm.SHADOW)
        assert copy.status == 200
        assert copy.pairing is not None
        assert (copy.pairing.status, copy.pairing.distance) == (502, [])
