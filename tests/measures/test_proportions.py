"""The tests of two proportions: what they promise, what their state survives, what they catch."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures import proportions
from measures.correlation import Floats
from measures.proportions import (
    HarmTest,
    NonInferiorityTest,
    StableHistory,
    Tolerance,
    WindowCounts,
)

NONE = StableHistory(np.zeros(()), np.zeros(()))
EQUAL = Tolerance(0.0, 1.0)


def window(e_c: float, n_c: float, e_s: float, n_s: float) -> WindowCounts:
    return WindowCounts(*(np.array(float(x)) for x in (e_c, n_c, e_s, n_s)))


@st.composite
def windows(draw: st.DrawFn) -> WindowCounts:
    n_c, n_s = draw(st.integers(0, 500)), draw(st.integers(0, 5000))
    return window(draw(st.integers(0, n_c)), n_c, draw(st.integers(0, n_s)), n_s)


def chances(events: Floats, n: int, rates: tuple[float, ...]) -> Floats:
    """Of a path of windows, ``events`` ``[windows, paths]``, with a rate for each window."""
    p = np.array(rates)[:, None]
    ways = np.array([math.comb(n, e) for e in range(n + 1)])[events.astype(int)]
    product: Floats = (ways * p**events * (1 - p) ** (n - events)).prod(axis=0)
    return product


@pytest.mark.parametrize("rates", [(0.05, 0.6, 0.2), (0.5, 0.01, 0.9), (0.3, 0.3, 0.3)])
@pytest.mark.parametrize("line", [(0.0, 1.0), (0.05, 1.0), (0.0, 1.25)])
def test_the_mean_e_value_on_the_line_is_at_most_one_however_the_rates_move(
    rates: tuple[float, ...], line: tuple[float, float]
) -> None:
    # All outcomes of three windows of 4 canary and 3 stable requests, with rates of their own each,
    # and with what is learnt and begun again on the way.
    outcomes = list(itertools.product(range(5), range(4)))
    paths = np.array(list(itertools.product(outcomes, repeat=3)), dtype=np.float64)
    e_c, e_s = paths[..., 0].T, paths[..., 1].T
    past = StableHistory(np.zeros(len(paths)), np.zeros(len(paths)))
    worse, not_worse = HarmTest.begin((len(paths),)), NonInferiorityTest.begin((len(paths),))
    for c, s in zip(e_c, e_s, strict=True):
        seen = WindowCounts(c, np.full_like(c, 4), s, np.full_like(s, 3))
        worse = worse.after(seen, past, Tolerance(*line))
        not_worse = not_worse.after(seen, past, Tolerance(*line))
    on_the_line = tuple(min(1.0, line[0] + line[1] * p) for p in rates)
    chance = chances(e_c, 4, on_the_line) * chances(e_s, 3, rates)
    assert chance.sum() == pytest.approx(1)
    assert (chance * worse.e_value()).sum() <= 1 + 1e-9
    assert (chance * not_worse.e_value()).sum() <= 1 + 1e-9


def test_no_start_is_without_weight_and_later_ones_have_less() -> None:
    weights = [proportions.restart_weight(t) for t in (1, 2, 100, 2000, 8640, 10**6)]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] > 0
    costs = [round(-math.log(weight), 1) for weight in weights[2:5]]
    assert costs == [7.9, 10.2, 12.2]


def test_weights_of_starts_add_to_one_at_any_time() -> None:
    for t in (0, 1, 2, 500, 1000, 1001, 5000):
        spent = sum(proportions.restart_weight(i) for i in range(1, t + 1))
        assert spent + proportions.weigh_unspent(t) == pytest.approx(1)


@given(windows(), windows(), st.floats(0, 0.05))
def test_one_more_error_of_the_canary_never_lessens_what_its_window_adds(
    before: WindowCounts, seen: WindowCounts, rho: float
) -> None:
    if seen.e_c >= seen.n_c:
        return
    state = HarmTest.begin().after(before, NONE, Tolerance(0.0, 1.25), rho)
    more = WindowCounts(seen.e_c + 1, seen.n_c, seen.e_s, seen.n_s)
    found = [state.after(s, NONE, Tolerance(0.0, 1.25), rho).e_value() for s in (seen, more)]
    assert found[1] >= found[0] * (1 - 1e-9)


@given(st.lists(windows(), max_size=5), st.floats(0, 0.05))
def test_a_state_survives_being_stored_bit_by_bit(seen: list[WindowCounts], rho: float) -> None:
    worse, not_worse = HarmTest.begin(), NonInferiorityTest.begin()
    for each in seen:
        worse = worse.after(each, NONE, Tolerance(0.02, 1.0), rho)
        not_worse = not_worse.after(each, NONE, Tolerance(0.05, 1.0), rho)
    stored = json.loads(json.dumps([worse.to_json(), not_worse.to_json()], allow_nan=False))
    again, not_again = HarmTest.of_json(stored[0]), NonInferiorityTest.of_json(stored[1])
    assert (again.to_json(), not_again.to_json()) == (stored[0], stored[1])
    assert float(again.e_value()) == float(worse.e_value())
    assert float(not_again.e_value()) == float(not_worse.e_value())


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(ValueError, match="missing required field"):
        HarmTest.of_json({"windows": 3})


def repeated(worse: HarmTest, seen: WindowCounts, times: int, rho: float = 0.0) -> HarmTest:
    for _ in range(times):
        worse = worse.after(seen, StableHistory(np.array(20.0), np.array(2000.0)), EQUAL, rho)
    return worse


def test_a_fault_is_caught_and_an_equal_canary_is_not() -> None:
    assert float(repeated(HarmTest.begin(), window(5, 100, 19, 1900), 5).e_value()) > 80
    assert float(repeated(HarmTest.begin(), window(1, 100, 19, 1900), 500).e_value()) < 2


def test_a_late_fault_is_caught_after_a_long_healthy_past() -> None:
    healthy = repeated(HarmTest.begin(), window(1, 100, 19, 1900), 300)
    assert float(repeated(healthy, window(10, 100, 19, 1900), 10).e_value()) > 80


def test_equal_arms_pass_and_a_canary_on_the_line_does_not() -> None:
    past, line = StableHistory(np.array(20.0), np.array(2000.0)), Tolerance(0.01, 1.25)
    good = bad = NonInferiorityTest.begin()
    for _ in range(40):
        good = good.after(window(1, 100, 19, 1900), past, line)
        bad = bad.after(window(2.25, 100, 19, 1900), past, line)
    assert float(good.e_value()) > 20
    assert float(bad.e_value()) < 1


def rows(*columns: list[float]) -> WindowCounts:
    return WindowCounts(*(np.array(column) for column in columns))


def test_rows_are_tests_of_their_own() -> None:
    both = rows([5.0, 1.0], [100.0, 50.0], [19.0, 2.0], [1900.0, 100.0])
    past = StableHistory(np.array([20.0, 3.0]), np.array([2000.0, 90.0]))
    lines = Tolerance(np.array([0.0, 0.02]), np.array([1.25, 1.0]))
    together = HarmTest.begin((2,)).after(both, past, lines, np.array([0.0, 0.01]))
    first = HarmTest.begin().after(window(5, 100, 19, 1900), StableHistory(*_pair(20, 2000)),
                                Tolerance(0.0, 1.25))  # fmt: skip
    second = HarmTest.begin().after(window(1, 50, 2, 100), StableHistory(*_pair(3, 90)),
                                 Tolerance(0.02, 1.0), 0.01)  # fmt: skip
    assert together.e_value().tolist() == [float(first.e_value()), float(second.e_value())]


def _pair(events: float, requests: float) -> tuple[Floats, Floats]:
    return np.array(float(events)), np.array(float(requests))


def test_strata_of_one_test_multiply_within_a_window() -> None:
    strata = rows([5.0, 4.0], [100.0, 100.0], [19.0, 10.0], [1900.0, 1000.0])
    past = StableHistory(np.array([20.0, 20.0]), np.array([2000.0, 2000.0]))
    apart = HarmTest.begin((2,)).after(strata, past, EQUAL)
    as_one = HarmTest.begin((2,), np.array([0])).after(strata, past, EQUAL, 0.0, np.array([0]))
    weight = math.log(proportions.restart_weight(1))
    assert as_one.log_a.shape == (1, proportions.ALTERNATIVES)
    assert as_one.log_a[0] == pytest.approx((apart.log_a - weight).sum(axis=0) + weight)


def test_strata_of_one_test_multiply_to_pass_too() -> None:
    strata = rows([1.0, 1.0], [100.0, 100.0], [19.0, 10.0], [1900.0, 1000.0])
    past = StableHistory(np.array([20.0, 20.0]), np.array([2000.0, 2000.0]))
    line = Tolerance(0.01, 1.25)
    apart = NonInferiorityTest.begin((2,)).after(strata, past, line)
    as_one = NonInferiorityTest.begin((2,), np.array([0])).after(
        strata, past, line, 0.0, np.array([0])
    )
    assert as_one.log_e.tolist() == pytest.approx([apart.log_e.sum()])


def test_leading_axes_are_rollouts_of_their_own() -> None:
    rng = np.random.default_rng(5)
    n_c, n_s = np.full((3, 1), 50.0), np.full((3, 1), 950.0)
    past = StableHistory(np.zeros((3, 1)), np.zeros((3, 1)))
    all_of_them = HarmTest.begin((3, 1))
    alone = [HarmTest.begin((1,)) for _ in range(3)]
    for _ in range(4):
        e_c = rng.binomial(50, 0.1, (3, 1)).astype(np.float64)
        e_s = rng.binomial(950, 0.1, (3, 1)).astype(np.float64)
        all_of_them = all_of_them.after(WindowCounts(e_c, n_c, e_s, n_s), past, EQUAL)
        alone = [
            one.after(
                WindowCounts(e_c[i], n_c[i], e_s[i], n_s[i]),
                StableHistory(np.zeros(1), np.zeros(1)),
                EQUAL,
            )
            for i, one in enumerate(alone)
        ]
    assert all_of_them.e_value().tolist() == [one.e_value().tolist() for one in alone]
