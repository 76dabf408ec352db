"""The classifier test: bets gain nothing without a change, and what changed is found and named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.classifier_test import MEMORIES, ClassifierTest, ScoreNull

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
        found.append(test.found())
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
    assert (test.found() >= 1).all()
    assert all(set(told) == {5, 9} for told in test.most(2).tolist())
    assert (test.psi() > 0).all()


def test_before_a_day_was_seen_nothing_is_bet() -> None:
    rng = np.random.default_rng(3)
    test = ClassifierTest.begin(BUCKETS)
    other = np.roll(np.linspace(0, 2 / BUCKETS, BUCKETS), 3)
    for _ in range(30):
        counts = rng.multinomial(2000, other / other.sum()).astype(float)
        test = test.after(counts, USUAL, ScoreNull.begin(), 1 / 500, 86_400.0)
    assert test.found() == 0


@given(st.lists(st.floats(-50, 50), min_size=4, max_size=40))
def test_what_is_learnt_of_scores_is_their_mean_and_spread(values: list[float]) -> None:
    null = ScoreNull.begin()
    for value in values:
        null = null.after(np.full(len(MEMORIES), value), 60.0)
    null = null.after(np.full(len(MEMORIES), 1e6), 60.0, learn=False)
    assert null.seconds == pytest.approx(60 * len(values))
    spread = 1.1 * float(np.sqrt(np.maximum(np.var(values), 1e-12)))
    wanted = (10 - max(float(np.mean(values)), 0.0)) / spread
    assert null.standardised(np.full(len(MEMORIES), 10.0))[0] == pytest.approx(wanted, rel=1e-2)
    assert ScoreNull.of_json(null.to_json()) is not null
