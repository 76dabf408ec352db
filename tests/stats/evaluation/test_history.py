"""Windows are kept whole and closed once; what comes late still counts."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_batches import batch_of

from contracts.endpoint import Arm
from contracts.windows import UnkWordCounts, WindowAggregate
from measures.folding import Fold
from measures.merging import merge
from measures.trust import Trust
from stats.evaluation.board import MINUTES_SECONDS, WINDOWS_SECONDS, Accuracy
from stats.evaluation.history import MOST_SLOTS, ClosedWindow, History, slot_of

NOW = 1_000_100.0


def aggregate_of(
    start: int, texts: int = 1, *, version: str = "1", arm: Arm = Arm.STABLE
) -> WindowAggregate:
    return WindowAggregate("e", version, "p", arm, start, statuses={200: texts}, texts=texts)


def texts_of(closed: list[ClosedWindow]) -> list[tuple[int, int]]:
    return [(found.window.start, found.window.aggregate().texts) for found in closed]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), parts=st.integers(1, 5))
def test_parts_of_a_window_add_up_to_the_whole(seed: int, parts: int) -> None:
    rng, history = random.Random(seed), History()
    aggregates: list[WindowAggregate] = []
    for number in range(parts):
        fold = Fold(10)
        fold.add(batch_of(rng, sequence=number, events=6))
        aggregates += fold.aggregates()
    for aggregate in aggregates:
        assert history.add(aggregate, 10, NOW)
    history.close(NOW)
    found = {
        (slot_of(w.aggregate()), w.start): w.aggregate()
        for s in history.series()
        for w in s.windows
    }
    keys = {(slot_of(aggregate), aggregate.start) for aggregate in aggregates}
    assert found.keys() == keys
    for slot, start in keys:
        whole = merge(c for c in aggregates if (slot_of(c), c.start) == (slot, start))
        found[slot, start].own.sort(key=str)
        whole.own.sort(key=str)
        assert found[slot, start] == whole


def test_words_that_became_unk_are_kept_with_windows_and_not_with_minutes() -> None:
    history = History()
    aggregate = aggregate_of(1_000_000)
    aggregate.unk_words = UnkWordCounts(2, {"zoom": 2})
    aggregate.topics, aggregate.vectors = {3: 5}, {7: 2}
    history.add(aggregate, 10, NOW)
    history.close(NOW)
    (series,) = history.series()
    assert series.windows[0].aggregate().unk_words == aggregate.unk_words
    assert series.minutes[0].aggregate().unk_words == UnkWordCounts()
    assert series.windows[0].aggregate().topics == {3: 5}
    assert series.windows[0].aggregate().vectors == {7: 2}
    assert series.minutes[0].aggregate().topics == {}
    assert series.minutes[0].aggregate().vectors == {}
    assert series.minutes[0].aggregate().texts == 1


def test_a_window_is_closed_once_and_in_order() -> None:
    history = History()
    for start in (1_000_020, 1_000_000, 1_000_010):
        history.add(aggregate_of(start), 10, NOW)
    assert texts_of(history.close(1_000_021)) == [(1_000_000, 1), (1_000_010, 1)]
    assert texts_of(history.close(1_000_030)) == [(1_000_020, 1)]
    assert history.close(1_000_030) == []


def test_what_comes_late_is_in_the_series_and_is_not_closed_again() -> None:
    history = History()
    history.add(aggregate_of(1_000_000), 10, NOW)
    history.close(1_000_050)
    history.add(aggregate_of(1_000_000, 4), 10, NOW)
    assert history.close(1_000_060) == []
    (series,) = history.series()
    assert [window.aggregate().texts for window in series.windows] == [5]


def test_only_closed_windows_and_whole_minutes_are_shown() -> None:
    history = History()
    for start in range(1_000_020, 1_000_150, 10):  # a minute begins at 1,000,020
        history.add(aggregate_of(start, 2), 10, NOW + 60)
    history.close(1_000_140)
    (series,) = history.series()
    assert [w.start for w in series.windows] == list(range(1_000_020, 1_000_140, 10))
    assert [(w.start, w.seconds, w.aggregate().texts) for w in series.minutes] == [
        (1_000_020, 60, 12),
        (1_000_080, 60, 12),
    ]


def test_an_hour_of_windows_and_a_day_of_minutes_are_kept() -> None:
    history = History()
    history.add(aggregate_of(1_000_000), 10, NOW)
    history.close(NOW)
    history.forget(NOW + WINDOWS_SECONDS)
    (series,) = history.series()
    assert (len(series.windows), len(series.minutes)) == (0, 1)
    history.forget(NOW + MINUTES_SECONDS)
    assert list(history.series()) == []


def test_windows_that_nobody_closed_yet_are_not_forgotten() -> None:
    history = History()
    history.add(aggregate_of(1_000_000), 10, NOW)
    history.forget(NOW + 2 * WINDOWS_SECONDS)
    assert texts_of(history.close(NOW)) == [(1_000_000, 1)]


def test_a_clock_an_hour_off_is_believed_and_a_day_off_is_not() -> None:
    history = History()
    assert history.add(aggregate_of(1_003_600), 10, NOW)
    assert history.add(aggregate_of(996_400), 10, NOW)
    assert not history.add(aggregate_of(int(NOW) + 86_400), 10, NOW)
    assert not history.add(aggregate_of(int(NOW) - 86_500), 10, NOW)


def test_arms_past_the_bound_are_refused() -> None:
    history = History()
    for number in range(MOST_SLOTS):
        assert history.add(aggregate_of(1_000_000, version=str(number)), 10, NOW)
    assert not history.add(aggregate_of(1_000_000, version="one more"), 10, NOW)
    assert history.add(aggregate_of(1_000_010, version="0"), 10, NOW)


def test_an_estimate_needs_feedback_that_does_not_contradict_the_scores() -> None:
    def told(texts: int, right: int) -> Accuracy:
        history = History()
        aggregate = aggregate_of(1_000_000, 4)
        aggregate.histograms = {"score": {17: 2000}}
        aggregate.sums = {"score": 1_700_000_000}
        aggregate.feedback = {"good": {"good": right, "bad": texts - right}}
        aggregate.feedback_scores = {17: texts}
        aggregate.feedback_right = {17: right}
        aggregate.feedback_score_sums = {17: texts * 850_000}
        history.add(aggregate, 10, NOW)
        ((_, accuracy),) = history.accuracy(NOW)
        return accuracy

    few, held, off = told(99, 84), told(400, 336), told(400, 290)
    assert (few.trust, few.estimated, few.low) == (Trust.UNKNOWN, None, None)
    assert (off.trust, off.estimated, off.mean_score) == (Trust.OFF, None, 0.85)
    assert (held.trust, held.estimated) == (Trust.HELD, 0.85)
    assert held.low is not None
    assert held.high is not None
    assert held.low < 0.84 < held.high  # 84 % were right
    assert 0.06 < held.high - held.low < 0.1


def test_a_mean_score_is_told_and_accuracy_is_measured_by_feedback() -> None:
    history = History()
    aggregate = aggregate_of(1_000_000, 4)
    aggregate.histograms, aggregate.sums = {"score": {17: 3, 19: 1}}, {"score": 3_600_000}
    aggregate.feedback = {"good": {"good": 3, "bad": 1}, "bad": {"bad": 1}}
    history.add(aggregate, 10, NOW)
    ((slot, accuracy),) = history.accuracy(NOW)
    assert slot.version == "1"
    assert (accuracy.mean_score, accuracy.texts) == (0.9, 4)
    assert accuracy.estimated is None
    assert (accuracy.measured, accuracy.feedback) == (0.8, 5)
    assert list(history.accuracy(NOW + WINDOWS_SECONDS)) == []
