"""Output shift is found beyond its tolerance, and looking often costs nothing of the promise."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.correlation import Floats
from measures.divergence import Shift, ShiftLimits, jensen_shannon

LIMITS = ShiftLimits()
counts = st.lists(st.integers(0, 200), min_size=3, max_size=3).map(lambda c: np.array(c) * 1.0)
shares = counts.filter(lambda c: c.sum() > 0).map(lambda c: c / c.sum())


@given(shares, shares)
def test_divergence_is_symmetric_and_between_nothing_and_ln_2(p: Floats, q: Floats) -> None:
    found = float(jensen_shannon(p, q))
    assert 0 <= found <= math.log(2) + 1e-12
    assert found == pytest.approx(float(jensen_shannon(q, p)))
    assert float(jensen_shannon(p, p)) == 0


def test_divergence_by_hand() -> None:
    # Against (1, 0) the middle of (0.5, 0.5) is (0.75, 0.25).
    by_hand = (math.log(1 / 0.75) + 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)) / 2
    assert float(jensen_shannon([1, 0], [0.5, 0.5])) == pytest.approx(by_hand)
    assert float(jensen_shannon([1, 0], [0, 1])) == pytest.approx(math.log(2))


def after(canary: list[float], stable: list[float], times: int = 1, rho: float = 0.0) -> Shift:
    shift = Shift.begin(len(canary))
    for _ in range(times):
        shift = shift.after(np.array(canary), np.array(stable), LIMITS, rho)
    return shift


def test_the_size_is_the_harmonic_half_of_both_arms() -> None:
    assert float(after([30, 20], [500, 450]).size()) == pytest.approx(50 * 950 / 1000)
    assert float(after([30, 20], [500, 450], times=4).size()) == pytest.approx(4 * 50 * 950 / 1000)
    correlated = float(after([30, 20], [500, 450], rho=0.01).size())
    assert correlated == pytest.approx(1 / ((1 + 49 * 0.01) / 50 + (1 + 949 * 0.01) / 950))


def test_no_data_neither_fails_nor_passes() -> None:
    for shift in (after([0, 0], [900, 100], 50), after([90, 10], [0, 0], 50), Shift.begin(2)):
        assert not shift.failed
        assert not shift.passed
        assert float(shift.distance()) == 0


def test_equal_arms_pass_and_a_collapse_fails() -> None:
    equal, collapsed = after([25, 25], [475, 475], 12), after([50, 0], [475, 475], 12)
    assert (bool(equal.failed), bool(equal.passed)) == (False, True)
    assert (bool(collapsed.failed), bool(collapsed.passed)) == (True, False)
    assert float(equal.distance()) == 0
    assert float(collapsed.distance()) == pytest.approx(
        math.sqrt(float(jensen_shannon([1, 0], [0.5, 0.5])) / math.log(2)), abs=0.01
    )


def test_a_mix_that_moves_for_both_arms_is_no_shift() -> None:
    # One after the other 90 % and 10 % of the first class, and the shares of the arms move with it:
    # pooled counts would say 49 % against 82 %.
    shift = Shift.begin(2)
    for canary, stable in [([45.0, 5.0], [855.0, 95.0]), ([50.0, 450.0], [10.0, 90.0])] * 20:
        shift = shift.after(np.array(canary), np.array(stable), LIMITS)
    assert not shift.failed
    assert float(shift.distance()) == 0


def test_it_looks_when_the_canary_has_grown_by_a_quarter() -> None:
    shift, looked = Shift.begin(2), []
    for _ in range(15):
        shift = shift.after(np.array([5.0, 5.0]), np.array([50.0, 50.0]), LIMITS)
        looked.append(int(shift.looks))
    # 50, 62.5, 78.1, 97.7, 122.1, 152.6
    assert looked == [0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 4, 4, 5, 5, 5]
    assert int(after([500, 500], [500, 500]).looks) == 14  # 50 x 1.25^13 = 909


@given(st.lists(st.tuples(counts, counts), max_size=8), st.floats(0, 0.05))
def test_a_state_survives_being_stored_bit_by_bit(
    seen: list[tuple[Floats, Floats]], rho: float
) -> None:
    shift = Shift.begin(3)
    for canary, stable in seen:
        shift = shift.after(canary, stable, LIMITS, rho)
    stored = json.loads(json.dumps(shift.to_json(), allow_nan=False))
    again = Shift.of_json(stored)
    assert again.to_json() == stored
    extra = np.array([30.0, 20, 10]), np.array([300.0, 200, 100])
    assert again.after(*extra, LIMITS).to_json() == shift.after(*extra, LIMITS).to_json()


def shifted(k: int, distance: float) -> tuple[Floats, Floats]:
    """Equal shares, and shares so far from them."""
    p, first = np.full(k, 1 / k), np.eye(k)[0]
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        found = float(jensen_shannon(p, (1 - middle) * p + middle * first))
        low, high = (middle, high) if math.sqrt(found / math.log(2)) < distance else (low, middle)
    return p, (1 - low) * p + low * first


@pytest.mark.parametrize(
    ("distance", "share", "most_failing", "least_passing"),
    [(0.0, 0.05, 0.005, 0.98), (0.0, 0.5, 0.005, 0.98), (0.1, 0.05, 0.02, 0.0)],
)
def test_the_promises_hold_while_one_looks_after_every_window(
    distance: float, share: float, most_failing: float, least_passing: float
) -> None:
    rng, rollouts = np.random.default_rng(8), 1000
    p, q = shifted(3, distance)
    shift, ever_passed = Shift.begin(3, (rollouts,)), np.zeros(rollouts, dtype=bool)
    n_c = round(1000 * share)
    for _ in range(60):
        canary = rng.multinomial(n_c, q, rollouts).astype(np.float64)
        stable = rng.multinomial(1000 - n_c, p, rollouts).astype(np.float64)
        shift = shift.after(canary, stable, LIMITS)
        ever_passed |= shift.passed
    assert shift.failed.mean() <= most_failing
    assert ever_passed.mean() >= least_passing
    if distance:
        assert ever_passed.mean() <= 0.05
