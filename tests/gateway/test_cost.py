"""Costs: a measured table is believed, the rest follows from it, and answers correct it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.loading import CostPoint
from gateway.cost import CostModel, batch_sizes

BUCKETS = (16, 64, 256)


def points(bucket: int, *milliseconds: float) -> list[CostPoint]:
    sizes = batch_sizes(32)
    return [
        CostPoint(bucket=bucket, batch=size, milliseconds=ms)
        for size, ms in zip(sizes, milliseconds, strict=True)
    ]


def test_sizes_are_powers_of_two_and_the_largest() -> None:
    assert batch_sizes(1) == (1,)
    assert batch_sizes(8) == (1, 2, 4, 8)
    assert batch_sizes(24) == (1, 2, 4, 8, 16, 24)


def test_a_measured_point_is_believed() -> None:
    cost = CostModel(BUCKETS, 32)
    cost.seed(points(64, 4, 8, 14, 26, 60, 130))
    assert cost.seconds(64, 8) == pytest.approx(0.026)
    assert cost.seconds(64, 6) == pytest.approx(0.020)  # between 14 and 26


def test_a_cpu_that_gains_nothing_beyond_eight_gets_batches_of_eight() -> None:
    cost = CostModel(BUCKETS, 32)
    cost.seed(points(64, 4, 7.5, 14, 26, 60, 130))
    assert cost.best_rows(64) == 8


def test_an_accelerator_with_a_fixed_cost_gets_full_batches() -> None:
    cost = CostModel(BUCKETS, 32)
    cost.seed(points(64, *(1 + 0.08 * size for size in batch_sizes(32))))
    assert cost.best_rows(64) == 32


def test_an_unmeasured_bucket_follows_from_a_measured_one() -> None:
    cost = CostModel(BUCKETS, 32)
    before = cost.seconds(256, 8)
    cost.seed(points(64, 400, 800, 1400, 2600, 6000, 13000))
    assert cost.seconds(256, 8) > 10 * before


def test_points_of_other_shapes_are_passed_over() -> None:
    cost = CostModel(BUCKETS, 8)
    before = cost.seconds(64, 8)
    cost.seed([CostPoint(bucket=48, batch=8, milliseconds=9), *points(64, *[5.0] * 6)[4:]])
    assert cost.seconds(64, 8) == before


def test_answers_correct_a_wrong_estimate() -> None:
    cost = CostModel(BUCKETS, 8)
    for _ in range(60):
        cost.observe(64, 8, 0.5)
    assert cost.seconds(64, 8) == pytest.approx(0.5, rel=0.05)


def test_a_single_pause_does_not_move_a_known_cost_far() -> None:
    cost = CostModel(BUCKETS, 8)
    cost.seed(points(64, 1, 2, 4, 8, 16, 32))
    cost.observe(64, 8, 600.0)
    assert cost.seconds(64, 8) < 0.008 * 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(BUCKETS),
            st.integers(min_value=-1, max_value=40),
            st.floats(min_value=-1, max_value=1e6, allow_nan=False),
        ),
        max_size=60,
    )
)
def test_whatever_is_observed_costs_stay_usable(seen: list[tuple[int, int, float]]) -> None:
    cost = CostModel(BUCKETS, 32)
    for bucket, rows, seconds in seen:
        cost.observe(bucket, rows, seconds)
    for bucket in BUCKETS:
        assert 1 <= cost.best_rows(bucket) <= 32
        assert all(0 < cost.seconds(bucket, rows) < float("inf") for rows in range(1, 33))
