"""What leaves next: by deadline, in full batches, fairly, and never with an engine idle."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.loading import CostPoint
from gateway.batching.cost_model import CostModel, batch_sizes
from gateway.batching.schedule import Schedule
from gateway.batching.waiting_rows import Batch, Row, Slots

BUCKETS = (16, 64, 256)
IDLE = Slots(idle=1, spare=1)
BUSY = Slots(idle=0, spare=1, free_at=10.0, running=0.1)
FULL = Slots(idle=0, spare=0, free_at=10.0, running=0.1)


def cpu_costs(best: int = 8, largest: int = 32) -> CostModel:
    """0.05 ms a padded token and 3 ms a batch, a quarter dearer beyond ``best`` rows."""
    cost = CostModel(BUCKETS, largest)
    cost.seed(
        CostPoint(
            bucket=bucket,
            batch=size,
            milliseconds=3 + 0.05 * bucket * size * (1 if size <= best else 1.25),
        )
        for bucket in BUCKETS
        for size in batch_sizes(largest)
    )
    return cost


def accelerator_costs(fixed: float = 1.0, a_token: float = 0.004) -> CostModel:
    """Milliseconds of a batch, and of each padded token of it."""
    cost = CostModel(BUCKETS, 32)
    cost.seed(
        CostPoint(bucket=bucket, batch=size, milliseconds=fixed + a_token * bucket * size)
        for bucket in BUCKETS
        for size in batch_sizes(32)
    )
    return cost


def row(
    bucket: int = 64,
    *,
    endpoint: str = "a",
    at: float = 0.0,
    deadline: float | None = None,
) -> Row:
    return Row(
        endpoint, (bucket, bucket), enqueued=at, deadline=at + 2.0 if deadline is None else deadline
    )


def schedule_of(*rows: Row, cost: CostModel | None = None) -> Schedule[Row]:
    schedule: Schedule[Row] = Schedule(cost or cpu_costs())
    for each in rows:
        schedule.push([each])
    return schedule


def taken(schedule: Schedule[Row], now: float = 0.0, slots: Slots = IDLE) -> Batch[Row]:
    choice = schedule.take(now, slots)
    assert isinstance(choice, Batch)
    return choice


def test_nothing_waits_nothing_leaves() -> None:
    assert schedule_of().take(0.0, IDLE) is None


def test_a_lone_row_leaves_at_once() -> None:
    alone = row()
    assert taken(schedule_of(alone)).rows == [alone]


def test_rows_wait_while_every_slot_is_taken() -> None:
    assert schedule_of(row()).take(0.0, FULL) is None


def test_a_batch_that_is_not_full_waits_until_just_before_an_engine_falls_free() -> None:
    schedule = schedule_of(row(at=9.0))
    wake = schedule.take(9.0, BUSY)
    assert wake == pytest.approx(10.0 - 0.01)
    assert isinstance(schedule.take(9.995, BUSY), Batch)


def test_a_full_batch_is_sent_ahead() -> None:
    schedule = schedule_of(*(row(at=9.0) for _ in range(9)))
    assert len(taken(schedule, 9.0, BUSY).rows) == 8
    assert schedule.rows == 1


def test_batches_are_as_large_as_the_engine_gains_by() -> None:
    assert len(taken(schedule_of(*(row() for _ in range(30)))).rows) == 8


def test_two_rows_do_not_share_one_engine_while_another_idles() -> None:
    schedule = schedule_of(row(), row())
    assert len(taken(schedule, slots=Slots(idle=2, spare=2)).rows) == 1
    assert len(taken(schedule, slots=Slots(idle=1, spare=2)).rows) == 1


def test_the_row_due_first_leaves_first_whenever_it_came() -> None:
    late, early = row(64, deadline=3.0), row(64, at=0.1, deadline=1.0)
    cost = cpu_costs()
    schedule = schedule_of(late, early, cost=cost)
    first = taken(schedule, 0.2, Slots(idle=2, spare=2)).rows
    assert first == [early]


@given(st.lists(st.sampled_from(BUCKETS), min_size=1, max_size=40), st.booleans())
def test_the_row_due_first_is_in_the_next_batch(buckets: list[int], fixed: bool) -> None:
    waiting = [row(bucket, at=number * 0.001) for number, bucket in enumerate(buckets)]
    schedule = schedule_of(*waiting, cost=accelerator_costs() if fixed else cpu_costs())
    assert waiting[0] in taken(schedule, 0.1).rows


@pytest.mark.parametrize(
    ("saved", "together"),
    [(0.0, 1), (0.1, 1), (0.25, 5), (0.5, 15), (0.6, 16), (0.9, 16)],
)
def test_the_less_a_batch_saves_the_fewer_rows_overtake_for_it(saved: float, together: int) -> None:
    # Sixteen rows wait; a batch takes as long as its rows alone, less what it saves.
    cost = CostModel((64,), 16)
    cost.seed(
        CostPoint(bucket=64, batch=size, milliseconds=1e5 * (saved + (1 - saved) * size))
        for size in batch_sizes(16)
    )
    waiting = [row(64, at=number * 0.001, deadline=1e6 + number) for number in range(16)]
    batch = taken(schedule_of(*waiting, cost=cost), 0.1)
    assert batch.rows == waiting[:together]


def test_a_batch_shrinks_to_what_its_first_row_has_time_for() -> None:
    # Eight rows of 64 take 12 ms, four 11, two 10.5.
    schedule = schedule_of(
        *(row(64, deadline=0.0107) for _ in range(8)), cost=accelerator_costs(fixed=10.0)
    )
    assert len(taken(schedule, 0.0).rows) == 2


def test_what_can_not_be_in_time_is_given_up_for_what_can() -> None:
    doomed, good = row(256, deadline=0.001), row(256, deadline=5.0)
    batch = taken(schedule_of(doomed, good))
    assert batch.expired == [doomed]
    assert batch.rows == [good]


def test_a_lone_row_is_tried_however_late() -> None:
    late = row(256, deadline=0.0)
    batch = taken(schedule_of(late), 1.0)
    assert batch.rows == [late]
    assert batch.expired == []


def test_shorter_rows_come_along_where_a_batch_of_their_own_costs_more() -> None:
    # A batch costs 5 ms, padding a row from 16 to 64 0.5 ms, padding four from 64 to 256 8 ms.
    schedule = schedule_of(
        *(row(64, at=0.0) for _ in range(4)),
        row(16, at=0.1),
        row(256, at=0.1),
        cost=accelerator_costs(fixed=5.0, a_token=0.01),
    )
    batch = taken(schedule, 0.1)
    assert batch.bucket == 64
    assert sorted(each.bucket for each in batch.rows) == [16, 64, 64, 64, 64]
    assert taken(schedule, 0.1).bucket == 256


def test_on_a_cpu_shorter_rows_are_not_padded_for_company() -> None:
    schedule = schedule_of(row(256, at=0.0), row(16, at=0.1))
    assert [each.bucket for each in taken(schedule, 0.1).rows] == [256]


@given(st.lists(st.sampled_from(BUCKETS), min_size=1, max_size=12), st.floats(5, 60))
def test_no_other_division_of_what_waits_is_done_sooner(buckets: list[int], fixed: float) -> None:
    cost = accelerator_costs(fixed=fixed, a_token=0.01)
    schedule = schedule_of(*(row(bucket) for bucket in buckets), cost=cost)
    took = 0.0
    while schedule.rows:
        batch = taken(schedule)
        took += cost.planned_seconds(batch.bucket, len(batch.rows))
    counts = sorted(buckets, reverse=True)
    assert (
        took
        <= min(
            sum(cost.planned_seconds(each[0], len(each)) for each in division if each)
            for cuts in itertools.product((False, True), repeat=len(BUCKETS) - 1)
            for division in [
                cut_at(counts, [b for b, here in zip(BUCKETS[1:], cuts, strict=True) if here])
            ]
            if all(len(each) <= cost.best_rows(each[0]) for each in division if each)
        )
        + 1e-9
    )


def cut_at(buckets: list[int], edges: list[int]) -> list[list[int]]:
    """Rows, the longest first, cut below each edge."""
    parts: list[list[int]] = [[]]
    for bucket in buckets:
        if parts[-1] and any(bucket < edge <= parts[-1][-1] for edge in edges):
            parts.append([])
        parts[-1].append(bucket)
    return parts


def test_a_busy_endpoint_and_a_quiet_one_share_the_engine() -> None:
    schedule = schedule_of(*(row(endpoint="busy") for _ in range(400)))
    for _ in range(10):
        taken(schedule)
    for _ in range(400):
        schedule.push([row(endpoint="quiet")])
    given = {"busy": 0.0, "quiet": 0.0}
    while sum(given.values()) < 1.0:
        batch = taken(schedule)
        given[batch.rows[0].endpoint] += cpu_costs().seconds(batch.bucket, len(batch.rows))
    assert given["quiet"] == pytest.approx(given["busy"], abs=0.1)


def test_a_quiet_endpoint_saves_up_no_claim() -> None:
    schedule = schedule_of(row(endpoint="quiet"))
    taken(schedule)
    for _ in range(400):
        schedule.push([row(endpoint="busy")])
    for _ in range(20):
        taken(schedule)
    for _ in range(400):
        schedule.push([row(endpoint="quiet")])
    order = [taken(schedule).rows[0].endpoint for _ in range(10)]
    assert 4 <= order.count("quiet") <= 6


def test_the_predicted_wait_of_an_endpoint_counts_others_up_to_its_own_share() -> None:
    schedule = schedule_of(*(row(endpoint="busy") for _ in range(100)))
    assert schedule.wait_seconds("busy") == pytest.approx(100 * cpu_costs().row_seconds(64))
    assert schedule.wait_seconds("quiet") == 0.0
    schedule.push([row(endpoint="quiet")])
    assert schedule.wait_seconds("quiet") == pytest.approx(2 * cpu_costs().row_seconds(64))


def test_a_row_that_nobody_waits_for_leaves_the_queue() -> None:
    gone, stays = row(), row(at=0.1)
    schedule = schedule_of(gone, stays)
    schedule.remove(gone)
    schedule.remove(gone)
    assert schedule.rows == 1
    assert taken(schedule, 0.1).rows == [stays]


rows = st.builds(
    row,
    st.sampled_from(BUCKETS),
    endpoint=st.sampled_from("abc"),
    at=st.floats(0, 1),
    deadline=st.floats(0.1, 3),
)


@given(st.lists(rows, min_size=1, max_size=60), st.integers(1, 4), st.data())
def test_every_row_leaves_exactly_once(
    queued: list[Row], engines: int, data: st.DataObject
) -> None:
    schedule = schedule_of(*queued)
    gone = data.draw(st.lists(st.sampled_from(queued), unique_by=id))
    for each in gone:
        schedule.remove(each)
    seen: list[Row] = list(gone)
    now = 1.0
    while schedule.rows:
        batch = taken(schedule, now, Slots(idle=engines, spare=1))
        assert all(each.bucket <= batch.bucket for each in batch.rows)
        assert len(batch.rows) <= 32
        assert batch.rows or batch.expired
        seen += [*batch.rows, *batch.expired]
        now += 0.01
    assert sorted(map(id, seen)) == sorted(map(id, queued))
    assert schedule.wait_seconds("a") == 0.0


@given(st.lists(rows, max_size=30))
def test_draining_leaves_nothing(queued: list[Row]) -> None:
    schedule = schedule_of(*queued)
    assert sorted(map(id, schedule.drain())) == sorted(map(id, queued))
    assert schedule.rows == 0


@dataclass
class Engine:
    """One engine in simulated time, which takes what the cost model says."""

    schedule: Schedule[Row]
    cost: CostModel
    now: float = 0.0
    ended: list[tuple[Row, float]] = field(default_factory=list)

    def run(self, arrivals: Iterator[Row], until: float) -> None:
        upcoming = next(arrivals)
        while self.now < until:
            while upcoming.enqueued <= self.now:
                self.schedule.push([upcoming])
                upcoming = next(arrivals)
            if self.schedule.rows == 0:
                self.now = upcoming.enqueued
                continue
            batch = taken(self.schedule, self.now)
            if batch.rows:
                self.now += self.cost.seconds(batch.bucket, len(batch.rows))
            self.ended += [(each, self.now) for each in batch.rows]


def test_at_four_fifths_of_capacity_no_length_waits_ten_times_as_long_as_the_rest() -> None:
    cost = cpu_costs()
    # Mostly 64 tokens, one in fifty 256: where fullness decides, these wait without end.
    mean = 0.98 * cost.row_seconds(64) + 0.02 * cost.row_seconds(256)

    def arrivals() -> Iterator[Row]:
        number, at = 0, 0.0
        while True:
            number += 1
            at += mean / 0.8
            yield row(256 if number % 50 == 0 else 64, at=at, deadline=at + 2.0)

    engine = Engine(Schedule(cost), cost)
    engine.run(arrivals(), until=60.0)
    waits = {
        bucket: sorted(end - each.enqueued for each, end in engine.ended if each.bucket == bucket)
        for bucket in (64, 256)
    }
    assert len(waits[256]) > 100
    p99 = {bucket: found[int(0.99 * len(found))] for bucket, found in waits.items()}
    assert p99[256] < 10 * p99[64]
    assert p99[256] < 0.3
