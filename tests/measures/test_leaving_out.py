"""What is left of the evidence without a group of callers and single windows."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.correlation import Floats
from measures.leaving_out import (
    BLOCK,
    BLOCK_EVENTS,
    GROUPS,
    LEAST_RATE,
    STALLING,
    LeftOut,
    expected_events,
)
from measures.proportions import (
    ALTERNATIVES,
    HarmTest,
    StableHistory,
    Tolerance,
    WindowCounts,
    restart_weight,
    weigh_unspent,
)

TESTS = 3  # the last one does not stall
ENOUGH = np.full(TESTS, 1.01 * BLOCK_EVENTS / BLOCK)  # events a window, so that blocks are short
NOT_ALONE = np.array(False)


def said(value: float) -> Floats:
    """Log e-values of one window, the same for each test and alternative."""
    return np.full((TESTS, ALTERNATIVES), value)


def after(values: list[float], of_groups: list[list[float]] | None = None) -> LeftOut:
    left = LeftOut.begin(TESTS)
    for at, value in enumerate(values):
        groups = of_groups[at] if of_groups else [value] * GROUPS
        left = left.after(said(value), np.stack([said(each) for each in groups]), at + 1, ENOUGH)
    return left


def mixture(values: list[float], left_out: tuple[int, ...] = ()) -> float:
    """The mixture over beginnings, without some windows."""
    found = 0.0
    for at, value in enumerate(values):
        found += restart_weight(at + 1)
        found *= 1.0 if at in left_out else float(np.exp(value))
    return found + weigh_unspent(len(values))


logs = st.floats(-3, 3)


@given(st.lists(logs, min_size=1, max_size=8))
def test_what_is_left_is_the_least_of_all_ways_to_leave_out_one_window(values: list[float]) -> None:
    e = after(values).e_value(len(values), NOT_ALONE)
    ways = [(), *((at,) for at in range(len(values)))]
    assert e[:STALLING] == pytest.approx(min(mixture(values, way) for way in ways), rel=1e-4)
    assert e[STALLING] == pytest.approx(mixture(values), rel=1e-4)


@given(st.lists(logs, min_size=2, max_size=6), st.lists(logs, min_size=1, max_size=6))
def test_each_block_of_windows_may_lose_one(first: list[float], second: list[float]) -> None:
    values = first + [0.0] * (BLOCK - len(first)) + second
    e = after(values).e_value(len(values), NOT_ALONE)
    ways = itertools.product((None, *range(BLOCK)), (None, *range(BLOCK, len(values))))
    least = min(mixture(values, tuple(at for at in way if at is not None)) for way in ways)
    assert e[0] == pytest.approx(least, rel=1e-4)


def test_a_block_goes_on_until_it_has_enough_of_the_canarys_requests() -> None:
    left, few = LeftOut.begin(TESTS), ENOUGH / 2
    values = [2.0, *[0.0] * (BLOCK + 5), 2.0, *[0.0] * BLOCK, 2.0]
    for at, value in enumerate(values):
        left = left.after(said(value), np.stack([said(value)] * GROUPS), at + 1, few)
    # Two of the three lie in the first block of twice as many windows.
    e = left.e_value(len(values), NOT_ALONE)
    ways = [mixture(values, (first, len(values) - 1)) for first in (0, BLOCK + 6)]
    assert e[0] == pytest.approx(min(ways), rel=1e-4)
    assert expected_events(np.array([100.0, 100.0]), np.array([0.0, 0.02])).tolist() == [
        100 * LEAST_RATE,
        2,
    ]


@given(st.lists(st.lists(logs, min_size=GROUPS, max_size=GROUPS), min_size=1, max_size=5))
def test_what_is_left_is_at_most_what_any_group_leaves(of_groups: list[list[float]]) -> None:
    values = [5.0] * len(of_groups)
    left = after(values, of_groups)
    e = left.e_value(len(values), NOT_ALONE)
    of_each = [mixture([window[group] for window in of_groups]) for group in range(GROUPS)]
    assert e[STALLING] == pytest.approx(min(*of_each, mixture(values)), rel=1e-4)
    alone = left.e_value(len(values), np.array(True))
    assert alone[STALLING] == pytest.approx(mixture(values), rel=1e-4)


def test_a_rollout_that_began_before_keeps_its_evidence_and_new_tests_get_their_weights() -> None:
    harm = HarmTest.begin((2,))
    seen = WindowCounts(*(np.array([float(x)] * 2) for x in (9, 100, 10, 1000)))
    harm = harm.after(seen, StableHistory(np.zeros(2), np.zeros(2)), Tolerance(0.0, 1.0))
    left = LeftOut.following(harm)
    assert left.e_value(1, NOT_ALONE) == pytest.approx(harm.e_value(), rel=1e-5)
    more = LeftOut(np.zeros((2 + GROUPS, TESTS, ALTERNATIVES)))
    joined = left.join(more, slice(2, None))
    assert (joined.log_a[:, :2] == left.log_a).all()
    assert (joined.log_a[:, 2:] == 0).all()
    again = joined.join(LeftOut(more.log_a + 1), slice(0, 1))
    assert (again.log_a[:, 0] == 1).all()
    assert (again.log_a[:, 1] == left.log_a[:, 1]).all()


@given(st.lists(st.floats(-300, 300), min_size=1, max_size=4))
def test_it_survives_being_stored_bit_by_bit(values: list[float]) -> None:
    left = after(values)
    again = LeftOut.of_json(json.loads(json.dumps(left.to_json())))
    assert (again.log_a == left.log_a).all()
    one = left.after(said(0.1), np.zeros((GROUPS, TESTS, ALTERNATIVES)), len(values) + 1, ENOUGH)
    other = again.after(said(0.1), np.zeros((GROUPS, TESTS, ALTERNATIVES)), len(values) + 1, ENOUGH)
    assert (one.log_a == other.log_a).all()


def test_a_text_that_it_did_not_write_is_refused() -> None:
    with pytest.raises(ValueError, match="base64"):
        LeftOut.of_json("no numbers!")
