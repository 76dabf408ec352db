"""Where the log of prediction events ends, as the broker says: what there is to be counted.

It asks, and never reads a message, joins a group or remembers an answer.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kafka import KafkaConsumer, TopicPartition

from contracts.events import TOPIC
from stats.errors import KafkaAwayError, TopicMissingError
from stats.kafka_clients import KafkaAddress, Topics, consumer, speaking

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of the log.

    Attributes:
        topic_id: of the events' topic; empty where there is no topic yet.
        ends: partition -> offset behind its last message.
    """

    topic_id: str = ""
    ends: Mapping[int, int] = field(default_factory=dict)


class Published(Protocol):
    """Whoever knows how much was published; used by one thread."""

    def ends(self) -> Ends:
        """The ends now; raises ``StatsError`` where nobody answers."""
        ...

    def close(self) -> None:
        """Ends the connection; the next question makes a new one."""
        ...


class KafkaPublished:
    """The real one. It connects at the first question, and anew after each failure.

    Args:
        address: where Kafka is.
        topic: of prediction events.
    """

    def __init__(self, address: KafkaAddress, topic: str = TOPIC) -> None:
        self._address = address
        self._topic = topic
        self._topics: Topics | None = None
        self._consumer: KafkaConsumer | None = None

    def ends(self) -> Ends:
        """See ``Published``."""
        try:
            return self._ends()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See ``Published``."""
        client, topics = self._consumer, self._topics
        self._consumer = self._topics = None
        try:
            with speaking():
                if client is not None:
                    client.close(autocommit=False, timeout_ms=2000)
                if topics is not None:
                    topics.close()
        except KafkaAwayError as error:  # it must not end the thread that only wanted to ask anew
            log.info("a connection to Kafka did not end in order", extra={"reason": str(error)})

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
        with speaking():
            found = self._consumer.end_offsets(parts, timeout_ms=self._address.request_ms)
        return Ends(topic_id, {part.partition: end for part, end in found.items()})
