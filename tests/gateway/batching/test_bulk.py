"""Bulk calls take idle capacity: interactive ones never wait in one queue with them."""

import asyncio
import math
import random
from collections.abc import Sequence
from functools import partial

import pytest
from bulk_world import ACCELERATOR, BULK_TEXTS, CPU, Setting, beside, encoded, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_clocks import SteppedLoop, runs_on

from gateway.batching.bulk import (
    HEARD_SECONDS,
    LONG_SECONDS,
    BulkShare,
    Delay,
    EndpointReport,
    GatewayReport,
)
from gateway.errors import DeadlineExceededError

NOTHING = GatewayReport({})


class Gateways:
    """Shares of several gateways that hear each other, with a time of their own."""

    def __init__(self, count: int, apart: float = 0.0) -> None:
        self.now = 0.0
        self.shares = [BulkShare(wall_clock=partial(self._wall, apart * n)) for n in range(count)]
        for rank, share in enumerate(self.shares):
            share.gateways, share.rank = count, rank

    def _wall(self, ahead: float) -> float:
        return self.now + ahead

    def may_begin(self, wanting: Sequence[int]) -> set[int]:
        """Which of those that have bulk requests may begin a long batch, after all have told."""
        for _ in range(2):
            for one, share in enumerate(self.shares):
                for other, reported in enumerate(self.shares):
                    if one != other:
                        share.hear(self.now, other, reported.report(self.now))
            found = {
                each
                for each in wanting
                if self.shares[each].most_seconds(self.now, 0.001) is not None
            }
            self.now += 0.06  # so that all is looked at again
        return found

    def turns(self, seconds: float, wanting: Sequence[int]) -> list[int]:
        """Whose turn it was at each of many moments."""
        found: list[int] = []
        until = self.now + seconds
        while self.now < until:
            found += self.may_begin(wanting)
        return found


@settings(max_examples=100)
@given(
    st.integers(2, 6),
    st.lists(st.tuples(st.floats(0.0, 0.4), st.sets(st.integers(0, 5), min_size=1)), max_size=30),
    st.floats(-0.01, 0.01),
)
def test_of_several_gateways_one_at_a_time_begins_long_batches(
    count: int, steps: list[tuple[float, set[int]]], apart: float
) -> None:
    all_of_them = Gateways(count, apart)
    for step, wanting in steps:
        all_of_them.now += step
        found = all_of_them.may_begin(sorted(each % count for each in wanting))
        # Who has just begun to want is known to all only then.
        assert len(found & all_of_them.may_begin(range(count))) <= 1


@pytest.mark.parametrize("wanting", [[0], [0, 2], [0, 1, 2, 3]])
def test_gateways_with_bulk_requests_have_turns_in_equal_parts_and_others_none(
    wanting: list[int],
) -> None:
    gateways = Gateways(4)
    gateways.turns(2.0, wanting)
    turns = gateways.turns(12.0, wanting)
    assert set(turns) == set(wanting)
    moments = 12.0 / 0.12
    least = 0.95 if len(wanting) == 1 else 0.8  # without the beginnings of turns
    for each in wanting:
        assert turns.count(each) > least * moments / len(wanting) - 3


def test_who_has_callers_and_no_bulk_requests_has_quiet_seconds_to_learn_from() -> None:
    gateways = Gateways(2)
    for _ in range(1000):
        gateways.shares[1].note_answer(0.0, "e", 0.02)
    gateways.turns(2.0, [0])
    turns: list[int] = []
    seen = gateways.shares[1].report(gateways.now).endpoints["e"].seen
    for _ in range(100):
        turns += gateways.may_begin([0])
        gateways.shares[1].note_answer(gateways.now, "e", 0.02)
    learnt = gateways.shares[1].report(gateways.now).endpoints["e"].seen - seen
    assert len(turns) in range(55, 80)  # of 100; without the quiet second all
    assert learnt in range(15, 30)


def test_a_gateway_begins_no_long_batch_before_all_others_have_said_what_they_know() -> None:
    share = BulkShare(wall_clock=lambda: 0.5)
    share.gateways, share.rank = 3, 0
    assert share.most_seconds(0.0, 0.001) is None
    share.hear(0.0, "a", NOTHING)
    assert share.most_seconds(1.0, 0.001) is None
    share.hear(1.0, "b", GatewayReport({}, known=False))  # it has just begun to measure
    assert share.most_seconds(1.1, 0.001) is None
    share.hear(1.2, "b", NOTHING)
    assert share.most_seconds(1.3, 0.001) == LONG_SECONDS
    share.forget(["b"])  # it has left, and another one came
    assert share.most_seconds(1.4, 0.001) is None
    share.hear(1.5, "c", NOTHING)
    assert share.most_seconds(1.6, 0.001) == LONG_SECONDS
    assert share.most_seconds(2.0 + HEARD_SECONDS, 0.001) is None  # they have fallen silent
    share.rank = None  # it is none of the gateways that are known
    share.hear(9.0, "a", NOTHING)
    share.hear(9.0, "c", NOTHING)
    assert share.most_seconds(9.0, 0.001) is None


def test_a_gateway_without_callers_spares_those_of_others() -> None:
    share = BulkShare(wall_clock=lambda: 0.5)
    share.gateways = 2
    for at, room, seen, begins in (
        (0.0, 1.0, 5000, True),
        (1.0, -0.1, 5000, False),
        (2.0, 1.0, 5000, True),
        *((float(at), 1.0, 3, False) for at in range(3, 60)),  # it may be sure soon,
        (61.0, 1.0, 3, True),  # or never, as few ask
    ):
        report = GatewayReport({"e": EndpointReport(0.02, seen, room)}, rank=1)
        share.hear(at, "other", report)
        most = share.most_seconds(at, 0.001)
        assert most == (pytest.approx(0.55 * 0.02) if begins else None)


def test_a_long_batch_ends_before_another_gateway_begins_one() -> None:
    wall = 0.2
    share = BulkShare(wall_clock=lambda: wall)
    share.gateways = 2
    share.most_seconds(0.0, 0.001)
    other = GatewayReport({"e": EndpointReport(10.0, 5000, 1.0)}, rank=1, wants=True)
    for now, wall, most in ((1.0, 0.2, 0.9), (1.1, 0.95, 0.15), (1.2, 1.5, None)):  # noqa: B007
        share.hear(now, "other", other)
        assert share.most_seconds(now, 0.001) == (None if most is None else pytest.approx(most))


def test_gateways_go_by_the_requests_of_all_until_they_know_enough_of_their_own() -> None:
    both = EndpointReport(0.01, 1200, 0.5).with_that_of(EndpointReport(0.04, 1200, -1.0))
    assert both.p99 == pytest.approx(0.02)
    assert (both.seen, both.room) == (2400, -0.5)
    less = EndpointReport(0.01, 1200, 0.5).with_that_of(EndpointReport(0.04, 0, -0.5))
    assert less.p99 == pytest.approx(0.01)  # by no request
    share = BulkShare(wall_clock=lambda: 0.5)
    share.gateways = 2
    for at, requests, others_count in ((1.0, 10, True), (2.0, 1000, False)):
        for _ in range(requests):
            share.note_answer(at, "e", 0.01)
        known = EndpointReport(0.1, 5000, 0.0)
        share.hear(at, "other", GatewayReport({"e": known}, rank=1))
        share.most_seconds(at, 0.001)
        room = share.report(at).endpoints["e"].room
        share.note_answer(at, "e", 0.04)
        assert (share.report(at).endpoints["e"].room >= room) == others_count


@given(st.integers(2, 50), st.integers(300, 2000))
def test_gateways_with_hardly_a_caller_do_not_outweigh_what_another_owes(
    count: int, seen: int
) -> None:
    gateways = Gateways(count)
    now = gateways.now = 100.0
    busy, *quiet = gateways.shares
    for each in quiet:
        each.note_answer(now - 70.0 * count, "e", 0.01)
        each.note_answer(now, "e", 0.01)
        each.report(now)  # which is refilled by now
    for _ in range(seen):
        busy.note_answer(now, "e", 0.01)
    for _ in range(60):
        busy.note_answer(now, "e", 10.0)
    rooms = [each.report(now).endpoints["e"].room for each in gateways.shares]
    assert sum(rooms) < 0


@pytest.mark.parametrize("gateways", [1, 2, 5])
def test_what_is_owed_is_paid_in_half_an_hour_a_gateway_although_callers_come(
    gateways: int,
) -> None:
    share = BulkShare(wall_clock=lambda: 0.9)
    share.gateways = gateways
    for before in range(-64, 0, 4):
        share.most_seconds(float(before), math.inf)
    for _ in range(1100):
        share.note_answer(0.0, "e", 0.1)
    for _ in range(100):
        share.note_answer(0.0, "e", 0.5, Delay(0.0, 0.4))
    may_begin = []
    for minute in range(31 * gateways):
        now = 60.0 * minute
        for other in range(gateways - 1):
            share.hear(now, other, NOTHING)
        share.note_answer(now, "e", 0.1)
        may_begin.append(share.most_seconds(now, math.inf) is not None)
    assert may_begin == sorted(may_begin)
    assert may_begin.count(False) in range(20, 31 * gateways)


def test_what_is_slow_by_itself_is_held_against_nobody_before_it_is_known_what_is_slow() -> None:
    share = BulkShare()
    share.note_answer(0.0, "e", 1.0)
    for number in range(50):
        share.note_answer(0.0, "e", 2.0 + number)
    assert share.most_seconds(0.0, 0.001) is not None
    for _ in range(3):
        share.note_answer(0.0, "e", 200.0, Delay(0.0, 199.0))  # a bulk batch made it slow
    assert share.most_seconds(0.0, 0.001) is None
    several = Gateways(2)
    one, _ = several.shares
    for number in range(50):
        one.note_answer(0.0, "e", 1.0 + number)
    rooms = one.report(0.0).endpoints["e"].room, several.shares[1]._most_room
    assert -5 < rooms[0] < -rooms[1]  # the other one's room is less than this owes


def test_requests_are_measured_while_somebody_wants_to_know() -> None:
    share = BulkShare()
    assert not share.measures(0.0)
    assert not share.report(0.0).known  # it has not measured until now
    assert share.measures(29.9)
    assert not share.measures(30.1)
    share.jobs = 1
    assert share.measures(30.1)
    assert not share.report(40.0).known
    assert share.report(41.5).known


@given(st.floats(1e-3, 1.0))
def test_a_batch_that_is_short_may_begin_whatever_is_owed(p99: float) -> None:
    short = p99 / 10
    share = BulkShare(short)
    assert share.most_seconds(0.0, 1e-5) == max(short, LONG_SECONDS)  # nobody is to be spared
    share.note_answer(0.0, "e", p99)
    share.note_answer(0.0, "slow", 10 * p99)  # the faster endpoint decides
    assert share.most_seconds(0.0, 2 * short) == pytest.approx(0.55 * p99, rel=0.02)
    for _ in range(50):
        share.note_answer(0.0, "slow", 20 * p99, Delay(0.0, 15 * p99))
    assert share.most_seconds(0.0, short / 2) == short
    assert share.most_seconds(0.0, 2 * short) is None  # and a longer one may not
    assert share.most_seconds(100.0, 1e-5) == max(short, LONG_SECONDS)  # nobody asked for a minute


def test_the_estimate_of_a_p99_is_near_it_whatever_bulk_batches_delay() -> None:
    share, draw = BulkShare(), random.Random(1)
    for _ in range(20_000):
        seconds, delay = draw.expovariate(1.0), None
        if draw.random() < 0.5:
            delay = Delay(0.0, draw.uniform(0.0, 3.0))
            seconds += delay.until
        share.note_answer(0.0, "e", seconds, delay)
    assert 3.7 < share.report(0.0).endpoints["e"].p99 < 5.5  # 4.6


def test_what_delays_a_request_lasts_until_the_batch_has_ended_and_nobody_waits() -> None:
    share = BulkShare()
    assert share.note_arrival(0.0, "p", None, waits=True) is None  # for other requests
    share.note_begin(1.0)
    delay = share.note_arrival(1.25, "p", 1.5, waits=True)
    assert delay == Delay(1.25, 1.5)
    assert share.note_arrival(1.3, "another", 1.5, waits=False) is None
    share.note_end(2.0)
    assert share.note_arrival(2.0, "p", None, waits=True) is delay
    assert delay == Delay(1.25, 2.0)
    assert share.note_arrival(3.0, "p", None, waits=False) is None
    share.note_begin(4.0)
    assert share.note_arrival(4.25, "p", 4.5, waits=True) == Delay(4.25, 4.5)


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
        (Setting(ACCELERATOR, gateways=2, spread=(1.0, 0.0)), 0.2),
        (Setting(ACCELERATOR, gateways=4, spread=(1.0, 0.0, 0.0, 0.0), apart_seconds=0.05), 0.2),
    ],
    ids=[
        "one Triton",
        "one, nearly full",
        "three, another package",
        "accelerator",
        "two gateways",
        "two, one without callers",
        "four, three without callers, clocks apart",
    ],
)
def test_the_p99_of_interactive_calls_stays_within_a_tenth(setting: Setting, load: float) -> None:
    calls = 6000 * min(2, setting.gateways)
    alone, beside_bulk = (beside(setting, load, bulk=bulk, calls=calls) for bulk in (False, True))
    assert beside_bulk.p99 < 1.1 * alone.p99
    assert beside_bulk.bulk_texts > 0


def test_a_batch_may_take_the_time_that_an_operator_allows() -> None:
    """At a load of a tenth, most of what is idle."""
    setting = Setting(ACCELERATOR, packed=True, short_seconds=0.002)
    found = beside(setting, 0.1, bulk=True, calls=1000)
    assert found.bulk_texts / found.ended > 5000


@runs_on(SteppedLoop)
async def test_bulk_calls_alone_keep_the_engine_busy() -> None:
    found = []
    for gateways in (1, 3):
        async with world_of(Setting(CPU, gateways=gateways)) as world:
            world.ask_in_bulk()
            await asyncio.sleep(5.0)
            before = world.outcome.bulk_texts
            await asyncio.sleep(10.0)
            found.append(world.outcome.bulk_texts - before)
    assert found[0] > 10 * 200  # 258 a second, each by itself, on an instant loop
    assert found[1] > 0.8 * found[0]  # in turns


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
