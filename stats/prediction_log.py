"""The topic of prediction events, as a member of the consumer group that folds it.

Called by ``stats.fold`` alone, from one thread. Partitions come and go with the group; each time,
``poll`` returns an ``Assignment`` in place of messages, and the caller says where to read on. It
never commits by itself and never moves a position by itself.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from contracts.events import TOPIC
from stats.errors import KafkaAwayError, LogReplacedError
from stats.kafka_clients import KafkaAddress, Topics, consumer, speaking

log = logging.getLogger(__name__)

_POLL_MESSAGES = 64
_NOT_A_MEMBER = (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the log. ``time`` as Kafka keeps it, unix seconds."""

    partition: int
    offset: int
    time: float
    value: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of an assigned partition.

    ``committed`` is the offset behind the last one that is safely written, None if none of this
    topic id was committed. ``beginning`` is the log's first offset now.
    """

    committed: int | None
    beginning: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """All partitions that are ours from now on; what was ours before is not."""

    topic_id: str
    places: Mapping[int, Place]


class PredictionLog(Protocol):
    """What the fold role reads. All methods raise ``StatsError``."""

    def poll(self, seconds: float) -> Sequence[Message] | Assignment:
        """Messages in the order of each partition, none within ``seconds``, or a new assignment."""

    def seek(self, partition: int, offset: int) -> None:
        """The next message to poll."""

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Everything before these offsets is safely written."""

    def verify(self) -> None:
        """Raises ``LogReplacedError`` unless all that was polled is of the assignment's topic."""

    def ends(self) -> Mapping[int, int]:
        """The end of each assigned partition, where the last answer told it. Asks nobody."""

    def close(self) -> None:
        """Leaves the group."""


@dataclass(frozen=True)
class GroupSettings:
    """Who we are in the group.

    Attributes:
        group: name of the consumer group.
        session_seconds: a worker silent for so long loses its partitions.
        topic: name of the topic.
    """

    group: str = "headrace.fold"
    session_seconds: float = 10.0
    topic: str = TOPIC


class KafkaPredictionLog:
    """The real one. Joins the group at the first poll."""

    def __init__(self, address: KafkaAddress, settings: GroupSettings) -> None:
        """Connects.

        Raises:
            TopicMissingError: no gateway has made the topic yet.
            KafkaAwayError: Kafka can't be reached.
        """
        self._address = address
        self._topic = settings.topic
        self._topics = Topics(address)
        try:
            self._topic_id, _ = self._topics.describe(self._topic)
            self._consumer = consumer(
                address,
                group_id=settings.group,
                session_timeout_ms=int(settings.session_seconds * 1000),
                heartbeat_interval_ms=int(settings.session_seconds * 1000 / 4),
                auto_offset_reset="earliest",
                fetch_max_bytes=16 << 20,
                max_partition_fetch_bytes=4 << 20,
                max_poll_records=_POLL_MESSAGES,
            )
        except BaseException:
            self._topics.close()
            raise
        self._changes = _Changes()
        self._known_changes = 0
        self._consumer.subscribe([self._topic], listener=self._changes)

    def poll(self, seconds: float) -> Sequence[Message] | Assignment:
        """See ``PredictionLog``."""
        with speaking():
            polled = self._consumer.poll(timeout_ms=int(seconds * 1000))
        # Positions of a new assignment are not where a range begins: what was polled is left.
        if self._changes.count != self._known_changes:
            self._known_changes = self._changes.count
            return self._assignment()
        return [
            Message(part.partition, record.offset, record.timestamp / 1000, record.value or b"")
            for part, records in polled.items()
            for record in records
        ]

    def seek(self, partition: int, offset: int) -> None:
        """See ``PredictionLog``."""
        part = TopicPartition(self._topic, partition)
        if part in self._consumer.assignment():  # else another assignment is on its way
            self._consumer.seek(part, offset)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """See ``PredictionLog``; what is not ours any more is left to its new owner."""
        wanted = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(offset, self._topic_id, -1)
            for partition, offset in offsets.items()
        }
        try:
            with speaking():
                self._consumer.commit(wanted, timeout_ms=self._address.request_ms)
        except KafkaAwayError as error:
            if not isinstance(error.__cause__, _NOT_A_MEMBER):
                raise
            log.info("partitions moved before a commit", extra={"reason": str(error)})

    def verify(self) -> None:
        """See ``PredictionLog``."""
        topic_id, _ = self._topics.describe(self._topic)
        if topic_id != self._topic_id:
            raise LogReplacedError(f"topic {self._topic} was made anew")

    def ends(self) -> dict[int, int]:
        """See ``PredictionLog``."""
        ends = {}
        for part in self._consumer.assignment():
            end = self._consumer.highwater(part)
            if end is not None:
                ends[part.partition] = end
        return ends

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close(autocommit=False, timeout_ms=2000)
        self._topics.close()

    def _assignment(self) -> Assignment:
        parts = sorted(self._consumer.assignment())
        patience = self._address.request_ms
        with speaking():
            beginnings = self._consumer.beginning_offsets(parts, timeout_ms=patience)
            committed = {
                part: self._consumer.committed(part, metadata=True, timeout_ms=patience)
                for part in parts
            }
        self.verify()
        places = {
            part.partition: Place(self._of_this_topic(committed[part]), beginnings[part])
            for part in parts
        }
        return Assignment(self._topic_id, places)

    def _of_this_topic(self, committed: OffsetAndMetadata | None) -> int | None:
        # An offset means nothing without its topic id, which was committed with it.
        if committed is None or committed.metadata != self._topic_id:
            return None
        offset: int = committed.offset
        return offset


class _Changes(ConsumerRebalanceListener):
    """Counts what happens to the assignment; runs in the client's own thread."""

    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, revoked: object) -> None:  # noqa: ARG002 - the client's way
        self.count += 1

    def on_partitions_assigned(self, assigned: object) -> None:  # noqa: ARG002
        self.count += 1
