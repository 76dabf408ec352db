"""The drift simulation draws real texts, judges as production does, copies others faithfully."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.drift import __main__ as program
from bench.drift import evidently, libraries, river
from bench.drift.monitored import Endpoint, apart, beginnings, level, significant
from bench.drift.population import (
    DOMAINS,
    EDITORIALS,
    GERMAN,
    MOVIES,
    PRODUCTS,
    STATISTICS,
    TWEETS,
    read,
    widths,
)
from bench.drift.shifts import first
from bench.drift.topic_shifts import TOPICS, VECTORS, Buckets, Source
from bench.drift.traffic import DAY, Stock, daily, joined, mixed, steady
from bench.findings import needed, rate
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
    assert (first(significant(seen, limits)) <= 5).all()
    assert (level(seen, limits)[:, -1] >= 1).all()


@pytest.mark.parametrize("source", [TOPICS, VECTORS], ids=lambda source: source.name)
def test_of_each_text_a_window_counts_the_buckets_that_were_measured(source: Source) -> None:
    buckets, texts = Buckets(source), np.array([0, 1, 700])
    shares = {domain: np.full(3, float(domain == EDITORIALS)) for domain in buckets.chances}
    counts = buckets.counts(np.random.default_rng(3), shares, texts)
    assert counts.shape == (3, 256)
    most = buckets.counted[EDITORIALS].sum(axis=1)
    assert (most.min() * texts <= counts.sum(axis=1)).all()
    assert (counts.sum(axis=1) <= most.max() * texts).all()
    if source is VECTORS:  # a cell of each partition
        assert counts.reshape(3, 4, 64).sum(axis=2).tolist() == [[many] * 4 for many in texts]


def test_an_alarm_that_goes_on_begins_once() -> None:
    alarms = np.array([[True, True, False, True], [False, False, True, True]])
    assert beginnings(alarms).tolist() == [[True, False, False, True], [False, False, True, False]]
    assert first(alarms).tolist() == [1, 3]
    assert first(np.zeros((1, 3), bool)).tolist() == [math.inf]


def test_psi_is_evidentlys() -> None:
    # The figures are those of evidently 0.7.23 itself, for these very numbers.
    one, window = np.arange(200), np.arange(80)
    reference = np.zeros((200, len(STATISTICS)))
    now = np.zeros((80, len(STATISTICS)))
    reference[:, 0], now[:, 0] = one % 37 + 0.5, window % 41 + 2.0  # Sturges' bins
    reference[:, 1], now[:, 1] = one % 5, window % 7  # few values: a bin a value
    reference[:, -1], now[:, -1] = one % 5 % 2, window % 3 == 0  # a category
    (found,) = evidently.psi(reference.astype(np.float32), [now.astype(np.float32)])
    assert found[[0, 1, -1]] == pytest.approx(
        [0.7640517943508677, 2.0757512280236083, 0.016811871214976768]
    )
    assert found[2:-1] == pytest.approx(0)


def test_the_setting_that_keeps_the_rate_is_chosen() -> None:
    assert river.chosen({1.0: 9, 2.0: 3, 3.0: 1}, most=3) == 2.0
    assert river.chosen({1.0: 9, 2.0: 4}, most=3) == 2.0


def test_a_rate_comes_with_its_interval_and_is_held_to_twice_what_was_stated() -> None:
    found = rate("quiet", 1000, alarms=10, windows=14_400, stated=1440)
    assert (found.figure, found.low, found.high) == pytest.approx((1.0, 0.4795, 1.839), rel=1e-3)
    assert found.reached
    assert rate("quiet", 5000, alarms=30, windows=14_400, stated=1440).reached is False
    assert rate("quiet", 300, alarms=30, windows=14_400, stated=1440).reached is None
    assert rate("none", 1000, alarms=0, windows=1440, stated=1440).low == 0


def test_tables_show_what_was_not_reached_and_what_never_came() -> None:
    rows = [
        needed("2 % German", "Headrace", np.array([9.0, 11.0, np.inf]), 5, "windows"),
        needed("tweets", "Headrace", np.ones(3), 5, "windows"),
    ]
    assert program.table_of("rivals", rows).splitlines() == [
        "| | 2 % German | tweets |",
        "|---|---|---|",
        "| Headrace | 11 / never: **not reached** | 1 / 1 |",
    ]
    assert rows[0].plain()["figure"] is None


def test_the_committed_figures_reach_what_was_asked() -> None:
    results = Path(program.__file__).parents[1] / "results" / "drift.json"
    studies = json.loads(results.read_text(encoding="utf-8"))["studies"]
    assert set(studies) == set(program.FULL)
    asked = [row for study in studies.values() for row in study["rows"] if row["target"]]
    assert asked
    assert all(row["reached"] for row in asked)


def test_a_library_is_told_as_it_decides_and_with_a_threshold_of_equal_rate() -> None:
    quiet = np.zeros((2, 1000))
    quiet[:, 1::5] = np.linspace(0.7, 0.9, 400).reshape(2, 200)
    quiet[:, 2::5] = 0.65  # the alarm before goes on
    shifted = np.array([[0.5, 0.8, 2.0], [2.0, 0.1, 0.1]])
    rows = libraries.rows_of("L 1.0", {libraries.FALSE: quiet, "tweets": shifted}, 0.6)
    found = {(row.where, row.what): row for row in rows}
    assert found["L 1.0", libraries.FALSE].figure == pytest.approx(200)
    assert found["L 1.0, tuned", libraries.FALSE].figure == pytest.approx(1)
    assert found["L 1.0", "tweets"].median == 2
    assert found["L 1.0, tuned", "tweets"].figure == 3


def test_a_library_runs_as_a_process_of_its_own_environment(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        'test "$DO_NOT_TRACK$NML_DISABLE_USAGE_LOGGING" = 11 || exit 3\n'
        'echo "something else"\n'
        'echo \'{"version": "2.1", "threshold": 0.1, "scores": [[[0.3], [0.0]]]}\'\n'
    )
    python.chmod(0o700)
    told = libraries.scores(
        python, "evidently", np.zeros((1, 5, 2), np.float32), np.zeros((1, 2, 5, 2), np.float32)
    )
    assert (told.version, told.threshold, told.scores.tolist()) == ("2.1", 0.1, [[[0.3], [0.0]]])


def test_of_a_library_that_asks_half_of_the_statistics_one_alone_is_no_alarm(
    tmp_path: Path,
) -> None:
    told = {
        "version": "1",
        "threshold": 0.1,
        "scores": [[[0.3] + [0.0] * 6, [0.2] * 4 + [0.0] * 3]],
    }
    for library in ("evidently", "alibi-detect", "nannyml"):
        python = tmp_path / f"peers-{library}" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
        python.chmod(0o700)
    windows = np.zeros((1, 1, 5, 7), np.float32)
    references = {each.reference: windows[:, 0] for each in libraries.METHODS}
    rows = libraries._of_libraries(tmp_path, references, {libraries.FALSE: windows, "x": windows})
    found = {row.where: row.figure for row in rows if row.what == libraries.FALSE}
    assert (found["Evidently 1, any statistic"], found["Evidently 1, half of them"]) == (1000, 0)


def test_rivers_detectors_have_seen_the_quiet_windows_before_a_shift(tmp_path: Path) -> None:
    windows = river.BEFORE["kswin"] + 4
    python = tmp_path / "python"
    # An alarm in the last two windows of what it is given, at any setting.
    python.write_text(
        f"#!{sys.executable}\n"
        "import json, sys, numpy\n"
        "shape = numpy.load(sys.argv[4]).shape\n"
        "last = [[0, shape[1] - 2], [0, shape[1] - 1]]\n"
        "print(json.dumps({each: last for each in sys.argv[5:]}))\n"
    )
    python.chmod(0o700)
    drawn = {
        libraries.FALSE: np.zeros((1, windows, 5, 7), np.float32),
        "x": np.zeros((1, 9, 5, 7), np.float32),
    }
    rows = libraries._of_river(python, "kswin", np.zeros((1, 5, 7), np.float32), drawn)
    assert [(row.what, row.figure) for row in rows[:2]] == [(libraries.FALSE, 250.0), ("x", 8.0)]
