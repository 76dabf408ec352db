"""Raw events counted again, and held against the windows that were written of them.

It reads both topics without a group, from a time to a time, and changes nothing. Ranges whose
messages Kafka has deleted can't be counted again, and are told apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import TOPIC as WINDOWS
from contracts.windows import WindowRecord
from measures.merging import MergedWindows
from measures.ranges import read_from
from measures.recounting import (
    CountDifference,
    Duplicates,
    GatewaySent,
    RawMessage,
    SentMessages,
    differences,
    numbers,
    recount_record,
)
from service.kafka import KafkaAddress
from stats.reading.raw_log import KafkaRawLog, RawLog
from stats.reading.record_log import KafkaRecordLog, read_windows


@dataclass(frozen=True, slots=True)
class RecountScope:
    """What is to be counted again.

    Attributes:
        begin: events and messages of this time or later, unix seconds.
        end: and before this.
        endpoint: only the aggregates and refusals of this one; None for all.
    """

    begin: float
    end: float
    endpoint: str | None = None


@dataclass
class Recount:
    """What a recount found.

    Attributes:
        ranges: ranges that were counted again.
        events: prediction events in them, of all endpoints.
        numbers: numbers in their records that were compared.
        gone: ranges whose messages, or those before that tell copies, Kafka does not have any more.
        other_topic: ranges of a topic of the same name that was deleted since.
        unfolded: messages of the time that are in no record (yet).
        differences: (partition, start of the range, what differs).
        gateways: what each start of a gateway sent in the time; empty if not all of it could be
            counted, for then nobody knows which numbers are missing.
    """

    ranges: int = 0
    events: int = 0
    numbers: int = 0
    gone: int = 0
    other_topic: int = 0
    unfolded: int = 0
    differences: list[tuple[int, int, CountDifference]] = field(default_factory=list)
    gateways: tuple[GatewaySent, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every number that was written and can be counted again is what it should be."""
        return not self.differences


def recount(records: MergedWindows, raw: RawLog, asked: RecountScope) -> Recount:
    """Counts again every range that has a window or a message of the time.

    A range is found by its messages too, because a record that lost its aggregates has no window.

    Raises:
        StreamError: Kafka is away, or did not go on.
    """
    found = Recount()
    beginnings = raw.beginnings()
    spans = raw.spans(asked.begin, asked.end)
    missing = {number: last - first for number, (first, last) in spans.items()}
    wanted: dict[int, list[WindowRecord]] = {}
    for record in records.records():
        ours = record.topic_id == raw.topic_id and record.partition in spans
        overlap = 0
        if ours:
            first, last = spans[record.partition]
            overlap = max(0, min(record.end, last) - max(record.start, first))
            missing[record.partition] -= overlap
        if not overlap and not _has_window(record, asked):
            continue
        if not ours:
            found.other_topic += 1
        elif beginnings.get(record.partition, record.end) > read_from(record.start):
            found.gone += 1
        else:
            wanted.setdefault(record.partition, []).append(record)
    found.unfolded = sum(missing.values())
    sent = SentMessages(asked.begin, asked.end)
    for partition, ranges in sorted(wanted.items()):
        for record, counted in _pairs(ranges, raw, partition, sent):
            found.ranges += 1
            found.events += counted.events
            written, again = (
                _keep_endpoint(record, asked.endpoint),
                _keep_endpoint(counted, asked.endpoint),
            )
            found.numbers += numbers(again)
            found.differences += [
                (partition, record.start, what) for what in differences(written, again)
            ]
    if not found.gone and not found.unfolded:
        found.gateways = sent.gateways()
    return found


def _has_window(record: WindowRecord, asked: RecountScope) -> bool:
    return any(asked.begin <= aggregate.start < asked.end for aggregate in record.aggregates)


def _keep_endpoint(record: WindowRecord, endpoint: str | None) -> WindowRecord:
    """The record with only what it says of one endpoint."""
    if endpoint is None:
        return record
    return msgspec.structs.replace(
        record,
        aggregates=[aggregate for aggregate in record.aggregates if aggregate.endpoint == endpoint],
        refusals={name: of for name, of in record.refusals.items() if name == endpoint},
    )


def _pairs(
    ranges: list[WindowRecord], raw: RawLog, partition: int, sent: SentMessages
) -> Iterator[tuple[WindowRecord, WindowRecord]]:
    """Each written record with its recount, all in one reading of the partition."""
    first = read_from(ranges[0].start)

    def earlier(since: float) -> Iterator[RawMessage]:
        return raw.messages(partition, raw.spans(since, since)[partition][0], first)

    messages = raw.messages(partition, first, ranges[-1].end)
    coming = next(messages, None)
    copies = Duplicates(earlier, since=coming.time if coming else 0.0)

    def until(end: int) -> Iterator[RawMessage]:
        nonlocal coming
        while coming is not None and coming.offset < end:
            yield coming
            coming = next(messages, None)

    for record in ranges:
        yield record, recount_record(record, until(record.end), copies, sent)


def recount_kafka(
    bootstrap: str,
    asked: RecountScope,
    *,
    predictions: str = PREDICTIONS,
    windows: str = WINDOWS,
    progress: Callable[[str], None] = lambda _: None,
) -> Recount:
    """Counts again what a Kafka holds; the whole of ``headrace recount`` but its words.

    Args:
        bootstrap: ``host:port``, comma-separated.
        asked: which time, and whose.
        predictions: topic of the raw events.
        windows: topic of the window records.
        progress: is told what is done now, for people who wait.

    Raises:
        StreamError: Kafka is away, or a topic is missing.
    """
    address = KafkaAddress.of(bootstrap)
    progress("reading window records")
    # A record is written after the events in it.
    records_log = KafkaRecordLog(address, asked.begin, windows)
    try:
        records = read_windows(records_log)
    finally:
        records_log.close()
    raw = KafkaRawLog(address, predictions)
    try:
        progress("counting raw events")
        return recount(records, raw, asked)
    finally:
        raw.close()
