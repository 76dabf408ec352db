"""Copies of requests: out of spare capacity, never at a caller's cost, each told or counted."""

import asyncio
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from gateway_world import (
    FakeEngine,
    call_of,
    endpoint_of,
    loop_turns,
    manifest_of,
    model_of,
    text_of,
    tokenizer_json,
)
from msgspec import structs
from numpy.typing import NDArray
from pipeline_world import ONE, TWO, World, world_of

from contracts.endpoint import Arm
from contracts.events import PredictionEvent
from contracts.model import DEFAULT_POOL
from contracts.tasks import Task
from gateway.engine.protocol import EngineModelError
from gateway.errors import GatewayError, ModelFailedError
from gateway.inference.attempt import AnsweredRequest
from gateway.mirroring.kept_pairs import KeptPairs
from gateway.mirroring.shadow import EngineBuckets, MirrorLimits, TokenBucket
from gateway.packages import ServedModel, open_package

SHADOWED = endpoint_of(ONE.ref, shadow=TWO.ref, rollout="r")
# No share is ever used up, and the timers of a busy machine are no lag.
EAGER = MirrorLimits(
    engine_share=1e6, texts_per_second=1e6, most_lag_seconds=60, longest_wait_seconds=60
)


async def at_rest(world: World) -> None:
    """Waits until no copy waits or is out."""
    while world.shadows.waiting or world.shadows.out:
        await loop_turns(1)


def shadows_of(world: World) -> list[PredictionEvent]:
    return [event for event in world.recorder.events if event.arm is Arm.SHADOW]


def dropped(world: World) -> dict[str, float]:
    """Copies by what became of them."""
    prefix = 'headrace_gateway_shadows_total{endpoint="sentiment",outcome="'
    lines = [line for line in world.metrics.render().decode().splitlines() if prefix in line]
    return {line.split('"')[3]: float(line.split()[-1]) for line in lines}


async def test_a_copy_is_answered_by_the_candidate_compared_and_told() -> None:
    async with world_of(SHADOWED, limits=EAGER) as world:
        call = call_of("w1 w2", "w3", sticky_key="ann")
        answer = await world.pipeline.predict(call)
        await at_rest(world)
    assert answer.ref == ONE.ref
    primary, copy = world.recorder.events
    assert (copy.version, copy.arm, copy.status, copy.answered) == ("2", Arm.SHADOW, 200, False)
    assert (copy.request_id, copy.time, copy.endpoint) == ("r1", 1.0, "sentiment")
    assert copy.caller == primary.caller != 0
    assert [text.label for text in copy.texts] == [text.label for text in primary.texts]
    assert copy.pairing is not None
    assert (copy.pairing.version, copy.pairing.equal) == ("1", [True, True])
    assert copy.pairing.distance == [0.0, 0.0]
    assert (copy.pairing.status, copy.pairing.norms) == (200, [])
    latency = primary.latency
    assert copy.pairing.seconds == latency.tokenise + latency.wait + latency.infer
    assert dropped(world) == {"sent": 1.0}


async def test_pairs_that_disagree_are_kept_with_both_answers_where_texts_may_be() -> None:
    named = {"labels": tuple(reversed(TWO.manifest.labels))}  # so that it says the contrary
    other = replace(model_of("3"), manifest=model_of("3").manifest.model_copy(update=named))
    endpoint = endpoint_of(ONE.ref, shadow=other.ref, packages=[ONE.ref, other.ref], rollout="r")
    pairs = KeptPairs("g", draw=lambda count: count - 1)
    async with world_of(endpoint, limits=EAGER, more=(other,), pairs=pairs) as world:
        await world.pipeline.predict(call_of("w1 w2", "w3"))
        await at_rest(world)
        (primary, _) = world.recorder.events
    told = pairs.take()
    assert told is not None
    assert (told.endpoint, told.stable, told.candidate) == ("sentiment", "1", "3")
    assert (told.compared, told.disagree) == (1, 1)
    (kept,) = told.pairs
    assert (kept.text, kept.second, kept.stable) == ("w3", None, primary.texts[1].label)
    assert kept.candidate in TWO.manifest.labels
    assert kept.candidate != kept.stable


async def test_pairs_of_several_labels_a_text_are_not_kept() -> None:
    manifest = TWO.manifest.model_copy(update={"multi_label": True})
    other = replace(model_of("3"), manifest=manifest.model_copy(update={"ref": model_of("3").ref}))
    endpoint = endpoint_of(ONE.ref, shadow=other.ref, packages=[ONE.ref, other.ref], rollout="r")
    pairs = KeptPairs("g")
    async with world_of(endpoint, limits=EAGER, more=(other,), pairs=pairs) as world:
        await world.pipeline.predict(call_of("w1"))
        await at_rest(world)
        assert len(shadows_of(world)) == 1
    assert pairs.take() is None


async def test_callers_figures_are_of_callers_alone() -> None:
    async with world_of(SHADOWED, limits=EAGER) as world:
        await world.pipeline.predict(call_of("w1"))
        await at_rest(world)
        text = world.metrics.render().decode()
    assert 'stage_seconds_count{endpoint="sentiment",stage="infer"} 1.0' in text
    assert 'attempts_total{arm="shadow",endpoint="sentiment",status="200",version="2"} 1.0' in text


async def test_a_copy_never_delays_its_caller() -> None:
    held = FakeEngine(held=asyncio.Event())
    engine = FakeEngine(others={TWO.name: held})
    async with world_of(SHADOWED, engine, EAGER) as world:
        for number in range(5):
            await world.pipeline.predict(call_of("w1", request_id=str(number)))
        await loop_turns()
        # One engine: one copy is out, the others wait for it.
        assert len(held.works) == 1
        assert world.shadows.waiting == 4
        held.release()
        await at_rest(world)
    assert len(shadows_of(world)) == 5


@pytest.mark.parametrize(
    ("candidate", "status"),
    [
        (FakeEngine(error=EngineModelError("broken")), 502),
        (FakeEngine(here=False), 503),
        (FakeEngine(answer=lambda ids: np.full((len(ids), 2), np.nan, np.float32)), 502),
    ],
)
async def test_a_candidate_that_fails_on_copies_is_told_and_no_caller_notices(
    candidate: FakeEngine, status: int
) -> None:
    engine = FakeEngine(others={TWO.name: candidate})
    async with world_of(SHADOWED, engine, EAGER) as world:
        await world.pipeline.predict(call_of("w1"))
        await at_rest(world)
    (copy,) = shadows_of(world)
    assert (copy.status, copy.answered) == (status, False)
    assert copy.pairing is not None
    assert (copy.pairing.status, copy.pairing.version) == (200, "1")
    assert (copy.pairing.equal, copy.pairing.labels) == ([], [])
    assert [text.tokens for text in copy.texts] == [1]


async def test_what_was_forced_is_not_copied() -> None:
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, packages=[ONE.ref, TWO.ref], rollout="r")
    async with world_of(endpoint, limits=EAGER) as world:
        await world.pipeline.predict(call_of("w1", forced_version="1"))
        await at_rest(world)
    assert dropped(world) == {}


@pytest.mark.parametrize(
    ("candidate", "status"),
    [(FakeEngine(), 200), (FakeEngine(error=EngineModelError("broken as well")), 502)],
)
async def test_what_stable_failed_at_is_copied_and_told_by_how_both_ended(
    candidate: FakeEngine, status: int
) -> None:
    """Else copies were of requests alone that stable can answer, and each failure a fault."""
    engine = FakeEngine(error=EngineModelError("broken"), others={TWO.name: candidate})
    async with world_of(SHADOWED, engine, EAGER) as world:
        with pytest.raises(ModelFailedError):
            await world.pipeline.predict(call_of("w1 w2"))
        await at_rest(world)
    (copy,) = shadows_of(world)
    assert (copy.status, copy.answered) == (status, False)
    assert copy.pairing is not None
    assert (copy.pairing.status, copy.pairing.labels, copy.pairing.distance) == (502, [], [])


async def test_what_no_version_had_a_part_in_is_not_copied() -> None:
    engine = FakeEngine(here=False, others={TWO.name: FakeEngine()})
    async with world_of(SHADOWED, engine, EAGER) as world:
        with pytest.raises(GatewayError) as refused:
            await world.pipeline.predict(call_of("w1"))
        await at_rest(world)
    assert refused.value.status == 503
    assert shadows_of(world) == []


async def test_a_failure_that_its_caller_did_not_wait_for_is_not_copied() -> None:
    engine = FakeEngine(held=asyncio.Event(), others={TWO.name: FakeEngine()})
    async with world_of(SHADOWED, engine, EAGER) as world:
        caller = asyncio.create_task(world.pipeline.predict(call_of("w1")))
        await loop_turns()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        engine.release()
        await at_rest(world)
    assert [event.status for event in world.recorder.events] == [499]


async def test_the_share_of_copies_is_by_request_id() -> None:
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, shadowed=30, rollout="r")
    async with world_of(endpoint, limits=EAGER) as world:
        for number in range(200):
            await world.pipeline.predict(call_of("w1", request_id=f"request-{number}"))
            await at_rest(world)
    once = {copy.request_id for copy in shadows_of(world)}
    assert 30 < len(once) < 90
    shadow = world.endpoints.serving.table["sentiment"].shadow
    assert shadow is not None
    assert once == {f"request-{n}" for n in range(200) if shadow.takes(f"request-{n}")}


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
async def test_copies_wait_while_callers_do(packed: bool) -> None:
    models = tuple(model_of(version, packed=packed) for version in "12")
    one, two = models if packed else (ONE, TWO)
    engine = FakeEngine(held=asyncio.Event(), others={two.name: FakeEngine()})
    shadowed = endpoint_of(one.ref, shadow=two.ref, rollout="r")
    async with world_of(shadowed, engine, EAGER, more=models) as world:
        caller = asyncio.create_task(world.pipeline.predict(call_of("w1", request_id="a")))
        await loop_turns()
        offer(world, "b", one)
        await loop_turns()
        assert (world.shadows.waiting, world.shadows.out) == (1, 0)
        engine.release()
        await caller
        await at_rest(world)
    assert [copy.request_id for copy in shadows_of(world)] == ["b", "a"]


def offer(world: World, request_id: str, stable: ServedModel = ONE) -> None:
    """Offers a request as the pipeline does once it is answered."""
    call = call_of("w1", request_id=request_id)
    shadow = world.endpoints.serving.table["sentiment"].shadow
    assert shadow is not None
    answered = AnsweredRequest(
        call,
        stable,
        stable.encoder.encode(call.texts),
        np.array([[0.5, 0.5]], np.float32),
        0.0,
        0.0,
    )
    world.shadows.offer(shadow, answered, world.endpoints.serving.batchers[DEFAULT_POOL], 60.0)


async def test_copies_are_dropped_first_when_the_gateway_has_enough_to_do() -> None:
    async with world_of(SHADOWED, limits=EAGER) as world:
        world.budget.reserve("other", 50_001, 100_000)
        await world.pipeline.predict(call_of("w1"))
        assert dropped(world) == {"gateway_busy": 1.0}
        world.budget.release("other", 50_001)


async def test_copies_for_a_candidate_that_nobody_holds_are_dropped() -> None:
    async with world_of(SHADOWED, FakeEngine(holds={ONE.name}), EAGER) as world:
        await world.pipeline.predict(call_of("w1"))
        assert dropped(world) == {"not_loaded": 1.0}


async def test_what_waits_is_bounded_in_copies_and_in_tokens() -> None:
    gate = asyncio.Event()
    held = FakeEngine(held=gate)
    engine = FakeEngine(others={TWO.name: held})
    limits = replace(EAGER, waiting=3, waiting_tokens=20)
    async with world_of(SHADOWED, engine, limits) as world:
        for number in range(5):  # one is out, three wait, one is too many
            await world.pipeline.predict(call_of("w1", request_id=f"a{number}"))
        assert dropped(world) == {"sent": 1.0, "full": 1.0}
        gate.set()
        await at_rest(world)
        gate.clear()
        for number in range(3):  # one is out, one waits, two have more tokens than may wait
            await world.pipeline.predict(call_of(text_of(15), request_id=f"b{number}"))
        assert dropped(world)["full"] == 2.0
        gate.set()


async def test_a_copy_that_finds_no_idle_engine_in_time_is_dropped() -> None:
    held = FakeEngine(held=asyncio.Event())
    engine = FakeEngine(others={TWO.name: held})
    async with world_of(SHADOWED, engine, replace(EAGER, longest_wait_seconds=0)) as world:
        await world.pipeline.predict(call_of("w1", request_id="a"))
        await loop_turns()
        await world.pipeline.predict(call_of("w1", request_id="b"))
        assert dropped(world) == {"engine_busy": 1.0, "sent": 1.0}
        held.release()


@pytest.mark.parametrize(
    "limits", [replace(EAGER, engine_share=1e-6), replace(EAGER, texts_per_second=1e-3)]
)
async def test_copies_get_their_share_and_no_more(limits: MirrorLimits) -> None:
    limits = replace(limits, longest_wait_seconds=0)
    async with world_of(SHADOWED, limits=limits) as world:
        for number in range(10):
            await world.pipeline.predict(call_of("w1", request_id=str(number)))
            await at_rest(world)
    assert dropped(world) == {"sent": 1.0, "paced": 9.0}


async def test_what_waits_or_is_out_at_the_end_is_counted() -> None:
    held = FakeEngine(held=asyncio.Event())
    engine = FakeEngine(others={TWO.name: held})
    async with world_of(SHADOWED, engine, EAGER) as world:
        for number in range(3):
            await world.pipeline.predict(call_of("w1", request_id=str(number)))
        await loop_turns()
        await world.shadows.close()
        assert dropped(world) == {"sent": 1.0, "stopping": 3.0}
        await world.pipeline.predict(call_of("w1", request_id="late"))
        assert world.shadows.waiting == 0
        held.release()


async def test_a_candidate_with_another_tokeniser_gets_its_own_tokens() -> None:
    short = model_of("3", buckets=(4,))
    endpoint = endpoint_of(ONE.ref, shadow=short.ref, rollout="r")
    async with world_of(endpoint, limits=EAGER, more=(short,)) as world:
        await world.pipeline.predict(call_of(text_of(9)))
        await at_rest(world)
    primary, copy = world.recorder.events
    assert [(text.tokens, text.truncated) for text in primary.texts] == [(9, False)]
    assert [(text.tokens, text.truncated) for text in copy.texts] == [(4, True)]


def test_a_share_is_never_exceeded_for_long() -> None:
    bucket = TokenBucket(rate=2.0, burst=1.0)
    taken, now = 0.0, 0.0
    while now < 100:
        if bucket.open(now):
            bucket.take(3.0)
            taken += 3.0
        now += 0.01
    assert 2.0 * 100 - 3 <= taken <= 2.0 * 100 + 1 + 3


def test_each_engine_has_its_share_though_their_number_changes() -> None:
    buckets = EngineBuckets(0.1, burst_seconds=1.0)
    assert buckets.open("p", 0.0)
    buckets.take("p", 0.25, instances=1)  # 0.15 more than its one engine had saved up
    assert not buckets.open("p", 1.4)
    assert buckets.open("p", 2.5)
    buckets.take("p", 0.25, instances=5)  # 0.05 of each
    assert buckets.open("p", 2.5)


def test_each_package_has_a_share_of_its_own() -> None:
    buckets = EngineBuckets(0.1, burst_seconds=1.0)
    buckets.take("p", 1.0, instances=1)
    assert not buckets.open("p", 0.0)
    assert buckets.open("q", 0.0)


def embedder(version: str) -> ServedModel:
    made = manifest_of(version, task=Task.TEXT_EMBEDDING, labels=())
    manifest = made.model_copy(update={"space": version * 12, "dimension": 8})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


def vectors_of(ids: NDArray[np.int64], turn: NDArray[np.float64]) -> NDArray[np.float32]:
    """A vector of its own for each row of tokens, whatever it is padded with."""
    rows = [np.random.default_rng([*row[row > 0]]).normal(size=8) @ turn for row in ids]
    return np.array(rows, np.float32)


@pytest.mark.parametrize("is_turned", [False, True])
async def test_a_copys_vectors_are_told_with_the_neighbours_that_both_find(
    is_turned: bool,
) -> None:
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0] if is_turned else np.eye(8)
    old, new = embedder("1"), embedder("2")
    other = FakeEngine(answer=partial(vectors_of, turn=turn))
    engine = FakeEngine(answer=partial(vectors_of, turn=np.eye(8)), others={new.name: other})
    endpoint = endpoint_of(old.ref, shadow=new.ref, rollout="r")
    async with world_of(endpoint, engine, EAGER, more=(old, new)) as world:
        for number in range(70):
            text = " ".join(f"w{1 + (number >> bit) % 2}" for bit in range(7))
            await world.pipeline.predict(call_of(text, request_id=str(number)))
            await at_rest(world)
        pairings = [event.pairing for event in shadows_of(world)]
    told = [pairing.neighbours for pairing in pairings if pairing is not None]
    assert told[:50] == [[]] * 50
    shared = [count for (count,) in told[50:]]
    assert len(shared) == 20
    assert shared == [10] * 20 if not is_turned else np.mean(shared) < 7


async def test_a_copy_goes_before_bulk_requests() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with world_of(SHADOWED, engine, EAGER) as world:
        call = structs.replace(call_of(*(f"w{i}" for i in range(40))), bulk=True)
        bulk = [asyncio.create_task(world.pipeline.predict(call)) for _ in range(5)]
        await loop_turns()
        (batch,) = engine.works
        offer(world, "a")
        assert world.shadows.waiting == 1
        engine.release()
        await at_rest(world)
        await asyncio.gather(*bulk)
    assert [work.model for work in engine.works][:3] == [batch.model, TWO.name, batch.model]
    assert dropped(world) == {"sent": 1.0}
