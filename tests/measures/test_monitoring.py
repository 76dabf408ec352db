"""Monitors over time: small drifts are found, and a calibrated null keeps what it promises."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import chdtri

from measures.histograms import stability_index
from measures.monitoring import WEIGHTS, Bins, ChiSquareCalibration, Monitors, levels, spend

_counts = st.lists(st.integers(0, 500), min_size=5, max_size=5)


def test_the_window_alone_is_pearsons_statistic_of_two_samples() -> None:
    reference, window = [400, 300, 200, 100], [30, 40, 20, 10]
    bins = Bins.of(reference, 100)
    monitors = Monitors.begin(bins).after([999, 1, 1, 1]).after(window)
    counts = np.array([window, reference])
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    pearson = ((counts - expected) ** 2 / expected).sum()
    assert monitors.chi_square()[0] == pytest.approx(pearson)
    index = stability_index(np.array(window), np.array(reference))
    assert monitors.psi()[0] == pytest.approx(index - 3 * (1 / 100 + 1 / 1000))


def test_the_stability_index_by_hand() -> None:
    # Half a count more in each bin: (60.5, 40.5) of 101 against (150.5, 150.5) of 301.
    by_hand = sum((p - 0.5) * math.log(p / 0.5) for p in (60.5 / 101, 40.5 / 101))
    assert stability_index(np.array([60, 40]), np.array([150, 150])) == pytest.approx(by_hand)


def test_the_weighted_shares_by_hand() -> None:
    bins = Bins.of([500, 500], 100)
    monitors = Monitors.begin(bins).after([100, 0]).after([0, 50])
    # lambda 0.2: h = 0.8 x 0.2 x (1, 0) + 0.2 x (0, 1), W = 0.36, v = 0.64 x 0.04/100 + 0.04/50
    assert monitors.shares()[1] == pytest.approx([0.16 / 0.36, 0.2 / 0.36])
    assert monitors.texts()[1] == pytest.approx(0.36**2 / (0.000256 + 0.0008))


@settings(max_examples=40)
@given(_counts, st.lists(_counts, max_size=4))
def test_whatever_is_counted_gives_numbers(reference: list[int], windows: list[list[int]]) -> None:
    if sum(reference) == 0:
        with pytest.raises(ValueError, match="empty reference"):
            Bins.of(reference, 100)
        return
    monitors = Monitors.begin(Bins.of(reference, 100))
    for window in windows:
        monitors = monitors.after(window)
    for found in (monitors.chi_square(), monitors.psi(), monitors.texts()):
        assert np.isfinite(found).all()
        assert (found >= 0).all()


def test_the_references_own_shares_never_drift() -> None:
    reference = [40, 0, 30, 20, 500]
    monitors = Monitors.begin(Bins.of(reference, 1000))
    for _ in range(5):
        monitors = monitors.after([2 * count for count in reference])
    assert monitors.chi_square() == pytest.approx(0, abs=1e-9)
    assert monitors.psi() == pytest.approx(0)


def test_a_window_without_texts_changes_nothing() -> None:
    before = Monitors.begin(Bins.of([50, 50], 100)).after([60, 40])
    after = before.after([0, 0])
    assert (after.h == before.h).all()
    assert (after.texts() == before.texts()).all()


def test_a_reference_of_one_value_still_sees_others_come() -> None:
    bins = Bins.of([5000, 0, 0, 0], 1000)
    assert (bins.degrees, bins.floor) == (1, 0.01)
    quiet = Monitors.begin(bins).after([995, 5, 0, 0])  # within the floor
    assert quiet.chi_square() == pytest.approx(0)
    changed = Monitors.begin(bins).after([850, 0, 100, 50])
    assert changed.chi_square()[0] > chdtri(1, 1e-9)
    assert changed.psi()[0] > 0.2


def test_a_correlated_window_is_worth_fewer_texts() -> None:
    bins = Bins.of([5000, 5000], 1000)
    correlated = Monitors.begin(bins).after([600, 400], effect=10.0)
    plain = Monitors.begin(bins).after([60, 40])
    assert correlated.chi_square() == pytest.approx(plain.chi_square())


def test_an_empty_calibration_is_the_analytic_null() -> None:
    assert ChiSquareCalibration.begin().threshold(1e-3, 4) == pytest.approx(
        [chdtri(4, 1e-3)] * len(WEIGHTS)
    )


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=30), st.floats(1e-8, 0.2))
def test_calibration_only_ever_raises_a_threshold(found: list[float], alpha: float) -> None:
    calibration = ChiSquareCalibration.begin()
    for value in found:
        calibration = calibration.after(np.full(len(WEIGHTS), value), 60)
    threshold = calibration.threshold(alpha, 3)
    assert np.isfinite(threshold).all()
    assert (threshold >= chdtri(3, alpha) * (1 - 1e-12)).all()


def test_a_weight_is_ready_after_its_day_and_once_enough_was_new_to_it() -> None:
    calibration = ChiSquareCalibration.begin()
    for _ in range(200):
        calibration = calibration.after(np.ones(len(WEIGHTS)), 60)
    # 200 windows are worth 44 to the weight 0.2, 10 to 0.05, but 2 to 0.01.
    assert calibration.ready(12_000).tolist() == [True, True, True, False]
    assert not calibration.ready(12_001).any()


def test_calibration_goes_on_from_its_json_bit_by_bit() -> None:
    calibration = ChiSquareCalibration.begin().after(np.array([1.5, 2.25, 0.1, 7.0]), 61)
    again = ChiSquareCalibration.of_json(calibration.to_json())
    assert again.to_json() == calibration.to_json()
    with pytest.raises(ValueError, match="one sum a weight"):
        ChiSquareCalibration.of_json({"windows": 1, "seconds": 1, "total": [1.0], "squares": [1.0]})
    with pytest.raises(ValueError, match="missing required field"):
        ChiSquareCalibration.of_json({})


def test_what_is_not_to_be_learnt_is_left_out() -> None:
    calibration = ChiSquareCalibration.begin((2,)).after(np.ones((2, 4)), 60, learn=[True, False])
    assert calibration.windows.tolist() == [1, 0]
    assert calibration.total.sum() == 4


def test_one_alarm_is_spent_over_the_interval_by_all_tests_together() -> None:
    day, tests = 86_400.0, 9
    lengths = [60.0] * 1000 + [600.0] * 42
    spent = sum(float(spend(length, 30 * day, tests)) for length in lengths)
    assert spent * tests * len(WEIGHTS) == pytest.approx(sum(lengths) / (30 * day))


def test_a_level_needs_size_and_significance_of_one_weight() -> None:
    ratio = np.array([[2, 0.5], [0.5, 0.5], [2, 0.5], [0.5, 2]])
    psi = np.array([[0.15, 0.9], [0.9, 0.9], [0.25, 0], [0.9, 0.05]])
    assert levels(ratio, psi).tolist() == [1, 0, 2, 0]


def test_hours_of_the_day_cry_wolf_until_they_are_calibrated() -> None:
    rng, days, windows, alpha = np.random.default_rng(3), 3, 288, 1e-4  # windows of five minutes
    streams, share = 40, np.array([0.3, 0.3, 0.2, 0.2])
    bins = Bins.of(rng.multinomial(20_000, share), 1000)
    monitors, calibration = Monitors.begin(bins, (streams,)), ChiSquareCalibration.begin((streams,))
    plain = calibrated = 0
    for window in range(days * windows):
        swing = 0.04 * np.sin(2 * np.pi * window / windows)
        now = share + swing * np.array([1, -1, 0.5, -0.5])
        monitors = monitors.after(rng.multinomial(1000, now, size=streams))
        found = monitors.chi_square()
        if window < windows:
            calibration = calibration.after(found, 300)
            continue
        if window == windows:
            ready = calibration.ready(86_400)
            threshold = calibration.threshold(alpha, bins.degrees)
        plain += int((found[:, 0] > chdtri(bins.degrees, alpha)).sum())
        calibrated += int((ready & (found > threshold)).sum())
    looks = (days - 1) * windows * streams
    assert plain > 100 * alpha * looks
    assert calibrated <= 2 * alpha * looks * len(WEIGHTS)


def test_a_tenth_of_other_texts_is_found_within_five_windows() -> None:
    rng, share = np.random.default_rng(4), np.full(10, 0.1)
    bins = Bins.of(rng.multinomial(5000, share), 1000)
    monitors, calibration = Monitors.begin(bins, (50,)), ChiSquareCalibration.begin((50,))
    for _ in range(300):
        monitors = monitors.after(rng.multinomial(1000, share, size=50))
        calibration = calibration.after(monitors.chi_square(), 60)
    other = 0.9 * share + 0.1 * np.array([0.8, *[0.2 / 9] * 9])
    threshold = calibration.threshold(spend(60, 30 * 86_400, 9), bins.degrees)
    for _ in range(5):
        monitors = monitors.after(rng.multinomial(1000, other, size=50))
    assert (monitors.chi_square() > threshold).any(axis=-1).all()
