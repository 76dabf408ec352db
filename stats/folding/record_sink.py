"""Window records into ``headrace.windows``, each acknowledged before anything is committed.

For one thread. A producer that failed in any way is not used again: the code that meets the error
builds a new sink.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from kafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

from contracts.windows import WindowRecord, encode
from measures.dividing import divide
from service.kafka import KafkaAddress, KafkaAwayError, Topic, Topics, close, kafka_errors, producer
from stats.errors import RecordTooLargeError

MAX_RECORD_BYTES = 8_000_000  # of a window record, in the topic that is made for them

_METADATA_MS = 5000  # added partitions are known after this time

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
        self._topic = topic
        self._seconds = address.request_seconds * 2
        with closing(Topics(address)) as topics:
            topics.ensure(topic)
        self._producer = producer(
            address,
            max_request_bytes=topic.max_message_bytes or MAX_RECORD_BYTES,
            delivery_seconds=self._seconds,
            max_block_ms=address.request_ms,
            metadata_max_age_ms=_METADATA_MS,
        )

    def write(self, records: Sequence[WindowRecord]) -> None:
        """See ``RecordSink``. Each record goes to all partitions that are known, in pieces."""
        try:
            with kafka_errors():
                # As the client knows them, which takes no other number.
                partitions = sorted(self._producer.partitions_for(self._topic.name))
                sent = [
                    self._producer.send(self._topic.name, encode(piece), partition=number)
                    for record in records
                    for number, piece in zip(
                        partitions, divide(record, len(partitions)), strict=True
                    )
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
