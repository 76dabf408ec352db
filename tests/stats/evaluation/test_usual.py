"""What is usual is learnt by time of the week, outlives a release, and is not unlearnt at once."""

import json

import numpy as np
import pytest
from registry_fakes import manifest

from contracts.endpoint import Arm
from contracts.manifest import TOKENIZER, PackageFile
from contracts.windows import WindowAggregate
from measures.rhythm import Week
from stats.evaluation.board import StatisticDrift
from stats.evaluation.drift import DriftSettings, DriftWatch
from stats.evaluation.usual import UsualTraffic, preprocessing_of

SETTINGS = DriftSettings(window_seconds=900, window_texts=1000)
MONDAY = 4 * 86_400
STEP = 900  # seconds of a window; few, so that weeks are quick
BY_NIGHT = np.array([0.1, 0.2, 0.3, 0.3, 0.1])
BY_DAY = np.array([0.2, 0.3, 0.3, 0.15, 0.05])
OTHERS = np.array([0.0, 0.0, 0.1, 0.3, 0.6])


class Texts:
    """Traffic with a rhythm of the day, window after window."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.at = MONDAY

    def days(self, watch: DriftWatch, count: float, others: float = 0.0) -> None:
        until = self.at + round(count * 86_400)
        while self.at < until:
            watch.see(self.window(others), STEP)
            self.at += STEP
            watch.flush(self.at)

    def window(self, others: float) -> WindowAggregate:
        day = 0.5 - 0.5 * np.cos(2 * np.pi * (self.at % 86_400) / 86_400)
        shares = (1 - others) * (day * BY_DAY + (1 - day) * BY_NIGHT) + others * OTHERS
        counts = self.rng.multinomial(2000, shares)
        found = WindowAggregate("e", "1", "p", Arm.STABLE, self.at, texts=2000)
        found.histograms = {"tokens": {at: int(n) for at, n in enumerate(counts) if n}}
        found.labels = {"bad": 1000, "good": 1000}
        return found


def usual() -> UsualTraffic:
    return SETTINGS.begin_usual()


def watch(
    texts: UsualTraffic, version: str = "1", answers: UsualTraffic | None = None
) -> DriftWatch:
    labels = ("bad", "good")
    return DriftWatch(version, version * 64, None, SETTINGS, labels, usual=texts, answers=answers)


def tokens(of: DriftWatch) -> StatisticDrift | None:
    found = [one for one in of.result().statistics if one.statistic == "week:tokens"]
    return found[0] if found else None


def test_nothing_is_compared_in_the_first_day_and_nothing_is_sure_in_the_second() -> None:
    shared, traffic = usual(), Texts()
    one = watch(shared)
    traffic.days(one, 0.9)
    assert tokens(one) is None
    assert one.result().learns_time
    traffic.days(one, 0.6)
    assert not one.result().learns_time
    found = tokens(one)
    assert found is not None
    assert not found.calibrated
    traffic.days(one, 0.01, others=0.5)
    found = tokens(one)
    assert found is not None
    assert (found.level, found.alarm) == (0, False)


def test_the_rhythm_is_no_drift_and_a_few_other_texts_are_found_in_it() -> None:
    shared, traffic = usual(), Texts()
    one = watch(shared)
    traffic.days(one, 4.3)
    quiet = tokens(one)
    assert quiet is not None
    assert quiet.calibrated
    assert max(point.ratio for point in list(quiet.history)[-300:]) <= 1
    traffic.days(one, 15 * STEP / 86_400, others=0.05)
    found = tokens(one)
    assert found is not None
    assert (found.level, found.alarm) == (1, False)
    assert found.now != found.reference


@pytest.mark.slow
def test_a_new_version_of_the_same_tokeniser_goes_on_with_what_is_usual() -> None:
    shared, traffic = usual(), Texts()
    traffic.days(watch(shared), 3.2)
    released = watch(shared, "2")
    traffic.days(released, 15 * STEP / 86_400, others=0.05)
    found = tokens(released)
    assert found is not None
    assert (found.calibrated, found.level) == (True, 1)
    answers = [one.statistic for one in released.result().statistics]
    assert "week:labels" not in answers  # what a model answers is its own


@pytest.mark.slow
def test_the_first_weekend_is_learnt_and_not_compared_with_weekdays() -> None:
    shared, traffic = usual(), Texts()
    one = watch(shared)
    traffic.days(one, 5.3)
    assert one.result().learns_time
    traffic.days(one, 2)  # Monday
    assert not one.result().learns_time


@pytest.mark.slow
def test_a_day_that_nobody_counted_is_left_out() -> None:
    shared, traffic = usual(), Texts()
    one = watch(shared)
    traffic.days(one, 2)
    traffic.at += 86_400
    traffic.days(one, 1.5)
    assert not one.result().learns_time
    learnt = shared.statistics["tokens"].rhythm
    # Two hours of the last half day may not be learnt yet.
    assert set(learnt.days[:96].tolist()) == {3.0, 4.0}
    assert not learnt.days[96:].any()


@pytest.mark.slow
def test_drift_is_not_learnt_until_it_lasted_for_a_week() -> None:
    shared, traffic = usual(), Texts()
    one = watch(shared)
    traffic.days(one, 4)
    before = shared.statistics["tokens"].rhythm.totals.copy()
    traffic.days(one, 1, others=0.3)
    learnt = shared.statistics["tokens"].rhythm.totals
    assert (learnt - before).sum() <= 8 * 3 * 2000 * 2  # what had come in the hours before it
    traffic.days(one, 10, others=0.3)
    assert shared.statistics["tokens"].rhythm.totals.sum() > 1.5 * before.sum()


@pytest.mark.slow
def test_what_was_learnt_outlives_the_process_and_is_not_learnt_twice() -> None:
    shared, traffic = usual(), Texts()
    traffic.days(watch(shared), 3.5)
    told = json.loads(json.dumps(shared.to_json()))
    after = usual()
    after.restore(told)
    assert after.to_json() == told
    again = Texts(2)
    again.at = MONDAY + round(2.5 * 86_400)
    again.days(watch(after), 0.9)  # the last day, read again
    assert after.to_json()["statistics"] == told["statistics"]
    one = watch(after)
    again.days(one, 0.2)
    assert not one.result().learns_time


def test_what_was_learnt_of_another_week_is_refused() -> None:
    told = usual().to_json()
    other = DriftSettings(week=Week(apart=(4, 5))).begin_usual()
    with pytest.raises(ValueError, match="days apart"):
        other.restore(told)
    with pytest.raises(KeyError):
        other.restore({})


def test_preprocessing_is_the_tokeniser_and_what_it_is_told() -> None:
    one = manifest().model_copy(update={"files": {TOKENIZER: PackageFile(sha256="a", bytes=1)}})
    model = one.model_copy(update={"version": "9", "created_by": "another day"})
    longer = one.tokenizer.model_copy(update={"max_tokens": one.tokenizer.max_tokens + 1})
    assert preprocessing_of(one, "p") == preprocessing_of(model, "q")
    assert preprocessing_of(one, "p") != preprocessing_of(
        one.model_copy(update={"tokenizer": longer}), "p"
    )
    assert preprocessing_of(None, "p") == "p"


# Of others: one cell of each partition, where they are of vectors.
OTHER_BUCKETS = (3, 77, 128 + 21, 200)


class Buckets:
    """Traffic whose windows hold counts by bucket as well."""

    def __init__(self, of: DriftWatch, *fields: str) -> None:
        self.of, self.fields, self.texts = of, fields, Texts()
        self.usual = np.full(256, 1 / 256)
        self.other = np.zeros(256)
        self.other[list(OTHER_BUCKETS)] = 1 / len(OTHER_BUCKETS)

    def hours(self, count: float, **parts: float) -> None:
        """So many hours, a part of each of some fields being others."""
        for _ in range(round(count * 3600 / STEP)):
            window = self.texts.window(0.0)
            for name in self.fields:
                part = parts.get(name, 0.0)
                shares = (1 - part) * self.usual + part * self.other
                rng = np.random.default_rng([self.texts.at, len(name)])  # a field's own
                counts = rng.multinomial(4000, shares)
                setattr(window, name, {at: int(n) for at, n in enumerate(counts) if n})
            self.of.see(window, STEP)
            self.texts.at += STEP
            self.of.flush(self.texts.at)

    def told(self, name: str) -> StatisticDrift:
        (found,) = (each for each in self.of.result().statistics if each.statistic == name)
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("topics", [f"bucket {each}" for each in OTHER_BUCKETS]),
        # A cell's lowest bit is of its partition's first plane.
        (
            "vectors",
            [
                f"plane {6 * (cell // 64) + bit}, {'above' if cell >> bit & 1 else 'below'}"
                for cell in OTHER_BUCKETS
                for bit in range(6)
            ],
        ),
    ],
)
def test_what_changes_at_equal_lengths_is_found_and_told_by_its_buckets(
    name: str, more: list[str]
) -> None:
    shared = {"topics": usual(), "vectors": usual()}
    one = watch(shared["topics"], answers=shared["vectors"])
    traffic = Buckets(one, name)
    traffic.hours(80)
    quiet = traffic.told(name)
    assert quiet.calibrated
    assert max(point.ratio for point in quiet.history) < 1
    traffic.hours(1, **{name: 0.15})
    found = traffic.told(name)
    assert found.level >= 1
    rows = list(zip(found.bins, found.reference, found.now, strict=True))[:4]
    assert {told: now > known for told, known, now in rows} == {
        told: told in more for told, _, _ in rows
    }
    assert {told for told, _, _ in rows} & set(more)
    week = {each.statistic: each.level for each in one.result().statistics}
    assert week["week:tokens"] == 0
    again = usual()
    again.restore(json.loads(json.dumps(shared[name].to_json())))
    assert again.to_json() == shared[name].to_json()
    assert set(again.past_differences) == {"vectors"}
    assert bool(again.past_differences["vectors"].ready()) == (name == "vectors")


@pytest.mark.slow
def test_vectors_change_while_tokens_stay_and_belong_to_the_package() -> None:
    texts, answers = usual(), usual()
    one = watch(texts, answers=answers)
    traffic = Buckets(one, "topics", "vectors")
    traffic.hours(80)
    traffic.hours(1.5, vectors=0.15)
    assert traffic.told("vectors").level >= 1
    assert traffic.told("topics").level == 0
    assert "vectors" not in texts.statistics
    assert "topics" not in answers.statistics
    # Another package's vectors are others: they are learnt again, and its texts are not.
    traffic.of = watch(texts, "2")
    traffic.hours(1)
    assert [each.statistic for each in traffic.of.result().statistics if "week" not in
            each.statistic and each.monitors] == ["topics"]  # fmt: skip


def test_tests_of_one_version_share_the_budget_of_such_tests() -> None:
    def evidence(*fields: str) -> float:
        one = watch(usual(), answers=usual())
        traffic = Buckets(one, *fields)
        traffic.hours(60)
        return traffic.told(fields[0]).history[-1].ratio

    alone, both = evidence("topics"), evidence("topics", "vectors")
    assert alone > 0
    assert both == pytest.approx(alone / 2)


@pytest.mark.slow
def test_a_release_on_a_day_that_differs_begins_with_how_it_differs() -> None:
    shared, traffic = usual(), Texts()
    one = watch(shared)
    traffic.days(one, 3.1)
    traffic.days(one, 0.85, others=0.15)  # long enough to be expected of this day
    before = tokens(one)
    released = watch(shared, "2")
    traffic.days(released, STEP / 86_400, others=0.15)
    after = tokens(released)
    assert before is not None
    assert after is not None
    assert [one.weight for one in after.monitors[:2]] == [1.0, 0.2]
    assert max(one.ratio for one in before.monitors[:2]) < 1
    assert max(one.ratio for one in after.monitors[:2]) < 1
