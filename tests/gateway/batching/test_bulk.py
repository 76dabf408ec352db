"""Bulk calls take idle capacity: interactive ones never wait in one queue with them."""

import asyncio
import math
import random

import pytest
from bulk_world import (
    ACCELERATOR,
    BULK_TEXTS,
    CPU,
    Outcome,
    Setting,
    beside,
    encoded,
    world_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_clocks import SteppedLoop, runs_on

from gateway.batching.bulk import (
    LONG_SECONDS,
    BulkShare,
    Delay,
    GatewayReport,
)
from gateway.errors import DeadlineExceededError

# What one of several gateways' share is told: that time passes, and that a batch is to begin whose
# only row takes so many p99s of callers elsewhere.
STEPS = st.lists(
    st.tuples(st.sampled_from(["waits", "begins"]), st.floats(1e-3, 30.0)),
    min_size=5,
    max_size=200,
)
P99 = 0.01


def hear(share: BulkShare, now: float, *reports: GatewayReport) -> None:
    """The others say this."""
    share.gateways = 1 + len(reports)
    for name, report in enumerate(reports):
        share.hear(now, name, report)


@settings(max_examples=300)
@given(STEPS, st.integers(1, 4), st.integers(0, 3))
def test_beside_callers_of_other_gateways_bulk_batches_take_a_small_share_of_the_time(
    steps: list[tuple[str, float]], wanting: int, quiet: int
) -> None:
    share, now, busy = BulkShare(), 0.0, 0.0
    reports = [GatewayReport(True, P99, wants=True, rate=100.0) for _ in range(wanting)]
    reports += [GatewayReport(spared=False) for _ in range(quiet)]
    longest = 0.0
    for what, amount in steps:
        if what == "waits":
            now += amount
        else:
            seconds = amount * P99
            hear(share, now, *reports)
            most = share.most_seconds(now, seconds)
            if most is not None:
                assert most == max(seconds, min(LONG_SECONDS, 2.5 * P99))  # Tritons idle
                share.note_begin(now, seconds)
                busy, longest = busy + seconds, max(longest, seconds)
    assert busy <= 0.0061 * (now + 0.5) / (wanting + 1) + longest
    later = now + 600.0 * (wanting + 1) + 1.0
    hear(share, later, *reports)
    assert share.most_seconds(later, 1.0) is not None  # what is owed is paid


@pytest.mark.parametrize(
    ("p99s", "time"), [(0.1, 0.04), (0.6, 0.025), (1.0, 0.015), (4.0, 0.00375), (8.0, 0.0025)]
)
def test_the_longer_a_batch_is_beside_the_p99_the_longer_is_the_pause(
    p99s: float, time: float
) -> None:
    """On Tritons that are busy for half of the time."""
    share, spared = BulkShare(), GatewayReport(True, P99, busy={"": 0.5}, rate=100.0)
    hear(share, 0.0, spared)
    assert share.most_seconds(0.0, p99s * P99) == max(p99s, 0.6) * P99
    begin = 20 if p99s < 1 else 1
    for _ in range(begin):
        share.note_begin(0.0, p99s * P99)
    pause = begin * p99s * P99 / time / 0.5 - 0.5
    for now, may_begin in ((0.98 * pause, False), (1.02 * pause, True)):
        hear(share, now, spared)
        assert (share.most_seconds(now, P99) is not None) == may_begin


@pytest.mark.parametrize(
    ("busy", "time"),
    [
        (0.0, 0.006),
        (0.01, 0.003 * 0.995),
        (0.02, 0.001 * 0.99),
        (0.4, 0.016 * 0.8),
        (1.0, 0.04 * 0.5),
        (1.9, 0.04 * 0.1),
        (7.0, 0.04 * 0.1),
    ],
)
def test_tritons_that_idle_and_those_that_are_full_have_less_time_for_bulk_batches(
    busy: float, time: float
) -> None:
    """Of its two instances another gateway's batches take that; a batch is short beside the p99."""
    seconds = 0.2 * P99
    share, spared = BulkShare(), GatewayReport(True, P99, busy={"t": busy, "u": 9.0}, rate=100.0)
    hear(share, 0.0, spared)
    assert share.most_seconds(0.0, seconds, "t", 2) is not None
    for _ in range(20):
        share.note_begin(0.0, seconds, "t")
    pause = 20 * seconds / time - 0.5
    for now, may_begin in ((0.98 * pause, False), (1.02 * pause, True)):
        hear(share, now, spared)
        assert (share.most_seconds(now, seconds, "t", 2) is not None) == may_begin


def test_a_lone_gateway_goes_by_the_time_while_its_triton_is_nearly_idle() -> None:
    share = BulkShare()
    for _ in range(200):
        share.note_asked(0.0)
        share.note_answer(0.0, "e", P99)
    assert share.most_seconds(0.0, 0.001) is not None
    share.note_begin(0.0, 10.0)
    assert share.most_seconds(0.0, 0.001) is None
    share.note_work(0.0, 0.1)
    assert share.most_seconds(0.0, 0.001) is not None  # no request was slow
    share.note_begin(0.0, 1000.0)  # which costs none of that time
    assert share.most_seconds(590.0, 0.001) == LONG_SECONDS


@pytest.mark.parametrize("wanting", [0, 1, 3])
def test_gateways_with_bulk_requests_share_the_time(wanting: int) -> None:
    share = BulkShare()
    reports = [GatewayReport(True, P99, wants=True, rate=100.0) for _ in range(wanting)]
    reports += [GatewayReport(True, P99, rate=100.0)]
    hear(share, 0.0, *reports)
    assert share.most_seconds(0.0, P99) is not None
    share.note_begin(0.0, P99)
    pause = (P99 / 0.006 - 0.5) * (wanting + 1)
    for now, may_begin in ((0.98 * pause, False), (1.02 * pause, True)):
        hear(share, now, *reports)
        assert (share.most_seconds(now, P99) is not None) == may_begin


@runs_on(SteppedLoop)
async def test_a_batcher_tells_how_busy_interactive_batches_keep_a_triton() -> None:
    async with world_of(Setting(CPU)) as world:
        (batcher,), now = world.bulk, world.loop.time()
        assert batcher.share.report(now).busy == {}  # asked by another gateway
        address = batcher.replicas[0].address
        expected = batcher.cost.seconds_on(address, 128, 1)
        await batcher.submit(encoded([128]), "e", now + 60).future
        busy = dict(batcher.share.report(world.loop.time()).busy)
        assert busy == pytest.approx({address: expected}, rel=0.05)


def test_callers_that_are_gone_keep_no_bulk_batch_whatever_is_owed() -> None:
    share, quiet = BulkShare(), GatewayReport(spared=False)
    hear(share, 0.0, GatewayReport(True, P99, rate=100.0))
    assert share.most_seconds(0.0, P99) is not None
    share.note_begin(0.0, 10.0)
    assert share.most_seconds(0.0, P99) is None
    hear(share, 0.01, quiet)
    assert share.most_seconds(0.01, P99) is None  # it has just looked
    assert share.most_seconds(0.03, P99) == LONG_SECONDS


@pytest.mark.parametrize("idle", [1.0, 1300.0])
def test_a_batch_is_paid_for_however_long_there_was_none(idle: float) -> None:
    share, spared = BulkShare(), GatewayReport(True, P99, rate=100.0)
    for now in (0.0, idle):
        hear(share, now, spared)
        assert share.most_seconds(now, 0.001) is not None
    share.note_begin(idle, 10.0)
    assert share.most_seconds(idle, 0.001) is None


def test_each_triton_has_time_of_its_own() -> None:
    share, spared = BulkShare(), GatewayReport(True, P99, rate=100.0)
    hear(share, 0.0, spared)
    for triton in "ab":
        assert share.most_seconds(0.0, P99, triton) is not None
        share.note_begin(0.0, P99, triton)
        assert share.most_seconds(0.0, P99, triton) is None


@runs_on(SteppedLoop)
async def test_a_triton_whose_time_is_spent_does_not_keep_another_ones() -> None:
    async with world_of(Setting(CPU, tritons=3)) as world:
        (batcher,), now = world.bulk, world.loop.time()
        hear(batcher.share, now, GatewayReport(True, P99, rate=100.0))
        first, second = batcher.replicas[2].address, batcher.replicas[1].address
        assert batcher.share.most_seconds(now, P99, first) is not None
        batcher.share.note_begin(now, 1.0, first)
        bulk = batcher.submit(encoded([128]), "b", now + 60, bulk=True)
        await _turns()
        assert [each.address for each in batcher.replicas if each.load.bulk] == [second]
        await bulk.future


def test_how_busy_tritons_are_is_what_interactive_batches_took_lately() -> None:
    share = BulkShare()
    for step in range(1000):
        share.note_work(0.01 * step, 0.004, "a")
        share.note_work(0.01 * step, 0.001, "b")
    assert share.report(10.0).busy == pytest.approx({"a": 0.4, "b": 0.1}, rel=0.05)
    assert share.report(15.0).busy["a"] < 0.01
    assert share.report(80.0).busy == {}


def test_where_nobody_has_callers_long_batches_begin_one_after_the_other() -> None:
    share = BulkShare()
    for _ in range(100):
        hear(share, 0.0, GatewayReport(spared=False, wants=True), GatewayReport(spared=False))
        assert share.most_seconds(0.0, 0.001) == LONG_SECONDS
        share.note_begin(0.0, LONG_SECONDS)


@pytest.mark.parametrize("heard", [False, True])
def test_a_gateway_that_says_nothing_counts_as_one_with_callers(heard: bool) -> None:
    """It was never heard, or for long."""
    share, quiet = BulkShare(), GatewayReport(spared=False)
    share.gateways = 3
    if heard:
        share.hear(0.0, "two", quiet)
    share.hear(3.0, "one", quiet)
    assert share.most_seconds(3.0, 0.001) is None  # it is waited for
    assert share.most_seconds(3.4, 0.001) == LONG_SECONDS
    share.note_begin(3.4, LONG_SECONDS)
    assert share.most_seconds(3.4, 0.001) is None
    share.hear(3.5, "two", quiet)
    assert share.most_seconds(3.5, 0.001) == LONG_SECONDS
    share.forget(["one"])
    assert share.most_seconds(3.5, 0.001) is None


def test_callers_of_its_own_count_as_those_of_others() -> None:
    share = BulkShare()
    hear(share, 0.0, GatewayReport(spared=False))
    assert share.report(0.0) == GatewayReport(spared=False)
    for _ in range(200):
        share.note_asked(0.0)
        share.note_answer(0.0, "e", P99)
    report = share.report(0.0)
    assert report.rate == pytest.approx(200 / 2)
    assert report.spared
    assert report.p99 == pytest.approx(P99, rel=0.3)
    assert share.most_seconds(0.0, 0.001) == LONG_SECONDS
    share.note_work(0.0, 0.5)
    assert share.most_seconds(0.0, 0.001) == 0.6 * (report.p99 or 0.0)
    assert share.report(0.5).wants
    assert not share.report(1.5).wants
    later = share.report(61.0)
    assert (later.spared, later.p99) == (False, None)


def test_a_p99_of_a_few_requests_is_not_believed_if_it_is_long() -> None:
    share = BulkShare()
    share.note_asked(0.0)
    share.note_answer(0.0, "e", 3.0)  # the first one, to a cold model
    assert share.report(0.0).p99 == LONG_SECONDS
    for number in range(400):
        share.note_answer(0.0, "e", 3.0 if number < 1 else P99)
    assert 0.5 * P99 < (share.report(0.0).p99 or 0.0) < 1.5 * P99


@pytest.mark.parametrize(
    ("rate", "time"),
    [(0.02, 1 / 1.2 + 0.0025), (0.1, 1 / 6 + 0.0025), (0.2, 1 / 48 + 0.0025), (10.0, 0.0025)],
)
def test_one_more_request_a_minute_may_be_delayed_if_they_are_rare(
    rate: float, time: float
) -> None:
    share, spared = BulkShare(), GatewayReport(True, 0.001, rate=rate)
    hear(share, 0.0, spared)
    assert share.most_seconds(0.0, 0.001) is not None
    for _ in range(100):
        share.note_begin(0.0, LONG_SECONDS)
    pause = min(600.5, 100 * LONG_SECONDS / time) - 0.5
    for now, may_begin in ((0.98 * pause, False), (1.02 * pause, True)):
        hear(share, now, spared)
        assert (share.most_seconds(now, 0.001) is not None) == may_begin


def test_callers_that_come_after_a_quiet_time_are_told_of() -> None:
    share, told = BulkShare(), []
    share.tell = lambda: told.append(True)
    for now in (0.0, 1.0, 50.0, 111.0, 112.0):
        share.note_asked(now)
    assert len(told) == 2


def test_what_is_owed_is_paid_in_ten_minutes_although_callers_come() -> None:
    share = BulkShare()
    for _ in range(100):
        share.note_answer(0.0, "e", 1.0)
    for _ in range(50):
        share.note_answer(0.0, "e", 10.0, Delay(0.0, 9.5))
    may_begin = []
    for minute in range(11):
        share.note_work(60.0 * minute, 1.0)
        share.note_answer(60.0 * minute, "e", 1.0)
        may_begin.append(share.most_seconds(60.0 * minute, math.inf) is not None)
    assert may_begin == sorted(may_begin)
    assert may_begin.count(True) in range(1, 3)


@given(st.floats(1e-3, LONG_SECONDS / 2))
def test_a_batch_that_is_short_may_begin_whatever_is_owed(p99: float) -> None:
    short = p99 / 10
    share = BulkShare(short)
    assert share.most_seconds(0.0, 1.0) == max(short, LONG_SECONDS)  # nobody is to be spared
    share.note_work(0.0, 0.5)
    share.note_answer(0.0, "e", p99)
    share.note_answer(0.0, "slow", 10 * p99)  # the faster endpoint decides
    assert share.most_seconds(0.0, 2 * short) == pytest.approx(0.55 * p99, rel=0.02)
    for _ in range(50):
        share.note_answer(0.0, "slow", 20 * p99, Delay(0.0, 15 * p99))
    assert share.most_seconds(0.0, short / 2) == short
    assert share.most_seconds(0.0, 2 * short) is None  # and a longer one may not
    assert share.most_seconds(100.0, 1.0) == max(short, LONG_SECONDS)  # nobody asked for a minute


@pytest.mark.parametrize(("asked", "may_begin"), [(1, True), (1000, False)])
def test_a_lone_gateway_s_callers_may_be_slow_once_a_minute_if_they_are_rare(
    asked: int, may_begin: bool
) -> None:
    share = BulkShare()
    share.jobs = 1
    for seconds in [1.0] * 100 + [10.0] * 3:
        share.note_answer(0.0, "e", seconds, Delay(0.0, seconds - 1.0))
    begun = []
    for now in range(300):
        share.note_work(now, 1.0)
        if now % 30 == 0:
            share.note_answer(now, "e", 1.0)
        for _ in range(asked if asked > 1 or now % 30 == 0 else 0):
            share.note_asked(now)
        begun.append(share.most_seconds(now, math.inf) is not None)
    assert begun[-1] == may_begin
    assert not begun[0]


def test_the_estimate_of_a_p99_is_near_it_whatever_bulk_batches_delay() -> None:
    share, draw = BulkShare(), random.Random(1)
    for _ in range(20_000):
        seconds, delay = draw.expovariate(1.0), None
        if draw.random() < 0.5:
            delay = Delay(0.0, draw.uniform(0.0, 3.0))
            seconds += delay.until
        share.note_answer(0.0, "e", seconds, delay)
    share.note_work(0.0, 0.5)
    for _ in range(1100):  # what is owed is paid, and the estimate falls by so much
        share.note_answer(0.0, "e", 1e-3)
    most = share.most_seconds(0.0, 1.0)
    assert most is not None
    assert 3.7 < most / 0.55 * 1.01 ** (1100 / 99) < 5.5  # 4.6


def test_what_delays_a_request_lasts_until_the_batch_has_ended_and_nobody_waits() -> None:
    share = BulkShare()
    assert share.note_arrival(0.0, "p", None, waits=True) is None  # for other requests
    share.note_begin(1.0, 0.5)
    delay = share.note_arrival(1.25, "p", 1.5, waits=True)
    assert delay == Delay(1.25, 1.5)
    assert share.note_arrival(1.3, "another", 1.5, waits=False) is None
    share.note_end(2.0)
    assert share.note_arrival(2.0, "p", None, waits=True) is delay
    assert delay == Delay(1.25, 2.0)
    assert share.note_arrival(3.0, "p", None, waits=False) is None
    share.note_begin(4.0, 0.5)
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


def test_the_more_are_slow_the_more_tritons_stay_free() -> None:
    share = BulkShare()
    assert [share.most_tritons(0.0, count) for count in (1, 2, 8)] == [1, 1, 7]
    share.note_answer(0.0, "e", 0.5)
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
        (Setting(ACCELERATOR, gateways=2, spread=(1.0, 0.0), apart=True), 0.5),
        (Setting(ACCELERATOR, gateways=3, spread=(0.0, 3.0, 1.0), apart=True, tritons=2), 0.5),
    ],
    ids=[
        "one Triton",
        "one, nearly full",
        "three, another package",
        "accelerator",
        "two gateways",
        "all callers at one of two",
        "uneven callers, two Tritons",
    ],
)
def test_the_p99_of_interactive_calls_stays_within_a_tenth(setting: Setting, load: float) -> None:
    # Behind several gateways a batch more or less moves the p99 of so few calls by as much.
    seeds = (1,) if setting.gateways == 1 else (1, 2, 3)
    waits: dict[bool, list[float]] = {False: [], True: []}
    texts = 0
    for bulk in waits:
        for seed in seeds:
            found = beside(setting, load, bulk=bulk, calls=6000, seed=seed)
            waits[bulk] += found.waits
            texts += found.bulk_texts
    alone, beside_bulk = (Outcome(each).p99 for each in waits.values())
    assert beside_bulk < 1.1 * alone
    assert texts > 0


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
