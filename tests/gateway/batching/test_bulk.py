"""Bulk calls take idle capacity: interactive ones never wait in one queue with them."""

import asyncio
import math
import random

import pytest
from bulk_world import ACCELERATOR, BULK_TEXTS, CPU, Setting, beside, encoded, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_clocks import SteppedLoop, runs_on

from gateway.batching.bulk import LONG_SECONDS, BulkShare, Delay
from gateway.errors import DeadlineExceededError

# What one of several gateways' share is told: that time passes, that a request came and whether a
# bulk batch may delay it, and that a long batch begins or ends.
STEPS = st.lists(
    st.tuples(st.sampled_from(["waits", "came", "met", "sent", "ended"]), st.floats(1e-4, 30.0)),
    min_size=5,
    max_size=200,
)


@settings(max_examples=300)
@given(STEPS, st.integers(2, 8))
def test_so_few_are_delayed_and_bulk_batches_come_to_their_turn_again(
    steps: list[tuple[str, float]], gateways: int
) -> None:
    share, now, runs = BulkShare(), 0.0, False
    share.gateways = gateways
    came = delayed = 0
    for what, seconds in steps:
        if what == "waits":
            now += seconds
        elif what == "sent":
            most = share.most_seconds(now, least_seconds=math.inf)
            if most is not None and not runs:
                runs = True
                share.note_begin(now)
                if delayed <= 10:  # of more, not all are held against it for ever
                    allowed = 1 + (came * 0.0025 + now / 60) / gateways
                    assert delayed < allowed + 1e-6
        elif what == "ended":
            share.note_end(now, 0.0, 1e9)
            runs = False
        else:
            came += 1
            before = runs
            until = now + 1e-9 if runs else None
            delay = share.note_arrival(now, "p", until, waits=what == "met")
            share.note_answer(now, "e", 1.0, delay)
            delayed += before and what == "met"
    later = now + 11 * 60 * gateways + 1e6  # nobody comes, and pauses are over
    assert share.most_seconds(later, least_seconds=1.0) == LONG_SECONDS


@pytest.mark.parametrize("gateways", [1, 2, 5])
def test_what_is_owed_is_paid_in_ten_minutes_a_gateway_although_callers_come(gateways: int) -> None:
    share = BulkShare()
    share.gateways = gateways
    for _ in range(100):
        share.note_answer(0.0, "e", 1.0)
    for _ in range(50):
        share.note_answer(0.0, "e", 10.0, Delay(0.0, 9.5))
    may_begin = []
    for minute in range(11 * gateways):
        share.note_answer(60.0 * minute, "e", 1.0)
        may_begin.append(share.most_seconds(60.0 * minute, math.inf) is not None)
    assert may_begin == sorted(may_begin)
    assert may_begin.count(True) in range(1, 2 * gateways + 1)


@given(st.floats(1e-3, 1.0))
def test_a_batch_that_is_short_may_begin_whatever_is_owed(p99: float) -> None:
    short = p99 / 10
    share = BulkShare(short)
    assert share.most_seconds(0.0, 1.0) == max(short, LONG_SECONDS)  # nobody is to be spared
    share.note_answer(0.0, "e", p99)
    share.note_answer(0.0, "slow", 10 * p99)  # the faster endpoint decides
    assert share.most_seconds(0.0, 2 * short) == pytest.approx(0.55 * p99, rel=0.02)
    for _ in range(50):
        share.note_answer(0.0, "slow", 20 * p99, Delay(0.0, 15 * p99))
    assert share.most_seconds(0.0, short / 2) == short
    assert share.most_seconds(0.0, 2 * short) is None  # and a longer one may not
    assert share.most_seconds(100.0, 1.0) == max(short, LONG_SECONDS)  # nobody asked for a minute


def test_the_estimate_of_a_p99_is_near_it_whatever_bulk_batches_delay() -> None:
    share, draw = BulkShare(), random.Random(1)
    for _ in range(20_000):
        seconds, delay = draw.expovariate(1.0), None
        if draw.random() < 0.5:
            delay = Delay(0.0, draw.uniform(0.0, 3.0))
            seconds += delay.until
        share.note_answer(0.0, "e", seconds, delay)
    for _ in range(1100):  # what is owed is paid, and the estimate falls by so much
        share.note_answer(0.0, "e", 1e-3)
    most = share.most_seconds(0.0, 1.0)
    assert most is not None
    assert 3.7 < most / 0.55 * 1.01 ** (1100 / 99) < 5.5  # 4.6


def test_what_delays_a_request_lasts_until_the_batch_has_ended_and_nobody_waits() -> None:
    share = BulkShare()
    assert share.note_arrival(0.0, "p", None, waits=True) is None  # for other requests
    share.note_begin(1.0)
    delay = share.note_arrival(1.25, "p", 1.5, waits=True)
    assert delay == Delay(1.25, 1.5)
    assert share.note_arrival(1.3, "another", 1.5, waits=False) is None
    share.note_end(2.0, 0.5, 0.5)
    assert share.note_arrival(2.0, "p", None, waits=True) is delay
    assert delay == Delay(1.25, 2.0)
    assert share.note_arrival(3.0, "p", None, waits=False) is None
    share.note_begin(4.0)
    assert share.note_arrival(4.25, "p", 4.5, waits=True) == Delay(4.25, 4.5)


@pytest.mark.parametrize(("late", "pause"), [(0.04, 0.8), (30.0, 5.0)])
def test_a_batch_that_waited_for_other_gateways_is_followed_by_a_long_pause_that_ends(
    late: float, pause: float
) -> None:
    share = BulkShare()
    for gateways, ends, paused in ((1, 0.01 + late, 0.0), (2, 0.014, 0.0), (2, 0.01 + late, pause)):
        share.gateways = gateways
        share.note_end(ends, ends - 0.01, 0.01)
        assert (share.most_seconds(ends, 0.001) is None) == (paused > 0)
        assert share.most_seconds(ends + 0.99 * paused, 0.001) is None or not paused
        assert share.most_seconds(ends + 1.01 * paused, 0.001) is not None


def test_a_pause_is_not_cut_short_by_a_batch_that_was_less_late() -> None:
    share = BulkShare()
    share.gateways = 2
    share.note_end(0.11, 0.1, 0.01)  # a pause of 2 s
    share.note_end(0.12, 0.07, 0.05)  # of 1.4 s
    assert share.most_seconds(2.0, 0.001) is None
    assert share.most_seconds(2.2, 0.001) is not None


@runs_on(SteppedLoop)
async def test_a_bulk_batch_delays_those_alone_who_wait_at_its_triton() -> None:
    async with world_of(Setting(CPU)) as world, world_of(Setting(CPU)) as other:
        (here,), (there,), now = world.bulk, other.bulk, world.loop.time()
        there.share = here.share  # a gateway's, of two pools of Tritons
        bulk = here.submit(encoded([128]), "b", now + 60, bulk=True)
        await _turns()
        met = here.submit(encoded([16]), "e", now + 60)
        answered_at_once = there.submit(encoded([16]), "e", now + 60)
        await _turns()
        behind_it = there.submit(encoded([16]), "e", now + 60)
        also_met = here.submit(encoded([16]), "e", now + 60)
        assert met.delay is not None
        assert also_met.delay is met.delay
        assert answered_at_once.delay is behind_it.delay is None
        await asyncio.gather(*(each.future for each in (met, also_met, behind_it, bulk)))
        assert met.delay.until == pytest.approx(now + CPU.batch_seconds + 128 * 50e-6)


@runs_on(SteppedLoop)
async def test_a_backfill_beside_two_gateways_goes_on_after_a_triton_was_away() -> None:
    async with world_of(Setting(CPU, gateways=2)) as world:
        world.ask_in_bulk()
        await asyncio.sleep(1.0)
        for engine in world.engines.values():
            engine.occupy(30.0)
        await asyncio.sleep(35.0)
        before = world.outcome.bulk_texts
        await asyncio.sleep(5.0)
        assert world.outcome.bulk_texts > before


def test_the_more_are_delayed_the_more_tritons_stay_free() -> None:
    share = BulkShare()
    share.gateways = 2
    assert [share.most_tritons(0.0, count) for count in (1, 2, 8)] == [1, 1, 7]
    share.note_answer(0.0, "e", 1.0, Delay(0.0, 0.5))
    share.note_answer(0.0, "e", 1.0, Delay(0.0, 0.5))
    assert share.most_tritons(0.0, 8) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "load"),
    [
        (Setting(CPU), 0.1),
        (Setting(CPU), 0.8),
        (Setting(CPU, tritons=3, apart=True), 0.1),
        (Setting(ACCELERATOR, packed=True, apart=True), 0.6),
        (Setting(CPU, gateways=2), 0.6),
    ],
    ids=["one Triton", "one, nearly full", "three, another package", "accelerator", "two gateways"],
)
def test_the_p99_of_interactive_calls_stays_within_a_tenth(setting: Setting, load: float) -> None:
    alone, beside_bulk = (beside(setting, load, bulk=bulk, calls=6000) for bulk in (False, True))
    assert beside_bulk.p99 < 1.1 * alone.p99
    assert beside_bulk.bulk_texts > 0


def test_a_batch_may_take_the_time_that_an_operator_allows() -> None:
    """At a load of a tenth, most of what is idle."""
    setting = Setting(ACCELERATOR, packed=True, short_seconds=0.002)
    found = beside(setting, 0.1, bulk=True, calls=1000)
    assert found.bulk_texts / found.ended > 5000


@runs_on(SteppedLoop)
async def test_bulk_calls_alone_keep_the_engine_busy() -> None:
    async with world_of(Setting(CPU)) as world:
        world.ask_in_bulk()
        await asyncio.sleep(10.0)
    assert world.outcome.bulk_texts > 10 * 200  # 258 a second, each by itself, on an instant loop


@runs_on(SteppedLoop)
async def test_an_interactive_call_goes_before_all_bulk_calls_that_wait() -> None:
    async with world_of(Setting(CPU)) as world:
        (batcher,), now = world.bulk, world.loop.time()
        bulk = [batcher.submit(encoded([128] * 8), "b", now + 60, bulk=True) for _ in range(10)]
        await asyncio.sleep(0.001)  # one row is at the engine
        asked = batcher.submit(encoded([16]), "e", now + 60)
        assert batcher.wait_seconds("e") < 0.02  # for what is in flight alone
        await asked.future
        assert world.loop.time() - now < 0.03
        assert not any(job.future.done() for job in bulk)
        await asyncio.gather(*(job.future for job in bulk))


@runs_on(SteppedLoop)
async def test_no_bulk_batch_begins_while_the_triton_works_for_interactive_calls() -> None:
    """Of any package."""
    async with world_of(Setting(CPU, apart=True)) as world:
        (interactive,), (batcher,), now = world.interactive, world.bulk, world.loop.time()
        asked = interactive.submit(encoded([128]), "e", now + 60)
        bulk = batcher.submit(encoded([16]), "b", now + 60, bulk=True)
        await asyncio.sleep(0.001)
        assert not asked.future.done()
        assert not any(replica.busy for replica in batcher.replicas)
        assert (await bulk.future).shape == (1, 2)
        assert asked.future.done()


async def _turns() -> None:
    """A few iterations of the event loop, in which no time passes."""
    for _ in range(5):
        await asyncio.sleep(0)


@runs_on(SteppedLoop)
async def test_a_bulk_batch_begins_as_soon_as_another_package_leaves_the_triton_idle() -> None:
    async with world_of(Setting(CPU, apart=True)) as world:
        (interactive,), (batcher,), now = world.interactive, world.bulk, world.loop.time()
        (replica,) = batcher.replicas
        asked = interactive.submit(encoded([128]), "e", now + 60)
        bulk = batcher.submit(encoded([16]), "b", now + 60, bulk=True)
        await asked.future
        ended = world.loop.time()
        await _turns()
        assert (world.loop.time(), replica.load.bulk) == (ended, 1)
        await bulk.future
        assert replica.load.waiting == set()  # nobody is told in vain


@runs_on(SteppedLoop)
async def test_a_bulk_batch_begins_as_soon_as_mirrored_requests_need_the_triton_no_more() -> None:
    async with world_of(Setting(CPU)) as world:
        (batcher,), now = world.bulk, world.loop.time()
        (replica,) = batcher.replicas
        batcher.share.yields = True
        bulk = batcher.submit(encoded([16]), "b", now + 60, bulk=True)
        await asyncio.sleep(0.001)
        assert replica.load.bulk == 0
        batcher.share.yields = False
        await _turns()
        assert replica.load.bulk == 1
        await bulk.future


@runs_on(SteppedLoop)
async def test_of_several_tritons_one_is_left_to_interactive_calls() -> None:
    async with world_of(Setting(CPU, tritons=3)) as world:
        (batcher,), now = world.bulk, world.loop.time()
        bulk = [batcher.submit(encoded([128] * 8), "b", now + 60, bulk=True) for _ in range(10)]
        await asyncio.sleep(0.001)
        assert [replica.load.bulk for replica in batcher.replicas] == [0, 1, 1]
        batcher.submit(encoded([16]), "e", now + 60)
        await asyncio.sleep(0.0001)
        assert batcher.replicas[0].load.interactive == 1
        for job in bulk:
            batcher.abandon(job)


@runs_on(SteppedLoop)
async def test_a_bulk_call_that_finds_no_idle_capacity_is_told_to_come_back() -> None:
    async with world_of(Setting(CPU)) as world:
        (batcher,), now = world.bulk, world.loop.time()
        batcher.share.yields = True
        job = batcher.submit(encoded([16] * BULK_TEXTS), "b", now + 5, bulk=True)
        with pytest.raises(DeadlineExceededError, match="no idle capacity") as caught:
            await job.future
        assert (caught.value.status, caught.value.retry_after_seconds) == (504, 1.0)
        assert world.loop.time() == pytest.approx(now + 5, abs=0.01)
        await asyncio.sleep(0)
        assert batcher.share.jobs == 0
        assert batcher.idle


@runs_on(SteppedLoop)
async def test_of_several_instances_one_is_left_and_the_others_are_idle_capacity() -> None:
    async with world_of(Setting(CPU, instances=4)) as world:
        (batcher,), now = world.bulk, world.loop.time()
        (replica,) = batcher.replicas
        batcher.submit(encoded([128]), "e", now + 60)
        await asyncio.sleep(0.0001)
        bulk = batcher.submit(encoded([128] * 8), "b", now + 60, bulk=True)
        await asyncio.sleep(0.0001)
        assert (replica.load.interactive, replica.load.bulk, replica.idle) == (1, 2, 1)
        await bulk.future
