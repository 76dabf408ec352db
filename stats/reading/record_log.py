"""The topic of window records, or partitions of it, read without a consumer group.

For one thread. It commits nothing and writes nothing. Records that wait and are not read end the
connection: the reader begins a new one.
"""

import logging
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from kafka import TopicPartition

from contracts.events import UnknownSchemaError
from contracts.windows import TOPIC, EndpointWindow, WindowRecord, decode, head
from measures.endpoint_windows import EndpointWindows
from measures.merging import MergedWindows
from service.kafka import KafkaAddress, KafkaAwayError, Topics, close, consumer, kafka_errors
from stats.errors import LogReplacedError
from stats.reading.stall import STALL_SECONDS, ReadingSnapshot, Stall, look_on

log = logging.getLogger(__name__)

_POLL_RECORDS = 500
_POLL_SECONDS = 0.5
# Of a partition, however old they are: of every partition of the events. A range that was begun
# days ago may grow on, and only who knows its last record knows what is new.
LAST_RECORDS = 4000


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far a topic was read.

    Attributes:
        topic_id: of the windows' topic; another id is another log.
        positions: partition -> offset of the next record.
        lag: records in Kafka that were not read, as of the last time it was asked.
    """

    topic_id: str = ""
    positions: Mapping[int, int] = field(default_factory=dict)
    lag: int = 0


class RecordLog(Protocol):
    """Messages of ``headrace.windows``. All methods but ``close`` raise ``StreamError``."""

    def poll(self, seconds: float) -> Sequence[bytes]:
        """The next messages, none within ``seconds``. Kafka being away is none too: see below."""

    def list_unread(self) -> Collection[int]:
        """Asks Kafka how much there is; raises if nobody answers, or if what waits is not read.

        The partitions of which not all was polled that there was at the question before this one,
        or, without one, that there is now.
        """

    def close(self) -> None:
        """Ends the connection."""


class WindowLog(RecordLog, Protocol):
    """``RecordLog``, and how far it got."""

    def progress(self) -> ReadProgress:
        """Up to the last poll; asks nobody. Raises ``StreamError``."""


class PartitionLog(RecordLog, Protocol):
    """``RecordLog`` of some partitions."""

    @property
    def partitions(self) -> int:
        """How many the topic has; another number is another log."""

    def rewind(
        self, partitions: Collection[int], since: float, *, keep: Collection[int] = ()
    ) -> None:
        """Reads these from the first records of this unix time or later; others only if kept."""


class KafkaRecordLog:
    """The real one: all partitions from a time onwards, or those that are asked for."""

    def __init__(
        self,
        address: KafkaAddress,
        since: float | None,
        topic: str = TOPIC,
        *,
        last_records: int = 0,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        """Connects, and goes to the first records that were written at ``since`` or later.

        Without ``since``, ``rewind`` says what to read before anything else. ``last_records`` of
        each partition are read however old they are.

        Raises:
            TopicMissingError: nothing was ever folded.
            KafkaAwayError: Kafka can't be reached.
        """
        self._timeout_ms = address.request_ms
        self._last_records = last_records
        self._stall_seconds = stall_seconds
        self._stall = Stall()
        self._ends: dict[TopicPartition, int] = {}
        self._topic = topic
        self._topics = Topics(address)
        try:
            self._described = self._topics.describe(topic)
            self._parts: list[TopicPartition] = []
            self._consumer = consumer(
                address,
                auto_offset_reset="earliest",
                fetch_max_bytes=32 << 20,
                max_partition_fetch_bytes=8 << 20,
                max_poll_records=_POLL_RECORDS,
            )
        except BaseException:
            self._topics.close()
            raise
        try:
            if since is not None:
                self.rewind(self._described[1], since)
        except BaseException:
            self.close()
            raise

    @property
    def partitions(self) -> int:
        """See ``PartitionLog``."""
        return len(self._described[1])

    def rewind(
        self, partitions: Collection[int], since: float, *, keep: Collection[int] = ()
    ) -> None:
        """See ``PartitionLog``."""
        parts = [TopicPartition(self._topic, number) for number in partitions]
        kept = [part for part in self._parts if part.partition in keep]
        self._parts = sorted({*kept, *parts})
        self._ends = {part: end for part, end in self._ends.items() if part not in parts}
        times = dict.fromkeys(parts, int(since * 1000))
        with kafka_errors():
            self._consumer.assign(self._parts)
            if not parts:
                return
            found = self._consumer.offsets_for_times(times, timeout_ms=self._timeout_ms)
            begins = self._consumer.beginning_offsets(parts, timeout_ms=self._timeout_ms)
            ends = self._consumer.end_offsets(parts, timeout_ms=self._timeout_ms)
            for part in parts:
                place = ends[part] if found.get(part) is None else found[part].offset
                last = max(begins[part], ends[part] - self._last_records)
                self._consumer.seek(part, min(place, last))

    def poll(self, seconds: float) -> Sequence[bytes]:
        """See ``RecordLog``."""
        with kafka_errors():
            polled = self._consumer.poll(timeout_ms=int(seconds * 1000))
        return [record.value or b"" for records in polled.values() for record in records]

    def list_unread(self) -> Collection[int]:
        """See ``RecordLog``; a topic that was made again, or has new partitions, is another log."""
        if self._topics.describe(self._topic) != self._described:
            raise LogReplacedError(f"topic {self._topic} is not what it was")
        with kafka_errors():
            ends = self._consumer.end_offsets(self._parts, timeout_ms=self._timeout_ms)
        positions = self._positions()
        self._note(ends, positions)
        # New records come all the time: who waits for a moment without any may wait for ever.
        enough, self._ends = {**ends, **self._ends}, ends
        return {part.partition for part in self._parts if positions[part] < enough[part]}

    def close(self) -> None:
        """See ``RecordLog``."""
        close(self._consumer)
        self._topics.close()

    def progress(self) -> ReadProgress:
        """See ``WindowLog``."""
        positions = self._positions()
        lag = sum(max(0, self._ends.get(part, at) - at) for part, at in positions.items())
        return ReadProgress(
            self._described[0], {part.partition: at for part, at in positions.items()}, lag
        )

    def _positions(self) -> dict[TopicPartition, int]:
        """Where the next records are; raises ``KafkaAwayError`` where that can't be found out."""
        found = {}
        with kafka_errors():
            for part in self._parts:
                position = self._consumer.position(part, timeout_ms=self._timeout_ms)
                if position is None:
                    raise KafkaAwayError(f"no position in partition {part.partition} was found")
                found[part] = position
        return found

    def _note(
        self, ends: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
    ) -> None:
        """Raises ``StalledError`` if records wait, and for long none was read."""
        look = ReadingSnapshot(
            {part.partition: end for part, end in ends.items()},
            {part.partition: position for part, position in positions.items()},
        )
        now = time.monotonic()
        self._stall = look_on(self._stall, look, now)
        self._stall.check(now, self._stall_seconds)


def largest(messages: Iterable[bytes]) -> list[WindowRecord]:
    """The piece of the largest end of each range; what is no record is told and left out.

    Only these are worth decoding: while a range grows, its record is written again and again.
    """
    heads: dict[tuple[str, int, int, int, int], tuple[int, bytes]] = {}
    for message in messages:
        try:
            found = head(message)
        except (UnknownSchemaError, msgspec.DecodeError) as error:
            _note(error)
            continue
        if found.end > heads.get(found.key, (-1, b""))[0]:
            heads[found.key] = (found.end, message)
    records = []
    for _, message in heads.values():
        try:
            records.append(decode(message))
        except msgspec.DecodeError as error:
            _note(error)
    return records


def _note(error: Exception) -> None:
    log.warning("a window record was left out", extra={"reason": str(error)})


def read_pieces(source: RecordLog) -> Iterator[WindowRecord]:
    """What is in a log up to its present end; raises ``StreamError``."""
    ends = 2  # of a record that was being written at the first, all pieces are there at the second
    while ends:
        yield from largest(source.poll(_POLL_SECONDS))
        ends -= not source.list_unread()


def read_windows(source: RecordLog) -> MergedWindows:
    """All window records of a log, up to its present end; raises ``StreamError``."""
    windows = MergedWindows()
    for piece in read_pieces(source):
        windows.put(piece)
    return windows


def windows_since(
    bootstrap: str, endpoint: str, begin: float, *, topic: str = TOPIC
) -> tuple[EndpointWindow, ...]:
    """An endpoint's windows out of a Kafka, oldest first; raises ``StreamError``.

    Args:
        bootstrap: ``host:port``, comma-separated.
        endpoint: its name.
        begin: unix seconds. Earlier windows may be among them, out of the same records.
        topic: of the window records.
    """
    windows, log = (
        EndpointWindows(endpoint),
        KafkaRecordLog(KafkaAddress.of(bootstrap), begin, topic),
    )
    try:
        for piece in read_pieces(log):
            windows.put(piece)
    finally:
        log.close()
    return windows.list_between(0.0, math.inf)
