"""Drift against what an endpoint usually gets at this time of the week, whatever version answers.

``UsualTraffic`` is what was learnt: a rhythm of each statistic and how far windows lie from it
without drift. It belongs to an endpoint and to what makes numbers of its texts (the package's
tokeniser), so that a release which leaves that as it was goes on with it; what a model answers
belongs to the package. ``UsualWatch`` compares one version's windows with it. Pure.

A quarter-hour is learnt two hours after it ended, and left out if something was found since it
began: what drifts must not become usual at once. What lasts for a week is usual from then on.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from contracts.manifest import TOKENIZER, Manifest
from contracts.statistics import Statistic
from contracts.windows import Sparse
from measures.classifier_test import MEMORIES, ClassifierTest, PastDifferences, ScoreNull
from measures.correlation import Floats
from measures.histograms import dense
from measures.monitoring import ALARMS, WEIGHTS, Bins, ChiSquareCalibration, levels, spend
from measures.rhythm import (
    SLOT_SECONDS,
    Rhythm,
    Week,
    WeekMonitors,
    find_thresholds,
    group_bins,
    kind_of,
)
from stats.evaluation.board import DriftPoint, Monitor, StatisticDrift
from stats.evaluation.drift_counts import LABELS, TESTED, TOPICS, VECTORS, BucketLayout

PREFIX = "week:"  # of the statistics' names
WARNS = 0.005  # PSI from which a significant difference from the usual is told
MOST_STATISTICS = 32
_MOST_POINTS = 1440
_HOLD_SECONDS = 7200.0
_QUIET_SECONDS = 86_400.0  # without a find for this time, the next one begins another drift
_ACCEPTED_SECONDS = 7 * 86_400.0
_LEARNING_DAYS = 28
_QUIET_WINDOWS = 100
_TOLD_BUCKETS = 8  # of a classifier test, those that tell most
_ANSWERS = (
    Statistic.SCORE,
    Statistic.VECTOR_NORM,
    Statistic.NON_ZEROS,
    Statistic.GENERATED_TOKENS,
)
_OF_ANSWERS = {
    *(each.value for each in _ANSWERS),
    LABELS,
    VECTORS,
}


def preprocessing_of(manifest: Manifest | None, package: str) -> str:
    """Digest of what makes numbers of texts; the package's own if it is not known."""
    if manifest is None or TOKENIZER not in manifest.files:
        return package
    parts = manifest.files[TOKENIZER].sha256 + manifest.tokenizer.model_dump_json()
    return hashlib.sha256(parts.encode()).hexdigest()


def is_of_texts(statistic: str) -> bool:
    """Whether it is known before a model answers; users' own are."""
    return statistic not in _OF_ANSWERS


class DriftWindow(NamedTuple):
    """A drift window: its quarter-hours, end and length, and the chance that a test may take."""

    mix: Mapping[int, float]
    end: float
    seconds: float
    alpha: float

    @property
    def kind(self) -> int:
        """Of day."""
        return kind_of(self.mix)


@dataclass(slots=True)
class LearntStatistic:
    """What is usual of one statistic.

    Attributes:
        layout: its buckets.
        rhythm: counts by quarter-hour.
        seconds: that were learnt.
        group: bucket -> bin, chosen once a day was learnt; None before.
        floor: of the bins.
        calibrations: of chi-square without drift, one a kind of day.
        waiting: quarter-hours that may be learnt: begin, counts, seconds.
        unlearnt: of the calibrations: kind of day, chi-square and seconds of windows that may be
            learnt.
        found_at: end of the last window that was significant, unix seconds.
        found_since: when that drift began.
        today: monitors of the version that was looked at last: how today differs is no version's
            own.
    """

    layout: BucketLayout
    rhythm: Rhythm
    seconds: float = 0.0
    group: tuple[int, ...] | None = None
    floor: float = 0.0
    calibrations: list[ChiSquareCalibration] = field(default_factory=list)
    waiting: dict[int, tuple[Floats, float]] = field(default_factory=dict)
    unlearnt: deque[tuple[int, Floats, float]] = field(default_factory=deque)
    found_at: float = 0.0
    found_since: float = 0.0
    today: WeekMonitors | None = None

    def bins(self) -> Bins | None:
        """What is compared; None while a first day is learnt."""
        if self.group is None:
            return None
        return group_bins(np.array(self.group, dtype=np.intp), self.rhythm.totals, self.floor)

    def note_finding(self, at: float) -> None:
        """Takes that a window that ended then was significant."""
        if at - self.found_at > _QUIET_SECONDS:
            self.found_since = at
        self.found_at = max(self.found_at, at)

    def is_usual(self, begin: float) -> bool:
        """Whether what came in the quarter-hour that began then may be learnt."""
        if self.found_at < begin:
            return True
        return begin - self.found_since >= _ACCEPTED_SECONDS


@dataclass(slots=True)
class KnownUsual:
    """All that changes in a ``UsualTraffic``, and of which week it is."""

    zone: str
    apart: tuple[int, ...]
    through: float
    statistics: dict[str, LearntStatistic]
    score_nulls: dict[str, list[ScoreNull]]
    past_differences: dict[str, PastDifferences]
    tests_today: dict[str, ClassifierTest]


class UsualTraffic:
    """What is usual for one endpoint's texts, or for one package's answers.

    Attributes:
        through: up to when quarter-hours were learnt, unix seconds.
    """

    def __init__(
        self, week: Week, *, day_seconds: float, window_texts: int, seconds_per_alarm: float
    ) -> None:
        """Begins with nothing.

        Args:
            week: which times are alike.
            day_seconds: to be learnt before anything is compared, and compared before any alarm.
            window_texts: least texts in a drift window.
            seconds_per_alarm: expected time between false alarms against what is usual.
        """
        self.week = week
        self.day_seconds = day_seconds
        self.seconds_per_alarm = seconds_per_alarm
        self.through = 0.0
        self.statistics: dict[str, LearntStatistic] = {}
        self.score_nulls = {name: [ScoreNull.begin()] * week.kinds for name in TESTED}
        self.past_differences = {
            name: PastDifferences.begin(len(what.names))
            for name, what in TESTED.items()
            if what.knows_days
        }
        # Of the version that was looked at last, by statistic.
        self.tests_today: dict[str, ClassifierTest] = {}
        self._window_texts = window_texts

    def of(self, name: str, layout: BucketLayout) -> LearntStatistic | None:
        """A statistic's; None if its buckets are others now, or there are too many."""
        one = self.statistics.get(name)
        if one is None and len(self.statistics) < MOST_STATISTICS:
            one = LearntStatistic(layout, Rhythm(self.week.slots, len(layout.names)))
            one.calibrations = [ChiSquareCalibration.begin() for _ in range(self.week.kinds)]
            self.statistics[name] = one
        return one if one is not None and one.layout == layout else None

    def count(self, one: LearntStatistic, start: float, seconds: float, counts: Sparse) -> None:
        """Adds what came in a closed window; what was learnt before is not learnt again."""
        begin = int(start // SLOT_SECONDS) * SLOT_SECONDS
        if begin < self.through:
            return
        held, of_time = one.waiting.get(begin, (np.zeros(len(one.layout.names)), 0.0))
        more = dense(counts, len(one.layout.names)).astype(np.float64)
        one.waiting[begin] = (held + more, min(of_time + seconds, float(SLOT_SECONDS)))

    def learn(self, now: float) -> None:
        """Learns the quarter-hours that ended long enough ago; ``now`` is event time."""
        due = (int((now - _HOLD_SECONDS) // SLOT_SECONDS)) * SLOT_SECONDS
        if due <= self.through:
            return
        for one in self.statistics.values():
            for begin in sorted(begin for begin in one.waiting if begin < due):
                counts, seconds = one.waiting.pop(begin)
                if one.is_usual(begin):
                    one.rhythm.learn(self.week.slot(begin), counts)
                    one.seconds += seconds
            if one.group is None and one.seconds >= self.day_seconds:
                bins = Bins.of(one.rhythm.totals.sum(axis=0), self._window_texts)
                one.group, one.floor = tuple(bins.group.tolist()), bins.floor
        self.through = due

    def calibrate(
        self, one: LearntStatistic, found: Floats, when: DriftWindow, *, quiet: bool
    ) -> None:
        """From a day of windows, and then from such after which a hundred more were quiet."""
        seen = one.calibrations[when.kind].seconds.item()
        if seen < self.day_seconds:
            self._calibrate(one, when.kind, found, when.seconds)
        elif not quiet:
            one.unlearnt.clear()
        elif seen < self.most_seconds:
            one.unlearnt.append((when.kind, found, when.seconds))
            if len(one.unlearnt) > _QUIET_WINDOWS:
                self._calibrate(one, *one.unlearnt.popleft())

    def learn_scores(
        self, name: str, test: ClassifierTest, when: DriftWindow, *, quiet: bool
    ) -> None:
        """The same of a classifier test's scores, and of how days differ: of the last weeks."""
        if not quiet:
            return
        null, past = self.score_nulls[name][when.kind], self.past_differences.get(name)
        if past is not None:
            more = past.after(test.learnt, when.seconds, self.day_seconds)
            self.past_differences[name] = more
        if null.seconds < self.most_seconds:
            self.score_nulls[name][when.kind] = null.after(test.scores, when.seconds)

    @property
    def most_seconds(self) -> float:
        """Of traffic that a null is learnt from."""
        return _LEARNING_DAYS * self.day_seconds

    @staticmethod
    def _calibrate(one: LearntStatistic, kind: int, found: Floats, seconds: float) -> None:
        one.calibrations[kind] = one.calibrations[kind].after(found, seconds)

    def known(self) -> KnownUsual:
        """What another process goes on from; what it is made of goes on changing."""
        return KnownUsual(
            str(self.week.zone),
            self.week.apart,
            self.through,
            self.statistics,
            self.score_nulls,
            self.past_differences,
            self.tests_today,
        )

    def restore(self, known: KnownUsual) -> None:
        """Goes on from what another one knew; it belongs to this one from now on.

        Raises:
            ValueError: it is of another week, or of other buckets.
        """
        if (known.zone, known.apart) != (str(self.week.zone), self.week.apart):
            raise ValueError("the time zone or the days apart were others")
        mine, told = (
            {name: (one.kept.shape, one.ages.shape) for name, one in differences.items()}
            for differences in (self.past_differences, known.past_differences)
        )
        if mine != told or known.score_nulls.keys() != self.score_nulls.keys():
            raise ValueError("what the classifier tests count was another")
        self.through, self.statistics = known.through, known.statistics
        self.score_nulls, self.past_differences = known.score_nulls, known.past_differences
        self.tests_today = known.tests_today


@dataclass(slots=True)
class _StatisticComparison:
    """One statistic of one version."""

    monitors: WeekMonitors
    points: deque[DriftPoint] = field(default_factory=lambda: deque(maxlen=_MOST_POINTS))
    shown: tuple[Monitor, ...] = ()
    level: Literal[0, 1, 2] = 0


@dataclass(slots=True)
class _KnownTest:
    """What a classifier test knows of one version."""

    test: ClassifierTest
    points: deque[DriftPoint] = field(default_factory=lambda: deque(maxlen=_MOST_POINTS))
    shown: Monitor | None = None


@dataclass(slots=True)
class ComparedTraffic:
    """All that changes in a ``UsualWatch``; ``learning``: too little is known of the last time."""

    compared: dict[str, _StatisticComparison] = field(default_factory=dict)
    tested: dict[str, _KnownTest] = field(default_factory=dict)
    mix: dict[int, float] = field(default_factory=dict)
    learning: bool = True

    def points(self) -> dict[str, tuple[DriftPoint, ...]]:
        """The charts, by statistic as they are told."""
        compared = {PREFIX + name: tuple(one.points) for name, one in self.compared.items()}
        return compared | {name: tuple(one.points) for name, one in self.tested.items()}


_Known = tuple[UsualTraffic, LearntStatistic, Bins]


class _VersionTest:
    """What the classifier test tells of one version's windows: their tokens, or their vectors."""

    def __init__(self, name: str, known: _KnownTest, words: Sequence[str]) -> None:
        self._name = name
        self._what = TESTED[name]
        self._words = words
        self._known = known

    @staticmethod
    def begin(name: str) -> _KnownTest:
        """Nothing is known."""
        what = TESTED[name]
        return _KnownTest(ClassifierTest.begin(len(what.layout.names), features=len(what.names)))

    def look(self, usual: UsualTraffic, counts: Sparse, when: DriftWindow, share: float) -> None:
        """Looks at a drift window, of which enough must be known.

        Args:
            usual: what the counts are compared with.
            counts: by bucket.
            when: the window.
            share: of the budget of such tests.
        """
        one = usual.statistics.get(self._name)
        if one is None or one.group is None or not counts or not one.rhythm.covers(when.mix):
            return
        null = usual.score_nulls[self._name][when.kind]
        past = usual.past_differences.get(self._name)
        part = share * when.seconds / usual.seconds_per_alarm
        if self._known.shown is None:
            self._known.test = self._known.test.of_day(usual.tests_today.get(self._name))
        window = dense(counts, len(self._what.layout.names)).astype(np.float64)
        expected = one.rhythm.shares(when.mix)
        self._known.test = self._known.test.after(
            window,
            expected,
            null,
            part,
            usual.day_seconds,
            features=self._what.features,
            past=past,
            today=self._what.today,
        )
        usual.tests_today[self._name] = self._test
        found, psi = float(self._known.test.evidence_ratio()), float(self._known.test.psi())
        ready = bool(null.ready(usual.day_seconds)) and (past is None or bool(past.ready()))
        self._known.shown = Monitor(MEMORIES[0], psi, found, 1.0, ready)
        self._known.points.append(DriftPoint(when.end, psi, found))
        if found >= 1:
            one.note_finding(when.end)
        usual.learn_scores(self._name, self._known.test, when, quiet=found < 1)

    def result(self) -> Iterator[StatisticDrift]:
        """What is known now; nothing before the first window that was compared."""
        if self._known.shown is None:
            return
        level: Literal[0, 1, 2] = 0
        if self._known.shown.ratio >= 1:
            level = 2 if self._known.shown.psi >= ALARMS else 1
        told = self._known.test.most(_TOLD_BUCKETS).tolist()
        yield StatisticDrift(
            statistic=self._name,
            monitors=(self._known.shown,),
            level=level,
            bins=tuple(self._bin_name(feature) for feature in told),
            reference=tuple(self._what.to_shares(self._known.test.usual)[told].tolist()),
            now=tuple(self._what.to_shares(self._known.test.seen)[told].tolist()),
            history=tuple(self._known.points),
        )

    def _bin_name(self, feature: int) -> str:
        words = self._words[feature] if feature < len(self._words) else ""
        name = self._what.names[feature]
        return f"{name} (such as {words})" if words else name


class UsualWatch:
    """Compares one version's drift windows with what is usual; learns from them as well."""

    def __init__(
        self, texts: UsualTraffic, answers: UsualTraffic, words: Sequence[str] = ()
    ) -> None:
        """Begins without windows.

        Args:
            texts: what is usual of texts, shared with other versions.
            answers: what is usual of this version's answers.
            words: examples of what each bucket of tokens stands for.
        """
        self.known = ComparedTraffic(
            tested={name: _VersionTest.begin(name) for name in (TOPICS, VECTORS)}
        )
        self._texts = texts
        self._answers = answers
        self._words = words

    def see(
        self, start: float, seconds: float, name: str, layout: BucketLayout, counts: Sparse
    ) -> None:
        """One statistic of a closed window."""
        usual = self._find_usual(name)
        one = usual.of(name, layout)
        if one is not None:
            usual.count(one, start, seconds, counts)

    def lies_in(self, start: float, seconds: float, texts: int) -> None:
        """Takes when the texts of a closed window came, which joins the drift window."""
        for slot, weight in self._texts.week.mix(start + seconds / 2).items():
            self.known.mix[slot] = self.known.mix.get(slot, 0.0) + weight * texts

    def end_of(self, end: float, seconds: float, counts: Mapping[str, Sparse]) -> None:
        """Looks at a complete drift window."""
        mix, self.known.mix = self.known.mix, {}
        self.known.learning = True
        ready: dict[str, _Known] = {}
        for name in counts.keys() - TESTED.keys():
            usual = self._find_usual(name)
            one = usual.statistics.get(name)
            bins = None if one is None else one.bins()
            if one is not None and bins is not None and bins.degrees > 0:
                ready[name] = usual, one, bins
        alpha = spend(seconds, self._texts.seconds_per_alarm, len(ready)).item()
        when = DriftWindow(mix, end, seconds, float(alpha))
        for name, known in ready.items():
            _, one, _ = known
            window = dense(counts[name], len(one.layout.names)).astype(np.float64)
            if window.sum() > 0 and one.rhythm.covers(mix):
                self.known.learning = False
                self._look(name, known, window, when)
        # Their budget is shared by those that there are: an embedding has both.
        share = 1 / max(1, sum(name in self._find_usual(name).statistics for name in TESTED))
        for name, tested in self._tests():
            tested.look(self._find_usual(name), counts.get(name, {}), when, share)
        for usual in (self._texts, self._answers):
            usual.learn(end)

    def result(self) -> tuple[StatisticDrift, ...]:
        """What is known now, sorted by name."""
        found = (self._drift_of(name) for name in sorted(self.known.compared))
        return (*found, *chain.from_iterable(one.result() for _, one in self._tests()))

    def learning(self) -> bool:
        """Whether the last window came at a time of the week of which too little is known."""
        return self.known.learning

    def _tests(self) -> Iterator[tuple[str, _VersionTest]]:
        for name, known in self.known.tested.items():
            yield name, _VersionTest(name, known, self._words if name == TOPICS else ())

    def _find_usual(self, name: str) -> UsualTraffic:
        return self._texts if is_of_texts(name) else self._answers

    def _look(self, name: str, known: _Known, window: Floats, when: DriftWindow) -> None:
        usual, one, bins = known
        texts_a_day = one.rhythm.texts_a_day()
        compared = self.known.compared.get(name)
        if compared is None or compared.monitors.bins.count != bins.count:
            begun = WeekMonitors.begin(bins, usual.week.slots).of_day(one.today)
            compared = self.known.compared[name] = _StatisticComparison(begun)
        compared.monitors = compared.monitors.after(window, *one.rhythm.expect(when.mix, bins))
        one.today = compared.monitors
        found = compared.monitors.chi_square(texts_a_day)
        psi = compared.monitors.psi(texts_a_day)
        calibration = one.calibrations[when.kind]
        threshold, ready = find_thresholds(calibration, when.alpha, bins.degrees, usual.day_seconds)
        ratio = np.where(ready, found / threshold, 0.0)
        level = int(levels(ratio, psi, WARNS))
        compared.level = 2 if level == 2 else 1 if level == 1 else 0
        rows = zip(WEIGHTS, psi.tolist(), found.tolist(), threshold.tolist(), ready.tolist(),
                   strict=True)  # fmt: skip
        compared.shown = tuple(Monitor(*row) for row in rows)
        best = max(compared.shown, key=lambda monitor: monitor.ratio)
        compared.points.append(DriftPoint(when.end, best.psi, best.ratio))
        significant = bool((ratio > 1).any())
        if significant:
            one.note_finding(when.end)
        usual.calibrate(one, found, when, quiet=not significant)

    def _drift_of(self, name: str) -> StatisticDrift:
        compared = self.known.compared[name]
        layout = self._find_usual(name).statistics[name].layout
        bins = compared.monitors.bins
        best = max(range(len(WEIGHTS)), key=lambda at: compared.shown[at].ratio)
        return StatisticDrift(
            statistic=PREFIX + name,
            monitors=compared.shown,
            level=compared.level,
            bins=tuple(
                layout.bin_name(np.flatnonzero(bins.group == at).tolist())
                for at in range(bins.count)
            ),
            reference=tuple(compared.monitors.expect()[best].tolist()),
            now=tuple(compared.monitors.shares()[best].tolist()),
            history=tuple(compared.points),
        )
