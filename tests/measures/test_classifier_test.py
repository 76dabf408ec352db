"""The classifier test: bets gain nothing without a change, and what changed is found and named."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from measures.classifier_test import MEMORIES, PAST, ClassifierTest, PastDifferences, ScoreNull

BUCKETS = 64
USUAL = np.full(BUCKETS, 1 / BUCKETS)


def null_of(streams: int) -> ScoreNull:
    """Scores that are standard normal."""
    many = np.full((streams, len(MEMORIES)), 5000.0)
    return ScoreNull(np.full(streams, 5000.0), np.full(streams, 90_000.0), 0 * many, many)


def walked(rng: np.random.Generator, windows: int, shares: np.ndarray, streams: int) -> np.ndarray:
    test, null = ClassifierTest.begin(BUCKETS, (streams,)), null_of(streams)
    expected = np.tile(USUAL, (streams, 1))
    found = []
    for _ in range(windows):
        counts = rng.multinomial(2000, shares, size=streams).astype(float)
        test = test.after(counts, expected, null, 1 / 500, 86_400.0)
        found.append(test.evidence_ratio())
    return np.stack(found, axis=1)


@pytest.mark.slow
def test_without_a_change_false_alarms_are_rarer_than_stated() -> None:
    found = walked(np.random.default_rng(1), 500, USUAL, 40)
    began = (found[:, 1:] >= 1) & (found[:, :-1] < 1)
    assert began.sum() <= 40  # one in 500 windows was stated


def test_a_change_is_found_and_its_buckets_are_told_first() -> None:
    rng, streams = np.random.default_rng(2), 3
    other = USUAL.copy()
    other[[5, 9]] += 0.02
    other /= other.sum()
    test, null = ClassifierTest.begin(BUCKETS, (streams,)), null_of(streams)
    expected = np.tile(USUAL, (streams, 1))
    for window in range(60):
        shares = other if window >= 40 else USUAL
        counts = rng.multinomial(2000, shares, size=streams).astype(float)
        test = test.after(counts, expected, null, 1 / 500, 86_400.0)
    assert (test.evidence_ratio() >= 1).all()
    assert all(set(told) == {5, 9} for told in test.most(2).tolist())
    assert (test.psi() > 0).all()


def test_before_a_day_was_seen_nothing_is_bet() -> None:
    rng = np.random.default_rng(3)
    test = ClassifierTest.begin(BUCKETS)
    other = np.roll(np.linspace(0, 2 / BUCKETS, BUCKETS), 3)
    for _ in range(30):
        counts = rng.multinomial(2000, other / other.sum()).astype(float)
        test = test.after(counts, USUAL, ScoreNull.begin(), 1 / 500, 86_400.0)
    assert test.evidence_ratio() == 0


@given(st.lists(st.floats(-50, 50), min_size=4, max_size=40))
def test_what_is_learnt_of_scores_is_their_mean_and_spread(values: list[float]) -> None:
    null = ScoreNull.begin()
    for value in values:
        null = null.after(np.full(len(MEMORIES), value), 60.0)
    null = null.after(np.full(len(MEMORIES), 1e6), 60.0, learn=False)
    assert null.seconds == pytest.approx(60 * len(values))
    spread = 1.1 * float(np.sqrt(np.maximum(np.var(values), 1e-12)))
    wanted = (10 - max(float(np.mean(values)), 0.0)) / spread
    assert null.standardise(np.full(len(MEMORIES), 10.0))[0] == pytest.approx(wanted, rel=1e-2)
    assert ScoreNull.of_json(null.to_json()) is not null


# Ways in which traffic may differ, as standardised differences by bucket, each of length 1.
ONE, OTHER = np.zeros(BUCKETS), np.zeros(BUCKETS)
ONE[[5, 9]] = np.array([1, -1]) / np.sqrt(2)
OTHER[[20, 30]] = np.array([1, -1]) / np.sqrt(2)
TEXTS, DAY = 2000, 86_400.0


def days_that_differ(size: float) -> PastDifferences:
    """Two weeks in which hours differed in one way, up and down."""
    kept = np.where(np.arange(PAST) % 2, size, -size)[:, None] * ONE
    return PastDifferences(kept, np.arange(1.0, PAST + 1) * 120, np.zeros(()))


def differing(
    rng: np.random.Generator, way: np.ndarray, past: PastDifferences | None, windows: int = 60
) -> float:
    """The largest evidence of windows that differ by so many standard deviations."""
    test, null = ClassifierTest.begin(BUCKETS), null_of(1)
    null = ScoreNull(null.windows[0], null.seconds[0], null.total[0], null.squares[0])
    mean = TEXTS * USUAL
    shares = (mean + np.sqrt(mean + 1) * way) / TEXTS
    most = 0.0
    for _ in range(windows):
        counts = rng.multinomial(TEXTS, shares).astype(float)
        # Today is left at the usual: it is as if it moved on with the difference.
        test = test.after(counts, USUAL, null, 1e-6, DAY, past=past, today=0.0)
        most = max(most, float(test.evidence_ratio()))
    return most


@given(st.floats(0, 2), st.floats(-1, 1), st.integers(0, 2**32 - 1))
@example(2.0, 1.0, 1)
def test_what_differs_no_more_than_days_did_is_no_evidence(
    size: float, part: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    assert differing(rng, part * size * ONE, days_that_differ(size)) < 1


def test_hours_that_differ_as_days_do_are_found_only_where_days_are_not_known() -> None:
    rng = np.random.default_rng(4)
    days = days_that_differ(1.5)
    assert differing(rng, 1.5 * ONE, None, 120) >= 1
    assert differing(rng, 1.5 * ONE, days, 120) < 1
    assert differing(rng, 1.5 * OTHER, days, 120) >= 1
    assert differing(rng, 7 * ONE, days, 120) >= 1


@given(st.integers(0, 80), st.floats(0, 3), st.floats(0.1, 4))
def test_deviation_between_hours_is_of_the_way_that_a_classifier_looks(
    count: int, size: float, variance: float
) -> None:
    past = PastDifferences.begin(BUCKETS, (2,))
    learnt = np.zeros((2, len(MEMORIES), BUCKETS))
    for at in range(count):
        learnt[:, -1] = (size if at % 2 else -size) * ONE
        past = past.after(learnt, DAY / 12, DAY, learn=[True, False])
    known = max(0, count - 40)  # the others are in the classifiers themselves
    assert (past.ages > 0).sum(axis=-1).tolist() == [count, 0]
    assert past.ready().tolist() == [known >= 12, False]
    towards = np.broadcast_to(np.stack([ONE, OTHER]), (2, 2, BUCKETS))
    found = past.deviation(towards, np.full((2, 2), variance))
    wanted = np.sqrt(max(size**2 - 0.05 / 1.95 * variance, 0.0)) if known else 0.0
    assert found[0, 0] == pytest.approx(wanted, abs=0.05)
    assert found[0, 1] == found[1, 0] == found[1, 1] == 0
    assert PastDifferences.of_json(past.to_json()).to_json() == past.to_json()


def test_differences_are_kept_a_twelfth_of_a_day_apart_and_the_oldest_go() -> None:
    past, more = PastDifferences.begin(1), 5
    learnt = np.zeros((len(MEMORIES), 1))
    for window in range(12 * (PAST + more)):
        learnt[-1, 0] = window
        past = past.after(learnt, 600.0, DAY)
    assert past.kept[:, 0].tolist() == [12 * (PAST + more - at) - 1 for at in range(PAST)]
    assert past.ages.tolist() == [12 * at + 1 for at in range(PAST)]


def test_nothing_is_bet_until_a_day_of_differences_is_known() -> None:
    assert differing(np.random.default_rng(5), 7 * ONE, PastDifferences.begin(BUCKETS)) == 0
