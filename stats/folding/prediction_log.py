"""The topic of prediction events, as a member of the consumer group that folds it.

As ``stats.reading.group.GroupReader``, with what is known of copies: each time that the group has
given us partitions, ``poll`` returns an ``Assignment`` in place of messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from measures.sequences import Checkpoint
from service.kafka import KafkaAddress
from stats.folding.checkpoints import KafkaCheckpoints
from stats.reading.group import GroupReader, GroupSettings, Membership

_POLL_MESSAGES = 64


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


class KafkaPredictionLog:
    """The real one. Joins the group at the first poll."""

    def __init__(self, address: KafkaAddress, settings: GroupSettings) -> None:
        """Connects.

        Raises:
            TopicMissingError: no gateway has made the topic yet.
            KafkaAwayError: Kafka can't be reached.
        """
        self._group = GroupReader(
            address,
            settings,
            fetch_max_bytes=16 << 20,
            max_partition_fetch_bytes=4 << 20,
            max_poll_records=_POLL_MESSAGES,
        )
        try:
            self._checkpoints = KafkaCheckpoints(address, settings.group, settings.topic)
        except BaseException:
            self._group.close()
            raise
        self.seek = self._group.seek
        self.verify = self._group.verify
        self.membership = self._group.membership

    def poll(self, seconds: float) -> Sequence[LogMessage] | Assignment:
        """See ``PredictionLog``."""
        polled = self._group.poll(seconds)
        if polled is None:
            return self._assignment()
        return [
            LogMessage(
                record.partition, record.offset, record.timestamp / 1000, record.value or b""
            )
            for record in polled
        ]

    def commit(self, offsets: Mapping[int, int], checkpoints: Mapping[int, Checkpoint]) -> None:
        """See ``PredictionLog``."""
        # Only then: a new owner must not take messages for copies that it is to fold again.
        if self._group.commit(offsets):
            self._checkpoints.save(self._group.topic_id, checkpoints)

    def close(self) -> None:
        """Leaves the group."""
        self._group.close()
        self._checkpoints.close()

    def _assignment(self) -> Assignment:
        group = self._group
        numbers = group.assigned()
        beginnings, committed = group.beginnings(numbers), group.committed(numbers)
        checkpoints = self._checkpoints.load(group.topic_id, numbers)
        group.verify()
        offsets = {
            number: Offsets(committed[number], beginnings[number], checkpoints.get(number))
            for number in numbers
        }
        return Assignment(group.topic_id, offsets)
