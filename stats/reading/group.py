"""A topic as a member of a consumer group reads it: what fold and evaluate have in common.

For one thread. Partitions come and go with the group; each time that it has given us ours, ``poll``
returns None, and the caller says where to read on. While a rebalance is under way it asks Kafka
nothing but to go on with it. It never commits by itself and never moves a position by itself. The
broker's word on who has what is the one truth: it is asked by a connection of its own.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

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
from stats.reading.stall import membership_fault

log = logging.getLogger(__name__)

# A worker that does not poll for this many sessions no longer holds up the others' rebalance. A
# step of either role takes a few deadlines of Kafka's answers at most.
_LONGEST_STEP_SESSIONS = 6
_NOT_A_MEMBER = (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


@dataclass(frozen=True)
class GroupSettings:
    """Who we are in the group.

    Attributes:
        group: name of the consumer group.
        session_seconds: a worker that is silent for this time loses its partitions.
        topic: name of the topic.
        instance: name of a static member, which keeps its partitions over a restart within that
            time; empty: there is none.
    """

    group: str
    session_seconds: float
    topic: str
    instance: str = ""


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


class GroupReader:
    """One member. Joins the group at the first poll.

    Attributes:
        topics: asks the broker.
        topic_id: of the topic, when this connection began.
        partitions: of the topic, when they were last asked for.
    """

    def __init__(
        self,
        address: KafkaAddress,
        settings: GroupSettings,
        *,
        revoked: Callable[[], None] = lambda: None,
        **options: object,
    ) -> None:
        """Connects.

        Args:
            address: of Kafka.
            settings: who we are.
            revoked: is called in a poll, before partitions are given to others; it must not use
                this reader.
            options: further options of the consumer.

        Raises:
            TopicMissingError: nobody has made the topic yet.
            KafkaAwayError: Kafka can't be reached.
        """
        self._request_ms = address.request_ms
        self._settings = settings
        session_ms = int(settings.session_seconds * 1000)
        self.topics = Topics(address)
        try:
            self.topic_id, self.partitions = self.topics.describe(settings.topic)
            self._consumer = consumer(
                address,
                group_id=settings.group,
                group_instance_id=settings.instance or None,
                session_timeout_ms=session_ms,
                heartbeat_interval_ms=session_ms // 4,
                max_poll_interval_ms=session_ms * _LONGEST_STEP_SESSIONS,
                auto_offset_reset="earliest",
                **options,
            )
        except BaseException:
            self.topics.close()
            raise
        self._rebalances = _Rebalances(lambda: keep_rejoining(self._consumer), revoked)
        self._known_assignments = 0
        self._consumer.subscribe([settings.topic], listener=self._rebalances)

    def poll(self, seconds: float) -> Sequence[ConsumerRecord] | None:
        """Messages in the order of each partition, none within ``seconds``; None: other partitions.

        Positions of a new assignment are not where the caller reads on: what was polled is left.
        """
        with kafka_errors():
            polled = self._consumer.poll(timeout_ms=int(seconds * 1000))
        if self._rebalances.assignments != self._known_assignments:
            self._known_assignments = self._rebalances.assignments
            return None
        return [record for records in polled.values() for record in records]

    def assigned(self) -> list[int]:
        """Our partitions."""
        return sorted(part.partition for part in self._consumer.assignment())

    def beginnings(self, partitions: Sequence[int]) -> dict[int, int]:
        """Partition -> its first offset."""
        with kafka_errors():
            found = self._consumer.beginning_offsets(
                [self._part(number) for number in partitions], timeout_ms=self._request_ms
            )
        return {part.partition: offset for part, offset in found.items()}

    def committed(self, partitions: Sequence[int]) -> dict[int, int | None]:
        """Partition -> the offset that was committed; None if none of this topic's id was."""
        found: dict[int, int | None] = {}
        for number in partitions:
            with kafka_errors():
                told = self._consumer.committed(
                    self._part(number), metadata=True, timeout_ms=self._request_ms
                )
            # An offset means nothing without its topic id, which was committed with it.
            is_ours = told is not None and told.metadata == self.topic_id
            found[number] = told.offset if is_ours else None
        return found

    def seek(self, partition: int, offset: int) -> None:
        """The next message to poll."""
        part = self._part(partition)
        if part in self._consumer.assignment():  # else another assignment is on its way
            self._consumer.seek(part, offset)

    def commit(self, offsets: Mapping[int, int]) -> bool:
        """Whether it was taken; what is not ours any more is left to its new owner."""
        wanted = {
            self._part(number): OffsetAndMetadata(offset, self.topic_id, -1)
            for number, offset in offsets.items()
        }
        try:
            with kafka_errors():
                self._consumer.commit(wanted, timeout_ms=self._request_ms)
        except KafkaAwayError as error:
            if not isinstance(error.__cause__, _NOT_A_MEMBER):
                raise
            log.info("partitions moved before a commit", extra={"reason": str(error)})
            return False
        return True

    def verify(self) -> None:
        """Raises ``LogReplacedError`` unless the topic is that which was there at the beginning."""
        topic_id, self.partitions = self.topics.describe(self._settings.topic)
        if topic_id != self.topic_id:
            raise LogReplacedError(f"topic {self._settings.topic} was made again")

    def membership(self) -> Membership:
        """Asks the broker, by a connection of its own, what it knows of us."""
        member = self._consumer.group_metadata().member_id
        held = self.assigned()
        group = self.topics.group(self._settings.group, self._settings.topic)
        return Membership(
            member in group.members,
            membership_fault(group, member, held, self.partitions),
            self.topics.spans(self._settings.topic, held),
        )

    def close(self) -> None:
        """Leaves the group, unless as a static member, who is expected back."""
        close(self._consumer)
        self.topics.close()

    def _part(self, number: int) -> TopicPartition:
        return TopicPartition(self._settings.topic, number)


class _Rebalances(ConsumerRebalanceListener):
    """Follows what happens to the assignment; runs in the client's own thread."""

    def __init__(self, keep_rejoining: Callable[[], None], revoked: Callable[[], None]) -> None:
        self._keep_rejoining = keep_rejoining
        self._revoked = revoked
        self.assignments = 0

    def on_partitions_revoked(self, revoked: object) -> None:  # noqa: ARG002 - the client's way
        self._revoked()
        self._keep_rejoining()

    def on_partitions_lost(self, lost: object) -> None:  # noqa: ARG002 - others may have them
        self._keep_rejoining()

    def on_partitions_assigned(self, assigned: object) -> None:  # noqa: ARG002
        self.assignments += 1
