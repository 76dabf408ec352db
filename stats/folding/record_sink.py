"""Window records into ``headrace.windows``, each acknowledged before anything is committed.

For one thread. A producer that failed in any way is not used again: the code that meets the error
builds a new sink.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from kafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

from contracts.windows import WindowRecord, encode
from service.kafka import KafkaAddress, KafkaAwayError, Topic, Topics, close, kafka_errors, producer
from stats.errors import RecordTooLargeError

MAX_RECORD_BYTES = 8_000_000  # of a window record, in the topic that is made for them

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


class RecordSink(Protocol):
    """Where window records go."""

    def write(self, records: Sequence[WindowRecord]) -> None:
        """Returns when all are safely written.

        Raises:
            RecordTooLargeError: one of them never will be.
            KafkaAwayError: Kafka did not acknowledge; some may be written.
        """

    def close(self) -> None:
        """Gives up what is under way."""


class KafkaRecordSink:
    """The real one. Makes the topic if it is missing."""

    def __init__(self, address: KafkaAddress, topic: Topic) -> None:
        """Connects; raises ``KafkaAwayError``."""
        with closing(Topics(address)) as topics:
            topics.ensure(topic)
            _, self._partitions = topics.describe(topic.name)
        self._topic = topic
        self._seconds = address.request_seconds * 2
        self._producer = producer(
            address,
            max_request_bytes=topic.max_message_bytes or MAX_RECORD_BYTES,
            delivery_seconds=self._seconds,
            max_block_ms=address.request_ms,
        )

    def write(self, records: Sequence[WindowRecord]) -> None:
        """See ``RecordSink``. All records of one partition of events go to one partition."""
        try:
            with kafka_errors():
                sent = [
                    self._producer.send(
                        self._topic.name,
                        value=encode(record),
                        partition=self._partitions[record.partition % len(self._partitions)],
                    )
                    for record in records
                ]
                for future in sent:
                    future.get(self._seconds + 1.0)
        except KafkaAwayError as error:
            if isinstance(error.__cause__, _TOO_LARGE):
                raise RecordTooLargeError(str(error)) from error
            raise

    def close(self) -> None:
        """Ends the producer."""
        close(self._producer, 1.0)
