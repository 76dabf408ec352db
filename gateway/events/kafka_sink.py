"""Messages into a Kafka topic: acknowledged by all in-sync replicas, or sent again by the caller.

Called by the publisher, from its thread. The topic is made when it is missing, with the settings
given here, and made again when a broker lost it. A producer that failed in any way is thrown away
and built anew at the next message: after a fatal error an idempotent producer stays dead. It never
creates or changes any other topic.
"""

import logging
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from kafka import KafkaAdminClient, KafkaProducer
from kafka.codec import has_lz4, has_zstd
from kafka.errors import (
    InvalidRecordError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAlreadyExistsError,
)
from kafka.net.compat import KafkaNetClient

from contracts.events import TOPIC
from gateway.events.errors import MessageRefusedError, SinkError, SinkUnavailableError

log = logging.getLogger(__name__)

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
ClientFactory = Callable[..., KafkaNetClient]


@dataclass(frozen=True)
class Topic:
    """How the topic is made where it is missing; one that exists is left as it is."""

    name: str = TOPIC
    partitions: int = 4
    replication: int = 1
    retention_hours: float = 168.0


@dataclass(frozen=True)
class KafkaSettings:
    """How to reach Kafka, and with what patience.

    Attributes:
        bootstrap: ``host:port`` of one broker or more.
        compression: codec of each message.
        max_message_bytes: refused here already if larger, before compression.
        connect_seconds: patience with a connection, its handshake and the topic's metadata.
        request_seconds: patience with one answer of a broker.
        delivery_seconds: patience with one message, the client's own repetitions included.
        options: further options of kafka-python's clients, by its names (security).
    """

    bootstrap: tuple[str, ...]
    topic: Topic = Topic()
    compression: Literal["lz4", "zstd"] = "lz4"
    max_message_bytes: int = 1_000_000
    connect_seconds: float = 2.0
    request_seconds: float = 5.0
    delivery_seconds: float = 10.0
    options: Mapping[str, object] = field(default_factory=dict)


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

    def submit(self, sequence: int, message: bytes) -> "Future[None]":
        """Hands one message to the producer; see ``EventSink.submit``.

        The sequence chooses the partition: in turn, and the same for copies of a message.
        """
        if not self._clean or (self._delivery is not None and not self._delivery.done()):
            self._discard(1.0)
        producer = self._producer or self._connect()
        topic = self._settings.topic.name
        delivery: Future[None] = Future()
        try:
            partitions = sorted(producer.partitions_for(topic))
            partition = partitions[sequence % len(partitions)]
            sent = producer.send(topic, value=message, partition=partition)
        except _TOO_LARGE as error:
            raise MessageRefusedError(str(error), reason="too_large") from error
        except KafkaError as error:
            self._discard(1.0)
            raise SinkUnavailableError(_sentence(error), maybe_written=False) from error
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
        """Makes sure of the topic and builds a producer.

        Raises:
            SinkUnavailableError: Kafka is away, or the topic can't be made.
        """
        self._probe()
        opened: list[KafkaNetClient] = []

        def client(**options: object) -> KafkaNetClient:
            # The only way to the sockets and thread of a client whose construction failed.
            opened.append(KafkaNetClient(**options))
            return opened[-1]

        try:
            self._ensure_topic(client)
            producer = self._producer = self._build_producer(client)
            producer.partitions_for(self._settings.topic.name)
        except (KafkaError, OSError, ValueError) as error:
            self._discard(1.0)
            for leftover in opened:
                leftover.close()
            raise SinkUnavailableError(_sentence(error), maybe_written=False) from error
        self._clean = True
        log.info("connected to Kafka", extra={"bootstrap": ",".join(self._settings.bootstrap)})
        return producer

    def _probe(self) -> None:
        """A plain connection first: far cheaper than a client while Kafka is down for long."""
        last: OSError | None = None
        for address in self._settings.bootstrap:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), self._settings.connect_seconds).close()
            except OSError as error:
                last = error
            else:
                return
        raise SinkUnavailableError(
            f"no Kafka at {', '.join(self._settings.bootstrap)}: {last}", maybe_written=False
        )

    def _common(self, client: ClientFactory) -> dict[str, object]:
        return {
            "bootstrap_servers": list(self._settings.bootstrap),
            "bootstrap_timeout_ms": int(self._settings.connect_seconds * 1000),
            "request_timeout_ms": int(self._settings.request_seconds * 1000),
            "reconnect_backoff_max_ms": 1000,
            "kafka_client": client,
            **self._settings.options,
        }

    def _ensure_topic(self, client: ClientFactory) -> None:
        topic = self._settings.topic
        admin = KafkaAdminClient(**self._common(client))
        try:
            if topic.name in admin.list_topics():
                return
            wanted = {
                "num_partitions": topic.partitions,
                "replication_factor": topic.replication,
                "configs": {
                    "cleanup.policy": "delete",
                    "retention.ms": str(int(topic.retention_hours * 3_600_000)),
                    # By the broker's clock: it refuses messages of a clock that is an hour ahead,
                    # and one that is behind would keep windows open.
                    "message.timestamp.type": "LogAppendTime",
                },
            }
            try:
                admin.create_topics({topic.name: wanted})
            except TopicAlreadyExistsError:
                return  # another gateway was faster
            admin.wait_for_topics(
                [topic.name], timeout_ms=int(self._settings.connect_seconds * 1000)
            )
            log.warning("made the missing topic", extra={"topic": topic.name})
        finally:
            admin.close()

    def _build_producer(self, client: ClientFactory) -> KafkaProducer:
        settings = self._settings
        return KafkaProducer(
            **self._common(client),
            acks="all",
            enable_idempotence=True,
            compression_type=settings.compression,
            # The publisher has batched already: one message is one batch, sent at once.
            linger_ms=0,
            batch_size=0,
            max_in_flight_requests_per_connection=1,
            max_request_size=settings.max_message_bytes + 1024,
            max_block_ms=int(settings.connect_seconds * 1000),
            delivery_timeout_ms=int(settings.delivery_seconds * 1000),
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )

    def _discard(self, timeout_seconds: float) -> None:
        producer, self._producer, self._delivery = self._producer, None, None
        if producer is None:
            return
        # close() alone waits for a message under way, and leaves the thread running when it gives
        # up waiting: so what is under way is ended first. It has no public method for that.
        producer._sender.force_close()  # noqa: SLF001
        try:
            producer.close(timeout_seconds)
        except KafkaError as error:
            log.warning("a Kafka producer did not end in time", extra={"reason": str(error)})


def _as_sink_error(error: Exception) -> SinkError:
    if isinstance(error, _TOO_LARGE):
        return MessageRefusedError(_sentence(error), reason="too_large")
    if isinstance(error, InvalidRecordError):
        return MessageRefusedError(_sentence(error), reason="send_failed")
    return SinkUnavailableError(_sentence(error), maybe_written=True)


def _sentence(error: BaseException) -> str:
    said = str(error)
    name = type(error).__name__
    return said if said.startswith(name) else f"{name}: {said}"
