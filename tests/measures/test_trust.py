"""Scores are believed as far as feedback lets them be, and their estimate says how far that is."""

import numpy as np
import pytest

from contracts.windows import MICRO
from measures.trust import FEWEST, ScoredFeedback, Trust, interval


def feedback(scores: np.ndarray, right: np.ndarray) -> ScoredFeedback:
    found = ScoredFeedback()
    for score, is_right in zip(scores.tolist(), right.tolist(), strict=True):
        bucket = int(np.ceil(score * 20)) - 1
        found.add({bucket: 1}, {bucket: int(is_right)}, {bucket: round(score * MICRO)})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("texts", [100, 1000])
def test_calibrated_scores_are_seldom_called_off(texts: int) -> None:
    rng = np.random.default_rng(texts)
    off = 0
    for _ in range(200):
        scores = rng.beta(6, 1.5, texts)
        off += feedback(scores, rng.random(texts) < scores).trust() is Trust.OFF
    assert off <= 8  # 1 % was stated


def test_scores_that_are_too_sure_are_called_off() -> None:
    rng = np.random.default_rng(1)
    scores = rng.beta(6, 1.5, 500)
    assert feedback(scores, rng.random(500) < scores - 0.1).trust() is Trust.OFF


def test_scores_that_are_right_on_average_alone_are_called_off() -> None:
    rng = np.random.default_rng(2)
    scores = np.where(rng.random(1000) < 0.5, 0.55, 0.95)
    assert feedback(scores, rng.random(1000) < 0.75).trust() is Trust.OFF


def test_one_wrong_answer_of_sure_scores_settles_nothing() -> None:
    scores = np.full(200, 0.9999)
    right = np.ones(200, bool)
    right[0] = False
    assert feedback(scores, right).trust() is Trust.HELD


def test_few_labels_tell_nothing_and_more_make_the_interval_narrower() -> None:
    rng = np.random.default_rng(3)
    assert feedback(np.full(FEWEST - 1, 0.8), np.ones(FEWEST - 1, bool)).trust() is Trust.UNKNOWN
    widths = []
    for texts in (100, 1000, 10_000):
        scores = rng.beta(6, 1.5, texts)
        low, high = interval(0.8, 100_000, feedback(scores, rng.random(texts) < scores).doubt())
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_the_interval_holds_the_accuracy_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    held, told = 0, 0
    for _ in range(300):
        scores = rng.beta(6, 1.5, 300)
        shift = rng.normal(0, 0.01)  # a little off, so that feedback seldom tells
        known = feedback(scores, rng.random(300) < np.clip(scores + shift, 0, 1))
        hour = rng.beta(6, 1.5, 2000)
        if known.trust() is Trust.HELD:
            told += 1
            low, high = interval(float(hour.mean()), 2000, known.doubt())
            held += low <= (rng.random(2000) < np.clip(hour + shift, 0, 1)).mean() <= high
    assert told > 250
    assert held >= 0.93 * told
