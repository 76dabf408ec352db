"""What is usual at a time of the week: learnt from days, interpolated, and left by what is new."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measures.monitoring import Bins
from measures.rhythm import MOST_DAYS, SLOTS_A_DAY, Rhythm, Week, WeekMonitors

MONDAY = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
BINS = Bins.of([500, 300, 200], 1000)


@given(at=st.floats(0, 4e9))
@settings(max_examples=200)
def test_a_time_lies_in_one_quarter_hour_and_between_two_middles(at: float) -> None:
    week = Week()
    assert 0 <= week.slot(at) < week.slots
    mix = week.mix(at)
    assert sum(mix.values()) == pytest.approx(1)
    assert 1 <= len(mix) <= 2
    assert mix.get(week.slot(at), 0) >= 0.499


def test_days_apart_have_slots_of_their_own_and_all_others_share_theirs() -> None:
    week = Week()
    at_noon = [week.slot(MONDAY + day * 86_400 + 43_200) for day in range(7)]
    assert at_noon == [48] * 5 + [SLOTS_A_DAY + 48, 2 * SLOTS_A_DAY + 48]
    assert Week(apart=()).slots == SLOTS_A_DAY


def test_the_clock_is_that_of_the_zone() -> None:
    tokyo = Week(ZoneInfo("Asia/Tokyo"))
    friday_evening = MONDAY + 4 * 86_400 + 16 * 3600
    assert Week().slot(friday_evening) == 64
    assert tokyo.slot(friday_evening) == SLOTS_A_DAY + 4  # Saturday, one o'clock


def test_what_is_expected_moves_from_one_quarter_hour_to_the_next() -> None:
    rhythm = Rhythm(SLOTS_A_DAY, 3)
    rhythm.learn(0, [600, 200, 200])
    rhythm.learn(1, [200, 600, 200])
    shares, part = rhythm.expect({0: 0.25, 1: 0.75}, BINS)
    assert shares == pytest.approx([0.3, 0.5, 0.2])
    assert part[:3] == pytest.approx([0.25, 0.75, 0])


def test_a_time_of_which_nothing_is_known_is_not_covered() -> None:
    rhythm = Rhythm(SLOTS_A_DAY, 3)
    assert not rhythm.covers({0: 1.0})
    rhythm.learn(0, [1, 1, 1])
    rhythm.learn(1, [0, 0, 0])  # nothing came: no day
    assert rhythm.covers({0: 1.0})
    assert not rhythm.covers({0: 0.5, 1: 0.5})
    assert rhythm.covers({0: 0.96, 1: 0.04})


def test_old_days_fade_and_a_days_texts_stay_those_of_a_mean_day() -> None:
    rhythm = Rhythm(SLOTS_A_DAY, 3)
    for _ in range(5 * MOST_DAYS):
        rhythm.learn(0, [0, 0, 100])
    for _ in range(3 * MOST_DAYS):
        rhythm.learn(0, [100, 0, 0])
    assert rhythm.texts_a_day()[0] == pytest.approx(100)
    shares, _ = rhythm.expect({0: 1.0}, Bins.of([1, 1, 1], 1000))
    assert shares[0] > 0.94


def test_chi_square_is_pearsons_against_one_mean_day() -> None:
    rhythm = Rhythm(SLOTS_A_DAY, 3)
    for _ in range(3):
        rhythm.learn(0, [500, 300, 200])
    monitors = WeekMonitors.begin(BINS, SLOTS_A_DAY)
    expected, part = rhythm.expect({0: 1.0}, BINS)
    monitors = monitors.after([40, 40, 20], expected, part)
    counts = np.array([[40, 40, 20], [500, 300, 200]])
    wanted = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    pearson = ((counts - wanted) ** 2 / wanted).sum()
    assert monitors.chi_square(rhythm.texts_a_day()) == pytest.approx([pearson] * 4)


def test_a_rhythm_that_is_followed_is_no_drift_whatever_a_weight_remembers() -> None:
    rhythm, week = Rhythm(Week().slots, 2), Week()
    shares = [0.5 + 0.3 * np.sin(2 * np.pi * quarter / 96) for quarter in range(SLOTS_A_DAY)]
    for quarter, share in enumerate(shares):
        rhythm.learn(quarter, [15_000 * share, 15_000 * (1 - share)])
    bins = Bins.of([1, 1], 1000)
    monitors = WeekMonitors.begin(bins, week.slots)
    for minute in range(600):
        share = np.interp(minute + 0.5, np.arange(96) * 15 + 7.5, shares)
        mix = week.mix(MONDAY + 60 * minute + 30)
        if rhythm.covers(mix):
            monitors = monitors.after([1000 * share, 1000 * (1 - share)], *rhythm.expect(mix, bins))
    assert monitors.shares()[-1][0] != pytest.approx(shares[40], abs=0.05)
    assert monitors.chi_square(rhythm.texts_a_day()) == pytest.approx([0] * 4, abs=1e-3)
    assert monitors.psi(rhythm.texts_a_day()) == pytest.approx([0] * 4)
