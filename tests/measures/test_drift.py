"""Drift: chi-square keeps its rate of false alarms, and PSI knows what it would be anyway."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.drift import drift

counts = st.lists(st.integers(0, 400), min_size=6, max_size=6)


def test_the_arithmetic() -> None:
    # Shares 0.6/0.4 of 100 against 0.5/0.5 of 300; pooled 0.525/0.475.
    found = drift([60, 40], [150, 150])
    by_hand = (0.01 / 0.525 + 0.01 / 0.475) / (1 / 100 + 1 / 300)
    assert found.chi_square == pytest.approx(by_hand)
    assert found.degrees == 1
    assert found.expected_psi == pytest.approx(1 / 100 + 1 / 300)
    p, q = (60.5 / 101, 40.5 / 101), (0.5, 0.5)
    assert found.psi == pytest.approx(
        sum((a - b) * math.log(a / b) for a, b in zip(p, q, strict=True))
    )
    assert found.p_value == pytest.approx(math.erfc(math.sqrt(by_hand / 2)))


@given(counts, counts)
def test_it_is_always_a_number_and_equal_shares_never_drift(a: list[int], b: list[int]) -> None:
    found = drift(a, b)
    assert 0 <= found.p_value <= 1
    assert all(math.isfinite(x) for x in (found.chi_square, found.psi, found.excess))
    same = drift([2 * x for x in b], b)
    assert same.chi_square == pytest.approx(0, abs=1e-9)
    assert same.p_value == pytest.approx(1)


def test_too_little_tells_nothing() -> None:
    for found in (drift([0, 0], [50, 50]), drift([3, 4], [50, 50]), drift([9, 9], [0, 0])):
        assert (found.degrees, found.p_value, found.excess) == (0, 1, 0)


def test_bins_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2,\) bins can't be compared with \(3,\)"):
        drift([1, 2], [1, 2, 3])


def test_a_design_effect_makes_a_window_smaller() -> None:
    clumpy, plain = drift([600, 400], [5000, 5000], effect=10), drift([60, 40], [5000, 5000])
    assert clumpy.chi_square == pytest.approx(plain.chi_square)


def test_alarms_without_drift_come_at_the_stated_rate_and_drift_is_found() -> None:
    rng, rate = np.random.default_rng(4), 0.01
    true, other = np.full(10, 0.1), np.array([0.8, *[0.2 / 9] * 9])
    tenth = 0.9 * true + 0.1 * other
    quiet = found = 0
    for _ in range(3000):
        reference = rng.multinomial(5000, true)
        quiet += drift(rng.multinomial(1000, true), reference).p_value < rate
    for _ in range(200):
        reference = rng.multinomial(5000, true)
        found += any(drift(rng.multinomial(1000, tenth), reference).p_value < rate
                     for _ in range(5))  # fmt: skip
    assert rate / 2 <= quiet / 3000 <= 2 * rate
    assert found == 200
