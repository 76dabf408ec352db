"""Everything that the evaluate role holds: counters, windows, drift. One owner, one step at a time.

What it knows follows from the log of window records, so that a process that was killed reads them
again; only the calibration of drift, from days that are not read again, is kept by
``stats.evaluation.learnt_log``. No I/O; the clock is passed in.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.endpoint import Arm, ModelEndpoint
from contracts.metrics import OTHER
from contracts.windows import WindowRecord
from measures.increments import Growth, RangeLedger
from measures.losses import Losses, MessageLosses
from stats.evaluation.board import MINUTES_SECONDS, Board, EndpointBoard, Origin, VersionDrift
from stats.evaluation.drift import DriftSettings, DriftWatch
from stats.evaluation.history import ClosedWindow, History, Slot
from stats.evaluation.references import References
from stats.evaluation.totals import ArmKey, SeriesLimits, TrafficTotals
from stats.evaluation.usual import UsualTraffic, preprocessing_of

log = logging.getLogger(__name__)

MOST_WAITING = 20_000  # windows of versions whose reference is not known yet
WATCHED_ARMS = (Arm.STABLE, Arm.CANARY)
# What an endpoint can refuse before any attempt: at 0 until it does.
KNOWN_REASONS = (
    "413 too_large",
    "422 invalid_input",
    "429 rate_limited",
    "503 model_unavailable",
    "503 overloaded",
    "504 deadline_exceeded",
)

_Watch = tuple[str, str, str]  # endpoint, version, package
_USUAL = "usual:"  # before the keys of what is usual, among those of versions


@dataclass(frozen=True, slots=True)
class WindowTiming:
    """When windows are closed, and for how long series are kept.

    Attributes:
        lateness_seconds: time from a window's end until it is closed, once all partitions are
            folded.
        longest_wait_seconds: and the longest such time, whatever the partitions say.
        keep_seconds: after this time series of an arm that is gone from its endpoint end.
    """

    lateness_seconds: float = 5.0
    longest_wait_seconds: float = 60.0
    keep_seconds: float = 600.0


class Evaluation:
    """The state, and what follows from it.

    Attributes:
        totals: the counters.
        since: when they began at 0, unix seconds; 0 while what is old is still being read.
        lost: what gateways sent since then and is not in the log, as of the last look.
    """

    def __init__(
        self,
        references: References,
        drift: DriftSettings,
        pace: WindowTiming,
        *,
        most: SeriesLimits = SeriesLimits(),  # noqa: B008 - it is frozen
    ) -> None:
        """Begins with nothing.

        Args:
            references: manifests of packages.
            drift: how drift is judged.
            pace: when windows are closed.
            most: how many arms and versions are told apart.
        """
        self.totals = TrafficTotals(most, pace.keep_seconds)
        self._most = most
        self.since = 0.0
        self.lost = MessageLosses()
        self._losses = Losses()
        self._references = references
        self._drift = drift
        self._pace = pace
        self._usual_told: dict[str, Any] = {}
        self._usual: dict[str, UsualTraffic] = {}  # used last, last
        self._calibrations: dict[str, Any] = {}
        self._ledger = RangeLedger()
        self._history = History()
        self._waiting: list[ClosedWindow] = []  # for a reference
        self._watches: dict[_Watch, DriftWatch] = {}
        self._packages: dict[_Watch, float] = {}  # when it was last routed to or counted
        self._endpoints: dict[str, float] = {}  # when it was last there

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Goes on from what ``to_json`` told of an earlier process, before anything is seen."""
        for key, told in learnt.items():
            (self._usual_told if key.startswith(_USUAL) else self._calibrations)[key] = told

    def take(self, records: Iterable[WindowRecord], now: float) -> None:
        """Counts what each record adds to those before it."""
        for record in records:
            self._losses.take(record)
            growth = self._ledger.take(record)
            if growth is None:
                continue
            self._keep(growth, now)
            if self.since:
                self.totals.add(growth, now)

    def begin(self, now: float) -> None:
        """What was taken so far is the past: the counters begin at 0 here. Harmless to repeat."""
        if not self.since:
            self.since = now
            self._losses.settle(self._ledger.known_through())
            self._losses.begin()

    def look(self, endpoints: Sequence[ModelEndpoint], now: float, *, connected: bool) -> Board:
        """Closes windows, looks at drift, and says what is known.

        Args:
            endpoints: as stored now.
            now: unix seconds.
            connected: Kafka answered lately.
        """
        self._see_routes(endpoints, now)
        if self.since:
            self.lost = self._losses.settle(self._ledger.known_through())
            through = min(now, self._ledger.known_through()) - self._pace.lateness_seconds
            until = max(through, now - self._pace.longest_wait_seconds)
            self._watch(self._history.close(until), now)
            for watch in self._watches.values():
                watch.flush(until)
        self._forget(now)
        return self._board(now, connected=connected)

    def arms(self, now: float) -> tuple[ArmKey, ...]:
        """Whose series are shown: routed to or counted lately."""
        oldest = now - self._pace.keep_seconds
        return tuple(key for key, arm in self.totals.arms.items() if arm.touched >= oldest)

    def refusals(self, now: float) -> dict[str, dict[str, int]]:
        """Those of endpoints that are there, or were lately, and those that share a name."""
        oldest = now - self._pace.keep_seconds
        return {
            name: counts
            for name, counts in self.totals.refusals.items()
            if name == OTHER or self._endpoints.get(name, 0.0) >= oldest
        }

    def to_json(self) -> dict[str, Any]:
        """The calibration of drift, of what is watched or was lately; and what is usual."""
        calibrations = {"/".join(key): watch.to_json() for key, watch in self._watches.items()}
        usual = {key: one.to_json() for key, one in self._usual.items()}
        return {**self._calibrations, **calibrations, **self._usual_told, **usual}

    def _keep(self, growth: Growth, now: float) -> None:
        for aggregate in growth.aggregates:
            kept = self._history.add(aggregate, growth.window_seconds, now)
            if not kept and self.since:
                self.totals.note_overflow("windows", sum(aggregate.statuses.values()))

    def _see_routes(self, endpoints: Sequence[ModelEndpoint], now: float) -> None:
        for endpoint in endpoints:
            self.totals.declare_endpoint(endpoint.name, KNOWN_REASONS, now)
            self._endpoints[endpoint.name] = now
            for route in endpoint.status.routes:
                known = self._references.of(route.ref.package)
                manifest = None if known is None else known.manifest
                labels = () if manifest is None else manifest.counted_labels
                key = ArmKey(endpoint.name, route.ref.version, route.arm)
                self.totals.declare(key, labels, now)
                self._packages[endpoint.name, route.ref.version, route.ref.package] = now

    def _watch(self, closed: list[ClosedWindow], now: float) -> None:
        """Shows each window to the drift watch of its version, once its reference is known."""
        waiting, self._waiting = [*self._waiting, *closed], []
        for found in waiting:
            if found.slot.arm not in WATCHED_ARMS:
                continue
            watch = self._watch_of(found.slot)
            if watch is not None:
                watch.see(found.window.aggregate(), found.window.seconds)
                self._packages[_key(found.slot)] = now
            elif self._may_wait(found, now):
                self._waiting.append(found)
            else:
                self.totals.note_overflow("versions", 1)

    def _may_wait(self, found: ClosedWindow, now: float) -> bool:
        """Whether its version will be watched once its reference is known."""
        return (
            len(self._watches) < self._most.versions
            and len(self._waiting) < MOST_WAITING
            and found.end > now - MINUTES_SECONDS
        )

    def _watch_of(self, slot: Slot) -> DriftWatch | None:
        key = _key(slot)
        watch = self._watches.get(key)
        if watch is None and len(self._watches) < self._most.versions:
            known = self._references.of(slot.package)
            if known is None:
                return None
            manifest = known.manifest
            watch = DriftWatch(
                slot.version,
                slot.package,
                None if manifest is None else manifest.profile,
                self._drift,
                () if manifest is None else manifest.counted_labels,
                usual=self._usual_of(
                    slot.endpoint, "texts", preprocessing_of(manifest, slot.package)
                ),
                answers=self._usual_of(slot.endpoint, "answers", slot.package),
                words=known.words,
                features=() if manifest is None else (*manifest.features, *manifest.answers),
            )
            self._restore(key, watch)
            self._watches[key] = watch
        return watch

    def _usual_of(self, endpoint: str, kind: str, digest: str) -> UsualTraffic:
        """What is usual of an endpoint's texts or answers; begun if nothing is known of it."""
        key = f"{_USUAL}{endpoint}/{kind}/{digest}"
        usual = self._usual.pop(key, None)
        told = self._usual_told.pop(key, None)
        if usual is None:
            usual = self._drift.begin_usual()
            try:
                if told is not None:
                    usual.restore(told)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                log.warning(
                    "what was usual can't be used; it is learnt again",
                    extra={"endpoint": endpoint, "of": kind, "reason": str(error)},
                )
        self._usual[key] = usual
        most = 2 * self._most.versions  # the one that was not used for longest is forgotten
        for kept in (self._usual_told, self._usual):
            if len(self._usual) + len(self._usual_told) > most and kept:
                del kept[next(iter(kept))]
        return usual

    def _restore(self, key: _Watch, watch: DriftWatch) -> None:
        told = self._calibrations.get("/".join(key))
        if told is None:
            return
        try:
            watch.restore(told)
        except (KeyError, TypeError, ValueError) as error:
            log.warning(
                "the drift calibration can't be used; the version is calibrated again",
                extra={"endpoint": key[0], "version": key[1], "reason": str(error)},
            )

    def _forget(self, now: float) -> None:
        self._history.forget(now)
        if self.since:
            self._ledger.forget_before(now - MINUTES_SECONDS - 2 * self._pace.keep_seconds)
        oldest = now - max(self._pace.keep_seconds, self._pace.longest_wait_seconds)
        for key in [key for key, seen in self._packages.items() if seen < oldest]:
            del self._packages[key]
            watch = self._watches.pop(key, None)
            if watch is not None:
                self._calibrations["/".join(key)] = watch.to_json()
                if len(self._calibrations) > 4 * self._most.versions:
                    del self._calibrations[next(iter(self._calibrations))]

    def _board(self, now: float, *, connected: bool) -> Board:
        boards: dict[str, EndpointBoard] = {}
        parts: dict[str, dict[str, list[Any]]] = {}
        for series in self._history.series():
            parts.setdefault(series.endpoint, _empty_document())["series"].append(series)
        for (endpoint, _, _), watch in sorted(self._watches.items()):
            drift: VersionDrift = watch.result()
            parts.setdefault(endpoint, _empty_document())["drift"].append(drift)
        for slot, accuracy in self._history.accuracy(now):
            parts.setdefault(slot.endpoint, _empty_document())["accuracy"].append(accuracy)
        for endpoint, version, package in sorted(self._packages):
            origin = self._origin(version, package)
            parts.setdefault(endpoint, _empty_document())["origins"].append(origin)
        for name, found in parts.items():
            boards[name] = EndpointBoard(
                name,
                **{part: tuple(items) for part, items in found.items()},
                refusals=dict(self.totals.refusals.get(name, {})),
            )
        through = self._ledger.known_through()
        return Board(now, self.since, through, connected=connected, by_endpoint=boards)

    def _origin(self, version: str, package: str) -> Origin:
        known = self._references.of(package)
        manifest = None if known is None else known.manifest
        if manifest is None:
            return Origin(version, package, "")
        return Origin(
            version=version,
            package=package,
            model=manifest.lineage.registered_model,
            run_id=manifest.lineage.run_id,
            data_sets=tuple(item.name for item in manifest.lineage.data_sets),
            task=manifest.task.value,
            precision=manifest.precision.value,
            labels=manifest.labels,
        )


def _empty_document() -> dict[str, list[Any]]:
    return {"series": [], "drift": [], "accuracy": [], "origins": []}


def _key(slot: Slot) -> _Watch:
    return slot.endpoint, slot.version, slot.package
