"""Costs: a measured table is believed, the rest follows from it, and answers correct it."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.loading import CostPoint
from gateway.batching.cost_model import CostModel, JointCosts, batch_sizes

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


def test_points_of_other_shapes_are_passed_over() -> None:
    cost = CostModel(BUCKETS, 8)
    before = cost.seconds(64, 8)
    cost.seed([CostPoint(bucket=48, batch=8, milliseconds=9), *points(64, *[5.0] * 6)[4:]])
    assert cost.seconds(64, 8) == before


def test_a_single_pause_does_not_move_a_known_cost_far() -> None:
    cost = CostModel(BUCKETS, 8)
    cost.seed(points(64, 1, 2, 4, 8, 16, 32))
    cost.observe(64, 8, 600.0)
    assert cost.seconds(64, 8) < 0.008 * 2


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.3, 2.0])
def test_an_engine_that_takes_longer_for_all_keeps_its_best_size(factor: float) -> None:
    cost = CostModel(BUCKETS, 32)
    for bucket in BUCKETS:  # a batch saves nothing
        cost.seed(points(bucket, *(bucket * size for size in batch_sizes(32))))
    assert [cost.best_rows(bucket) for bucket in BUCKETS] == [1, 1, 1]
    for turn in range(200):
        bucket = BUCKETS[turn % 3]
        rows = cost.best_rows(bucket)
        assert rows == 1
        cost.observe(bucket, rows, factor * 0.001 * bucket * rows)
    for size in batch_sizes(32):
        assert cost.seconds(64, size) == pytest.approx(factor * 0.064 * size, rel=0.1)


def test_a_shape_that_alone_was_measured_wrong_is_found_out_beside_others() -> None:
    cost = CostModel(BUCKETS, 32)
    cost.seed(points(64, 4, 8, 14, 26, 60, 130))
    for turn in range(1000):
        size = (1, 8)[turn % 2]
        cost.observe(64, size, {1: 0.004, 8: 0.052}[size])
    assert cost.seconds(64, 1) == pytest.approx(0.004, rel=0.05)
    assert cost.seconds(64, 8) == pytest.approx(0.052, rel=0.05)


def batches(paces: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[int, int, float]]]:
    """Buckets, rows, and seconds as multiples of what is assumed at first."""
    rows = st.integers(min_value=1, max_value=32)
    return st.lists(st.tuples(st.sampled_from(BUCKETS), rows, paces), max_size=60)


def usual(bucket: int, rows: int) -> float:
    """What is assumed before anything is known."""
    return CostModel(BUCKETS, 32).seconds(bucket, rows)


@pytest.mark.parametrize("factor", [0.1, 2.0, 5.0])
def test_an_engine_that_changes_its_pace_does_so_for_unseen_buckets_too(factor: float) -> None:
    cost = CostModel(BUCKETS, 32)
    for pace in (1.0, factor):
        for turn in range(600):
            bucket, size = BUCKETS[turn % 2], batch_sizes(32)[turn % 6]
            cost.observe(bucket, size, pace * usual(bucket, size))
    for rows in (1, 6, 32):
        assert cost.seconds(256, rows) == pytest.approx(factor * usual(256, rows), rel=0.01)


def test_what_nobody_measured_follows_from_all_that_was_measured() -> None:
    cost = CostModel(BUCKETS, 32)
    pauses = {(16, 32): 50.0}  # the last point but for the order of the table
    cost.seed(
        CostPoint(
            bucket=bucket,
            batch=size,
            milliseconds=3000 * usual(bucket, size) * pauses.get((bucket, size), 1.0),
        )
        for bucket in (64, 16)
        for size in batch_sizes(32)
    )
    assert cost.seconds(256, 8) == pytest.approx(3 * usual(256, 8))


@given(batches(st.sampled_from((0.5, 1.0, 2.0))))
def test_no_cost_lies_far_outside_of_what_was_seen(seen: list[tuple[int, int, float]]) -> None:
    cost = CostModel(BUCKETS, 32)
    for bucket, rows, pace in seen:
        cost.observe(bucket, rows, pace * usual(bucket, rows))
    paces = [1.0, *(pace for _, _, pace in seen)]
    for bucket in BUCKETS:
        assert 1 <= cost.best_rows(bucket) <= 32
        # A point that is not seen moves with the pace of those that are.
        spread = 1.001 * max(paces) / min(paces)
        for rows in range(1, 33):
            pace = cost.seconds(bucket, rows) / usual(bucket, rows)
            assert min(paces) / spread <= pace <= max(paces) * spread


@given(
    batches(st.floats(1e-4, 1e5)),
    st.sampled_from(BUCKETS),
    st.sampled_from(batch_sizes(32)),
    st.floats(1e-3, 10),
)
def test_whatever_was_learnt_before_the_truth_is_learnt_by_a_hundred_batches(
    seen: list[tuple[int, int, float]], bucket: int, rows: int, truth: float
) -> None:
    cost = CostModel(BUCKETS, 32)
    for before, size, pace in seen:
        cost.observe(before, size, pace * usual(before, size))
    for _ in range(100):
        cost.observe(bucket, rows, truth)
    assert cost.seconds(bucket, rows) == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "took"), [(0, 1.0), (-1, 1.0), (33, 1.0), (8, 0.0), (8, -1.0), (8, inf), (8, nan)]
)
def test_what_can_be_no_batch_teaches_nothing(rows: int, took: float) -> None:
    cost = CostModel(BUCKETS, 32)
    cost.observe(64, rows, took)
    assert [cost.seconds(bucket, 8) for bucket in BUCKETS] == [usual(b, 8) for b in BUCKETS]


def joint(**milliseconds: float) -> JointCosts:
    """A package on some Tritons, each with one engine that takes so long for a batch of 8 x 64."""
    costs = JointCosts(BUCKETS, 32)
    for triton, each in milliseconds.items():
        costs.seed(triton, (CostPoint(bucket=64, batch=8, milliseconds=each),))
    costs.serve(dict.fromkeys(milliseconds, 1))
    return costs


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.integers(1, 4)), min_size=1, max_size=4))
def test_engines_of_different_speed_get_through_a_queue_as_so_many_of_the_joint_cost(
    tritons: list[tuple[float, int]],
) -> None:
    costs = joint(**{str(number): each for number, (each, _) in enumerate(tritons)})
    costs.serve({str(number): engines for number, (_, engines) in enumerate(tritons)})
    batches_a_second = sum(engines * 1000 / each for each, engines in tritons)
    engines = sum(count for _, count in tritons)
    assert engines / costs.seconds(64, 8) == pytest.approx(batches_a_second)


def test_what_one_triton_teaches_says_nothing_of_another() -> None:
    costs = joint(fast=10, slow=40)
    for _ in range(60):
        costs.observe("slow", 64, 8, 0.2)
    assert costs.seconds_on("fast", 64, 8) == pytest.approx(0.01)
    assert costs.seconds_on("slow", 64, 8) == pytest.approx(0.2, rel=0.05)


def test_the_same_measurement_is_taken_once_and_another_one_anew() -> None:
    costs = joint(one=10, other=40)
    costs.observe("one", 64, 8, 0.02)
    learnt = costs.seconds_on("one", 64, 8)
    costs.seed("one", (CostPoint(bucket=64, batch=8, milliseconds=10),))
    assert costs.seconds_on("one", 64, 8) == learnt > 0.01
    costs.seed("one", (CostPoint(bucket=64, batch=8, milliseconds=30),))
    assert costs.seconds_on("one", 64, 8) == pytest.approx(0.03)


def test_tritons_that_do_not_serve_are_not_counted_while_others_do() -> None:
    costs = joint(fast=10, slow=40)
    costs.serve({"slow": 1})
    assert costs.seconds(64, 8) == pytest.approx(0.04)
    assert costs.row_seconds(64) == pytest.approx(costs.seconds(64, 32) / 32, rel=0.05)
    costs.serve({})
    assert costs.seconds(64, 8) == pytest.approx(0.016)
    costs.serve({"fast": 1, "slow": 1})
    assert costs.seconds(64, 8) == pytest.approx(0.016)


def test_a_triton_of_which_nothing_is_known_counts_like_the_others() -> None:
    costs = joint(fast=10, slow=40)
    costs.serve({"fast": 1, "slow": 1, "new": 1})
    assert costs.seconds(64, 8) == costs.seconds_on("new", 64, 8) == pytest.approx(0.016)
    assert JointCosts(BUCKETS, 32).seconds_on("new", 64, 8) == usual(64, 8)


def test_a_triton_that_left_is_forgotten() -> None:
    costs = joint(stays=10, goes=40)
    costs.keep(["stays"])
    assert costs.seconds(64, 8) == pytest.approx(0.01)
    costs.seed("goes", (CostPoint(bucket=64, batch=8, milliseconds=40),))
    assert costs.seconds(64, 8) == pytest.approx(0.016)


def test_rows_that_an_engine_fills_up_to_a_bucket_cost_what_the_bucket_costs() -> None:
    cost = CostModel((16,), 24, (1, 4, 24))
    assert cost.seconds(16, 2) == cost.seconds(16, 4) < cost.seconds(16, 5) == cost.seconds(16, 24)
    cost.seed([CostPoint(bucket=16, batch=4, milliseconds=3.0)])
    assert cost.seconds(16, 3) == pytest.approx(0.003)
    for _ in range(200):
        cost.observe(16, 7, 0.009)
    assert cost.seconds(16, 24) == pytest.approx(0.009, rel=0.05)
    assert cost.best_rows(16) in (1, 4, 24)
