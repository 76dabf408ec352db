"""Raw events counted again, and held against the windows that were written of them.

Called by ``headrace recount``. Reads both topics without a group, from a time to a time, and
changes nothing. Ranges whose messages Kafka has deleted can't be counted again, and are told apart.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kafka import TopicPartition

from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import LOOKBACK_MESSAGES, RANGE_MESSAGES, WindowRecord
from contracts.windows import TOPIC as WINDOWS
from measures.merging import Windows
from measures.ranges import read_from
from measures.recounting import Difference, RawMessage, differences, numbers, recounted
from stats.errors import KafkaAwayError
from stats.kafka_clients import KafkaAddress, Topics, consumer, speaking
from stats.record_log import KafkaRecordLog, RecordLog, largest

_POLL_SECONDS = 0.5


class RawLog(Protocol):
    """The raw events of one topic."""

    @property
    def topic_id(self) -> str:
        """The topic's id, as it was at the beginning."""

    def beginnings(self) -> Mapping[int, int]:
        """Partition -> the first offset that Kafka still has."""

    def spans(self, begin: float, end: float) -> Mapping[int, tuple[int, int]]:
        """Partition -> first offset at ``begin`` or later, and that at ``end`` or later."""

    def messages(self, partition: int, first: int, end: int) -> Iterator[RawMessage]:
        """The messages with ``first <= offset < end``, in order; fewer where there are fewer."""


@dataclass
class Recount:
    """What a recount found.

    Attributes:
        ranges: ranges that were counted again.
        events: prediction events in them.
        numbers: numbers in their records that were compared.
        gone: ranges whose messages Kafka does not have any more.
        other_topic: ranges of a topic of the same name that was deleted since.
        unfolded: messages of the time that are in no record (yet).
        differences: (partition, start of the range, what differs).
    """

    ranges: int = 0
    events: int = 0
    numbers: int = 0
    gone: int = 0
    other_topic: int = 0
    unfolded: int = 0
    differences: list[tuple[int, int, Difference]] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether every number that was written and can be counted again is what it should be."""
        return not self.differences


def recount(records: Windows, raw: RawLog, begin: float, end: float) -> Recount:
    """Counts again every range with a window that starts within ``[begin, end)``, unix seconds.

    Raises:
        StatsError: Kafka is away, or did not go on.
    """
    found = Recount()
    beginnings = raw.beginnings()
    wanted: dict[int, list[WindowRecord]] = {}
    for record in records.records():
        if not any(begin <= cell.start < end for cell in record.cells):
            continue
        if record.topic_id != raw.topic_id:
            found.other_topic += 1
        elif beginnings.get(record.partition, record.end) > record.start:
            found.gone += 1
        else:
            wanted.setdefault(record.partition, []).append(record)
    found.unfolded = _unfolded(records, raw, begin, end)
    for partition, ranges in sorted(wanted.items()):
        first = max(read_from(ranges[0].start), beginnings[partition])
        for record, counted in _pairs(ranges, raw.messages(partition, first, ranges[-1].end)):
            found.ranges += 1
            found.events += counted.events
            found.numbers += numbers(counted)
            found.differences += [
                (partition, record.start, what) for what in differences(record, counted)
            ]
    return found


def _unfolded(records: Windows, raw: RawLog, begin: float, end: float) -> int:
    spans = raw.spans(begin, end)
    missing = {number: last - first for number, (first, last) in spans.items()}
    for record in records.records():
        if record.topic_id == raw.topic_id and record.partition in missing:
            first, last = spans[record.partition]
            missing[record.partition] -= max(0, min(record.end, last) - max(record.start, first))
    return sum(missing.values())


def _pairs(
    ranges: list[WindowRecord], messages: Iterator[RawMessage]
) -> Iterator[tuple[WindowRecord, WindowRecord]]:
    """Each written record with its recount; keeps no more messages than one range needs."""
    held: deque[RawMessage] = deque(maxlen=LOOKBACK_MESSAGES + RANGE_MESSAGES)
    coming = next(messages, None)
    for record in ranges:
        while coming is not None and coming.offset < record.end:
            held.append(coming)
            coming = next(messages, None)
        near = (message for message in held if message.offset >= read_from(record.start))
        yield record, recounted(record, near)


class KafkaRawLog:
    """The real one."""

    def __init__(self, address: KafkaAddress, topic: str = PREDICTIONS) -> None:
        """Connects; raises ``KafkaAwayError`` and ``TopicMissingError``."""
        self._patience = address.request_ms
        self._silence_seconds = address.request_seconds * 2
        topics = Topics(address)
        try:
            self._topic_id, partitions = topics.describe(topic)
        finally:
            topics.close()
        self._consumer = consumer(address, auto_offset_reset="none", max_poll_records=100)
        self._parts = {number: TopicPartition(topic, number) for number in partitions}

    @property
    def topic_id(self) -> str:
        """See ``RawLog``."""
        return self._topic_id

    def beginnings(self) -> Mapping[int, int]:
        """See ``RawLog``."""
        with speaking():
            found = self._consumer.beginning_offsets(
                list(self._parts.values()), timeout_ms=self._patience
            )
        return {part.partition: offset for part, offset in found.items()}

    def spans(self, begin: float, end: float) -> Mapping[int, tuple[int, int]]:
        """See ``RawLog``."""
        parts = list(self._parts.values())
        with speaking():
            ends = self._consumer.end_offsets(parts, timeout_ms=self._patience)
            found = [
                self._consumer.offsets_for_times(
                    dict.fromkeys(parts, int(at * 1000)), timeout_ms=self._patience
                )
                for at in (begin, end)
            ]
        return {
            part.partition: (
                ends[part] if found[0][part] is None else found[0][part].offset,
                ends[part] if found[1][part] is None else found[1][part].offset,
            )
            for part in parts
        }

    def messages(self, partition: int, first: int, end: int) -> Iterator[RawMessage]:
        """See ``RawLog``; raises ``KafkaAwayError`` when nothing comes for long."""
        part = self._parts[partition]
        with speaking():
            self._consumer.assign([part])
            self._consumer.seek(part, first)
        position, heard_at = first, time.monotonic()
        while position < end:
            with speaking():
                polled = self._consumer.poll(timeout_ms=int(_POLL_SECONDS * 1000)).get(part, [])
            for record in polled:
                position, heard_at = record.offset + 1, time.monotonic()
                if record.offset < end:
                    yield RawMessage(record.offset, record.timestamp / 1000, record.value)
            if time.monotonic() - heard_at > self._silence_seconds:
                raise KafkaAwayError(f"no message after {position - 1} came")

    def close(self) -> None:
        """Ends the connection."""
        self._consumer.close(autocommit=False, timeout_ms=2000)


def written(log: RecordLog) -> Windows:
    """All window records of a log, up to its present end; raises ``StatsError``."""
    windows = Windows()
    while True:
        for record in largest(log.poll(_POLL_SECONDS)):
            windows.put(record)
        if log.whole():
            return windows


def recount_kafka(
    bootstrap: str,
    begin: float,
    end: float,
    *,
    predictions: str = PREDICTIONS,
    windows: str = WINDOWS,
    said: Callable[[str], None] = lambda _: None,
) -> Recount:
    """Counts again what a Kafka holds; the whole of ``headrace recount`` but its words.

    Args:
        bootstrap: ``host:port``, comma-separated.
        begin: windows that start at or after this, unix seconds.
        end: and before this.
        predictions: topic of the raw events.
        windows: topic of the window records.
        said: is told what is done now, for people who wait.

    Raises:
        StatsError: Kafka is away, or a topic is missing.
    """
    address = KafkaAddress(tuple(bootstrap.split(",")))
    said("reading window records")
    # A record is written after the events in it.
    records_log = KafkaRecordLog(address, begin, windows)
    try:
        records = written(records_log)
    finally:
        records_log.close()
    raw = KafkaRawLog(address, predictions)
    try:
        said("counting raw events")
        return recount(records, raw, begin, end)
    finally:
        raw.close()
