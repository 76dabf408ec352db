"""The topic of prediction events, as a member of the consumer group that folds it.

For one thread. Partitions come and go with the group; each time that the group has given us ours,
``poll`` returns an ``Assignment`` in place of messages, and the caller says where to read on. While
a rebalance is under way it asks Kafka nothing but to go on with it. It never commits by itself and
never moves a position by itself.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
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
from measures.sequences import Checkpoint
from service.kafka import (
    KafkaAddress,
    KafkaAwayError,
    Topics,
    close,
    consumer,
    kafka_errors,
    keep_rejoining,
)
from stats.errors import LogReplacedError
from stats.folding.checkpoints import KafkaCheckpoints
from stats.reading.stall import membership_fault

log = logging.getLogger(__name__)

_POLL_MESSAGES = 64
# A worker that does not poll for this many sessions no longer holds up the others' rebalance. A
# step of the fold role takes a few deadlines of Kafka's answers at most.
_LONGEST_STEP_SESSIONS = 6
_NOT_A_MEMBER = (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message of the log. ``time`` as Kafka keeps it, unix seconds."""

    partition: int
    offset: int
    time: float
    value: bytes


@dataclass(frozen=True, slots=True)
class Offsets:
    """What is known of an assigned partition.

    ``committed`` is the offset behind the last one that is safely written, None if none of this
    topic id was committed. ``beginning`` is the log's first offset now. ``checkpoint`` is what was
    known of copies at the start of a range, None if nothing was kept.
    """

    committed: int | None
    beginning: int
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """All partitions that are ours from now on; what was ours before is not."""

    topic_id: str
    offsets: Mapping[int, Offsets]


@dataclass(frozen=True, slots=True)
class Membership:
    """What the broker knows of this worker, asked just now.

    Attributes:
        member: whether the group holds us as a member.
        fault: what is wrong with our place in the group, a sentence; empty if nothing is.
        spans: our partition -> its first offset, and the one behind its last message.
    """

    member: bool
    fault: str
    spans: Mapping[int, tuple[int, int]]


class PredictionLog(Protocol):
    """What the fold role reads. All methods raise ``StreamError``."""

    def poll(self, seconds: float) -> Sequence[LogMessage] | Assignment:
        """Messages in the order of each partition, none within ``seconds``, or a new assignment."""

    def seek(self, partition: int, offset: int) -> None:
        """The next message to poll."""

    def commit(self, offsets: Mapping[int, int], checkpoints: Mapping[int, Checkpoint]) -> None:
        """Everything before these offsets is safely written; and what is known of copies."""

    def verify(self) -> None:
        """Raises ``LogReplacedError`` unless all that was polled is of the assignment's topic."""

    def membership(self) -> Membership:
        """Asks the broker, by a connection of its own, what it knows of us."""

    def close(self) -> None:
        """Leaves the group."""


@dataclass(frozen=True)
class GroupSettings:
    """Who we are in the group.

    Attributes:
        group: name of the consumer group.
        session_seconds: a worker that is silent for this time loses its partitions.
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
        self._group = settings.group
        self._topics = Topics(address)
        try:
            self._topic_id, self._partitions = self._topics.describe(self._topic)
            self._checkpoints = KafkaCheckpoints(address, settings.group, settings.topic)
        except BaseException:
            self._topics.close()
            raise
        try:
            self._consumer = consumer(
                address,
                group_id=settings.group,
                session_timeout_ms=int(settings.session_seconds * 1000),
                heartbeat_interval_ms=int(settings.session_seconds * 1000 / 4),
                max_poll_interval_ms=int(settings.session_seconds * 1000 * _LONGEST_STEP_SESSIONS),
                auto_offset_reset="earliest",
                fetch_max_bytes=16 << 20,
                max_partition_fetch_bytes=4 << 20,
                max_poll_records=_POLL_MESSAGES,
            )
        except BaseException:
            self._checkpoints.close()
            self._topics.close()
            raise
        self._rebalances = _Rebalances(lambda: keep_rejoining(self._consumer))
        self._known_assignments = 0
        self._consumer.subscribe([self._topic], listener=self._rebalances)

    def poll(self, seconds: float) -> Sequence[LogMessage] | Assignment:
        """See ``PredictionLog``."""
        with kafka_errors():
            polled = self._consumer.poll(timeout_ms=int(seconds * 1000))
        # Positions of a new assignment are not where a range begins: what was polled is left.
        if self._rebalances.assignments != self._known_assignments:
            self._known_assignments = self._rebalances.assignments
            return self._assignment()
        return [
            LogMessage(part.partition, record.offset, record.timestamp / 1000, record.value or b"")
            for part, records in polled.items()
            for record in records
        ]

    def seek(self, partition: int, offset: int) -> None:
        """See ``PredictionLog``."""
        part = TopicPartition(self._topic, partition)
        if part in self._consumer.assignment():  # else another assignment is on its way
            self._consumer.seek(part, offset)

    def commit(self, offsets: Mapping[int, int], checkpoints: Mapping[int, Checkpoint]) -> None:
        """See ``PredictionLog``; what is not ours any more is left to its new owner."""
        wanted = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(offset, self._topic_id, -1)
            for partition, offset in offsets.items()
        }
        try:
            with kafka_errors():
                self._consumer.commit(wanted, timeout_ms=self._address.request_ms)
        except KafkaAwayError as error:
            if not isinstance(error.__cause__, _NOT_A_MEMBER):
                raise
            log.info("partitions moved before a commit", extra={"reason": str(error)})
            return
        # Only now: a new owner must not take messages for copies that it is to fold again.
        self._checkpoints.save(self._topic_id, checkpoints)

    def verify(self) -> None:
        """See ``PredictionLog``."""
        topic_id, self._partitions = self._topics.describe(self._topic)
        if topic_id != self._topic_id:
            raise LogReplacedError(f"topic {self._topic} was made again")

    def membership(self) -> Membership:
        """See ``PredictionLog``."""
        member = self._consumer.group_metadata().member_id
        held = {part.partition for part in self._consumer.assignment()}
        group = self._topics.group(self._group, self._topic)
        return Membership(
            member in group.members,
            membership_fault(group, member, held, self._partitions),
            self._topics.spans(self._topic, sorted(held)),
        )

    def close(self) -> None:
        """Leaves the group."""
        close(self._consumer)
        self._checkpoints.close()
        self._topics.close()

    def _assignment(self) -> Assignment:
        parts = sorted(self._consumer.assignment())
        timeout_ms = self._address.request_ms
        with kafka_errors():
            beginnings = self._consumer.beginning_offsets(parts, timeout_ms=timeout_ms)
            committed = {
                part: self._consumer.committed(part, metadata=True, timeout_ms=timeout_ms)
                for part in parts
            }
        checkpoints = self._checkpoints.load(self._topic_id, (part.partition for part in parts))
        self.verify()
        offsets = {
            part.partition: Offsets(
                self._of_this_topic(committed[part]),
                beginnings[part],
                checkpoints.get(part.partition),
            )
            for part in parts
        }
        return Assignment(self._topic_id, offsets)

    def _of_this_topic(self, committed: OffsetAndMetadata | None) -> int | None:
        # An offset means nothing without its topic id, which was committed with it.
        if committed is None or committed.metadata != self._topic_id:
            return None
        offset: int = committed.offset
        return offset


class _Rebalances(ConsumerRebalanceListener):
    """Follows what happens to the assignment; runs in the client's own thread."""

    def __init__(self, keep_rejoining: Callable[[], None]) -> None:
        self._keep_rejoining = keep_rejoining
        self.assignments = 0

    def on_partitions_revoked(self, revoked: object) -> None:  # noqa: ARG002 - the client's way
        self._keep_rejoining()

    def on_partitions_assigned(self, assigned: object) -> None:  # noqa: ARG002
        self.assignments += 1
