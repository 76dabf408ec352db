"""Whether traffic is counted: the ends of the log of prediction events against window records.

``KafkaEventLogEnds`` asks the broker for the ends; it never reads a message, joins a group or keeps
an answer. ``EventCountCheck`` compares them with the records that its owner read. Both are for one
thread. A Kafka that is away is never an error of ``EventCountCheck``: not knowing is one of the
states.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kafka import KafkaConsumer, TopicPartition

from contracts.events import TOPIC
from contracts.windows import WindowRecord
from measures.counting import CountingState, CountingStatus, CountingWatch
from service.kafka import (
    KafkaAddress,
    StreamError,
    TopicMissingError,
    Topics,
    close,
    consumer,
    kafka_errors,
)

log = logging.getLogger(__name__)

ASK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of the log.

    Attributes:
        topic_id: of the events' topic; empty if there is no topic yet.
        ends: partition -> offset behind its last message.
    """

    topic_id: str = ""
    ends: Mapping[int, int] = field(default_factory=dict)


class EventLogEnds(Protocol):
    """Knows how much was published; used by one thread."""

    def ends(self) -> Ends:
        """The ends now; raises ``StreamError`` if nobody answers."""
        ...

    def close(self) -> None:
        """Ends the connection; the next question makes a new one."""
        ...


class KafkaEventLogEnds:
    """The real one. It connects at the first question, and again after each failure."""

    def __init__(self, address: KafkaAddress, topic: str = TOPIC) -> None:
        self._address = address
        self._topic = topic
        self._topics: Topics | None = None
        self._consumer: KafkaConsumer | None = None

    def ends(self) -> Ends:
        """See ``EventLogEnds``."""
        try:
            return self._ends()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See ``EventLogEnds``."""
        client, topics = self._consumer, self._topics
        self._consumer = self._topics = None
        if client is not None:
            close(client)
        if topics is not None:
            topics.close()

    def _ends(self) -> Ends:
        if self._topics is None:
            self._topics = Topics(self._address)
        try:
            topic_id, numbers = self._topics.describe(self._topic)
        except TopicMissingError:
            return Ends()
        if self._consumer is None:
            self._consumer = consumer(self._address)
        parts = [TopicPartition(self._topic, number) for number in numbers]
        with kafka_errors():
            found = self._consumer.end_offsets(parts, timeout_ms=self._address.request_ms)
        return Ends(topic_id, {part.partition: end for part, end in found.items()})


class EventCountCheck:
    """Compares the ends of the event log with the records that were read."""

    def __init__(self, published: EventLogEnds, now: float) -> None:
        self._published = published
        self._watch = CountingWatch(now)
        self._ask_at = now
        self._logged = CountingState.UNKNOWN

    def take(self, records: Iterable[WindowRecord], now: float) -> None:
        """Takes records as they are read; ``now`` in unix seconds."""
        for record in records:
            self._watch.take_record(
                record.topic_id, record.partition, record.end, record.through, now
            )

    def ask(self, now: float) -> None:
        """Asks Kafka for the ends, if it is time to."""
        if now < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        try:
            told = self._published.ends()
        except StreamError:
            return  # the state says since when nobody answers
        self._watch.take_ends(told.topic_id, told.ends, now)

    def state(self, now: float) -> CountingStatus:
        """What is known now. A change between good and bad is logged."""
        found = self._watch.look(now)
        if found.state is not self._logged:
            level = logging.WARNING if found.holds else logging.INFO
            log.log(level, "%s", found.sentence(), extra={"messages": found.messages})
            self._logged = found.state
        return found

    def close(self) -> None:
        """Ends the connection."""
        self._published.close()
