"""Windows become columns: no count is lost, none is made up."""

import numpy as np
import pytest
import ui_world
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.statistics import LATENCY_EDGES, Statistic
from contracts.windows import Cell
from stats.board import Series, Window
from stats.ui.columns import (
    Span,
    Table,
    added,
    attempts,
    coarse,
    per_second,
    quantiles,
    shares,
    span,
    tables,
)

START = 1_795_275_000


def series(*cells: Cell, seconds: int = 10, minutes: tuple[Window, ...] = ()) -> Series:
    windows = tuple(Window.of(cell, seconds) for cell in cells)
    return Series("sentiment", "3", "p", Arm.STABLE, windows, minutes)


def cell(start: int, **counts: object) -> Cell:
    return Cell("sentiment", "3", "p", Arm.STABLE, start, **counts)  # type: ignore[arg-type]


@given(st.integers(1, 10**10), st.sampled_from([10, 30, 60, 300, 900]), st.integers(1, 96))
def test_a_span_ends_with_the_column_that_holds_its_time(
    until: int, length: int, count: int
) -> None:
    over = span(until, length, count)
    assert over.start % length == 0
    assert over.column(until) == count - 1
    assert over.column(over.end) is None
    assert over.column(over.start - 1) is None


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 89), st.dictionaries(st.sampled_from([200, 429, 504]), st.integers(0, 9))
        ),
        max_size=20,
    )
)
def test_every_attempt_is_in_its_column_once(made: list[tuple[int, dict[int, int]]]) -> None:
    over = Span(START, 10, 90)
    cells = [cell(START + 10 * column, statuses=statuses) for column, statuses in made]
    every, failed = attempts([series(*cells)], over)
    assert every.sum() == sum(sum(statuses.values()) for _, statuses in made)
    assert failed.sum() == sum(statuses.get(504, 0) for _, statuses in made)
    if cells:
        table = tables([series(*cells)], over)["3", Arm.STABLE]
        assert (table.requests == every).all()
        assert (table.errors == failed).all()


def test_what_lies_outside_the_span_is_left_out() -> None:
    over = Span(START, 10, 6)
    found = tables([series(cell(START - 10, texts=5), cell(START + 60, texts=5))], over)
    assert found == {}


def test_minutes_serve_long_spans_and_the_windows_behind_them_complete_these() -> None:
    over = Span(START // 60 * 60, 60, 3)
    minute = Window.of(cell(over.start, statuses={200: 60}), 60)
    inside = cell(over.start + 10, statuses={200: 10})  # it is in the minute's sum already
    behind = cell(over.start + 60, statuses={200: 10})
    every, _ = attempts([series(inside, behind, minutes=(minute,))], over)
    assert every.tolist() == [60, 10, 0]


def test_a_table_holds_what_a_cell_says() -> None:
    over = Span(START, 10, 2)
    made = cell(
        START + 10,
        statuses={200: 7, 503: 1},
        texts=7,
        truncated=2,
        histograms={Statistic.TOKENS.value: {3: 7}, "unheard-of": {0: 1}},
        sums={"tokens": 21_000_000},
        labels={"positive": 7},
        label_scores={"positive": {19: 7}},
        feedback={"positive": {"positive": 3, "negative": 1}},
    )
    table = tables([series(made)], over)["3", Arm.STABLE]
    assert table.requests.tolist() == [0, 8]
    assert table.errors.tolist() == [0, 1]
    assert table.truncated.tolist() == [0, 2]
    assert table.histograms["tokens"][1, 3] == 7
    assert "unheard-of" not in table.histograms
    assert (table.right[1], table.judged[1]) == (3, 4)


def test_tables_add_up_and_stay_as_they_were() -> None:
    over = Span(START, 10, 2)
    one = tables([series(cell(START, statuses={200: 2}, labels={"a": 2}))], over)["3", Arm.STABLE]
    other = tables([series(cell(START, statuses={200: 3}, labels={"b": 3}))], over)["3", Arm.STABLE]
    both = added([one, other], 2)
    assert both.requests.tolist() == [5, 0]
    assert both.labels["a"].tolist() == [2, 0]
    assert both.labels["b"].tolist() == [3, 0]
    assert one.requests.tolist() == [2, 0]
    assert "b" not in one.labels
    assert added([], 2).requests.tolist() == [0, 0]


def test_a_rate_is_unknown_before_the_first_and_behind_the_newest_window() -> None:
    over = Span(START, 10, 5)
    counts = np.array([0, 100, 0, 50, 0])
    assert per_second(counts, over, START + 40) == [None, 10, 0, 5, None]


def test_an_arm_that_is_gone_ends_and_one_that_nobody_asks_is_at_zero() -> None:
    over = Span(START, 10, 4)
    counts = np.array([100, 0, 0, 0])
    assert per_second(counts, over, START + 40, ongoing=False) == [10, None, None, None]
    assert per_second(counts, over, START + 40) == [10, 0, 0, 0]


def test_half_a_column_is_a_rate_of_the_half() -> None:
    over = Span(START // 60 * 60, 60, 2)
    assert per_second(np.array([60, 30]), over, over.start + 90) == [1, 1]


def test_no_whole_is_no_share() -> None:
    assert shares(np.array([1, 0]), np.array([4, 0])) == [0.25, None]


@given(st.lists(st.floats(0.0002, 50), min_size=1, max_size=60), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_within_a_bucket_of_the_true_one(values: list[float], share: float) -> None:
    grid = np.zeros((2, len(LATENCY_EDGES.upper) + 1), dtype=np.int64)
    for bucket, count in ui_world.sparse(np.array(values), LATENCY_EDGES).items():
        grid[1, bucket] = count
    nothing, found = quantiles(grid, share, LATENCY_EDGES.upper)
    true = sorted(values)[max(0, int(np.ceil(share * len(values))) - 1)]
    assert nothing is None
    assert found == pytest.approx(true, rel=0.051)
    assert found is not None
    assert found >= true * 0.9999


@given(st.lists(st.integers(0, 9), min_size=8, max_size=8), st.integers(1, 9))
def test_coarser_buckets_hold_the_same_counts(counts: list[int], every: int) -> None:
    upper = [1.0, 2, 3, 4, 5, 6, 7]
    grid, edges = coarse(np.array([counts]), upper, every)
    assert grid.sum() == sum(counts)
    assert grid.shape[1] == len(edges)
    assert edges[-1] == 7


def test_a_table_begins_empty() -> None:
    assert Table(3).requests.tolist() == [0, 0, 0]
