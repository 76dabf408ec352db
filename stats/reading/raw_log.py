"""The topic of prediction events, read between two offsets or two times, without a group.

For one thread. It commits nothing and changes nothing.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Protocol

from kafka import TopicPartition

from contracts.events import TOPIC as PREDICTIONS
from measures.recounting import RawMessage
from service.kafka import KafkaAddress, KafkaAwayError, Topics, close, consumer, kafka_errors

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
        """The messages with ``first <= offset < end``, in order; fewer if there are fewer.

        Another reading may begin before this one has ended.
        """


class KafkaRawLog:
    """The real one."""

    def __init__(self, address: KafkaAddress, topic: str = PREDICTIONS) -> None:
        """Connects; raises ``KafkaAwayError`` and ``TopicMissingError``."""
        self._timeout_ms = address.request_ms
        self._idle_seconds = address.request_seconds * 2
        with closing(Topics(address)) as topics:
            self._topic_id, partitions = topics.describe(topic)
        self._consumer = consumer(address, auto_offset_reset="none", max_poll_records=100)
        self._parts = {number: TopicPartition(topic, number) for number in partitions}
        self._reading: object = None  # that the consumer's position is of

    @property
    def topic_id(self) -> str:
        """See ``RawLog``."""
        return self._topic_id

    def beginnings(self) -> Mapping[int, int]:
        """See ``RawLog``."""
        with kafka_errors():
            found = self._consumer.beginning_offsets(
                list(self._parts.values()), timeout_ms=self._timeout_ms
            )
        return {part.partition: offset for part, offset in found.items()}

    def spans(self, begin: float, end: float) -> Mapping[int, tuple[int, int]]:
        """See ``RawLog``."""
        parts = list(self._parts.values())
        with kafka_errors():
            ends = self._consumer.end_offsets(parts, timeout_ms=self._timeout_ms)
            found = [
                self._consumer.offsets_for_times(
                    dict.fromkeys(parts, int(at * 1000)), timeout_ms=self._timeout_ms
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
        part, reading = self._parts[partition], object()
        position, heard_at = first, time.monotonic()
        while position < end:
            with kafka_errors():
                if self._reading is not reading:  # the first poll, or another reading came between
                    self._reading = reading
                    self._consumer.assign([part])
                    self._consumer.seek(part, position)
                polled = self._consumer.poll(timeout_ms=int(_POLL_SECONDS * 1000)).get(part, [])
            for record in polled:
                position, heard_at = record.offset + 1, time.monotonic()
                if record.offset < end:
                    yield RawMessage(record.offset, record.timestamp / 1000, record.value or b"")
            if time.monotonic() - heard_at > self._idle_seconds:
                raise KafkaAwayError(f"no message after {position - 1} came")

    def close(self) -> None:
        """Ends the connection."""
        close(self._consumer)
