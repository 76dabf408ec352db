"""Writes messages to a Kafka topic, acknowledged by all in-sync replicas.

Used from one thread. The topic is created if it is missing, with the settings given here, and again
if a broker has lost it. A producer that failed is replaced at the next message, because after a
fatal error an idempotent producer does not recover. No other topic is created or changed.
"""

import logging
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

from kafka import KafkaProducer
from kafka.codec import has_lz4, has_zstd
from kafka.errors import (
    InvalidRecordError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from contracts.events import TOPIC
from gateway.events.publisher import MessageRefusedError, SinkError, SinkUnavailableError
from service import kafka
from service.kafka import KafkaAddress, Topic, sentence

log = logging.getLogger(__name__)

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


@dataclass(frozen=True)
class KafkaSettings:
    """Where messages go, and in what form.

    Attributes:
        address: of Kafka.
        topic: of prediction events.
        compression: codec of each message.
        max_message_bytes: larger messages are refused, by their size before compression.
        delivery_seconds: deadline of one message, including the client's own retries.
    """

    address: KafkaAddress
    topic: Topic = field(default_factory=lambda: Topic(TOPIC))
    compression: Literal["lz4", "zstd"] = "lz4"
    max_message_bytes: int = 1_000_000
    delivery_seconds: float = 10.0


class KafkaSink:
    """One topic of one Kafka. Connects at the first message, not before."""

    def __init__(self, settings: KafkaSettings) -> None:
        available = has_lz4() if settings.compression == "lz4" else has_zstd()
        if not available:
            raise ValueError(f"compression {settings.compression} needs its package installed")
        self._settings = settings
        self._producer: KafkaProducer | None = None
        self._delivery: Future[None] | None = None
        self._clean = True
        self._sequence = -1
        self._partition = 0  # that the message of this number goes to

    def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
        """Passes one message to the producer; see ``EventSink.submit``.

        Messages go to the partitions in rotation, those of a key all to one. Copies of a
        message go to the same one, also where the topic has got more of them since.
        """
        if not self._clean or (self._delivery is not None and not self._delivery.done()):
            self._discard(1.0)
        producer = self._producer or self._connect()
        topic = self._settings.topic.name
        delivery: Future[None] = Future()
        try:
            partitions = sorted(producer.partitions_for(topic))
            if sequence != self._sequence or self._partition not in partitions:
                self._sequence = sequence
                self._partition = partitions[(sequence if key is None else key) % len(partitions)]
            sent = producer.send(topic, value=message, partition=self._partition)
        except _TOO_LARGE as error:
            raise MessageRefusedError(str(error), reason="too_large") from error
        except KafkaError as error:
            self._discard(1.0)
            raise SinkUnavailableError(sentence(error), maybe_written=False) from error
        self._delivery = delivery
        sent.add_callback(lambda _: delivery.set_result(None))
        sent.add_errback(lambda error: self._fail(delivery, error))
        return delivery

    def close(self, timeout_seconds: float) -> None:
        """Gives up a message under way and ends the producer's thread."""
        self._discard(timeout_seconds)

    def _fail(self, delivery: "Future[None]", error: Exception) -> None:
        # Runs in the producer's thread; the next submit cleans up.
        self._clean = False
        delivery.set_exception(_as_sink_error(error))

    def _connect(self) -> KafkaProducer:
        """Creates the topic if it is missing, and a producer."""
        settings = self._settings
        try:
            with closing(kafka.Topics(settings.address)) as topics:
                topics.ensure(settings.topic)
            producer = self._producer = kafka.producer(
                settings.address,
                compression=settings.compression,
                max_request_bytes=settings.max_message_bytes + 1024,
                delivery_seconds=settings.delivery_seconds,
                # The publisher has batched already: one message is one batch, sent at once.
                batch_size=0,
                max_in_flight_requests_per_connection=1,
                max_block_ms=settings.address.connect_ms,
            )
            with kafka.kafka_errors():
                producer.partitions_for(settings.topic.name)
        except (kafka.KafkaAwayError, ValueError) as error:
            self._discard(1.0)
            raise SinkUnavailableError(str(error), maybe_written=False) from error
        self._clean = True
        brokers = ",".join(settings.address.bootstrap)
        log.info("connected to Kafka", extra={"bootstrap": brokers})
        return producer

    def _discard(self, timeout_seconds: float) -> None:
        producer, self._producer, self._delivery = self._producer, None, None
        if producer is not None:
            kafka.close(producer, timeout_seconds)


def _as_sink_error(error: Exception) -> SinkError:
    if isinstance(error, _TOO_LARGE):
        return MessageRefusedError(sentence(error), reason="too_large")
    if isinstance(error, InvalidRecordError):
        return MessageRefusedError(sentence(error), reason="send_failed")
    return SinkUnavailableError(sentence(error), maybe_written=True)
