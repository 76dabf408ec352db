"""The drift simulation draws real texts and judges as production does."""

import numpy as np
import pytest
from drifting.monitored import Endpoint, apart, beginnings, level, significant
from drifting.population import (
    DOMAINS,
    GERMAN,
    MOVIES,
    PRODUCTS,
    STATISTICS,
    TWEETS,
    read,
    widths,
)
from drifting.traffic import DAY, Stock, daily, joined, mixed, steady

from contracts.events import TextRecord
from contracts.statistics import Statistic
from measures.monitoring import Bins, Monitors
from measures.profile import reference_profile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stock() -> Stock:
    return Stock.committed()


def test_a_texts_bins_are_those_of_a_reference_profile(stock: Stock) -> None:
    texts = read()[TWEETS]
    records = [
        TextRecord(int(a), int(b), int(c), truncated=False, label="positive", score=float(d))
        for a, b, c, d in zip(texts.tokens, texts.words, texts.unk, texts.score, strict=True)
    ]
    profile = reference_profile(records, source="tweets")
    counted = dict(
        zip(STATISTICS, apart(stock.bins[DOMAINS.index(TWEETS)].sum(axis=0)), strict=True)
    )
    for statistic, counts in profile.histograms.items():
        assert counted[statistic.value].tolist() == list(counts)
    assert set(profile.histograms) == {Statistic(name) for name in STATISTICS[:-1]}
    assert counted["labels"].tolist() == [(~texts.positive).sum(), texts.positive.sum()]


def test_what_the_model_learnt_from_is_not_in_the_stock() -> None:
    sizes = {domain: len(texts) for domain, texts in read().items()}
    assert sizes == {
        MOVIES: 2123, PRODUCTS: 862, "editorials": 5190, TWEETS: 4200, GERMAN: 1000,
    }  # fmt: skip


def test_every_text_of_a_window_counts_once_in_every_statistic(stock: Stock) -> None:
    rng = np.random.default_rng(1)
    base = stock.shares({MOVIES: 0.5, PRODUCTS: 0.5})
    scenario = mixed(steady(base, 300, 5), stock.shares({GERMAN: 1.0}), 0.1)
    values, counts = stock.draw(rng, scenario)
    for found in (stock.counts(rng, scenario), counts):
        assert found.shape == (5, sum(widths()))
        assert all((part.sum(axis=1) == 300).all() for part in apart(found))
    assert [window.shape for window in values] == [(300, len(STATISTICS))] * 5


def test_a_part_of_the_texts_is_replaced(stock: Stock) -> None:
    quiet = steady(stock.shares({MOVIES: 1.0}), 100, 3)
    shifted = mixed(quiet, stock.shares({GERMAN: 1.0}), 0.02)
    assert shifted.shares[:, DOMAINS.index(GERMAN)] == pytest.approx(0.02)
    assert shifted.shares.sum(axis=1) == pytest.approx(1)
    assert len(joined([quiet, shifted])) == 6


def test_a_day_has_products_by_night_and_traffic_by_day(stock: Stock) -> None:
    scenario = daily(stock, np.random.default_rng(1), 1000, DAY, 0.1)
    products = scenario.shares[:, DOMAINS.index(PRODUCTS)]
    assert (products[0], products[DAY // 2]) == pytest.approx((0.2, 0.0))
    assert scenario.shares.sum(axis=1) == pytest.approx(1)
    night, noon = scenario.texts[:60].mean(), scenario.texts[DAY // 2 - 30 : DAY // 2 + 30].mean()
    assert (night, noon) == pytest.approx((500, 1500), rel=0.03)


def test_streams_side_by_side_are_judged_as_production_judges_one(stock: Stock) -> None:
    rng = np.random.default_rng(3)
    movies = steady(stock.shares({MOVIES: 1.0}), 1000, 4)
    reference = stock.counts(rng, steady(stock.shares({MOVIES: 1.0}), 5000, 1))
    counts = np.stack([stock.counts(rng, movies), stock.counts(rng, movies)])
    seen = Endpoint.begin(np.repeat(reference, 2, axis=0), 1000).walk(counts)
    for at, (known, part) in enumerate(zip(apart(reference), apart(counts), strict=True)):
        alone = Monitors.begin(Bins.of(known[0], 1000))
        for window in range(4):
            alone = alone.after(part[1, window])
            assert seen.chi_square[1, window, at] == pytest.approx(alone.chi_square(), rel=1e-5)
            assert seen.psi[1, window, at] == pytest.approx(alone.psi(), rel=1e-4, abs=1e-6)


def test_a_tenth_of_german_texts_is_found_and_quiet_windows_are_left_alone(stock: Stock) -> None:
    rng = np.random.default_rng(4)
    movies = stock.shares({MOVIES: 1.0})
    quiet = steady(movies, 1000, 60)
    streams = 6
    endpoint = Endpoint.begin(stock.counts(rng, steady(movies, 5000, streams)), 1000)
    endpoint.calibrated(
        endpoint.walk(np.stack([stock.counts(rng, quiet) for _ in range(streams)]), sized=False)
    )
    limits, bare = endpoint.thresholds(DAY), endpoint.uncalibrated(DAY)
    assert (limits >= bare).all()
    later = endpoint.copy().walk(np.stack([stock.counts(rng, quiet) for _ in range(streams)]))
    assert beginnings(significant(later, limits)).sum() <= 1
    tenth = mixed(steady(movies, 1000, 5), stock.shares({GERMAN: 1.0}), 0.1)
    seen = endpoint.copy().walk(np.stack([stock.counts(rng, tenth) for _ in range(streams)]))
    assert significant(seen, limits)[:, :5].any(axis=1).all()
    assert (level(seen, limits)[:, -1] >= 1).all()


def test_an_alarm_that_goes_on_begins_once() -> None:
    alarms = np.array([[True, True, False, True], [False, False, True, True]])
    assert beginnings(alarms).tolist() == [[True, False, False, True], [False, False, True, False]]
