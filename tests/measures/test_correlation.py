"""Clumpy traffic is measured for what it is, and quiet traffic is not called clumpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.correlation import (
    CAUTION,
    design_effect,
    histogram_correlation,
    intra_window_correlation,
)


def test_a_request_alone_counts_as_one() -> None:
    assert float(design_effect(np.array(1.0), 0.5)) == 1
    assert float(design_effect(np.array(0.0), 0.5)) == 1
    assert float(design_effect(np.array(101.0), 0.01)) == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_correlation_is_never_negative_and_always_a_number(pairs: list[tuple[int, int]]) -> None:
    events = [min(a, b) for a, b in pairs]
    found = intra_window_correlation(events, [b for _, b in pairs])
    assert 0 <= found < np.inf


def test_the_arithmetic() -> None:
    # p = 0.3, rates 0.2 0.4 0.2 0.4 of 50: each difference squared is 0.04, over
    # 0.21 x 2/50 = 0.0084: X = 4.7619. rho = 1.5 (X - 1) / 49.
    found = intra_window_correlation([10, 20, 10, 20], [50, 50, 50, 50])
    assert found == pytest.approx(1.5 * (0.04 / 0.0084 - 1) / 49)


def test_slow_drift_is_not_called_clumpy() -> None:
    n = np.full(200, 1000.0)
    assert intra_window_correlation(n * np.linspace(0.05, 0.15, 200), n) == 0


@pytest.mark.parametrize("rho", [0.0, 0.005, 0.02])
def test_clumps_are_found_again(rho: float) -> None:
    rng = np.random.default_rng(11)
    n, p = 500, 0.1
    rates = np.full(2000, p) if rho == 0 else rng.beta(p / rho - p, (1 - p) / rho - 1 + p, 2000)
    found = intra_window_correlation(rng.binomial(n, rates), np.full(2000, n)) / CAUTION
    assert found == pytest.approx(rho, abs=0.1 * rho + 0.0005)


def test_a_share_of_two_classes_is_a_proportion() -> None:
    events, n = np.array([5, 9, 3, 7]), np.array([50, 40, 60, 50])
    both = np.stack([events, n - events], axis=-1)
    assert histogram_correlation(both) == intra_window_correlation(events, n)
    with_an_empty_class = np.concatenate([both, np.zeros((4, 1))], axis=-1)
    assert histogram_correlation(with_an_empty_class) == histogram_correlation(both)
