"""Several gateways before packed engines, in simulated time: every row gets its own answer."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gateway_world import manifest_of, tokenizer_json
from hypothesis import given, settings
from hypothesis import strategies as st
from joining_triton import JoiningTriton, values_of
from loop_clocks import SteppedLoop, runs_on

from contracts.loading import CostPoint
from contracts.tasks import ROW_STARTS, Task
from gateway.batching.batcher import RETURN_SECONDS, Batcher
from gateway.batching.jobs import Job
from gateway.batching.lag import LoopLag
from gateway.engine.fleet import Fleet
from gateway.engine.protocol import Work
from gateway.errors import DeadlineExceededError, ModelFailedError, ModelUnavailableError
from gateway.packages import ServedModel, open_package
from preprocess.encoder import EncodedTexts

LONGEST = 64
OTHERS = 20_000  # ids of rows but the first, which no other row has


class Meter:
    """Counts what was answered."""

    def __init__(self) -> None:
        self.rows = self.tokens = self.padded = self.splits = 0

    def batch_finished(
        self, model: ServedModel, rows: int, tokens: int, padded: int, seconds: float
    ) -> None:
        assert seconds >= 0
        self.rows += rows
        self.tokens += tokens
        self.padded += padded

    def batch_split(self, model: ServedModel) -> None:
        self.splits += 1

    def texts_failed(self, model: ServedModel, texts: int) -> None:
        """Is not counted."""


def packed_model() -> ServedModel:
    """Gives vectors of two values."""
    known = manifest_of(packed=True, buckets=(LONGEST,), max_batch_size=8, labels=())
    manifest = known.model_copy(update={"task": Task.TEXT_EMBEDDING, "dimension": 2})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


@asynccontextmanager
async def gateways(
    *tritons: JoiningTriton,
    count: int = 1,
    meter: Meter | None = None,
    lag: LoopLag | None = None,
) -> AsyncIterator[list[Batcher]]:
    """So many gateways' batchers of one package, whose Tritons serve already."""
    by_address = {f"t{number}:1": triton for number, triton in enumerate(tritons)}
    batchers, fleets = [], []
    loop = asyncio.get_running_loop()
    model = packed_model()
    for _ in range(count):
        fleet = Fleet(by_address.__getitem__, ahead=2)
        fleet.set_addresses(by_address)
        batcher = Batcher(model, fleet, meter or Meter(), lag, clock=loop.time)
        batcher.connect(fleet.replicas(model.name, 1, batcher.wake))
        for address, triton in by_address.items():
            batcher.cost.seed(address, measured(triton))
        for replica in batcher.replicas:
            replica.breaker.succeed()
        batchers.append(batcher)
        fleets.append(fleet)
    yield batchers
    for batcher in batchers:
        await batcher.settle()
    for fleet in fleets:
        await fleet.close()


def measured(triton: JoiningTriton) -> tuple[CostPoint, ...]:
    """What a warm-up finds."""
    return tuple(
        CostPoint(bucket=size, batch=1, milliseconds=1000 * (0.0005 + triton.seconds(size)))
        for size in (64, 1024, 16_384)
    )


class Texts:
    """Rows none of which is like another: the first token is its number."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def row(self, tokens: int | None = None) -> list[int]:
        self._number += 1
        count = tokens or 1 + min(LONGEST - 1, int(self._random.expovariate(1 / 6)))
        return [self._number, *(self._random.randrange(OTHERS) for _ in range(count - 1))]

    def call(self, rows: int, tokens: int | None = None) -> EncodedTexts:
        ids = [self.row(tokens) for _ in range(rows)]
        counts = [len(row) for row in ids]
        return EncodedTexts(ids, None, counts, counts, [0] * rows, [False] * rows)


def submit(
    batcher: Batcher, encoded: EncodedTexts, *, timeout: float = 60.0, endpoint: str = "e"
) -> Job:
    return batcher.submit(encoded, endpoint, asyncio.get_running_loop().time() + timeout)


def assert_its_own(values: np.ndarray[Any, Any], encoded: EncodedTexts) -> None:
    assert values.tolist() == [values_of(np.array(row)) for row in encoded.ids]


async def callers(
    batchers: list[Batcher], rows: int, *, each: int = 8, seed: int = 1, hang_up: float = 0.01
) -> tuple[int, int]:
    """Closed callers of all gateways, until so many rows were asked; some hang up.

    Returns:
        Rows that were answered, each its own, and rows of callers who hung up.
    """
    texts, chance = Texts(seed), random.Random(seed)
    asked = answered = left = 0

    async def call(batcher: Batcher) -> None:
        nonlocal asked, answered, left
        while asked < rows:
            encoded = texts.call(chance.choice((1, 1, 1, 2, 5, 16)))
            asked += len(encoded)
            job = submit(batcher, encoded, endpoint=chance.choice("ab"))
            if chance.random() < hang_up:
                await asyncio.sleep(0.001 * chance.random())
                if not job.future.done():
                    left += len(encoded)
                    batcher.abandon(job)
                    continue
            assert_its_own(await job.future, encoded)
            answered += len(encoded)
            await asyncio.sleep(0.0005 * chance.random())

    async with asyncio.TaskGroup() as group:
        for batcher in batchers:
            for _ in range(each):
                group.create_task(call(batcher))
    assert answered + left == asked
    return answered, left


@pytest.mark.slow
@runs_on(SteppedLoop)
async def test_no_row_of_eight_gateways_gets_another_ones_answer() -> None:
    one, other = JoiningTriton(), JoiningTriton(chance=random.Random(2))
    meter = Meter()
    async with gateways(one, other, count=8, meter=meter) as batchers:
        answered, left = await callers(batchers, 20_000)
    assert left > 0
    assert answered <= meter.rows <= answered + left
    assert meter.padded == meter.tokens
    assert one.joined + other.joined > 0.5 * (one.messages + other.messages)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@runs_on(SteppedLoop)
async def test_no_row_of_a_million_gets_another_ones_answer() -> None:
    tritons = [JoiningTriton(chance=random.Random(at), held_tokens=2_000) for at in range(2)]
    async with gateways(*tritons, count=8) as batchers:
        await callers(batchers, 1_000_000, each=16)
    assert all(triton.joined and triton.refused for triton in tritons)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 16), st.integers(1, 4), st.integers(1, 3), st.integers(64, 4000))
def test_whatever_joins_and_whoever_is_refused_each_row_gets_its_own(
    seed: int, count: int, tritons: int, held: int
) -> None:
    async def check() -> None:
        engines = [
            JoiningTriton(chance=random.Random(seed + at), held_tokens=held, most_tokens=held)
            for at in range(tritons)
        ]
        async with gateways(*engines, count=count) as batchers:
            await callers(batchers, 300, each=3, seed=seed, hang_up=0.1)

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(check())


@dataclass
class PromptTriton(JoiningTriton):
    """Its answers arrive after a time, whatever the loop does, as those of a socket."""

    took: float = 0.001

    async def infer(self, work: Work, timeout_seconds: float) -> np.ndarray[Any, Any]:
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        loop.call_at(loop.time() + self.took, arrived.set_result, None)
        await arrived
        starts = work.tensors[ROW_STARTS]
        return np.zeros((len(starts) - 1, 2), np.float32)


async def learnt(took: float, iteration: float, assumed: float) -> float:
    """What a gateway takes an engine's batches to cost, once it has sent it some hundred.

    Its loop is never idle: each of its iterations takes up to ``iteration`` seconds.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    triton, texts, chance = PromptTriton(took=took), Texts(), random.Random(1)
    lag = LoopLag(loop.time)
    lag.start()

    async def keep_the_loop_busy() -> None:
        while True:
            loop.work(iteration * chance.random())
            await asyncio.sleep(0)

    async with gateways(triton, lag=lag) as (batcher,):
        point = CostPoint(bucket=10, batch=1, milliseconds=1000 * assumed)
        batcher.cost.seed("t0:1", (point,))
        busy = asyncio.create_task(keep_the_loop_busy())
        for _ in range(300):
            await submit(batcher, texts.call(1, tokens=10)).future
        busy.cancel()
        lag.close()
        return batcher.cost.seconds(10, 1)


@pytest.mark.parametrize("wrong", [0.1, 10.0])
@pytest.mark.parametrize("took", [0.0001, 0.0003, 0.001, 0.01, 0.1])
@pytest.mark.parametrize("iteration", [0.0001, 0.001])
def test_an_engine_is_learnt_however_long_iterations_of_the_loop_take_beside_it(
    iteration: float, took: float, wrong: float
) -> None:
    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        found = runner.run(learnt(took, iteration, wrong * took))
    assert 0.6 * took <= found <= 1.25 * took + iteration


@runs_on(SteppedLoop)
async def test_what_comes_while_a_message_is_on_its_way_leaves_together_when_it_is_answered() -> (
    None
):
    triton, texts = JoiningTriton(watched=True), Texts()
    async with gateways(triton) as (batcher,):
        first = submit(batcher, texts.call(1))
        await asyncio.sleep(0.0001)
        later = [submit(batcher, texts.call(1)) for _ in range(5)]
        await asyncio.gather(first.future, *(job.future for job in later))
    assert [len(rows) for _, rows in triton.received] == [1, 5]


@runs_on(SteppedLoop)
async def test_the_largest_padded_batch_does_not_bound_a_packed_one() -> None:
    triton, texts = JoiningTriton(watched=True), Texts()
    async with gateways(triton) as (batcher,):
        await submit(batcher, texts.call(100)).future
    assert [len(rows) for _, rows in triton.received] == [100]


@runs_on(SteppedLoop)
async def test_a_triton_that_is_too_busy_is_asked_again_and_not_blamed() -> None:
    triton, texts = JoiningTriton(held_tokens=300, seconds=lambda _: 0.01), Texts()
    meter = Meter()
    async with gateways(triton, count=4, meter=meter) as batchers:
        calls = [texts.call(4, tokens=40) for _ in range(40)]
        jobs = [submit(batchers[at % 4], call) for at, call in enumerate(calls)]
        for job, call in zip(jobs, calls, strict=True):
            assert_its_own(await job.future, call)
        assert all(replica.serves for each in batchers for replica in each.replicas)
        assert all(replica.failed == 0 for each in batchers for replica in each.replicas)
    assert triton.refused > 0
    assert meter.splits == 0


@pytest.mark.slow
@runs_on(SteppedLoop)
async def test_a_text_that_is_late_is_refused_and_never_sent_after_its_deadline() -> None:
    triton, texts = JoiningTriton(seconds=lambda tokens: 1e-4 * tokens, watched=True), Texts()
    async with gateways(triton) as (batcher,):
        calls = [texts.call(1, tokens=40) for _ in range(600)]
        loop = asyncio.get_running_loop()
        due = {call.ids[0][0]: loop.time() + 0.5 for call in calls}
        jobs = [submit(batcher, call, timeout=0.5) for call in calls]
        ends = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        late = [end for end in ends if isinstance(end, DeadlineExceededError)]
        good = [end for end in ends if isinstance(end, np.ndarray)]
        assert len(late) + len(good) == 600
        assert len(late) > 300
        assert len(good) > 50
    sent = [(at, row) for at, rows in triton.received for row in rows]
    assert all(at <= due[row] for at, row in sent)
    # What was in vain is less than two batches.
    assert len(sent) - len(good) <= 2 * batcher_tokens(batcher) / 40


def batcher_tokens(batcher: Batcher) -> int:
    return batcher.cost.best_rows(1)


@runs_on(SteppedLoop)
async def test_an_engine_that_takes_long_does_not_idle_while_texts_wait() -> None:
    triton = JoiningTriton(seconds=lambda tokens: 0.001 + 2e-5 * tokens)
    async with gateways(triton) as batchers:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await callers(batchers, 4_000, each=32, hang_up=0.0)
        assert triton.computed > 0.97 * (loop.time() - began)


@pytest.mark.slow
@runs_on(SteppedLoop)
async def test_an_endpoint_with_few_texts_does_not_wait_for_all_of_another_ones() -> None:
    triton, texts = JoiningTriton(seconds=lambda tokens: 0.001 + 2e-5 * tokens), Texts()
    async with gateways(triton) as (batcher,):
        many = [submit(batcher, texts.call(1, tokens=40), endpoint="many") for _ in range(3000)]
        await asyncio.sleep(0)
        few = [submit(batcher, texts.call(1, tokens=40), endpoint="few") for _ in range(300)]
        await asyncio.gather(*(job.future for job in few))
        done = sum(job.future.done() for job in many)
        assert done < 900
        await asyncio.gather(*(job.future for job in many))


@pytest.mark.slow
@runs_on(SteppedLoop)
async def test_what_a_triton_held_that_died_another_one_answers() -> None:
    dies, stays = JoiningTriton(), JoiningTriton(chance=random.Random(2))
    async with gateways(dies, stays, count=4) as batchers:
        asyncio.get_running_loop().call_later(0.005, dies.die)
        await callers(batchers, 5_000, hang_up=0.0)
        assert dies.messages > 0
        assert {tuple(each.serves for each in own.replicas) for own in batchers} == {(False, True)}


@runs_on(SteppedLoop)
async def test_when_the_only_triton_dies_every_caller_is_told_once_it_stays_away() -> None:
    triton, texts = JoiningTriton(seconds=lambda _: 0.01), Texts()
    async with gateways(triton, count=2) as batchers:
        loop = asyncio.get_running_loop()
        began = loop.time()
        jobs = [submit(batchers[at % 2], texts.call(3)) for at in range(100)]
        await asyncio.sleep(0.001)
        triton.die()
        ends = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert {type(end) for end in ends} == {ModelUnavailableError}
        assert loop.time() - began == pytest.approx(RETURN_SECONDS, abs=0.1)


@runs_on(SteppedLoop)
async def test_a_row_that_the_model_fails_at_fails_its_own_caller_alone() -> None:
    texts = Texts()
    calls = [texts.call(2) for _ in range(9)]
    triton, meter = JoiningTriton(bad=frozenset({calls[4].ids[1][0]})), Meter()
    async with gateways(triton, meter=meter) as (batcher,):
        jobs = [submit(batcher, call) for call in calls]
        ends = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        for at, (end, call) in enumerate(zip(ends, calls, strict=True)):
            if at == 4:
                assert isinstance(end, ModelFailedError)
            else:
                assert isinstance(end, np.ndarray)
                assert_its_own(end, call)
    assert meter.splits > 0


@runs_on(SteppedLoop)
async def test_the_wait_is_none_while_the_engine_idles_and_grows_with_what_waits() -> None:
    triton, texts = JoiningTriton(seconds=lambda tokens: 0.001 + 2e-5 * tokens), Texts()
    async with gateways(triton) as (batcher,):
        assert batcher.wait_seconds("e") == 0.0
        jobs: list[Job] = []
        waits = []
        for _ in range(4):
            jobs += [submit(batcher, texts.call(50, tokens=40)) for _ in range(4)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waits.append(batcher.wait_seconds("e"))
        assert waits == sorted(waits)
        assert waits[-1] == pytest.approx(4 * 4 * 50 * 40 * 2e-5, rel=0.3)
        await asyncio.gather(*(job.future for job in jobs))
