"""Drift of one version: its traffic, drift window by drift window, against its reference.

A drift window is made of as many closed windows of the version's stable and canary arms as give
enough time and enough texts. Until a full day was seen, a statistic is compared but raises no
alarm. What the reference lacks (users' own statistics, or everything, if the package has no
profile) is compared with that first day itself, once it is over. Pure; it reads no package and
keeps nothing on disk.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from contracts.features import Feature
from contracts.profile import ReferenceProfile
from contracts.windows import Sparse, WindowAggregate
from measures.correlation import Floats
from measures.histograms import add_counts, dense
from measures.monitoring import (
    QUESTIONS,
    WEIGHTS,
    Bins,
    ChiSquareCalibration,
    Monitors,
    levels,
    spend,
)
from measures.rhythm import Week
from stats.evaluation.board import DriftPoint, DriftReference, Monitor, StatisticDrift, VersionDrift
from stats.evaluation.drift_counts import (
    TESTED,
    BucketLayout,
    counts_of,
    features_of,
    layouts_of,
    reference_counts,
    tested_of,
)
from stats.evaluation.usual import ComparedTraffic, UsualTraffic, UsualWatch

DAY_SECONDS = 86_400.0
MOST_POINTS = 1440
MOST_STATISTICS = 64  # of a version
# The null goes on being learnt for this many days, from windows after which this many others were
# quiet: what drifts slowly is not significant at first, and must not be taken for usual.
_LEARNING_DAYS = 7
_QUIET_WINDOWS = 100

_Level = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """How drift is judged.

    Attributes:
        window_seconds: least length of a drift window, of event time.
        window_texts: least texts in one.
        false_alarm_seconds: expected time between false alarms of an endpoint.
        calibration_seconds: of traffic that must have been seen before any alarm.
        week: which times are alike.
    """

    window_seconds: float = 60.0
    window_texts: int = 1000
    false_alarm_seconds: float = 30 * DAY_SECONDS
    calibration_seconds: float = DAY_SECONDS
    week: Week = field(default_factory=Week)

    @property
    def seconds_per_alarm(self) -> float:
        """Of one of the questions that share the endpoint's budget."""
        return QUESTIONS * self.false_alarm_seconds

    def begin_usual(self) -> UsualTraffic:
        """What is usual, of which nothing is learnt yet."""
        return UsualTraffic(
            self.week,
            day_seconds=self.calibration_seconds,
            window_texts=self.window_texts,
            seconds_per_alarm=self.seconds_per_alarm,
        )


@dataclass(slots=True)
class _StatisticWatch:
    """One statistic."""

    layout: BucketLayout
    reference: Floats | None  # counts; None: still being learnt
    learnt: Floats
    learnt_seconds: float = 0.0
    monitors: Monitors | None = None
    calibration: ChiSquareCalibration = field(default_factory=ChiSquareCalibration.begin)
    unlearnt: deque[tuple[Floats, float]] = field(default_factory=deque)
    points: deque[DriftPoint] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    shown: tuple[Monitor, ...] = ()
    level: _Level = 0


@dataclass(slots=True)
class _Pending:
    """The drift window that is not complete."""

    begin: int
    end: int
    texts: int = 0
    counts: dict[str, Sparse] = field(default_factory=dict)


@dataclass(slots=True)
class KnownDrift:
    """All that changes in a ``DriftWatch``."""

    through: float
    texts: int
    pending: _Pending | None
    watched: dict[str, _StatisticWatch]
    usual: ComparedTraffic

    def points(self) -> dict[str, tuple[DriftPoint, ...]]:
        """The charts, by statistic as ``VersionDrift`` names them."""
        own = {name: tuple(one.points) for name, one in self.watched.items()}
        return own | self.usual.points()


class DriftWatch:
    """One version of one endpoint.

    Attributes:
        through: end of the last drift window, unix seconds.
    """

    def __init__(
        self,
        version: str,
        package: str,
        profile: ReferenceProfile | None,
        settings: DriftSettings,
        labels: Sequence[str] = (),
        *,
        usual: UsualTraffic | None = None,
        answers: UsualTraffic | None = None,
        words: Sequence[str] = (),
        features: Sequence[Feature] = (),
    ) -> None:
        """Begins without traffic.

        Args:
            version: of the registered model.
            package: digest of its package.
            profile: of its evaluation texts.
            settings: how drift is judged.
            labels: of the model, if there is no profile.
            usual: what is usual of the endpoint's texts; it is learnt from this version's as well.
            answers: the same of this package's answers.
            words: examples of what each bucket of tokens stands for.
            features: of rows of a table and of its answers, with the counts of its own rows.
        """
        self.through = 0.0
        self._version = version
        self._package = package
        self._profile = profile
        self._labels = tuple(labels)
        self._settings = settings
        self._texts = 0
        self._pending: _Pending | None = None
        self._watched: dict[str, _StatisticWatch] = {}
        self._usual = UsualWatch(
            usual or settings.begin_usual(), answers or settings.begin_usual(), words
        )
        for name, layout in layouts_of(profile).items():
            counts = None if profile is None else reference_counts(profile, name, layout)
            self._watch(name, layout, counts)
        for name, (layout, counts) in features_of(features).items():
            if len(self._watched) < MOST_STATISTICS:
                self._watch(name, layout, counts)

    def see(self, aggregate: WindowAggregate, seconds: int) -> None:
        """One closed window; they come in the order of their ends."""
        pending = self._pending
        if pending is None:
            pending = self._pending = _Pending(aggregate.start, aggregate.start)
        elif aggregate.start >= pending.end and self._is_enough(pending):
            self._end_of(pending)
            pending = self._pending = _Pending(aggregate.start, aggregate.start)
        pending.end = max(pending.end, aggregate.start + seconds)
        pending.texts += aggregate.texts
        self._usual.lies_in(aggregate.start, seconds, aggregate.texts)
        for name, layout, counts in counts_of(
            aggregate, self._known_layouts(), self._profile, self._labels
        ):
            if name not in self._watched and len(self._watched) < MOST_STATISTICS:
                self._watch(name, layout, None)
            add_counts(pending.counts.setdefault(name, {}), counts)
            self._usual.see(aggregate.start, seconds, name, layout, counts)
        for name, counts in tested_of(aggregate):
            add_counts(pending.counts.setdefault(name, {}), counts)
            self._usual.see(aggregate.start, seconds, name, TESTED[name].layout, counts)

    def flush(self, through: float) -> None:
        """Ends the drift window that is complete, if nothing that belongs to it may come."""
        pending = self._pending
        if pending is not None and through >= pending.end and self._is_enough(pending):
            self._pending = None
            self._end_of(pending)

    def result(self) -> VersionDrift:
        """What is known now."""
        seen = max((one.calibration.seconds.item() for one in self._list_compared()), default=0.0)
        return VersionDrift(
            version=self._version,
            package=self._package,
            reference=self._reference(),
            calibration=min(1.0, seen / self._settings.calibration_seconds),
            at=self.through,
            texts=self._texts,
            statistics=(
                *(_drift_of(name, self._watched[name]) for name in sorted(self._watched)),
                *self._usual.result(),
            ),
            learns_time=self._usual.learning(),
        )

    def known(self) -> KnownDrift:
        """What another process goes on from; what it is made of goes on changing."""
        return KnownDrift(
            self.through, self._texts, self._pending, self._watched, self._usual.known
        )

    def told(self) -> VersionDrift:
        """``result`` without the charts, which ``KnownDrift.points`` has."""
        found = self.result()
        bare = (replace(statistic, history=()) for statistic in found.statistics)
        return replace(found, statistics=tuple(bare))

    def restore(self, known: KnownDrift) -> None:
        """Goes on from what another one knew; it belongs to this one from now on.

        Raises:
            ValueError: it is of other buckets.
        """
        for name, one in known.watched.items():
            mine = self._watched.get(name)
            if mine is not None and mine.layout != one.layout:
                raise ValueError(f"{one.layout.names} are other buckets than {mine.layout.names}")
        self.through, self._texts, self._pending = known.through, known.texts, known.pending
        self._watched |= known.watched
        self._usual.known = known.usual

    def _watch(self, name: str, layout: BucketLayout, reference: Floats | None) -> None:
        empty = np.zeros(len(layout.names))
        one = self._watched[name] = _StatisticWatch(layout, reference, empty)
        if reference is not None:
            self._begin(one)

    def _begin(self, one: _StatisticWatch) -> None:
        if one.reference is not None and one.reference.sum() > 0:
            bins = Bins.of(one.reference, self._settings.window_texts)
            one.monitors = Monitors.begin(bins)

    def _known_layouts(self) -> Mapping[str, BucketLayout]:
        return {name: one.layout for name, one in self._watched.items()}

    def _list_compared(self) -> list[_StatisticWatch]:
        return [
            one
            for one in self._watched.values()
            if one.monitors is not None and one.monitors.bins.degrees > 0
        ]

    def _is_enough(self, pending: _Pending) -> bool:
        settings = self._settings
        return (
            pending.end - pending.begin >= settings.window_seconds
            and pending.texts >= settings.window_texts
        )

    def _end_of(self, pending: _Pending) -> None:
        """Looks at a complete drift window."""
        seconds = float(pending.end - pending.begin)
        self.through, self._texts = float(pending.end), pending.texts
        alpha = float(
            spend(seconds, self._settings.seconds_per_alarm, len(self._list_compared())).item()
        )
        for name, one in self._watched.items():
            counts = dense(pending.counts.get(name, {}), len(one.layout.names)).astype(float)
            if counts.sum() == 0:
                continue
            if one.monitors is None:
                self._learn(one, counts, seconds)
            elif one.monitors.bins.degrees > 0:
                self._look(one, one.monitors.after(counts), alpha, seconds)
        self._usual.end_of(self.through, seconds, pending.counts)

    def _learn(self, one: _StatisticWatch, counts: Floats, seconds: float) -> None:
        """Makes a reference of the first day, for want of one."""
        one.learnt = one.learnt + counts
        one.learnt_seconds += seconds
        if one.learnt_seconds >= self._settings.calibration_seconds:
            one.reference = one.learnt
            self._begin(one)

    def _look(self, one: _StatisticWatch, monitors: Monitors, alpha: float, seconds: float) -> None:
        one.monitors = monitors
        degrees = monitors.bins.degrees
        found, psi = monitors.chi_square(), monitors.psi()
        ready = one.calibration.ready(self._settings.calibration_seconds)
        analytic = float(chdtri(degrees, alpha))
        threshold = np.where(ready, one.calibration.threshold(alpha, degrees), analytic)
        level = int(levels(found / threshold, psi))
        one.level = 2 if level == 2 else 1 if level == 1 else 0
        one.shown = _monitors(psi, found, threshold, ready)
        best = max(one.shown, key=lambda monitor: monitor.ratio)
        one.points.append(DriftPoint(self.through, best.psi, best.ratio))
        self._calibrate(one, found, seconds, quiet=best.ratio <= 1)

    def _calibrate(
        self, one: _StatisticWatch, found: Floats, seconds: float, *, quiet: bool
    ) -> None:
        """In the first day from everything; then for some days more, while nothing drifts."""
        seen, day = one.calibration.seconds.item(), self._settings.calibration_seconds
        if seen < day:
            one.calibration = one.calibration.after(found, seconds)
        elif not quiet:
            one.unlearnt.clear()
        elif seen < _LEARNING_DAYS * day:
            one.unlearnt.append((found, seconds))
            if len(one.unlearnt) > _QUIET_WINDOWS:
                one.calibration = one.calibration.after(*one.unlearnt.popleft())

    def _reference(self) -> DriftReference:
        profile = self._profile
        if profile is not None and profile.texts > 0:
            return DriftReference("profile", profile.texts, profile.source)
        learnt = max((int(one.learnt.sum()) for one in self._watched.values()), default=0)
        if self._list_compared():
            return DriftReference("traffic", learnt, "the first day of its own traffic")
        return DriftReference("none", learnt, "its own traffic becomes the reference after a day")


def _monitors(
    psi: Floats, found: Floats, threshold: Floats, ready: NDArray[np.bool_]
) -> tuple[Monitor, ...]:
    rows = zip(
        WEIGHTS, psi.tolist(), found.tolist(), threshold.tolist(), ready.tolist(), strict=True
    )
    return tuple(Monitor(*row) for row in rows)


def _drift_of(name: str, one: _StatisticWatch) -> StatisticDrift:
    if one.monitors is None or not one.shown:
        return StatisticDrift(name, (), 0)
    bins = one.monitors.bins
    best = max(range(len(WEIGHTS)), key=lambda at: one.shown[at].ratio)
    return StatisticDrift(
        statistic=name,
        monitors=one.shown,
        level=one.level,
        bins=tuple(_bin_names(one.layout, bins)),
        reference=tuple(bins.shares.tolist()),
        now=tuple(one.monitors.shares()[best].tolist()),
        history=tuple(one.points),
    )


def _bin_names(layout: BucketLayout, bins: Bins) -> Iterator[str]:
    for number in range(bins.count):
        members = np.flatnonzero(bins.group == number).tolist()
        yield layout.bin_name(members)
