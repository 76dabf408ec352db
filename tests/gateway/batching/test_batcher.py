"""Batches: what arrived together leaves together, every caller gets its own, nothing hangs."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

import numpy as np
import pytest
from gateway_world import WORDS, FakeEngine, logits_of, loop_turns, model_of, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_clocks import SteppedLoop, runs_on
from numpy.typing import NDArray

from contracts.loading import CostPoint
from gateway.batching.batcher import RETURN_SECONDS, Batcher
from gateway.batching.jobs import Job
from gateway.engine.fleet import PROBE_PAUSES, Fleet
from gateway.engine.protocol import (
    EngineBusyError,
    EngineModelError,
    EngineProcessGoneError,
    EngineTimeoutError,
    Work,
)
from gateway.errors import DeadlineExceededError, ModelFailedError, ModelUnavailableError
from gateway.packages import ServedModel


class Meter:
    """Counts batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int]] = []
        self.splits = 0
        self.failed = 0

    def batch_finished(
        self, model: ServedModel, rows: int, tokens: int, padded: int, seconds: float
    ) -> None:
        assert seconds >= 0
        self.batches.append((rows, tokens, padded))

    def batch_split(self, model: ServedModel) -> None:
        self.splits += 1

    def texts_failed(self, model: ServedModel, texts: int) -> None:
        self.failed += texts


@asynccontextmanager
async def batcher_of(
    *engines: FakeEngine,
    instances: int = 1,
    max_batch_size: int = 8,
    meter: Meter | None = None,
) -> AsyncIterator[Batcher]:
    """A batcher whose replicas serve already."""
    by_address = {f"t{number}:1": engine for number, engine in enumerate(engines)}
    fleet = Fleet(by_address.__getitem__, ahead=2)
    fleet.set_addresses(by_address)
    model = model_of(max_batch_size=max_batch_size)
    clock = asyncio.get_running_loop().time
    batcher = Batcher(model, fleet, meter or Meter(), clock=clock)
    batcher.replicas = fleet.replicas(batcher.model.name, instances, batcher.wake)
    for replica in batcher.replicas:
        replica.breaker.succeed()
    async with asyncio.timeout(60):
        yield batcher
        for engine in engines:
            if engine.held is not None:
                engine.held.set()
        await batcher.settle()
    await fleet.close()


def submit(batcher: Batcher, *texts: str, timeout: float = 60.0, endpoint: str = "e") -> Job:
    deadline = asyncio.get_running_loop().time() + timeout
    return batcher.submit(batcher.model.encoder.encode(texts), endpoint, deadline)


def expected(batcher: Batcher, *texts: str) -> list[list[float]]:
    """What each text gets alone."""
    rows = [np.array([ids]) for ids in batcher.model.encoder.encode(texts).ids]
    return [batcher.model.decode(logits_of(row), [row.size], [1])[0][0].tolist() for row in rows]


async def test_a_lone_text_leaves_at_once_and_gets_its_values() -> None:
    engine = FakeEngine()
    async with batcher_of(engine) as batcher:
        values = await submit(batcher, text_of(3)).future
        assert values.tolist() == expected(batcher, text_of(3))
    assert engine.shapes == [(1, 4)]


async def test_lengths_do_not_mix_and_pad_to_the_edge() -> None:
    engine = FakeEngine()
    async with batcher_of(engine, instances=2) as batcher:
        await asyncio.gather(*(submit(batcher, text_of(n)).future for n in (2, 3, 9, 14)))
    assert sorted(engine.shapes) == [(2, 4), (2, 16)]


async def test_no_more_than_the_agreed_batches_are_in_flight() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        jobs = [submit(batcher, text_of(3)) for _ in range(40)]
        await loop_turns()
        assert len(engine.works) == 2
        assert batcher.queued_rows > 0
        engine.release()
        await asyncio.gather(*(job.future for job in jobs))


async def test_an_idle_engine_gets_the_second_caller() -> None:
    one, other = FakeEngine(), FakeEngine()
    async with batcher_of(one, other) as batcher:
        jobs = [submit(batcher, text_of(3)), submit(batcher, text_of(3))]
        await asyncio.gather(*(job.future for job in jobs))
    assert one.shapes == other.shapes == [(1, 4)]


async def test_the_only_triton_is_not_waited_for_past_the_deadline_and_not_suspended() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        with pytest.raises(DeadlineExceededError):
            await submit(batcher, text_of(3), timeout=0.05).future
        await batcher.settle()
        assert batcher.serves


async def test_a_text_that_still_waits_at_its_deadline_leaves_the_queue() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        for _ in range(16):
            submit(batcher, text_of(3)).future.add_done_callback(lambda each: each.exception())
        await loop_turns()
        waiting = submit(batcher, text_of(3), timeout=0.05)
        before = batcher.queued_rows
        with pytest.raises(DeadlineExceededError):
            await waiting.future
        assert batcher.queued_rows == before - 1


async def test_an_abandoned_call_takes_its_texts_along() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        first = submit(batcher, *(text_of(3) for _ in range(40)))
        await loop_turns()
        batcher.abandon(first)
        assert batcher.queued_rows == 0
        assert first.future.cancelled()


@runs_on(SteppedLoop)
async def test_what_waits_for_a_triton_that_went_away_is_answered_once_it_is_back() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        jobs = [submit(batcher, text_of(3, start)) for start in range(30)]
        await loop_turns()
        engine.here = False
        engine.release()
        await asyncio.sleep(RETURN_SECONDS - 1)
        assert not any(job.future.done() for job in jobs)
        jobs.append(submit(batcher, text_of(3, 30)))  # one that comes meanwhile
        engine.here = True
        batcher.replicas[0].breaker.succeed()
        batcher.wake()
        values = await asyncio.gather(*(job.future for job in jobs))
        wanted = expected(batcher, *(text_of(3, start) for start in range(31)))
        assert [each.tolist()[0] for each in values] == wanted


@runs_on(SteppedLoop)
async def test_a_deadline_that_passes_while_no_triton_serves_is_no_fault_of_the_texts() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        job = submit(batcher, text_of(3), timeout=2.0)
        await loop_turns()
        engine.here = False
        engine.release()
        with pytest.raises(ModelUnavailableError):
            await job.future


@runs_on(SteppedLoop)
async def test_a_text_that_another_version_answers_waits_for_no_triton() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        encoded, endless = batcher.model.encoder.encode([text_of(3)]), 1e9
        jobs = [batcher.submit(encoded, "e", endless, waits=False) for _ in range(30)]
        patient = batcher.submit(encoded, "e", endless)
        await loop_turns()
        engine.here = False
        engine.release()
        loop = asyncio.get_running_loop()
        began = loop.time()
        ends = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert {type(end) for end in ends} == {ModelUnavailableError}
        with pytest.raises(ModelUnavailableError):
            await batcher.submit(encoded, "e", endless, waits=False).future
        assert loop.time() - began < 0.1
        assert not patient.future.done()
        batcher.abandon(patient)


@runs_on(SteppedLoop)
async def test_a_deadline_that_passes_while_every_triton_hangs_is_late() -> None:
    async with batcher_of(FakeEngine(), FakeEngine()) as batcher:
        for replica in batcher.replicas:
            batcher.suspend(replica, EngineTimeoutError("hangs"))
        assert not batcher.serves
        with pytest.raises(DeadlineExceededError):
            await submit(batcher, text_of(3), timeout=1.0).future


@runs_on(SteppedLoop)
async def test_a_triton_that_hung_and_answered_since_is_gone_if_another_batcher_says_so() -> None:
    async with batcher_of(FakeEngine()) as batcher:
        (replica,) = batcher.replicas
        batcher.suspend(replica, EngineTimeoutError("hangs"))
        replica.breaker.succeed()
        await submit(batcher, text_of(3)).future
        replica.fail(asyncio.get_running_loop().time())  # as ``Fleet.lost`` does
        with pytest.raises(ModelUnavailableError):
            await submit(batcher, text_of(3), timeout=1.0).future


@runs_on(SteppedLoop)
async def test_a_triton_that_stays_away_fails_all_that_waits_and_what_comes_later_at_once() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        jobs = [submit(batcher, text_of(3)) for _ in range(30)]
        await loop_turns()
        engine.here = False
        engine.release()
        loop = asyncio.get_running_loop()
        began = loop.time()
        ends = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert loop.time() - began == pytest.approx(RETURN_SECONDS, abs=0.1)
        later = submit(batcher, text_of(3))
        with pytest.raises(ModelUnavailableError):
            await later.future
        assert loop.time() - began == pytest.approx(RETURN_SECONDS, abs=0.1)
        assert all(isinstance(end, ModelUnavailableError) for end in ends)
        assert all(
            end.retry_after_seconds for end in ends if isinstance(end, ModelUnavailableError)
        )
        assert not batcher.serves


async def test_a_batch_that_one_triton_lost_is_answered_by_another() -> None:
    gone, good = FakeEngine(here=False), FakeEngine()
    async with batcher_of(gone, good) as batcher:
        jobs = [submit(batcher, text_of(3, start)) for start in range(6)]
        values = await asyncio.gather(*(job.future for job in jobs))
        wanted = expected(batcher, *(text_of(3, start) for start in range(6)))
        assert [each.tolist()[0] for each in values] == wanted
        assert [replica.serves for replica in batcher.replicas] == [False, True]


async def test_what_a_triton_that_hangs_was_asked_another_answers_in_time() -> None:
    hangs, good = FakeEngine(error=EngineTimeoutError("hangs")), FakeEngine()
    async with batcher_of(hangs, good) as batcher:
        jobs = [submit(batcher, text_of(3, start), timeout=60.0) for start in range(6)]
        values = await asyncio.gather(*(job.future for job in jobs))
        wanted = expected(batcher, *(text_of(3, start) for start in range(6)))
        assert [each.tolist()[0] for each in values] == wanted
        assert hangs.works
        assert max(hangs.timeouts) <= 60.0 / 2  # the rest of the time is the other one's
        assert [replica.serves for replica in batcher.replicas] == [False, True]


async def test_a_triton_whose_process_is_gone_is_doubted_though_it_says_that_it_is_ready() -> None:
    dead, good = FakeEngine(error=EngineProcessGoneError("stub process")), FakeEngine()
    began = monotonic()
    async with batcher_of(dead, good) as batcher:
        await asyncio.gather(submit(batcher, text_of(3)).future, submit(batcher, text_of(3)).future)
        first, second = batcher.replicas
        assert (first.serves, second.serves) == (False, True)
        assert not first.breaker.probe_due(began + PROBE_PAUSES.most)


async def test_a_model_that_one_triton_does_not_hold_is_asked_for_at_another() -> None:
    empty, good = FakeEngine(holds=set()), FakeEngine()
    async with batcher_of(empty, good) as batcher:
        await asyncio.gather(submit(batcher, text_of(3)).future, submit(batcher, text_of(3)).future)
        assert [replica.serves for replica in batcher.replicas] == [False, True]


@runs_on(SteppedLoop)
async def test_what_a_sick_triton_fails_at_goes_not_round_and_round_if_the_other_is_busy() -> None:
    sick, busy = FakeEngine(error=EngineModelError("sick")), FakeEngine(error=EngineBusyError("b"))
    async with batcher_of(sick, busy) as batcher:
        job = submit(batcher, text_of(3), timeout=10.0)
        while not busy.works:
            await loop_turns(1)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(sick.works) == 1
        busy.error = None
        values = await job.future
        assert values.tolist() == expected(batcher, text_of(3))


async def test_a_mistake_of_ours_with_the_second_triton_fails_what_was_sent_there_at_once() -> None:
    def breaks(_: NDArray[np.int64]) -> NDArray[np.float32]:
        raise ValueError("a mistake")

    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    sick, other = FakeEngine(error=EngineModelError("sick")), FakeEngine(answer=breaks)
    async with batcher_of(sick, other) as batcher:
        with pytest.raises(RuntimeError, match="a mistake"):
            await submit(batcher, text_of(3), timeout=30.0).future


BAD = "w49"  # no ``text_of(3, start)`` holds it for a start below 47


def fails_at_bad(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """A model that fails at a batch with such a text in it, as one that meets an odd shape does."""
    if (ids == 2 + WORDS.index(BAD)).any():
        raise EngineModelError("odd shape")
    return logits_of(ids)


def nan_for_bad(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    bad = (ids == 2 + WORDS.index(BAD)).any(axis=1, keepdims=True)
    return np.where(bad, np.float32("nan"), logits_of(ids))


async def ends_of(*jobs: Job) -> list[list[list[float]] | type[BaseException]]:
    """What each caller gets: values or an error's class."""
    ends = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
    return [type(end) if isinstance(end, BaseException) else end.tolist() for end in ends]


@pytest.mark.parametrize("answer", [fails_at_bad, nan_for_bad])
@pytest.mark.parametrize("place", [0, 5, 7])
async def test_a_text_that_the_model_fails_at_fails_its_own_caller_alone(
    answer: Callable[[NDArray[np.int64]], NDArray[np.float32]], place: int
) -> None:
    engine, meter = FakeEngine(answer=answer), Meter()
    async with batcher_of(engine, meter=meter) as batcher:
        texts = [text_of(3, start) for start in range(8)]
        texts[place] = BAD
        ends = await ends_of(*(submit(batcher, text) for text in texts))
        wanted: list[object] = [expected(batcher, text) for text in texts]
        wanted[place] = ModelFailedError
        assert ends == wanted
    assert engine.shapes[0] == (8, 4)
    assert len(engine.shapes) == 1 + 2 * 3  # both halves, three times
    assert (meter.splits, meter.failed) == (3, 1)


@settings(max_examples=40)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=2), min_size=1, max_size=16))
async def test_whoever_sent_no_bad_text_is_answered_whatever_others_sent(
    calls: list[list[bool]],
) -> None:
    engine = FakeEngine(answer=fails_at_bad)
    async with batcher_of(engine, max_batch_size=32) as batcher:
        texts = [
            [BAD if bad else text_of(3, number % 40) for bad in each]
            for number, each in enumerate(calls)
        ]
        ends = await ends_of(*(submit(batcher, *each) for each in texts))
        assert ends == [
            ModelFailedError if any(bad) else expected(batcher, *each)
            for bad, each in zip(calls, texts, strict=True)
        ]
        assert len(engine.works) <= 2 * len(calls) - 1


def fails(_: NDArray[np.int64]) -> NDArray[np.float32]:
    raise EngineModelError("CUDA failure 719: unspecified launch failure")


def nan_for_all(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.full_like(logits_of(ids), np.nan)


@pytest.mark.parametrize("answer", [fails, nan_for_all])
async def test_what_one_triton_alone_fails_at_another_answers_and_the_one_is_suspended(
    answer: Callable[[NDArray[np.int64]], NDArray[np.float32]],
) -> None:
    sick, well, meter = FakeEngine(answer=answer), FakeEngine(), Meter()
    async with batcher_of(sick, well, meter=meter) as batcher:
        texts = [text_of(3, start) for start in range(12)]
        ends = await ends_of(*(submit(batcher, text) for text in texts))
        assert ends == [expected(batcher, text) for text in texts]
        assert [replica.serves for replica in batcher.replicas] == [False, True]
    assert len(sick.works) <= 2  # what was on its way when the first failed
    assert (meter.splits, meter.failed) == (0, 0)


@settings(max_examples=40)
@given(st.lists(st.booleans(), min_size=1, max_size=16), st.integers(0, 2))
async def test_one_sick_triton_costs_nobody_an_answer_whatever_texts_are_bad(
    calls: list[bool], place: int
) -> None:
    engines = [FakeEngine(answer=fails_at_bad) for _ in range(3)]
    engines[place].answer = fails
    async with batcher_of(*engines) as batcher:
        texts = [BAD if bad else text_of(3, number) for number, bad in enumerate(calls)]
        ends = await ends_of(*(submit(batcher, text) for text in texts))
        assert ends == [
            ModelFailedError if bad else expected(batcher, text)
            for bad, text in zip(calls, texts, strict=True)
        ]


async def test_what_two_tritons_fail_at_is_the_texts_own_fault_and_suspends_none() -> None:
    engines = FakeEngine(answer=fails_at_bad), FakeEngine(answer=fails_at_bad)
    async with batcher_of(*engines) as batcher:
        texts = [text_of(3, start) for start in range(8)]
        texts[5] = BAD
        ends = await ends_of(*(submit(batcher, text) for text in texts))
        wanted: list[object] = [expected(batcher, text) for text in texts]
        wanted[5] = ModelFailedError
        assert ends == wanted
        assert all(replica.serves for replica in batcher.replicas)


async def test_a_model_that_two_tritons_found_broken_is_not_tried_at_both() -> None:
    engines = [FakeEngine(answer=fails) for _ in range(2)]
    async with batcher_of(*engines, max_batch_size=32) as batcher:
        for _ in range(4):
            ends = await ends_of(*(submit(batcher, text_of(3)) for _ in range(32)))
            assert set(ends) == {ModelFailedError}
        before = sum(len(engine.works) for engine in engines)
        assert await ends_of(submit(batcher, text_of(3))) == [ModelFailedError]
        assert sum(len(engine.works) for engine in engines) == before + 1


async def test_the_only_triton_that_fails_is_not_suspended() -> None:
    sick, gone = FakeEngine(answer=fails), FakeEngine(here=False)
    async with batcher_of(sick, gone) as batcher:
        for _ in range(3):
            await ends_of(submit(batcher, text_of(3)), submit(batcher, text_of(3)))
        assert [replica.serves for replica in batcher.replicas] == [True, False]


async def test_the_texts_of_one_caller_are_not_tried_apart() -> None:
    engine, meter = FakeEngine(answer=fails_at_bad), Meter()
    async with batcher_of(engine, meter=meter) as batcher:
        ends = await ends_of(submit(batcher, text_of(3), BAD, text_of(3)))
        assert ends == [ModelFailedError]
    assert engine.shapes == [(3, 4)]
    assert (meter.splits, meter.failed) == (0, 3)


async def test_a_model_that_was_found_broken_is_asked_for_halves_alone_until_it_answers() -> None:
    engine = FakeEngine(error=EngineModelError("out of memory"))
    async with batcher_of(engine, max_batch_size=32) as batcher:
        asked = []
        for _ in range(3):
            before = len(engine.works)
            ends = await ends_of(*(submit(batcher, text_of(3)) for _ in range(32)))
            assert set(ends) == {ModelFailedError}
            asked.append(len(engine.works) - before)
        assert asked == [63, 3, 3]  # each caller alone once, then each batch and its halves
        engine.error, engine.answer = None, fails_at_bad
        ends = await ends_of(
            submit(batcher, BAD), *(submit(batcher, text_of(3)) for _ in range(31))
        )
        assert ends.count(ModelFailedError) == 1


@pytest.mark.parametrize("batch", [1, 2], ids=["during the batch", "while others are tried"])
async def test_whoever_hung_up_is_not_tried_again(batch: int) -> None:
    def answer(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        if len(engine.works) == batch:
            batcher.abandon(goes)
        return fails_at_bad(ids)

    engine = FakeEngine(answer=answer)
    async with batcher_of(engine) as batcher:
        bad, stays, goes = (submit(batcher, text) for text in (BAD, text_of(3), text_of(3)))
        assert await ends_of(bad, stays) == [ModelFailedError, expected(batcher, text_of(3))]
    assert engine.shapes == [(3, 4), (1, 4), (1, 4)]


class GoesAway(FakeEngine):
    """Fails at its first batch, and is gone then."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        try:
            return await super().infer(work, timeout_seconds)
        finally:
            self.here = False


async def test_what_is_yet_to_be_tried_when_a_triton_goes_another_one_answers() -> None:
    goes, stays = GoesAway(answer=fails_at_bad), FakeEngine(answer=fails_at_bad)
    async with batcher_of(goes, stays) as batcher:
        # The first two leave for an engine each, and so do the others, together.
        texts = [BAD, *(text_of(3, start) for start in range(7))]
        ends = await ends_of(*(submit(batcher, text) for text in texts))
        assert ends == [ModelFailedError, *(expected(batcher, text) for text in texts[1:])]
    assert len(goes.works) == 2


class OfOurMaking(FakeEngine):
    """Fails at its first batch, and meets a mistake of ours at the next."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        if self.works:
            raise KeyError("a mistake")
        return await super().infer(work, timeout_seconds)


async def test_a_mistake_of_ours_while_callers_are_tried_apart_leaves_none_waiting() -> None:
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with batcher_of(OfOurMaking(answer=fails_at_bad)) as batcher:
        jobs = [submit(batcher, text) for text in (BAD, text_of(3), text_of(3), text_of(3))]
        ends = await ends_of(*jobs)
        assert ends == [RuntimeError] * 4


async def test_the_wait_of_a_second_try_holds_nothing_of_the_first() -> None:
    gone, good = FakeEngine(held=asyncio.Event()), FakeEngine()
    async with batcher_of(gone, good) as batcher:
        began = monotonic()
        job = submit(batcher, text_of(3))
        await loop_turns()
        sent = monotonic()
        await loop_turns(2000)
        lost = monotonic()
        gone.here = False
        gone.release()
        await job.future
        _, infer = job.times
        assert infer >= lost - sent
        assert sum(job.times) <= monotonic() - began


async def test_the_stages_of_a_call_are_those_of_its_slowest_text_and_never_overlap() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine, max_batch_size=1) as batcher:
        began = monotonic()
        job = submit(batcher, *(text_of(3, start) for start in range(3)))
        await loop_turns()
        assert len(engine.works) == 2  # the third waits behind them
        sent = monotonic()
        await loop_turns(2000)
        held = monotonic() - sent
        engine.release()
        await job.future
        wait, _ = job.times
        assert wait >= held
        assert sum(job.times) <= monotonic() - began


async def test_what_callers_were_tried_apart_for_is_inference_and_never_counted_twice() -> None:
    async with batcher_of(FakeEngine(answer=fails_at_bad)) as batcher:
        began = monotonic()
        jobs = [submit(batcher, text) for text in (BAD, *(text_of(3, start) for start in range(7)))]
        await ends_of(*jobs)
        elapsed = monotonic() - began
        times = [job.times for job in jobs]
        assert all(infer > 0 and wait + infer <= elapsed for wait, infer in times)


class Lossy(FakeEngine):
    """Answers one row less than it was asked for."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        return (await super().infer(work, timeout_seconds))[:-1]


async def test_an_answer_of_another_size_is_the_models_fault() -> None:
    async with batcher_of(Lossy()) as batcher:
        with pytest.raises(ModelFailedError, match="1 texts"):
            await submit(batcher, text_of(3)).future


async def test_the_wait_is_none_while_an_engine_idles_and_grows_with_the_queue() -> None:
    engine = FakeEngine(held=asyncio.Event())
    async with batcher_of(engine) as batcher:
        assert batcher.wait_seconds("e") == 0.0
        waits = []
        for _ in range(5):
            for _ in range(16):
                submit(batcher, text_of(3)).future.add_done_callback(lambda each: each.exception())
            await loop_turns()
            waits.append(batcher.wait_seconds("e"))
        assert waits == sorted(waits)
        assert waits[-1] > waits[0] > 0


async def test_the_wait_is_by_what_each_triton_costs() -> None:
    fast, slow = FakeEngine(held=asyncio.Event()), FakeEngine(held=asyncio.Event())
    async with batcher_of(fast, slow) as batcher:
        for triton, milliseconds in (("t0:1", 10), ("t1:1", 40)):
            each_alone = [
                CostPoint(bucket=4, batch=rows, milliseconds=rows * milliseconds)
                for rows in (1, 2, 4, 8)
            ]
            batcher.cost.seed(triton, tuple(each_alone))
        for _ in range(104):
            submit(batcher, text_of(3)).future.add_done_callback(lambda each: each.exception())
        await loop_turns()
        # 100 texts wait for 125 a second, behind two of 10 ms and two of 40 ms on two engines.
        assert (len(fast.works), len(slow.works), batcher.queued_rows) == (2, 2, 100)
        assert batcher.wait_seconds("e") == pytest.approx(0.8 + 0.1 / 2)


@pytest.mark.slow
async def test_jobs_that_ended_do_not_pile_up() -> None:
    async with batcher_of(FakeEngine()) as batcher:
        for _ in range(3000):
            await submit(batcher, text_of(1), timeout=600).future
        gc.collect()
        assert sum(isinstance(each, Job) for each in gc.get_objects()) < 1100


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(1, 16), min_size=1, max_size=6), min_size=1, max_size=12),
    st.integers(1, 3),
)
async def test_whatever_is_joined_each_text_gets_what_it_gets_alone(
    calls: list[list[int]], engines: int
) -> None:
    async with batcher_of(*(FakeEngine() for _ in range(engines))) as batcher:
        texts = [
            [text_of(length, 7 * i + j) for j, length in enumerate(lengths)]
            for i, lengths in enumerate(calls)
        ]
        jobs = [submit(batcher, *each) for each in texts]
        values = await asyncio.gather(*(job.future for job in jobs))
        for got, each in zip(values, texts, strict=True):
            assert got.tolist() == expected(batcher, *each)


pairs_of_calls = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


@given(pairs_of_calls)
@settings(deadline=None)
def test_pairs_of_any_callers_are_answered_in_order_and_each_by_its_own_values(
    calls: list[list[tuple[int, int]]],
) -> None:
    """A query with documents is a call of pairs; rows of several calls share batches."""

    async def check() -> None:
        async with batcher_of(FakeEngine(), FakeEngine(), max_batch_size=4) as batcher:
            encoder, deadline = batcher.model.encoder, monotonic() + 60
            encoded = [
                encoder.encode(
                    [text_of(query, number)] * len(documents),
                    [text_of(size, 3 * at + number) for at, (_, size) in enumerate(documents)],
                )
                for number, documents in enumerate(calls)
                for query in (documents[0][0],)
            ]
            jobs = [batcher.submit(each, f"e{at % 2}", deadline) for at, each in enumerate(encoded)]
            answers = await asyncio.gather(*(job.future for job in jobs))
            for each, values in zip(encoded, answers, strict=True):
                alone = [
                    batcher.model.decode(logits_of(np.array([ids])), [len(ids)], [1])[0][0]
                    for ids in each.ids
                ]
                np.testing.assert_array_equal(values, alone)

    asyncio.run(check())
