"""Drift of a version: found where texts change, silent where they do not, awake only when sure."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.events import StatisticSpec
from contracts.features import Feature, FeatureKind
from contracts.profile import ReferenceProfile
from contracts.statistics import EDGES, Statistic
from contracts.windows import OwnCounts, WindowAggregate
from stats.evaluation.board import StatisticDrift
from stats.evaluation.drift import DriftSettings, DriftWatch
from stats.evaluation.drift_counts import TESTED, VECTORS

SETTINGS = DriftSettings(
    window_seconds=60, window_texts=1000, false_alarm_seconds=30 * 86_400, calibration_seconds=6000
)
USUAL = np.array([0.1, 0.2, 0.3, 0.3, 0.1])
LONGER = np.array([0.02, 0.08, 0.2, 0.4, 0.3])
START = 1_000_020
LENGTHS = StatisticSpec("length", "histogram", edges=[1.0, 2.0])


def wide(counts: np.ndarray) -> tuple[int, ...]:
    """Counts of five lengths as a histogram of tokens."""
    return (*counts.tolist(), *[0] * (len(EDGES[Statistic.TOKENS].upper) + 1 - len(counts)))


PROFILE = ReferenceProfile(
    texts=5000,
    source="reviews",
    truncated=10,
    histograms={Statistic.TOKENS: wide((USUAL * 5000).astype(int))},
    labels={"bad": 2500, "good": 2500},
)


class Traffic:
    """Minutes of texts, one after the other."""

    def __init__(self, watch: DriftWatch, seed: int = 1) -> None:
        self.watch = watch
        self.rng = np.random.default_rng(seed)
        self.at = START

    def minutes(self, count: int, shares: np.ndarray, texts: int = 1000, good: float = 0.5) -> None:
        for _ in range(count):
            self.watch.see(self.aggregate(self.at, shares, texts, good), 60)
            self.at += 60
            self.watch.flush(self.at)

    def aggregate(self, start: int, shares: np.ndarray, texts: int, good: float) -> WindowAggregate:
        lengths = self.rng.multinomial(texts, shares)
        found = int(self.rng.binomial(texts, good))
        aggregate = WindowAggregate("e", "1", "p", Arm.STABLE, start, texts=texts)
        aggregate.histograms = {"tokens": {at: int(n) for at, n in enumerate(lengths) if n}}
        aggregate.labels = {"bad": texts - found, "good": found}
        aggregate.own = [OwnCounts(LENGTHS, {"0": int(lengths[0]), "2": int(lengths[1:].sum())})]
        return aggregate


def statistic(watch: DriftWatch, name: str) -> StatisticDrift:
    return next(one for one in watch.result().statistics if one.statistic == name)


def watch_of(profile: ReferenceProfile | None = PROFILE) -> DriftWatch:
    return DriftWatch("1", "p" * 64, profile, SETTINGS, ("bad", "good"))


def test_the_usual_texts_stay_quiet_and_calibrate_the_null() -> None:
    watch = watch_of()
    Traffic(watch).minutes(120, USUAL)
    found = watch.result()
    assert found.level == 0
    assert found.calibration == 1
    assert found.reference.kind == "profile"
    assert (found.at, found.texts) == (START + 7200, 1000)
    assert statistic(watch, "tokens").calibrated
    assert not statistic(watch, "tokens").alarm


def test_other_texts_are_found_at_once_and_wake_somebody_only_once_calibrated() -> None:
    early, late = watch_of(), watch_of()
    Traffic(early).minutes(1, LONGER)
    found = statistic(early, "tokens")
    assert (found.level, found.calibrated, found.alarm) == (2, False, False)
    traffic = Traffic(late)
    traffic.minutes(110, USUAL)
    traffic.minutes(2, LONGER)
    found = statistic(late, "tokens")
    assert (found.level, found.calibrated, found.alarm) == (2, True, True)
    assert found.ratio > 1
    assert found.psi > 0.2
    assert statistic(late, "labels").level == 0


def test_a_small_shift_of_answers_is_significant_and_not_large_enough() -> None:
    watch = watch_of()
    traffic = Traffic(watch)
    traffic.minutes(110, USUAL)
    traffic.minutes(10, USUAL, good=0.57)
    found = statistic(watch, "labels")
    assert found.ratio > 1
    assert found.psi < 0.1
    assert found.level == 0


def test_a_drift_window_waits_for_enough_texts() -> None:
    watch = watch_of()
    traffic = Traffic(watch)
    traffic.minutes(9, USUAL, texts=100)
    assert watch.result().at == 0
    traffic.minutes(1, USUAL, texts=100)
    assert watch.result().at == START + 600


def test_arms_of_one_window_are_never_parted() -> None:
    watch, traffic = watch_of(), Traffic(watch_of())
    for arm in (Arm.STABLE, Arm.CANARY):
        aggregate = traffic.aggregate(START, USUAL, 1000, 0.5)
        aggregate.arm = arm
        watch.see(aggregate, 60)
    watch.flush(START + 60)
    assert watch.result().texts == 2000


def test_without_a_profile_the_first_day_becomes_the_reference_and_says_so() -> None:
    watch = watch_of(None)
    traffic = Traffic(watch)
    traffic.minutes(50, USUAL)
    assert watch.result().reference.kind == "none"
    assert watch.result().level == 0
    traffic.minutes(60, USUAL)
    assert watch.result().reference.kind == "traffic"
    assert not statistic(watch, "tokens").alarm
    traffic.minutes(2, LONGER)
    assert statistic(watch, "tokens").level == 2


def test_features_are_compared_with_the_versions_own_rows_from_the_first_window() -> None:
    usual = (USUAL[0] * 5000, 0, USUAL[1:].sum() * 5000)
    length = Feature(
        name="length", kind=FeatureKind.NUMBER, edges=(1.0, 2.0), counts=tuple(map(int, usual))
    )
    watch = DriftWatch("1", "p" * 64, PROFILE, SETTINGS, ("bad", "good"), features=(length,))
    traffic = Traffic(watch)
    traffic.minutes(110, USUAL)
    assert statistic(watch, "own:length").calibrated
    assert statistic(watch, "own:length").level == 0
    traffic.minutes(2, np.array([0.5, 0.1, 0.2, 0.1, 0.1]))
    assert statistic(watch, "own:length").level == 2


def test_users_own_statistics_are_compared_with_their_first_day() -> None:
    watch = watch_of()
    traffic = Traffic(watch)
    traffic.minutes(110, USUAL)
    assert statistic(watch, "own:length").monitors
    traffic.minutes(2, np.array([0.5, 0.2, 0.1, 0.1, 0.1]))
    assert statistic(watch, "own:length").level == 2
    assert statistic(watch, "own:length").bins == ("<= 1", "> 1")


def test_what_is_compared_is_told_bin_by_bin() -> None:
    watch = watch_of()
    Traffic(watch).minutes(3, USUAL)
    tokens, labels = statistic(watch, "tokens"), statistic(watch, "labels")
    assert tokens.bins == ("<= 0", "<= 1", "<= 2", "<= 3", "> 3")
    assert tokens.reference == pytest.approx(USUAL.tolist())
    assert sum(tokens.now) == pytest.approx(1)
    assert labels.bins[0] == "bad"
    assert len(tokens.history) == 3


def test_a_watch_goes_on_from_what_it_learnt_and_does_not_learn_it_twice() -> None:
    before = watch_of()
    traffic = Traffic(before)
    traffic.minutes(120, USUAL)
    told = json.loads(json.dumps(before.to_json()))
    after = watch_of()
    after.restore(told)
    again = Traffic(after)
    again.minutes(120, USUAL)  # the same minutes, read again
    assert after.to_json()["statistics"] == told["statistics"]
    again.minutes(2, LONGER)
    assert statistic(after, "tokens").alarm
    assert statistic(after, "own:length").monitors


def test_what_was_learnt_of_other_buckets_is_refused() -> None:
    told = watch_of().to_json()
    told["statistics"]["tokens"]["buckets"] = ["1", "inf"]
    with pytest.raises(ValueError, match="other buckets"):
        watch_of().restore(told)
    with pytest.raises(KeyError):
        watch_of().restore({})


@given(st.dictionaries(st.integers(0, 255), st.integers(1, 100), min_size=1))
def test_of_vectors_the_sides_of_planes_are_read_by_the_bits_of_cells(
    cells: dict[int, int],
) -> None:
    tested = TESTED[VECTORS]
    shares = np.zeros(256)
    shares[list(cells)] = [*cells.values()]
    shown = dict(zip(tested.names, tested.to_shares(shares).tolist(), strict=True))
    for plane in range(24):
        partition, bit = divmod(plane, 6)
        mine = {cell % 64: count for cell, count in cells.items() if cell // 64 == partition}
        for at, side in enumerate(("below", "above")):
            wanted = 4 * sum(count for cell, count in mine.items() if cell >> bit & 1 == at)
            assert shown[f"plane {plane}, {side}"] == wanted
