"""Each request ends in one answer or one error and is recorded once, whatever happens."""

import asyncio
from http import HTTPStatus

import pytest
from gateway_world import (
    LABELS,
    FakeEngine,
    call_of,
    endpoint_of,
    loop_turns,
    manifest_of,
    text_of,
    tokenizer_json,
)
from msgspec.structs import replace
from pipeline_world import ONE, TWO, World, world_of

from contracts.endpoint import Arm, EndpointLimits, ModelEndpoint
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec, Strategy
from gateway.calls import Answer, Call
from gateway.engine.protocol import EngineModelError
from gateway.errors import (
    DeadlineExceededError,
    GatewayError,
    InvalidInputError,
    ModelUnavailableError,
    OverloadedError,
    ShuttingDownError,
    TooLargeError,
    UnknownEndpointError,
    UnknownVersionError,
)
from gateway.inference.answer_cache import AnswerCache
from gateway.inference.encoding import INLINE_CHARACTERS
from gateway.packages import ServedModel, open_package
from gateway.request_context import RequestContext
from gateway.routing.routes import NEXT_SPACE


def of_space(version: str, space: str) -> ServedModel:
    manifest = manifest_of(version).model_copy(update={"space": space})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


OLD, NEW = of_space("1", "a" * 12), of_space("2", "b" * 12)


def waiting(endpoint: ModelEndpoint, *, passed_at: float | None) -> ModelEndpoint:
    """With a rollout, begun at 0, whose checks ask for nothing."""
    state = endpoint.status.rollout
    assert state is not None
    state = state.model_copy(update={"passed_at": passed_at})
    rollout = RolloutSpec(strategy=Strategy.CUTOVER)
    return endpoint.model_copy(
        update={
            "spec": endpoint.spec.model_copy(update={"rollout": rollout}),
            "status": endpoint.status.model_copy(update={"rollout": state}),
        }
    )


async def refused(world: World, call: Call, kind: type[GatewayError]) -> GatewayError:
    with pytest.raises(kind) as caught:
        await world.pipeline.predict(call)
    return caught.value


def arriving() -> RequestContext:
    return RequestContext("r1", received=0.0, started=0.0)


async def test_an_answer_and_its_event_agree() -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        answer = await world.pipeline.predict(call_of(text_of(3), "w0 nothing"))
    assert answer.ref == ONE.ref
    assert answer.arm is Arm.STABLE
    assert answer.labels == LABELS
    assert answer.tokens == [3, 2]
    assert answer.values.sum(axis=1) == pytest.approx([1, 1])
    (event,) = world.recorder.events
    assert (event.status, event.answered, event.version) == (200, True, "1")
    assert event.request_id == "r1"
    assert [text.tokens for text in event.texts] == [3, 2]
    assert [text.unk for text in event.texts] == [0, 1]
    assert [text.score for text in event.texts] == pytest.approx(answer.values.max(axis=1))
    assert event.latency.total >= event.latency.infer > 0


async def test_a_latency_leads_to_the_trace_of_a_request_that_has_one() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with world_of(endpoint_of(ONE.ref)) as world:
        await world.pipeline.predict(call_of("w0"))
        untraced = world.metrics.render(openmetrics=True).decode()
        call = replace(call_of("w0"), trace_parent=f"00-{trace}-b7ad6b7169203331-01")
        await world.pipeline.predict(call)
    assert "trace_id" not in untraced
    assert f'{{trace_id="{trace}"}}' in world.metrics.render(openmetrics=True).decode()


async def test_a_text_that_is_too_long_is_refused_where_it_must_not_be_cut() -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        await world.pipeline.predict(call_of(text_of(4), truncate=False))
        with pytest.raises(TooLargeError, match="Text 1 has more than the 16 tokens"):
            await world.pipeline.predict(call_of(text_of(4), text_of(40), truncate=False))
    assert world.statuses == [200, 413]


async def test_a_long_text_is_tokenised_off_the_loop_with_the_same_answer() -> None:
    long = text_of(2) + " " * INLINE_CHARACTERS
    async with world_of(endpoint_of(ONE.ref)) as world:
        here = await world.pipeline.predict(call_of(text_of(2)))
        there = await world.pipeline.predict(call_of(long))
        assert there.values.tolist() == here.values.tolist()


async def test_an_unknown_endpoint_is_nobodys_event() -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        await refused(world, call_of("a", endpoint="other"), UnknownEndpointError)
    assert world.statuses == []


async def test_what_is_refused_before_an_attempt_is_counted_with_its_reason() -> None:
    limits = EndpointLimits(max_texts_per_request=2, max_tokens_in_flight=20)
    async with world_of(endpoint_of(ONE.ref, limits=limits)) as world:
        await refused(world, call_of("a", "b", "c"), TooLargeError)
        await refused(world, call_of(text_of(12), text_of(12)), TooLargeError)
        await refused(world, call_of("a", forced_version="9"), UnknownVersionError)
        await refused(world, call_of("a\ud800"), InvalidInputError)
    assert world.recorder.refusals == [
        ("sentiment", 413, "too_large"),
        ("sentiment", 413, "too_large"),
        ("sentiment", 404, "unknown_version"),
        ("sentiment", 422, "invalid_input"),
    ]
    assert world.recorder.events == []


async def test_an_endpoint_without_a_version_is_unavailable_and_recorded() -> None:
    async with world_of(endpoint_of(None)) as world:
        error = await refused(world, call_of("w1"), ModelUnavailableError)
        assert error.retry_after_seconds
    assert world.recorder.refusals == [("sentiment", 503, "model_unavailable")]


async def test_a_forced_version_answers_or_fails_alone() -> None:
    endpoint = endpoint_of(ONE.ref, packages=[ONE.ref, TWO.ref])
    async with world_of(endpoint) as world:
        answer = await world.pipeline.predict(call_of("w1", forced_version="2"))
        assert (answer.ref, answer.arm) == (TWO.ref, Arm.FORCED)
        world.engine.holds = {ONE.name}
        await refused(world, call_of("w1", forced_version="2"), ModelUnavailableError)
    assert [e.arm for e in world.recorder.events] == [Arm.FORCED, Arm.FORCED]


async def test_a_caller_of_one_space_is_answered_or_fails_and_never_by_another_space() -> None:
    engine = FakeEngine(others={NEW.name: FakeEngine(error=EngineModelError("broken"))})
    endpoint = endpoint_of(OLD.ref, canary=NEW.ref, weight=99.99, rollout="r")
    async with world_of(endpoint, engine, more=(OLD, NEW)) as world:
        world.endpoints.caches["sentiment"] = AnswerCache(100_000, shared=True)
        asked = call_of("w1", sticky_key="ann")
        for space in (None, NEW.ref.space):  # there is no fallback
            error = await refused(world, replace(asked, space=space), GatewayError)
            assert error.status == HTTPStatus.BAD_GATEWAY
        assert (await world.pipeline.predict(replace(asked, space=OLD.ref.space))).ref == OLD.ref
        gone = await refused(world, replace(asked, space="c" * 12), ModelUnavailableError)
        assert (gone.status, "no version of the vector space" in str(gone)) == (503, True)
        # What is kept of one space is no answer of another.
        engine.others[NEW.name].error = None
        answer = await world.pipeline.predict(replace(asked, space=NEW.ref.space))
        assert (answer.ref, len(engine.others[NEW.name].works)) == (NEW.ref, 3)


async def test_only_callers_who_name_nothing_are_told_of_the_space_that_waits_and_counted() -> None:
    endpoint = endpoint_of(OLD.ref, shadow=NEW.ref, rollout="r")
    counted = 'headrace_gateway_space_unnamed_total{endpoint="sentiment"} 2.0'
    async with world_of(waiting(endpoint, passed_at=1.0), more=(OLD, NEW)) as world:
        for _ in range(2):
            answer = await world.pipeline.predict(call_of("w1"))
            assert (answer.ref, answer.next_space) == (OLD.ref, NEW.ref.space)
        for asked in (
            call_of("w1", forced_version="1"),
            replace(call_of("w1"), space=OLD.ref.space),
            replace(call_of("w1"), space=NEXT_SPACE),
        ):
            assert (await world.pipeline.predict(asked)).next_space == ""
        world.serve(waiting(endpoint, passed_at=None))  # its checks have not passed
        assert (await world.pipeline.predict(call_of("w1"))).next_space == ""
        shown = world.metrics.render().decode()
        assert counted in shown
        for ref in (OLD.ref, NEW.ref):
            of_space = f'endpoint="sentiment",space="{ref.space}"'
            assert f"headrace_gateway_space_named_total{{{of_space}}} 1.0" in shown


async def test_a_new_version_answers_without_a_failed_request() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with world_of(endpoint_of(ONE.ref), engine) as world:
        before = [asyncio.create_task(world.pipeline.predict(call_of("w1"))) for _ in range(20)]
        await loop_turns()
        world.serve(endpoint_of(TWO.ref, packages=[ONE.ref, TWO.ref]))
        after = [asyncio.create_task(world.pipeline.predict(call_of("w1"))) for _ in range(20)]
        await loop_turns()
        engine.release()
        assert {answer.ref for answer in await asyncio.gather(*before)} == {ONE.ref}
        assert {answer.ref for answer in await asyncio.gather(*after)} == {TWO.ref}


async def test_a_gateway_that_goes_away_answers_what_it_began_and_refuses_the_rest() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with world_of(endpoint_of(ONE.ref), engine) as world:
        begun = asyncio.create_task(world.pipeline.predict(call_of("w1")))
        await loop_turns()
        world.endpoints.drain()
        assert not world.endpoints.ready
        late = asyncio.create_task(world.pipeline.predict(call_of("w1")))
        await loop_turns()
        drained = asyncio.create_task(world.pipeline.drained())
        await loop_turns()
        assert not drained.done()
        error = await refused(world, call_of("w1"), ShuttingDownError)
        assert error.status is HTTPStatus.SERVICE_UNAVAILABLE
        engine.release()
        await asyncio.gather(begun, late, drained)
    assert sorted(world.statuses) == [200, 200, 503]


async def test_every_attempt_is_traced_and_counted() -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        await world.pipeline.predict(call_of("w1"))
        await refused(world, call_of("w1", forced_version="9"), UnknownVersionError)
    assert len(world.spans.seen) == 1
    text = world.metrics.render().decode()
    assert (
        'headrace_gateway_attempts_total{arm="stable",endpoint="sentiment",'
        'status="200",version="1"} 1.0'
    ) in text
    assert 'reason="unknown_version",status="404"} 1.0' in text


async def test_tokens_in_flight_are_told_at_0_too_and_until_the_last_is_back() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with world_of(endpoint_of(ONE.ref), engine) as world:
        # Without a series at 0 an autoscaler by this metric knows of no pod that idles.
        assert world.pipeline.tokens_in_flight() == {"sentiment": 0}
        request = asyncio.create_task(world.pipeline.predict(call_of(text_of(8))))
        await loop_turns()
        assert world.pipeline.tokens_in_flight() == {"sentiment": 8}
        world.serve(endpoint_of(ONE.ref, name="other"))
        assert world.pipeline.tokens_in_flight() == {"sentiment": 8, "other": 0}
        engine.release()
        await request
        assert world.pipeline.tokens_in_flight() == {"other": 0}


async def test_without_room_a_request_is_refused_before_its_body_is_read() -> None:
    engine = FakeEngine(held=asyncio.Event())
    limits = EndpointLimits(max_tokens_in_flight=8)
    async with world_of(endpoint_of(ONE.ref, limits=limits), engine) as world:
        await world.admission.enter(arriving(), "sentiment")
        first = asyncio.create_task(world.pipeline.predict(call_of(text_of(8))))
        await loop_turns()
        with pytest.raises(OverloadedError) as caught:
            await world.admission.enter(arriving(), "sentiment")
        assert caught.value.retry_after_seconds
        with pytest.raises(UnknownEndpointError):
            await world.admission.enter(arriving(), "other")
        engine.release()
        await first
        await world.admission.enter(arriving(), "sentiment")


@pytest.mark.parametrize(
    ("stable", "here", "version", "kind"),
    [
        (None, True, None, ModelUnavailableError),
        (ONE.ref, False, None, ModelUnavailableError),
        (ONE.ref, True, "9", UnknownVersionError),
    ],
)
async def test_what_no_version_can_answer_is_refused_before_its_body_is_read(
    stable: ModelRef | None, here: bool, version: str | None, kind: type[GatewayError]
) -> None:
    async with world_of(endpoint_of(stable), FakeEngine(here=here)) as world:
        with pytest.raises(kind):
            await world.admission.enter(arriving(), "sentiment", version)


async def test_however_many_arrive_together_each_ends_once() -> None:
    text = " ".join(f"word{number}" for number in range(900))
    async with world_of(endpoint_of(ONE.ref)) as world:
        # The first one has time enough on any machine.
        timeouts = [30.0] + [1.0] * 399
        calls = [
            call_of(text, timeout=timeout, request_id=str(number))
            for number, timeout in enumerate(timeouts)
        ]
        ends = await asyncio.gather(*map(world.pipeline.predict, calls), return_exceptions=True)
        kinds = (Answer, OverloadedError, DeadlineExceededError)
        assert all(isinstance(end, kinds) for end in ends)
        assert isinstance(ends[0], Answer)
        assert len(world.statuses) == 400


async def test_what_a_caller_who_hung_up_had_waiting_never_reaches_the_engine() -> None:
    engine = FakeEngine(held=asyncio.Event())

    def rows() -> int:
        return sum(len(work.tensors["input_ids"]) for work in engine.works)

    async with world_of(endpoint_of(ONE.ref), engine) as world:
        asked: list[asyncio.Task[Answer]] = []
        while rows() == len(asked):  # until one has to wait
            call = call_of("w1", request_id=str(len(asked)))
            asked.append(asyncio.create_task(world.pipeline.predict(call)))
            await loop_turns()
        leaving = asyncio.create_task(world.pipeline.predict(call_of("w2", "w3", request_id="l")))
        await loop_turns()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        engine.release()
        await asyncio.gather(*asked)
        last = await world.pipeline.predict(call_of("w4", request_id="last"))
        assert last.tokens == [1]
        assert rows() == len(asked) + 1
    assert sorted(world.statuses) == [200] * (len(asked) + 1) + [499]


async def test_a_bulk_call_is_told_as_a_forced_one_and_counted_apart() -> None:
    async with world_of(endpoint_of(ONE.ref, canary=TWO.ref, weight=50, rollout="r")) as world:
        world.endpoints.caches["sentiment"] = AnswerCache(100_000, shared=True)
        parent = f"00-{'a' * 32}-{'b' * 16}-01"
        traced = replace(call_of("w1", "w2"), bulk=True, trace_parent=parent)
        for _ in range(2):
            answer = await world.pipeline.predict(traced)
        assert answer.arm is Arm.FORCED
        assert world.endpoints.caches["sentiment"].misses == 0  # others' answers stay there
        await refused(world, replace(call_of("w1", timeout=-1.0), bulk=True), DeadlineExceededError)
        shown = world.metrics.render().decode()
        assert 'bulk_requests_total{endpoint="sentiment",status="200"} 2.0' in shown
        assert 'bulk_requests_total{endpoint="sentiment",status="504"} 1.0' in shown
        assert 'bulk_texts_total{endpoint="sentiment",space=""} 4.0' in shown
        for name in ("attempts", "refusals", "stage_seconds", "gateway_texts"):
            assert not [line for line in shown.splitlines() if name in line and line[0] != "#"]
    assert [event.arm for event in world.recorder.events] == [Arm.FORCED] * 2
    assert world.recorder.refusals == []
