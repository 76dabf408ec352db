"""Windows become columns: no count is lost, none is made up."""

import numpy as np
import pytest
import ui_board
from hypothesis import given
from hypothesis import strategies as st

from contracts.statistics import LATENCY_EDGES
from stats.ui.columns import Span, coarsen, per_second, quantiles, shares, span

START = 1_795_275_000


@given(st.integers(1, 10**10), st.sampled_from([10, 30, 60, 300, 900]), st.integers(1, 96))
def test_a_span_ends_with_the_column_that_holds_its_time(
    until: int, length: int, count: int
) -> None:
    over = span(until, length, count)
    assert over.start % length == 0
    assert over.column(until) == count - 1
    assert over.column(over.end) is None
    assert over.column(over.start - 1) is None


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
    for bucket, count in ui_board.sparse(np.array(values), LATENCY_EDGES).items():
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
    grid, edges = coarsen(np.array([counts]), upper, every)
    assert grid.sum() == sum(counts)
    assert grid.shape[1] == len(edges)
    assert edges[-1] == 7
