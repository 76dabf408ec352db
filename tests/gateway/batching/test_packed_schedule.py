"""What leaves for a packed engine: at once, by deadline, as much as fits, and fairly."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.loading import CostPoint
from gateway.batching.packed_costs import MOST_TOKENS, TokenCosts
from gateway.batching.packed_schedule import PackedSchedule
from gateway.batching.waiting_rows import Batch, Row, Slots

IDLE = Slots(idle=1, spare=1)
BUSY = Slots(idle=0, spare=1, free_at=10.0, running=0.1)
FULL = Slots(idle=0, spare=0, free_at=10.0, running=0.1)
GPU = (0.7, 0.1)  # milliseconds of a run, microseconds of a token
CPU = (1.0, 40.0)


def schedule_of(
    *rows: Row, costs: tuple[float, float] = GPU, max_rows: int = 2048
) -> PackedSchedule[Row]:
    fixed, a_token = costs
    tokens = TokenCosts(max_rows)
    tokens.seed(
        "t",
        tuple(
            CostPoint(bucket=size, batch=1, milliseconds=fixed + a_token * size / 1000)
            for size in (64, 1024, 16384)
        ),
    )
    tokens.serve({"t": 1})
    schedule: PackedSchedule[Row] = PackedSchedule(tokens, max_rows)
    for each in rows:
        schedule.push([each])
    return schedule


def row(
    tokens: int = 50, *, endpoint: str = "a", at: float = 0.0, deadline: float | None = None
) -> Row:
    due = at + 2.0 if deadline is None else deadline
    return Row(endpoint, (tokens, tokens), enqueued=at, deadline=due)


def taken(schedule: PackedSchedule[Row], now: float = 0.0, slots: Slots = IDLE) -> Batch[Row]:
    choice = schedule.take(now, slots)
    assert isinstance(choice, Batch)
    return choice


def test_a_lone_row_leaves_at_once() -> None:
    alone = row()
    batch = taken(schedule_of(alone))
    assert (batch.rows, batch.shape) == ([alone], (50, 1))


def test_rows_of_any_lengths_leave_together() -> None:
    rows = [row(tokens) for tokens in (3, 500, 17, 256)]
    batch = taken(schedule_of(*rows))
    assert (batch.rows, batch.shape) == (rows, (776, 1))


def test_one_row_more_waits_for_an_answer_while_a_message_is_on_its_way() -> None:
    assert schedule_of(row()).take(0.0, BUSY) is None


def test_what_is_worth_a_message_is_sent_behind_the_one_that_is_on_its_way() -> None:
    assert len(taken(schedule_of(*(row() for _ in range(100))), slots=BUSY).rows) == 100


def test_on_an_engine_that_takes_long_a_single_row_is_worth_a_message() -> None:
    assert len(taken(schedule_of(row(), costs=CPU), slots=BUSY).rows) == 1


def test_rows_wait_here_while_two_messages_are_on_their_way() -> None:
    assert schedule_of(*(row() for _ in range(1000))).take(0.0, FULL) is None


def test_a_batch_holds_no_more_tokens_than_the_engine_gains_by_and_no_more_rows_than_allowed() -> (
    None
):
    schedule = schedule_of(*(row(100) for _ in range(400)))
    assert taken(schedule).shape[0] == MOST_TOKENS // 100 * 100
    assert len(taken(schedule_of(*(row() for _ in range(20)), max_rows=8)).rows) == 8


def test_a_row_longer_than_a_batch_leaves_alone() -> None:
    schedule = schedule_of(row(MOST_TOKENS + 1), row(5))
    assert [len(taken(schedule).rows), len(taken(schedule).rows)] == [1, 1]


def test_few_rows_are_not_spread_over_engines_that_idle_and_many_are() -> None:
    idle = Slots(idle=4, spare=4)
    assert len(taken(schedule_of(row(), row()), slots=idle).rows) == 2
    assert len(taken(schedule_of(*(row() for _ in range(800))), slots=idle).rows) == 200


def test_the_row_due_first_leaves_first_whenever_it_came() -> None:
    late, early = row(deadline=3.0), row(at=0.1, deadline=1.0)
    assert taken(schedule_of(late, early, max_rows=1), 0.2).rows == [early]


def test_a_row_that_is_nearly_due_leaves_with_few_others() -> None:
    schedule = schedule_of(*(row(100) for _ in range(20)), row(100, deadline=0.010), costs=CPU)
    batch = taken(schedule)
    assert batch.rows[0].deadline == 0.010
    assert 0.001 + batch.shape[0] * 40e-6 <= 0.010


def test_rows_that_are_late_are_refused_and_never_sent() -> None:
    late, good = row(deadline=0.0001), row()
    batch = taken(schedule_of(late, good))
    assert (batch.rows, batch.expired) == ([good], [late])


def test_a_part_of_a_batch_has_the_tokens_of_its_rows() -> None:
    rows = [row(10), row(20)]
    assert taken(schedule_of(*rows)).part(rows[1:]).shape == (20, 1)


calls = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.integers(1, 600), min_size=1, max_size=16)),
    min_size=1,
    max_size=40,
)


@given(calls, st.sampled_from([GPU, CPU]), st.sampled_from([1, 7, 2048]))
def test_every_row_leaves_once_and_no_batch_is_too_large(
    asked: list[tuple[str, list[int]]], costs: tuple[float, float], most: int
) -> None:
    schedule = schedule_of(costs=costs, max_rows=most)
    rows = [[row(tokens, endpoint=name) for tokens in sizes] for name, sizes in asked]
    for each in rows:
        schedule.push(each)
    left: list[Row] = []
    while schedule.rows:
        batch = taken(schedule)
        assert 1 <= len(batch.rows) <= most
        assert len(batch.rows) == 1 or batch.shape[0] <= MOST_TOKENS
        assert not batch.expired
        left += batch.rows
    assert sorted(map(id, left)) == sorted(id(one) for each in rows for one in each)
    assert schedule.wait_seconds("a") == pytest.approx(0.0, abs=1e-9)


@given(st.lists(st.integers(1, 256), min_size=5, max_size=30), st.integers(1, 20))
def test_two_endpoints_get_equal_shares_of_tokens_however_many_rows_one_of_them_has(
    sizes: list[int], times: int
) -> None:
    schedule = schedule_of(max_rows=100_000)
    mean = sum(sizes) / len(sizes)
    count = int(4 * MOST_TOKENS / mean / len(sizes)) + 1
    schedule.push([row(size, endpoint="many") for _ in range(count * times) for size in sizes])
    schedule.push([row(size, endpoint="few") for _ in range(count) for size in sizes])
    given_to: Counter[str] = Counter()
    for _ in range(4):
        for each in taken(schedule).rows:
            given_to[each.endpoint] += each.tokens
        assert abs(given_to["many"] - given_to["few"]) <= MOST_TOKENS / 2 + 2 * max(sizes)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=20))
def test_rows_that_are_taken_out_never_leave(sizes: list[int]) -> None:
    rows = [row(10 * size) for size in sizes]
    schedule = schedule_of(*rows)
    for each in rows[::2]:
        schedule.remove(each)
        schedule.remove(each)
    kept = rows[1::2]
    assert schedule.rows == len(kept)
    assert sorted(map(id, schedule.drain())) == sorted(map(id, kept))
