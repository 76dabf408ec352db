"""The topic of window records, read whole by one reader without a group.

Called by whoever reads windows (``stats.reader``, ``stats.recount``), each from one thread. It
commits nothing and writes nothing.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
from kafka import TopicPartition

from contracts.events import UnknownSchemaError
from contracts.windows import TOPIC, WindowRecord, decode, head
from measures.merging import Windows
from stats.errors import LogReplacedError
from stats.kafka_clients import KafkaAddress, Topics, consumer, speaking

log = logging.getLogger(__name__)

_POLL_RECORDS = 500
_POLL_SECONDS = 0.5


class RecordLog(Protocol):
    """Messages of ``headrace.windows``. All methods but ``close`` raise ``StatsError``."""

    def poll(self, seconds: float) -> Sequence[bytes]:
        """The next messages, none within ``seconds``. Kafka being away is none too: see below."""

    def whole(self) -> bool:
        """Asks Kafka how much there is; raises if nobody answers.

        True if all was polled that there was at the question before this one, or that there is now.
        """

    def close(self) -> None:
        """Ends the connection."""


class KafkaRecordLog:
    """The real one: all partitions, from a time onwards."""

    def __init__(self, address: KafkaAddress, since: float, topic: str = TOPIC) -> None:
        """Connects, and goes to the first records that were written at ``since`` or later.

        Args:
            address: where Kafka is.
            since: unix seconds.
            topic: name of the topic.

        Raises:
            TopicMissingError: nothing was ever folded.
            KafkaAwayError: Kafka can't be reached.
        """
        self._patience = address.request_ms
        self._ends: dict[TopicPartition, int] = {}
        self._topic = topic
        self._topics = Topics(address)
        try:
            self._described = self._topics.describe(topic)
            self._parts = [TopicPartition(topic, number) for number in self._described[1]]
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
            self._go_to(since)
        except BaseException:
            self.close()
            raise

    def poll(self, seconds: float) -> Sequence[bytes]:
        """See ``RecordLog``."""
        with speaking():
            polled = self._consumer.poll(timeout_ms=int(seconds * 1000))
        return [record.value or b"" for records in polled.values() for record in records]

    def whole(self) -> bool:
        """See ``RecordLog``; a topic that was made anew, or has new partitions, is another log."""
        if self._topics.describe(self._topic) != self._described:
            raise LogReplacedError(f"topic {self._topic} is not what it was")
        with speaking():
            ends = self._consumer.end_offsets(self._parts, timeout_ms=self._patience)
            positions = {
                part: self._consumer.position(part, timeout_ms=self._patience)
                for part in self._parts
            }
        # New records come all the time: who waits for a moment without any may wait for ever.
        enough, self._ends = self._ends or ends, ends
        return all(positions[part] >= enough[part] for part in self._parts)

    def close(self) -> None:
        """See ``RecordLog``."""
        self._consumer.close(autocommit=False, timeout_ms=2000)
        self._topics.close()

    def _go_to(self, since: float) -> None:
        times = dict.fromkeys(self._parts, int(since * 1000))
        with speaking():
            self._consumer.assign(self._parts)
            found = self._consumer.offsets_for_times(times, timeout_ms=self._patience)
            ends = self._consumer.end_offsets(self._parts, timeout_ms=self._patience)
            for part in self._parts:
                place = found.get(part)
                self._consumer.seek(part, ends[part] if place is None else place.offset)


def largest(messages: Iterable[bytes]) -> list[WindowRecord]:
    """The record of the largest end of each range; what is no record is told and left out.

    Only these are worth decoding: while a range grows, its record is written every second.
    """
    heads: dict[tuple[str, int, int], tuple[int, bytes]] = {}
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


def written(source: RecordLog) -> Windows:
    """All window records of a log, up to its present end; raises ``StatsError``."""
    windows = Windows()
    while True:
        for record in largest(source.poll(_POLL_SECONDS)):
            windows.put(record)
        if source.whole():
            return windows
