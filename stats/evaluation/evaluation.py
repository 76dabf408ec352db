"""Everything that the evaluate role holds: counters, windows, drift. One owner, one step at a time.

What it knows of an endpoint follows from its pieces of the window records and nothing else, and can
be told and taken over at any time, with how far each range was counted: whoever goes on counts each
record once. No I/O; the clock is passed in.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from contracts.endpoint import Arm, ModelEndpoint
from contracts.metrics import OTHER
from contracts.windows import WindowRecord
from measures.dividing import COMMON, names_in, part_of, partition_of
from measures.increments import Growth, RangeLedger
from measures.losses import MessageLosses
from measures.watermark import Watermark
from stats.evaluation.board import MINUTES_SECONDS, Board, EndpointBoard, Origin, VersionDrift
from stats.evaluation.drift import DriftSettings, DriftWatch, KnownDrift
from stats.evaluation.history import ClosedWindow, History, Slot
from stats.evaluation.known import CommonState, EndpointState, PartitionState, Place
from stats.evaluation.references import References
from stats.evaluation.totals import ArmKey, SeriesLimits, TrafficTotals
from stats.evaluation.usual import KnownUsual, UsualTraffic, preprocessing_of

_T = TypeVar("_T")

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
_Usual = tuple[str, str, str]  # endpoint, "texts" or "answers", digest


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
        since: when all that there was had been read, unix seconds; 0 before.
        lost: what gateways sent and is not in the log, as of the last look.
        changed: endpoints of which something was counted since their state was told.
    """

    def __init__(
        self,
        references: References,
        drift: DriftSettings,
        pace: WindowTiming,
        *,
        most: SeriesLimits = SeriesLimits(),  # noqa: B008 - it is frozen
        partitions: int = 1,
    ) -> None:
        """Begins with nothing.

        Args:
            references: manifests of packages.
            drift: how drift is judged.
            pace: when windows are closed.
            most: how many arms and versions are told apart.
            partitions: of the topic of window records.
        """
        self.totals = TrafficTotals(most, pace.keep_seconds)
        self._most = most
        self._partitions = partitions
        self.since = 0.0
        self.lost = MessageLosses()
        self.changed: set[str] = set()
        self._common = CommonState()
        self._watermarks: dict[int, Watermark] = {}
        self._references = references
        self._drift = drift
        self._pace = pace
        self._usual_told: dict[_Usual, KnownUsual] = {}
        self._usual: dict[_Usual, UsualTraffic] = {}  # used last, last
        self._known: dict[_Watch, KnownDrift] = {}  # of what is not watched (yet)
        self._ledgers: dict[str, RangeLedger] = {}
        self._began: dict[str, float] = {}
        self._history = History()
        self._waiting: list[ClosedWindow] = []  # for a reference
        self._watches: dict[_Watch, DriftWatch] = {}
        self._packages: dict[_Watch, float] = {}  # when it was last routed to or counted
        self._endpoints: dict[str, float] = {}  # when it was last there

    def take(self, records: Iterable[WindowRecord], now: float, partition: int = 0) -> None:
        """Counts what each piece of a partition adds to those before it."""
        watermark = self._watermarks.setdefault(partition, Watermark())
        for record in records:
            watermark.take(record.topic_id, record.partition, record.through)
            if record.pieces == 1 < self._partitions:
                continue  # of a time when records were not divided: it is not whole here
            if partition == COMMON:
                self._common.losses.take(record)
                self._add(self._common.ledger.take(part_of(record, "")), now)
            for name in names_in(record):
                if partition_of(name, self._partitions) == partition:
                    self.take_part(name, record, now)

    def take_part(self, name: str, record: WindowRecord, now: float) -> None:
        """Counts what a record says of one endpoint, if that was not counted before."""
        growth = self._ledgers.setdefault(name, RangeLedger()).take(part_of(record, name))
        if growth is not None:
            self._began.setdefault(name, now)
            self.changed.add(name)
            self._add(growth, now)

    def begin(self, now: float) -> None:
        """All that there was is read. Harmless to repeat."""
        if not self.since:
            self.since = now
            if not self._common.is_resumed:  # what was lost before anybody looked is not told
                self._common.losses.settle(self.known_through())
                self._common.losses.begin()
                self._common.is_resumed = True

    def known_through(self) -> float:
        """The time up to which every partition has been folded, and read here."""
        known = (mark.known_until() for mark in self._watermarks.values())
        return min(known, default=0.0)

    def state(self, name: str, now: float, place: Place = Place()) -> EndpointState:  # noqa: B008
        """What another process goes on from; what it is made of goes on changing."""
        watches = {key: watch.known() for key, watch in self._watches.items() if key[0] == name}
        usual = {key: one.known() for key, one in self._usual.items() if key[0] == name}
        known = {key: one for key, one in self._known.items() if key[0] == name}
        told = {key: one for key, one in self._usual_told.items() if key[0] == name}
        return EndpointState(
            name=name,
            at=now,
            place=place,
            began=self._began.get(name, now),
            ledger=self._ledgers[name],
            arms={key: arm for key, arm in self.totals.arms.items() if key.endpoint == name},
            refusals=self.totals.refusals.get(name, {}),
            history=self._history.of(name),
            waiting=[closed for closed in self._waiting if closed.slot.endpoint == name],
            watches={key[1:]: one for key, one in (known | watches).items()},
            watched={key[1:] for key in watches},
            usual={key[1:]: one for key, one in (told | usual).items()},
            drift={key[1:]: self._watches[key].told() for key in watches},
            origins=[self._origin(*key[1:]) for key in sorted(self._packages) if key[0] == name],
        )

    def adopt(self, state: EndpointState, now: float) -> None:
        """Goes on with an endpoint from what another process told of it."""
        name = state.name
        self._began[name], self._ledgers[name] = state.began, state.ledger
        self.totals.adopt(name, state.arms, state.refusals, now)
        self._history.adopt(state.history)
        self._waiting += state.waiting
        self._known |= {(name, *key): known for key, known in state.watches.items()}
        self._usual_told |= {(name, *key): known for key, known in state.usual.items()}
        for version, package in state.watched:
            self._packages[name, version, package] = now

    def partition_state(self, partition: int, topic_id: str, began: int) -> PartitionState:
        """The same of a partition, with what is of no endpoint if that lies there."""
        common = None
        if partition == COMMON:
            totals, common = self.totals, self._common
            common.counts = (totals.skipped, totals.copies, totals.mistimed)
        return PartitionState(self._watermarks.get(partition, Watermark()), topic_id, began, common)

    def adopt_partition(self, partition: int, state: PartitionState) -> None:
        """Goes on with a partition."""
        self._watermarks[partition] = state.watermark
        if state.common is not None:
            self._common, totals = state.common, self.totals
            totals.skipped, totals.copies, totals.mistimed = state.common.counts

    def forget(self, now: float) -> list[str]:
        """Drops endpoints that are gone for a day; their names."""
        oldest = now - MINUTES_SECONDS - 2 * self._pace.keep_seconds
        gone = []
        for name, ledger in [*self._ledgers.items()]:
            ledger.forget_before(oldest)
            seen = max((known.seen for known in ledger.newest.values()), default=0.0)
            if max(seen, self._endpoints.get(name, 0.0)) < oldest:
                del self._ledgers[name]
                self._known = {key: one for key, one in self._known.items() if key[0] != name}
                gone.append(name)
        return gone

    def look(self, endpoints: Sequence[ModelEndpoint], now: float, *, connected: bool) -> Board:
        """Closes windows, looks at drift, and says what is known.

        Args:
            endpoints: as stored now.
            now: unix seconds.
            connected: Kafka answered lately.
        """
        self._see_routes(endpoints, now)
        if self.since:
            self.lost = self._common.losses.settle(self.known_through())
            through = min(now, self.known_through()) - self._pace.lateness_seconds
            until = max(through, now - self._pace.longest_wait_seconds)
            for endpoint, version, package in [*self._packages]:
                if (endpoint, version, package) in self._known:
                    self._watch_of(Slot(endpoint, version, package, Arm.STABLE))
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

    def _add(self, growth: Growth | None, now: float) -> None:
        if growth is None:
            return
        for aggregate in growth.aggregates:
            if not self._history.add(aggregate, growth.window_seconds, now):
                self.totals.note_overflow("windows", sum(aggregate.statuses.values()))
        self.totals.add(growth, now)

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
            self.changed.add(found.slot.endpoint)
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
            known_drift = self._known.pop(key, None)
            if known_drift is not None:
                _restore(watch.restore, known_drift, slot.endpoint, slot.version)
            self._watches[key] = watch
        return watch

    def _usual_of(self, endpoint: str, kind: str, digest: str) -> UsualTraffic:
        """What is usual of an endpoint's texts or answers; begun if nothing is known of it."""
        key = endpoint, kind, digest
        usual = self._usual.pop(key, None)
        told = self._usual_told.pop(key, None)
        if usual is None:
            usual = self._drift.begin_usual()
            if told is not None:
                _restore(usual.restore, told, endpoint, kind)
        self._usual[key] = usual
        most = 2 * self._most.versions  # the one that was not used for longest is forgotten
        for kept in (self._usual_told, self._usual):
            if len(self._usual) + len(self._usual_told) > most and kept:
                del kept[next(iter(kept))]
        return usual

    def _forget(self, now: float) -> None:
        self._history.forget(now)
        oldest = now - max(self._pace.keep_seconds, self._pace.longest_wait_seconds)
        for key in [key for key, seen in self._packages.items() if seen < oldest]:
            del self._packages[key]
            watch = self._watches.pop(key, None)
            if watch is not None:
                self._known[key] = watch.known()
                if len(self._known) > 4 * self._most.versions:
                    del self._known[next(iter(self._known))]

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
                since=self._began.get(name, 0.0),
            )
        return Board(now, self.since, self.known_through(), connected=connected, by_endpoint=boards)

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


def _restore(restore: Callable[[_T], None], known: _T, endpoint: str, of: str) -> None:
    try:
        restore(known)
    except ValueError as error:
        log.warning(
            "what was learnt can't be used; it is learnt again",
            extra={"endpoint": endpoint, "of": of, "reason": str(error)},
        )


def _empty_document() -> dict[str, list[Any]]:
    return {"series": [], "drift": [], "accuracy": [], "origins": []}


def _key(slot: Slot) -> _Watch:
    return slot.endpoint, slot.version, slot.package
