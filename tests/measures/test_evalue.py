"""The e-value of a window has a mean of at most 1 wherever the null is true, by counting it all."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measures.correlation import Floats
from measures.evalue import Tolerance, WindowCounts, log_e_value, log_ratio, projection

rates = st.floats(0.001, 0.98)
lines = st.tuples(st.sampled_from([0.0, 0.01, 0.1]), st.sampled_from([1.0, 1.25, 2.0]))
sizes = st.integers(1, 9)

SEEN = WindowCounts(*(np.array(x) for x in (20.0, 100.0, 10.0, 100.0)))


def binomial(n: int, p: Floats) -> Floats:
    """``[n + 1, *p.shape]`` probabilities of 0 to n events."""
    chances = [math.comb(n, e) * p**e * (1 - p) ** (n - e) for e in range(n + 1)]
    return np.array(chances, dtype=np.float64)


def means(log_s: Floats, n_c: int, n_s: int, p_c: Floats, p_s: Floats) -> Floats:
    """Mean of S under each pair of true rates; ``log_s`` is ``[n_c + 1, n_s + 1]``."""
    mean: Floats = np.einsum("ij,ip,jp->p", np.exp(log_s), binomial(n_c, p_c), binomial(n_s, p_s))
    return mean


def every_window(n_c: int, n_s: int) -> WindowCounts:
    e_c, e_s = np.meshgrid(np.arange(n_c + 1.0), np.arange(n_s + 1.0), indexing="ij")
    return WindowCounts(e_c, np.full_like(e_c, n_c), e_s, np.full_like(e_s, n_s))


@given(sizes, sizes, rates, rates, lines)
def test_a_canary_within_the_tolerance_has_a_mean_e_value_of_at_most_one(
    n_c: int, n_s: int, theta_c: float, theta_s: float, line: tuple[float, float]
) -> None:
    a, s = line
    log_s = log_e_value(
        every_window(n_c, n_s), np.array(theta_c), np.array(theta_s), Tolerance(a, s), 0.0
    )
    p_s = np.linspace(0, 1, 60)
    for share in (1.0, 0.9, 0.5):  # on the line, and below it
        p_c = np.minimum((a + s * p_s) * share, 1.0)
        assert means(log_s, n_c, n_s, p_c, p_s).max() <= 1 + 1e-9


@given(sizes, sizes, rates, lines)
def test_a_canary_beyond_the_tolerance_has_a_mean_e_value_to_pass_of_at_most_one(
    n_c: int, n_s: int, theta: float, line: tuple[float, float]
) -> None:
    a, s = line
    if theta >= a + s * theta:
        return
    log_s = log_ratio(
        every_window(n_c, n_s), np.array(theta), np.array(theta), Tolerance(a, s), 0.0
    )
    p_s = np.linspace(0, (1 - a) / s, 60)
    for share in (0.0, 0.1, 0.5):
        edge = a + s * p_s
        p_c = edge + share * (1 - edge)
        assert means(log_s, n_c, n_s, p_c, p_s).max() <= 1 + 1e-9


def test_the_alternative_itself_makes_evidence_grow() -> None:
    window = every_window(8, 8)
    log_s = log_e_value(window, np.array(0.6), np.array(0.1), Tolerance(0.0, 1.0), 0.0)
    assert means(log_s, 8, 8, np.array([0.6]), np.array([0.1]))[0] > 10


def test_the_arithmetic_of_one_window() -> None:
    # 10 of 100 against 10 of 100, line p_c = p_s, equal weights: the point on the line nearest to
    # (0.2, 0.1) is (0.15, 0.15), the mean of both rates.
    log_s = log_e_value(SEEN, np.array(0.2), np.array(0.1), Tolerance(0.0, 1.0), 0.0)
    by_hand = (
        20 * math.log(0.2 / 0.15) + 80 * math.log(0.8 / 0.85)
        + 10 * math.log(0.1 / 0.15) + 90 * math.log(0.9 / 0.85)
    )  # fmt: skip
    assert float(log_s) == pytest.approx(by_hand)


def test_an_alternative_within_the_tolerance_tells_nothing() -> None:
    assert float(log_e_value(SEEN, np.array(0.1), np.array(0.1), Tolerance(0, 1.25), 0.0)) == 0


def test_the_order_of_the_arms_matters() -> None:
    other = WindowCounts(SEEN.e_s, SEEN.n_s, SEEN.e_c, SEEN.n_c)
    found = [
        float(log_e_value(w, np.array(0.2), np.array(0.1), Tolerance(0.0, 1.0), 0.0))
        for w in (SEEN, other)
    ]
    assert found[0] > 0 > found[1]


@pytest.mark.parametrize(("n_c", "n_s"), [(0, 50), (50, 0), (0, 0)])
def test_a_window_without_one_of_the_arms_tells_nothing(n_c: int, n_s: int) -> None:
    window = WindowCounts(*(np.array(float(x)) for x in (n_c // 5, n_c, n_s // 2, n_s)))
    log_s = log_e_value(window, np.array(0.3), np.array(0.1), Tolerance(0.01, 1.25), 0.01)
    assert float(log_s) == pytest.approx(0, abs=1e-9)


def test_correlation_weakens_what_a_window_tells() -> None:
    told = [
        float(log_e_value(SEEN, np.array(0.2), np.array(0.1), Tolerance(0.0, 1.0), rho))
        for rho in (0.0, 0.01, 0.1)
    ]
    assert told == sorted(told, reverse=True)
    assert told[1] == pytest.approx(told[0] / (1 + 99 * 0.01))


def divergence(q: float, line: tuple[float, float], point: tuple[float, ...]) -> float:
    theta_c, theta_s, w_c, w_s = point
    q_c = line[0] + line[1] * q

    def apart(theta: float, to: float) -> float:
        return theta * math.log(theta / to) + (1 - theta) * math.log((1 - theta) / (1 - to))

    return w_c * apart(theta_c, q_c) + w_s * apart(theta_s, q)


@settings(max_examples=200)
@given(rates, rates, st.floats(1, 1e4), st.floats(1, 1e4), lines)
def test_no_point_of_the_line_is_nearer_than_the_projection(
    theta_c: float, theta_s: float, w_c: float, w_s: float, line: tuple[float, float]
) -> None:
    a, s = line
    t_c, t_s, one, other = (np.array(x) for x in (theta_c, theta_s, w_c, w_s))
    found = float(projection(t_c, t_s, Tolerance(a, s), one, other))
    point = (theta_c, theta_s, w_c, w_s)
    top = min(1.0, (1 - a) / s)
    nearest = divergence(found, line, point)
    beside = [found * (1 - 1e-4), found + (top - found) * 1e-4]
    others = np.linspace(0, top, 40)[1:-1]
    for q in itertools.chain(beside, others):
        assert divergence(float(q), line, point) >= nearest - 1e-9 * (w_c + w_s)
