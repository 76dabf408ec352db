"""Batches: what arrived together leaves together, every caller gets its own, nothing hangs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import numpy as np
import pytest
from gateway_world import ObedientEngine, logits_of, model_of, text_of, turns
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.loading import CostPoint
from gateway.engine.errors import EngineModelError, EngineProcessGoneError
from gateway.engine.protocol import Work
from gateway.errors import DeadlineExceededError, ModelFailedError, ModelUnavailableError
from gateway.fleet import Fleet
from gateway.jobs import Job
from gateway.lanes import Lane
from gateway.packages import ServedModel


class Meter:
    """Counts batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int]] = []

    def batch_finished(
        self, model: ServedModel, rows: int, tokens: int, padded: int, seconds: float
    ) -> None:
        assert seconds >= 0
        self.batches.append((rows, tokens, padded))


@asynccontextmanager
async def lane_of(
    *engines: ObedientEngine, instances: int = 1, max_batch_size: int = 8
) -> AsyncIterator[Lane]:
    """A lane whose replicas serve already."""
    by_address = {f"t{number}:1": engine for number, engine in enumerate(engines)}
    fleet = Fleet(by_address.__getitem__, ahead=2)
    fleet.set_addresses(by_address)
    lane = Lane(model_of(instances=instances, max_batch_size=max_batch_size), fleet, Meter())
    lane.replicas = fleet.replicas(lane.model.name, instances, lane.wake)
    for replica in lane.replicas:
        replica.breaker.succeed()
    async with asyncio.timeout(60):
        yield lane
        for engine in engines:
            if engine.held is not None:
                engine.held.set()
        await lane.settle()
    await fleet.close()


def submit(lane: Lane, *texts: str, timeout: float = 5.0, flow: str = "e") -> Job:
    return lane.submit(lane.model.encoder.encode(texts), flow, monotonic() + timeout)


def expected(lane: Lane, *texts: str) -> list[list[float]]:
    """What each text gets alone."""
    rows = [np.array([ids]) for ids in lane.model.encoder.encode(texts).ids]
    return [lane.model.decode(logits_of(row))[0].tolist() for row in rows]


async def test_a_lone_text_leaves_at_once_and_gets_its_values() -> None:
    engine = ObedientEngine()
    async with lane_of(engine) as lane:
        values = await submit(lane, text_of(3)).future
        assert values.tolist() == expected(lane, text_of(3))
    assert engine.shapes == [(1, 4)]


async def test_what_arrives_in_one_turn_leaves_in_one_batch() -> None:
    engine = ObedientEngine()
    async with lane_of(engine) as lane:
        texts = [text_of(3, start) for start in range(4)]
        jobs = [submit(lane, text) for text in texts]
        values = await asyncio.gather(*(job.future for job in jobs))
        assert [each.tolist()[0] for each in values] == expected(lane, *texts)
    assert engine.shapes == [(4, 4)]


async def test_lengths_do_not_mix_and_pad_to_the_edge() -> None:
    engine = ObedientEngine()
    async with lane_of(engine, instances=2) as lane:
        await asyncio.gather(*(submit(lane, text_of(n)).future for n in (2, 3, 9, 14)))
    assert sorted(engine.shapes) == [(2, 4), (2, 16)]


async def test_a_call_of_many_texts_is_answered_whole_and_in_order() -> None:
    engine = ObedientEngine()
    async with lane_of(engine) as lane:
        texts = [text_of(1 + number % 16, number) for number in range(40)]
        values = await submit(lane, *texts).future
        assert values.shape == (40, 2)
        assert values.tolist() == expected(lane, *texts)


async def test_no_more_than_the_agreed_batches_are_in_flight() -> None:
    engine = ObedientEngine(held=asyncio.Event())
    async with lane_of(engine) as lane:
        jobs = [submit(lane, text_of(3)) for _ in range(40)]
        await turns()
        assert len(engine.works) == 2
        assert lane.queued_rows > 0
        assert engine.held is not None
        engine.held.set()
        await asyncio.gather(*(job.future for job in jobs))


async def test_an_idle_engine_gets_the_second_caller() -> None:
    one, other = ObedientEngine(), ObedientEngine()
    async with lane_of(one, other) as lane:
        jobs = [submit(lane, text_of(3)), submit(lane, text_of(3))]
        await asyncio.gather(*(job.future for job in jobs))
    assert one.shapes == other.shapes == [(1, 4)]


async def test_a_slow_engine_is_not_waited_for_past_the_deadline() -> None:
    engine = ObedientEngine(held=asyncio.Event())
    async with lane_of(engine) as lane:
        with pytest.raises(DeadlineExceededError):
            await submit(lane, text_of(3), timeout=0.05).future


async def test_a_text_that_still_waits_at_its_deadline_leaves_the_queue() -> None:
    engine = ObedientEngine(held=asyncio.Event())
    async with lane_of(engine) as lane:
        for _ in range(16):
            submit(lane, text_of(3)).future.add_done_callback(lambda each: each.exception())
        await turns()
        waiting = submit(lane, text_of(3), timeout=0.05)
        before = lane.queued_rows
        with pytest.raises(DeadlineExceededError):
            await waiting.future
        assert lane.queued_rows == before - 1


async def test_an_abandoned_call_takes_its_texts_along() -> None:
    engine = ObedientEngine(held=asyncio.Event())
    async with lane_of(engine) as lane:
        first = submit(lane, *(text_of(3) for _ in range(40)))
        await turns()
        lane.abandon(first)
        assert lane.queued_rows == 0
        assert first.future.cancelled()


async def test_a_triton_that_goes_away_fails_all_that_waits_at_once() -> None:
    engine = ObedientEngine(held=asyncio.Event())
    async with lane_of(engine) as lane:
        jobs = [submit(lane, text_of(3)) for _ in range(30)]
        await turns()
        engine.here = False
        assert engine.held is not None
        engine.held.set()
        ends = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert all(isinstance(end, ModelUnavailableError) for end in ends)
        assert all(
            end.retry_after_seconds for end in ends if isinstance(end, ModelUnavailableError)
        )
        assert not lane.serves


async def test_a_batch_that_one_triton_lost_is_answered_by_another() -> None:
    gone, good = ObedientEngine(here=False), ObedientEngine()
    async with lane_of(gone, good) as lane:
        jobs = [submit(lane, text_of(3, start)) for start in range(6)]
        values = await asyncio.gather(*(job.future for job in jobs))
        wanted = expected(lane, *(text_of(3, start) for start in range(6)))
        assert [each.tolist()[0] for each in values] == wanted
        assert [replica.serves for replica in lane.replicas] == [False, True]


async def test_what_a_triton_that_hangs_was_asked_another_answers_in_time() -> None:
    hangs, good = ObedientEngine(held=asyncio.Event()), ObedientEngine()
    async with lane_of(hangs, good) as lane:
        jobs = [submit(lane, text_of(3, start), timeout=1.0) for start in range(6)]
        values = await asyncio.gather(*(job.future for job in jobs))
        wanted = expected(lane, *(text_of(3, start) for start in range(6)))
        assert [each.tolist()[0] for each in values] == wanted
        assert hangs.works
        assert [replica.serves for replica in lane.replicas] == [False, True]


async def test_a_triton_whose_process_is_gone_is_doubted_though_it_says_that_it_is_ready() -> None:
    dead, good = ObedientEngine(error=EngineProcessGoneError("stub process")), ObedientEngine()
    async with lane_of(dead, good) as lane:
        await asyncio.gather(submit(lane, text_of(3)).future, submit(lane, text_of(3)).future)
        first, second = lane.replicas
        assert (first.serves, second.serves) == (False, True)
        assert not first.breaker.probe_due(monotonic() + first.breaker.longest_pause)


async def test_a_model_that_one_triton_does_not_hold_is_asked_for_at_another() -> None:
    empty, good = ObedientEngine(holds=set()), ObedientEngine()
    async with lane_of(empty, good) as lane:
        await asyncio.gather(submit(lane, text_of(3)).future, submit(lane, text_of(3)).future)
        assert [replica.serves for replica in lane.replicas] == [False, True]


async def test_a_model_that_fails_is_blamed_and_stays_in_service() -> None:
    engine = ObedientEngine(error=EngineModelError("division by zero"))
    async with lane_of(engine) as lane:
        with pytest.raises(ModelFailedError, match="division"):
            await submit(lane, text_of(3)).future
        engine.error = None
        await submit(lane, text_of(3)).future


class Lossy(ObedientEngine):
    """Answers one row less than it was asked for."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        return (await super().infer(work, timeout_seconds))[:-1]


async def test_an_answer_of_another_size_is_the_models_fault() -> None:
    async with lane_of(Lossy()) as lane:
        with pytest.raises(ModelFailedError, match="1 texts"):
            await submit(lane, text_of(3)).future


async def test_the_wait_is_none_while_an_engine_idles_and_grows_with_the_queue() -> None:
    engine = ObedientEngine(held=asyncio.Event())
    async with lane_of(engine) as lane:
        assert lane.wait_seconds("e") == 0.0
        waits = []
        for _ in range(5):
            for _ in range(16):
                submit(lane, text_of(3)).future.add_done_callback(lambda each: each.exception())
            await turns()
            waits.append(lane.wait_seconds("e"))
        assert waits == sorted(waits)
        assert waits[-1] > waits[0] > 0


async def test_the_wait_is_by_what_each_triton_costs() -> None:
    fast, slow = ObedientEngine(held=asyncio.Event()), ObedientEngine(held=asyncio.Event())
    async with lane_of(fast, slow) as lane:
        for triton, milliseconds in (("t0:1", 10), ("t1:1", 40)):
            each_alone = [
                CostPoint(bucket=4, batch=rows, milliseconds=rows * milliseconds)
                for rows in (1, 2, 4, 8)
            ]
            lane.cost.seed(triton, tuple(each_alone))
        for _ in range(104):
            submit(lane, text_of(3)).future.add_done_callback(lambda each: each.exception())
        await turns()
        # 100 texts wait for 125 a second, behind two of 10 ms and two of 40 ms on two engines.
        assert (len(fast.works), len(slow.works), lane.queued_rows) == (2, 2, 100)
        assert lane.wait_seconds("e") == pytest.approx(0.8 + 0.1 / 2)


@pytest.mark.slow
async def test_jobs_that_ended_do_not_pile_up() -> None:
    async with lane_of(ObedientEngine()) as lane:
        for _ in range(3000):
            await submit(lane, text_of(1), timeout=600).future
        assert len(lane._deadlines) < 1100


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(1, 16), min_size=1, max_size=6), min_size=1, max_size=12),
    st.integers(1, 3),
)
async def test_whatever_is_joined_each_text_gets_what_it_gets_alone(
    calls: list[list[int]], engines: int
) -> None:
    async with lane_of(*(ObedientEngine() for _ in range(engines))) as lane:
        texts = [
            [text_of(length, 7 * i + j) for j, length in enumerate(lengths)]
            for i, lengths in enumerate(calls)
        ]
        jobs = [submit(lane, *each) for each in texts]
        values = await asyncio.gather(*(job.future for job in jobs))
        for got, each in zip(values, texts, strict=True):
            assert got.tolist() == expected(lane, *each)
