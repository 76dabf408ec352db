"""The windows of endpoints that are asked for, kept up to date from ``headrace.windows``.

A thread of its own reads Kafka, so that asking waits for one record at most. It reads the
partitions of endpoints that were asked for lately, and the first, which tells whether all is
counted; it keeps nothing of other endpoints. ``None`` means that the windows are not known; it is
never a sign of no traffic. It never judges and never writes.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from contracts.backoff import Backoff
from contracts.windows import EndpointWindow
from measures.counting import CountingState, CountingStatus
from measures.dividing import COMMON, partition_of
from measures.endpoint_windows import EndpointWindows
from measures.watermark import Watermark
from service.kafka import StreamError, TopicMissingError
from stats.reading.published import EventCountCheck, EventLogEnds
from stats.reading.record_log import PartitionLog, largest

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_PAUSES = Backoff(0.2, 5.0)
# Between what clocks say: records a little older than what is kept are read too.
_MARGIN_SECONDS = 60.0

_BETWEEN_SECONDS = 0.0005

Connect = Callable[[], PartitionLog]


@dataclass(frozen=True)
class ReaderPace:
    """How often and how late windows are read.

    Attributes:
        lateness_seconds: a window is closed this long after its end; above it lie a request's own
            time and the half second that its event waits in a gateway.
        keep_seconds: windows older than this, and endpoints that nobody asks for during this time,
            are forgotten.
        answer_seconds: without an answer of Kafka for this time, nothing is known.
        check_seconds: Kafka is asked this often whether there is more.
    """

    lateness_seconds: float = 5.0
    keep_seconds: float = 3600.0
    answer_seconds: float = 15.0
    check_seconds: float = 2.0


@dataclass(slots=True)
class _ReadEndpoint:
    """An endpoint that is read.

    ``partitions``: where it lies, and lay before partitions were added; none before they are read
    from far enough back. ``folded``: how far, by its own pieces alone, for those of others may be
    far ahead; ``through``: what that says, unix seconds. ``known_at``: when all was read that these
    partitions had, unix seconds; 0: never.
    """

    windows: EndpointWindows
    asked_at: float
    partitions: set[int] = field(default_factory=set)
    folded: Watermark = field(default_factory=Watermark)
    through: float = 0.0
    known_at: float = 0.0


class WindowsReader:
    """Reads the last hour of what is asked for, and what comes. Start it once, close it once."""

    def __init__(
        self,
        connect: Connect,
        published: EventLogEnds,
        *,
        pace: ReaderPace | None = None,
        clock: Callable[[], float] = time.time,
        between: Callable[[], object] = lambda: time.sleep(_BETWEEN_SECONDS),
    ) -> None:
        """Takes its parts; connects in its own thread, as often as it must.

        ``between`` is called between two records that are taken, and lets other threads that ask go
        first.
        """
        self._pace = pace or ReaderPace()
        self._connect = connect
        self._clock = clock
        self._between = between
        self._counted = EventCountCheck(published, clock())  # only the reading thread's
        self._lock = threading.Lock()  # of the next one
        self._endpoints: dict[str, _ReadEndpoint] = {}
        # Partitions, and those of which all was read; the reading thread's.
        self._read_now, self._whole = set[int](), set[int]()
        self._had_all = False  # that the first partition had; the reading thread's
        # Into how many pieces ranges were divided -> newest, unix seconds; the reading thread's.
        self._divisions: dict[int, float] = {}
        # What was known of counting, and when; set whole.
        self._counting = (clock(), CountingStatus())
        self._never_folded = False  # there is no topic of window records; the reading thread's
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="windows-reader", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Stops reading."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def windows(
        self, endpoint: str, after: float, *, lateness_seconds: float | None = None
    ) -> tuple[EndpointWindow, ...] | None:
        """The endpoint's closed windows that start at ``after`` or later, oldest first.

        Only of the last ``keep_seconds``. A window is closed when every partition of the events has
        been folded up to its end, and ``lateness_seconds`` further.

        Args:
            endpoint: its name.
            after: unix seconds.
            lateness_seconds: in place of the pace's, for an endpoint whose requests take longer.

        Returns:
            None while this can't be known: Kafka is away, or not all that it has was read yet,
            as after the first time that an endpoint is asked for.
        """
        now = self._clock()
        lateness = self._pace.lateness_seconds if lateness_seconds is None else lateness_seconds
        with self._lock:
            asked = self._endpoints.get(endpoint)
            if asked is None:
                asked = self._endpoints[endpoint] = _ReadEndpoint(EndpointWindows(endpoint), now)
            asked.asked_at = now
            if now - asked.known_at > self._pace.answer_seconds:
                return None
            oldest = max(after, now - self._pace.keep_seconds)
            return asked.windows.list_between(oldest, min(now, asked.through) - lateness)

    def closed_through(self, endpoint: str, lateness_seconds: float) -> float:
        """The latest end of its windows that are closed, unix seconds; waits for nothing.

        Args:
            endpoint: its name.
            lateness_seconds: see ``windows``.
        """
        asked = self._endpoints.get(endpoint)
        return min(self._clock(), asked.through if asked else 0.0) - lateness_seconds

    def counting(self) -> CountingStatus:
        """Whether traffic is counted now; not known if the reading itself has stood still."""
        at, counting = self._counting
        if self._clock() - at > self._pace.answer_seconds:
            return CountingStatus(CountingState.UNKNOWN, at)
        return counting

    def _run(self) -> None:
        try:
            self._read_again_and_again()
        finally:
            self._counted.close()

    def _read_again_and_again(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                source = self._connect()
            except StreamError as error:
                log.warning("window records can't be read", extra={"reason": str(error)})
                self._never_folded = isinstance(error, TopicMissingError)
            else:
                self._never_folded = False
                if self._safely_read(source):
                    failures = 0
            self._safely_ask()
            failures += 1
            self._stop.wait(_PAUSES.after(failures))

    def _safely_read(self, source: PartitionLog) -> bool:
        """Begins with nothing known after a fault of ours, so that rollouts hold and then go on."""
        try:
            return self._read(source)
        except Exception:
            log.exception("reading window records broke; it begins again")
            with self._lock:
                self._endpoints, self._had_all = {}, False
            return False

    def _read(self, source: PartitionLog) -> bool:
        """Reads until told to stop, or an error; whether it ever had all."""
        check_at = 0.0
        self._read_now, self._whole = set(), set()
        try:
            while not self._stop.is_set():
                if self._seek(source):
                    check_at = 0.0
                messages = source.poll(_POLL_SECONDS)
                if self._take(messages):
                    continue  # there may be more to read, where endpoints were before
                # Before Kafka is asked: what is known is known as of then.
                now = self._clock()
                if now >= check_at or (messages and not self._had_all):
                    check_at = now + self._pace.check_seconds
                    self._whole = self._read_now - {*source.list_unread()}
                    self._note_known(now)
                    self._ask(now)
        except StreamError as error:
            log.warning("window records can't be read", extra={"reason": str(error)})
        finally:
            source.close()
        return bool(self._whole)

    def _seek(self, source: PartitionLog) -> bool:
        """Goes back for endpoints that were asked for since; whether anything changed.

        While a partition is read again for some, others wait for it: it would never come to its
        end.
        """
        with self._lock:
            asked = list(self._endpoints.items())
        counts, read_again = {source.partitions, *self._divisions}, self._read_now - self._whole
        wanted, again = {COMMON}, set[int]()
        for name, one in asked:
            # Older releases did not divide records: they lie anywhere.
            anywhere = range(source.partitions if 1 in counts else 0)
            places = {*anywhere, *(partition_of(name, count) for count in counts)}
            # One that is not there belongs to a topic that was made again, or is not known yet.
            places = {place for place in places if place < source.partitions}
            if not one.partitions and places & read_again:
                continue
            added = places - one.partitions
            if added:
                one.known_at = 0.0
            one.partitions = places
            again |= added
            wanted |= places
        again |= wanted - self._read_now
        if wanted == self._read_now and not again:
            return False
        since = self._clock() - self._pace.keep_seconds - _MARGIN_SECONDS
        source.rewind(again, since, keep=wanted)
        self._read_now, self._whole = wanted, (self._whole & wanted) - again
        return True

    def _note_known(self, now: float) -> None:
        self._had_all |= COMMON in self._whole
        too_old = now - self._pace.keep_seconds - _MARGIN_SECONDS
        with self._lock:
            oldest = now - self._pace.keep_seconds
            self._endpoints = {
                name: asked for name, asked in self._endpoints.items() if asked.asked_at > oldest
            }
            for asked in self._endpoints.values():
                # The first partition tells where it may lie besides.
                needed = asked.partitions if asked.known_at else {COMMON, *asked.partitions}
                if asked.partitions and needed <= self._whole:
                    asked.known_at = now
                asked.windows.forget_before(too_old)
                asked.folded.forget_before(too_old)
        self._divisions = {of: seen for of, seen in self._divisions.items() if seen >= too_old}

    def _safely_ask(self) -> None:
        """A fault of ours must not end the thread, which would stand still without a word."""
        try:
            self._ask(self._clock())
        except Exception:
            log.exception("asking how much there is to be counted broke")

    def _ask(self, now: float) -> None:
        self._counted.ask(now)
        known = self._had_all or self._never_folded
        counting = self._counted.state(now) if known else CountingStatus()
        self._counting = (now, counting)

    def _take(self, messages: Sequence[bytes]) -> bool:
        """Whether there are ranges in other pieces than before."""
        known = len(self._divisions)
        records = largest(messages)
        self._counted.take(records, self._clock())
        for record in records:
            seen = self._divisions.get(record.pieces, 0.0)
            self._divisions[record.pieces] = max(seen, record.through)
            took = False
            with self._lock:
                for name, asked in self._endpoints.items():
                    # In an earlier division of its range it may have lain in another piece.
                    if partition_of(name, record.pieces) == record.piece:
                        asked.windows.put(record)
                        asked.folded.take(record.topic_id, record.partition, record.through)
                        asked.through = asked.folded.known_until()
                        took = True
            # The lock goes to the thread that comes first, and this thread would: reconciles of all
            # endpoints would wait until Kafka has no more.
            if took:
                self._between()
        return len(self._divisions) > known
