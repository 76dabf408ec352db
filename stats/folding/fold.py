"""The fold role: messages of our partitions into window records, and only then commits.

For one thread. A worker may be killed at any instant, or do its work twice, without harm: a record
is a function of the log, readers keep the record of a range that reaches furthest, and a new owner
begins at the start of the range that the last commit lies in. It keeps no state on disk, and never
decides what a window means.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, sleep, time

import msgspec

from contracts.backoff import Backoff
from contracts.windows import RANGE_MESSAGES, WindowRecord
from measures.ranges import OutOfOrderError, PartitionFold, range_start, read_from
from measures.sequences import GatewaySequences
from service.kafka import StreamError, TopicMissingError
from stats.errors import RecordTooLargeError, StalledError
from stats.folding.prediction_log import Assignment, LogMessage, Offsets, PredictionLog
from stats.folding.record_sink import RecordSink
from stats.reading.stall import STALL_SECONDS, EmptyPolls, ReadingSnapshot, Stall, look_on

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_PAUSES = Backoff(0.2, 3.0)


@dataclass(slots=True)
class FoldCounts:
    """What people may know of the role, since the process started; read by the metrics.

    Attributes:
        connected: the broker says that we are a member of the group; or there is no topic yet.
        last_read: when a message was last read, unix seconds; 0: never.
        checked: when the broker last said where we stand, unix seconds; 0: never.
        well: when we last were where we should be, and read what there was; monotonic seconds.
        ends: our partition -> offset behind its last message, as the broker said.
        positions: our partition -> offset of the next message to read.
        lag: our partition -> messages between the two.
    """

    messages: int = 0
    events: int = 0
    skipped: int = 0
    copies: int = 0
    mistimed: int = 0
    missing: int = 0
    records: int = 0
    oversized: int = 0
    failures: int = 0
    assignments: int = 0
    stalls: int = 0
    empty_polls: int = 0
    connected: bool = False
    last_read: float = 0.0
    checked: float = 0.0
    well: float = field(default_factory=monotonic)
    ends: dict[int, int] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    lag: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FoldPace:
    """How windows are cut, and how often records are written.

    Attributes:
        window_seconds: of event time, in one window.
        write_seconds: a growing record is written this often.
        look_seconds: the broker is asked this often how far we are behind.
        stall_seconds: messages that wait for this time without any being read, or a group that
            does not hold us for this time, mean a new connection.
    """

    window_seconds: int
    write_seconds: float = 0.5
    look_seconds: float = 2.0
    stall_seconds: float = STALL_SECONDS


class Folder:
    """Folds what one connection to Kafka gives; on any error a new one begins again."""

    def __init__(
        self,
        source: PredictionLog,
        sink: RecordSink,
        pace: FoldPace,
        counts: FoldCounts,
        *,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], object] = sleep,
    ) -> None:
        """Takes its parts."""
        self._source = source
        self._sink = sink
        self._pace = pace
        self._counts = counts
        self._clock = clock
        self._wait = wait
        self._folds: dict[int, PartitionFold] = {}
        self._complete: list[WindowRecord] = []
        self._written: dict[int, int] = {}  # partition -> the fold's next offset at the last write
        self._write_at = clock() + pace.write_seconds
        self._look_at = clock() + pace.look_seconds
        self._stall = Stall()
        self._empty_polls = EmptyPolls(_POLL_SECONDS)

    def step(self) -> None:
        """Polls once, and does what is due; raises ``StreamError`` and ``OutOfOrderError``."""
        began = self._clock()
        polled = self._source.poll(_POLL_SECONDS)
        if isinstance(polled, Assignment):
            self._begin(polled)
            return
        for message in polled:
            self._take(message)
        if self._complete or self._clock() >= self._write_at:
            self.write()
        if self._clock() >= self._look_at:
            self._look()
        if self._empty_polls.spins(self._clock() - began, empty=not polled):
            self._counts.empty_polls += 1
            self._wait(_POLL_SECONDS)

    def write(self) -> None:
        """Writes all that is not written, waits for it, then commits."""
        self._write_at = self._clock() + self._pace.write_seconds
        # After the last poll and before anything leaves: all that was folded is of this topic.
        self._source.verify()
        grown = {
            partition: fold.next
            for partition, fold in self._folds.items()
            if fold.next > self._written[partition]
        }
        growing = (self._folds[partition].growing() for partition in grown)
        records = [*self._complete, *(record for record in growing if record is not None)]
        if records:
            self._write(records)
        self._complete = []
        if grown:
            self._source.commit(
                grown, {partition: self._folds[partition].checkpoint for partition in grown}
            )
            self._written |= grown

    def _look(self) -> None:
        """Asks the broker for our membership and offsets; raises ``StalledError`` on a stall."""
        membership = self._source.membership()
        now = self._clock()
        self._look_at = now + self._pace.look_seconds
        spans = {
            number: membership.spans[number] for number in self._folds if number in membership.spans
        }
        ends = {partition: end for partition, (_, end) in spans.items()}
        # What Kafka deleted of an idle partition will never be read.
        positions = {
            partition: max(begin, self._folds[partition].next)
            for partition, (begin, _) in spans.items()
        }
        self._stall = look_on(self._stall, ReadingSnapshot(ends, positions, membership.fault), now)
        counts = self._counts
        counts.connected = membership.member
        counts.checked = time()
        counts.ends, counts.positions = ends, positions
        counts.lag = {
            partition: max(0, end - positions[partition]) for partition, end in ends.items()
        }
        if self._stall.well:
            counts.well = now
        self._stall.check(now, self._pace.stall_seconds)

    def _begin(self, assignment: Assignment) -> None:
        """Forgets all, and reads each partition from the start of the range that it is in."""
        self._complete = []
        self._folds = {}
        self._written = {}
        self._counts.assignments += 1
        self._counts.ends, self._counts.positions, self._counts.lag = {}, {}, {}
        self._look_at = self._clock()  # so that people see soon that we are a member
        for partition, offsets in assignment.offsets.items():
            first = first_range(offsets)
            self._note_gap(partition, offsets, first)
            read_at, known = known_before(first, offsets)
            self._folds[partition] = PartitionFold(
                assignment.topic_id,
                partition,
                first=first,
                window_seconds=self._pace.window_seconds,
                known=known,
            )
            self._written[partition] = first
            self._source.seek(partition, max(read_at, offsets.beginning))
        log.info("partitions assigned", extra={"partitions": sorted(assignment.offsets)})

    def _note_gap(self, partition: int, offsets: Offsets, first: int) -> None:
        if offsets.committed is None:
            return  # what was deleted before anybody began is nobody's loss
        gap = max(first, offsets.beginning) - offsets.committed
        if gap > 0:
            self._counts.missing += gap
            log.error(
                "messages were deleted before they were folded",
                extra={"partition": partition, "messages": gap},
            )

    def _take(self, message: LogMessage) -> None:
        fold = self._folds.get(message.partition)
        if fold is None:
            return  # not ours any more; the next poll says so
        missing = fold.missing
        complete = fold.take(message.offset, message.time, message.value)
        self._counts.messages += 1
        self._counts.last_read = time()
        self._counts.missing += fold.missing - missing
        for record in complete:
            self._complete.append(record)
            self._counts.events += record.events
            self._counts.skipped += record.skipped
            self._counts.copies += record.copies
            self._counts.mistimed += record.mistimed
            if record.skipped:
                log.warning(
                    "messages that this program does not understand",
                    extra={"partition": record.partition, "messages": record.skipped},
                )

    def _write(self, records: list[WindowRecord]) -> None:
        try:
            self._sink.write(records)
        except RecordTooLargeError:
            for record in records:
                self._write_one(record)
        self._counts.records += len(records)

    def _write_one(self, record: WindowRecord) -> None:
        try:
            self._sink.write([record])
        except RecordTooLargeError as error:
            self._counts.oversized += 1
            log.exception(
                "a record is too large: its counts are left out",
                extra={"partition": record.partition, "start": record.start, "reason": str(error)},
            )
            self._sink.write([msgspec.structs.replace(record, aggregates=[], refusals={})])


def first_range(offsets: Offsets) -> int:
    """The start of the first range to fold.

    That of the commit, so that its record is made whole again. If the log no longer holds all of
    that range, the record that was written of it is the better one: the next range it is.

    >>> first_range(Offsets(committed=70, beginning=0))
    64
    >>> first_range(Offsets(committed=70, beginning=68))
    128
    """
    if offsets.committed is None:
        return range_start(offsets.beginning)
    first = range_start(offsets.committed)
    if offsets.beginning <= first or offsets.committed == first:
        return max(first, range_start(offsets.beginning))
    return max(first + RANGE_MESSAGES, range_start(offsets.beginning))


def known_before(first: int, offsets: Offsets) -> tuple[int, GatewaySequences]:
    """Where to begin reading, and what is known of the messages before that.

    A checkpoint behind ``first`` would make copies of the messages that are to be folded.
    """
    kept = offsets.checkpoint
    if offsets.committed is None or kept is None or kept.offset > first:
        return read_from(first), GatewaySequences()
    return min(kept.offset, read_from(first)), GatewaySequences.decode(kept.sequences)


def run(
    connect: Callable[[], tuple[PredictionLog, RecordSink]],
    pace: FoldPace,
    counts: FoldCounts,
    stop: threading.Event,
    turned: Callable[[], None] = lambda: None,
) -> None:
    """Folds until ``stop``; after any failure it connects again, after a pause that grows."""
    failures = 0
    while not stop.is_set():
        turned()
        try:
            source, sink = connect()
        except StreamError as error:
            # Only Kafka itself can say that a topic is not there yet: there is nothing to read.
            counts.connected = isinstance(error, TopicMissingError)
            if counts.connected:
                counts.well = monotonic()
            _note_failure(counts, error)
        else:
            if _fold(source, sink, pace, counts, stop, turned=turned):
                failures = 0
            counts.connected = False
        failures += 1
        stop.wait(_PAUSES.after(failures))


def _fold(
    source: PredictionLog,
    sink: RecordSink,
    pace: FoldPace,
    counts: FoldCounts,
    stop: threading.Event,
    *,
    turned: Callable[[], None],
) -> bool:
    """Folds until ``stop`` or an error; whether anything was written meanwhile."""
    before = counts.records
    folder = Folder(source, sink, pace, counts, wait=stop.wait)
    try:
        while not stop.is_set():
            folder.step()
            turned()
        folder.write()
    except (StreamError, OutOfOrderError) as error:
        counts.stalls += isinstance(error, StalledError)
        _note_failure(counts, error)
    finally:
        sink.close()
        source.close()
    return counts.records > before


def _note_failure(counts: FoldCounts, error: Exception) -> None:
    counts.failures += 1
    log.warning("folding begins again", extra={"reason": str(error), "kind": type(error).__name__})
