"""What every sink promises, held to by the one in memory and by a real Kafka."""

import uuid
from collections.abc import Iterator
from typing import Protocol

import pytest
from kafka_topics import read_topic
from memory_sink import MemorySink
from own_servers import KafkaProcess

from gateway.events.kafka_sink import KafkaSettings, KafkaSink
from gateway.events.publisher import EventSink, MessageRefusedError, SinkUnavailableError
from service.kafka import KafkaAddress, Topic

PATIENCE = 60.0


class World(Protocol):
    """A sink, and the other side of it."""

    @property
    def sink(self) -> EventSink: ...

    def read(self) -> list[bytes]:
        """All messages that a reader finds, oldest first."""
        ...

    def hasten(self) -> None:
        """Has a new sink give up within seconds, which an answer may take on a busy machine."""
        ...

    def take_away(self) -> None:
        """Makes the log unreachable."""
        ...

    def bring_back(self) -> None:
        """Makes it reachable again, with what it held."""
        ...


class MemoryWorld:
    def __init__(self) -> None:
        self.sink = MemorySink(max_message_bytes=100_000)

    def read(self) -> list[bytes]:
        return list(self.sink.messages)

    def hasten(self) -> None:
        """It says at once whether the log is there."""

    def take_away(self) -> None:
        self.sink.available = False

    def bring_back(self) -> None:
        self.sink.available = True


class KafkaWorld:
    def __init__(self, kafka: KafkaProcess) -> None:
        self.kafka = kafka
        self.topic = f"events-{uuid.uuid4().hex}"
        self.sink = self._sink(connect_seconds=30.0, request_seconds=30.0, delivery_seconds=40.0)

    def _sink(
        self, *, connect_seconds: float, request_seconds: float, delivery_seconds: float
    ) -> KafkaSink:
        return KafkaSink(
            KafkaSettings(
                KafkaAddress((self.kafka.bootstrap,), connect_seconds, request_seconds),
                topic=Topic(name=self.topic, partitions=1),
                max_message_bytes=100_000,
                delivery_seconds=delivery_seconds,
            )
        )

    def read(self) -> list[bytes]:
        return read_topic(self.kafka.bootstrap, self.topic)[0]

    def hasten(self) -> None:
        self.sink = self._sink(connect_seconds=2.0, request_seconds=2.0, delivery_seconds=3.0)

    def take_away(self) -> None:
        self.kafka.kill9()

    def bring_back(self) -> None:
        self.kafka.start()


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.real)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World
    if request.param == "memory":
        made = MemoryWorld()
    else:
        made = KafkaWorld(request.getfixturevalue("kafka"))
    yield made
    made.sink.close(1.0)


def deliver(sink: EventSink, sequence: int, message: bytes) -> None:
    """Sends a message as the publisher would, however often it takes."""
    for _ in range(60):
        try:
            sink.submit(sequence, message).result(PATIENCE)
        except SinkUnavailableError:
            continue
        return
    raise AssertionError("the sink did not come back")


def test_what_is_acknowledged_can_be_read(world: World) -> None:
    messages = [f"message {number}".encode() * 100 for number in range(5)]
    for sequence, message in enumerate(messages):
        world.sink.submit(sequence, message).result(PATIENCE)
    assert world.read() == messages


def test_a_message_too_large_is_refused_and_the_next_one_taken(world: World) -> None:
    world.sink.submit(0, b"first").result(PATIENCE)
    with pytest.raises(MessageRefusedError) as refused:
        world.sink.submit(1, b"x" * 200_000).result(PATIENCE)
    assert refused.value.reason == "too_large"
    world.sink.submit(1, b"second").result(PATIENCE)
    assert world.read() == [b"first", b"second"]


def test_a_log_that_is_away_is_said_to_be_and_is_found_again(world: World) -> None:
    world.hasten()
    deliver(world.sink, 0, b"before")
    world.take_away()
    try:
        with pytest.raises(SinkUnavailableError):
            world.sink.submit(1, b"meanwhile").result(PATIENCE)
    finally:
        world.bring_back()
    deliver(world.sink, 1, b"meanwhile")
    assert list(dict.fromkeys(world.read())) == [b"before", b"meanwhile"]


def test_closing_twice_or_unused_does_no_harm(world: World) -> None:
    world.sink.close(1.0)
    world.sink.submit(0, b"opens again").result(PATIENCE)
    world.sink.close(1.0)
    world.sink.close(1.0)
    assert world.read() == [b"opens again"]


def test_a_full_memory_is_unavailable() -> None:
    sink = MemorySink(max_messages=1)
    sink.submit(0, b"fits")
    with pytest.raises(SinkUnavailableError):
        sink.submit(1, b"does not")


def test_no_kafka_at_all_is_told_at_once() -> None:
    sink = KafkaSink(KafkaSettings(KafkaAddress(("127.0.0.1:1",), connect_seconds=0.5)))
    with pytest.raises(SinkUnavailableError, match=r"no Kafka at 127\.0\.0\.1:1"):
        sink.submit(0, b"x")
    sink.close(0.1)
