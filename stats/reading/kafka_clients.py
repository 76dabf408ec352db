"""Clients of Kafka with deadlines, and what the statistics ask of topics.

All errors of kafka-python leave here as ``KafkaAwayError``. It creates ``headrace.windows`` when
told to, and no other topic.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, RetriableError, TopicAlreadyExistsError
from kafka.net.compat import KafkaNetClient

from stats.errors import KafkaAwayError, TopicMissingError
from stats.reading.stall import Group

log = logging.getLogger(__name__)

_Client = TypeVar("_Client")
_NO_ERROR = 0


@dataclass(frozen=True)
class KafkaAddress:
    """How to reach Kafka, and with what patience.

    Attributes:
        bootstrap: ``host:port`` of one broker or more.
        connect_seconds: patience with a connection and its handshake.
        request_seconds: patience with one answer of a broker.
        options: further options of kafka-python's clients, by its names (security).
    """

    bootstrap: tuple[str, ...]
    connect_seconds: float = 2.0
    request_seconds: float = 5.0
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def request_ms(self) -> int:
        """``request_seconds`` as kafka-python wants it."""
        return int(self.request_seconds * 1000)


@dataclass(frozen=True)
class Topic:
    """How a topic is made where it is missing; one that exists is left as it is."""

    name: str
    partitions: int = 4
    replication: int = 1
    retention_hours: float = 168.0
    max_message_bytes: int = 8_000_000


@contextmanager
def speaking() -> Iterator[None]:
    """Turns what kafka-python raises into ``KafkaAwayError``."""
    try:
        yield
    except (KafkaError, OSError) as error:
        said = str(error)
        name = type(error).__name__
        raise KafkaAwayError(said if said.startswith(name) else f"{name}: {said}") from error


def consumer(address: KafkaAddress, **options: object) -> KafkaConsumer:
    """A consumer without automatic commits; raises ``KafkaAwayError``."""
    return _built(
        KafkaConsumer,
        address,
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        metadata_max_age_ms=5000,
        metrics_enabled=False,
        **options,
    )


def producer(address: KafkaAddress, **options: object) -> KafkaProducer:
    """A producer; raises ``KafkaAwayError``."""
    return _built(
        KafkaProducer,
        address,
        allow_auto_create_topics=False,
        metrics_enabled=False,
        **options,
    )


def keep_rejoining(client: KafkaConsumer) -> None:
    """Has a member take part in a rebalance until it knows its partitions.

    To be called at each revocation, from the client's own thread. A rebalance that the client
    begins for a change of the topic's partitions is over for it as soon as it has sent its
    SyncGroup: where a poll gives up before the answer, no later poll takes the answer up, and the
    member leaves the group without a word. Asked to rejoin, it goes on until it has taken up the
    answer. ``docs/decisions/0025-kafka-group-membership.md`` has the whole story.
    """
    client._coordinator.request_rejoin()  # noqa: SLF001 - there is no public way


def discard(client: KafkaProducer) -> None:
    """Ends a producer and what it has under way."""
    # close() alone waits for a message under way, and leaves the thread running when it gives up
    # waiting: so what is under way is ended first. It has no public method for that.
    client._sender.force_close()  # noqa: SLF001
    try:
        client.close(1.0)
    except KafkaError as error:
        log.warning("a Kafka producer did not end in time", extra={"reason": str(error)})


class Topics:
    """Asks about topics, one question a call and no cache."""

    def __init__(self, address: KafkaAddress) -> None:
        self._admin = _built(KafkaAdminClient, address)

    def ensure(self, topic: Topic) -> None:
        """Makes the topic where it is missing, with retention by time, never compacted.

        Compaction would keep the newest message of a range; but a late writer's is not the one
        with the largest end. Time is the broker's, whatever a client's clock says.
        """
        with speaking():
            if topic.name in self._admin.list_topics():
                return
            wanted = {
                "num_partitions": topic.partitions,
                "replication_factor": topic.replication,
                "configs": {
                    "cleanup.policy": "delete",
                    "message.timestamp.type": "LogAppendTime",
                    "retention.ms": str(int(topic.retention_hours * 3_600_000)),
                    "max.message.bytes": str(topic.max_message_bytes),
                },
            }
            try:
                self._admin.create_topics({topic.name: wanted})
            except TopicAlreadyExistsError:
                return  # another worker was faster
            self._admin.wait_for_topics([topic.name], timeout_ms=5000)
            log.warning("made the missing topic", extra={"topic": topic.name})

    def describe(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The topic's id and its partitions, as the broker says now.

        Raises:
            TopicMissingError: there is none of that name.
            KafkaAwayError: nobody answered.
        """
        with speaking():
            (told,) = self._admin.describe_topics([name])
        if told["error_code"] != _NO_ERROR:
            raise TopicMissingError(f"topic {name} does not exist (yet)")
        partitions = (part["partition_index"] for part in told["partitions"])
        return str(told["topic_id"]), tuple(sorted(partitions))

    def spans(self, name: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Partition -> its first offset and the one behind its last, as the broker says now."""
        parts = [TopicPartition(name, number) for number in partitions]
        if not parts:
            return {}
        with speaking():
            first, end = (
                self._admin.list_partition_offsets(dict.fromkeys(parts, spec))
                for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
        return {part.partition: (first[part].offset, end[part].offset) for part in parts}

    def group(self, name: str, topic: str) -> Group:
        """A consumer group, as its coordinator says now; an answer of "not now" is its state."""
        try:
            with speaking():
                told = self._admin.describe_groups([name])[name]
        except KafkaAwayError as error:
            if isinstance(error.__cause__, RetriableError):
                return Group(str(error))
            raise
        if told["error"]:
            return Group(str(told["error"]))
        members = {
            str(member["member_id"]): _given(member["member_assignment"], topic)
            for member in told["members"]
        }
        return Group(str(told["group_state"]), members)

    def close(self) -> None:
        """Ends the connection."""
        self._admin.close()


def _given(assignment: Mapping[str, Any] | bytes | None, topic: str) -> frozenset[int]:
    """The partitions of a topic in a member's assignment, which has none before the first."""
    if not isinstance(assignment, Mapping):
        return frozenset()
    return frozenset(
        number
        for each in assignment["assigned_partitions"]
        if each["topic"] == topic
        for number in each["partitions"]
    )


def _built(kind: Callable[..., _Client], address: KafkaAddress, **options: object) -> _Client:
    _probe(address)
    opened: list[KafkaNetClient] = []

    def client(**settings: object) -> KafkaNetClient:
        # The only way to the sockets and thread of a client whose construction failed.
        opened.append(KafkaNetClient(**settings))
        return opened[-1]

    common: dict[str, Any] = {
        "bootstrap_servers": list(address.bootstrap),
        "bootstrap_timeout_ms": int(address.connect_seconds * 1000),
        "request_timeout_ms": address.request_ms,
        "reconnect_backoff_max_ms": 1000,
        "kafka_client": client,
    }
    try:
        with speaking():
            return kind(**{**common, **options, **address.options})
    except BaseException:
        for leftover in opened:
            leftover.close()
        raise


def _probe(address: KafkaAddress) -> None:
    """A plain connection first: far cheaper than a client while Kafka is down for long."""
    last: OSError | None = None
    for broker in address.bootstrap:
        host, _, port = broker.rpartition(":")
        try:
            socket.create_connection((host, int(port)), address.connect_seconds).close()
        except OSError as error:
            last = error
        else:
            return
    raise KafkaAwayError(f"no Kafka at {', '.join(address.bootstrap)}: {last}")
