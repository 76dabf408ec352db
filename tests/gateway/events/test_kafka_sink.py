"""What a real Kafka does to the event stream: killed, frozen, its topic deleted, its disk lost."""

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka_topics import read_topic
from own_servers import KafkaProcess
from waiting import until

from contracts.backoff import Backoff
from contracts.events import EventBatch, PredictionEvent, decode, encode
from gateway.events.buffer import EventBuffer
from gateway.events.kafka_sink import KafkaSettings, KafkaSink
from gateway.events.outbox import Outbox
from gateway.events.publisher import MessageRefusedError, Pace, Publisher
from service.kafka import KafkaAddress, KafkaAwayError, Topic, TopicMissingError, Topics

pytestmark = pytest.mark.real

MakeEvent = Callable[..., PredictionEvent]
PATIENCE = 90.0
QUICK = Pace(flush_seconds=0.05, heartbeat_seconds=0.5, pauses=Backoff(0.1, 0.5, jitter=0.5))


@pytest.fixture
def topic() -> Topic:
    return Topic(name=f"events-{uuid.uuid4().hex}", partitions=3, retention_hours=1)


@pytest.fixture
def admin(kafka: KafkaProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    yield client
    client.close()


def settings_for(kafka: KafkaProcess, topic: Topic, *, hasty: bool = False) -> KafkaSettings:
    """Of a sink with a busy broker's time, or of a hasty one, which finds it away soon."""
    patient = KafkaAddress((kafka.bootstrap,), connect_seconds=30.0, request_seconds=30.0)
    if not hasty:
        return KafkaSettings(patient, topic=topic, delivery_seconds=40.0)
    return KafkaSettings(
        KafkaAddress((kafka.bootstrap,), request_seconds=1.5), topic=topic, delivery_seconds=2.0
    )


def id_of(kafka: KafkaProcess, topic: Topic) -> str:
    """The topic's id, as the broker says now; empty where it says none."""
    topics = Topics(settings_for(kafka, topic).address)
    try:
        return topics.describe(topic.name)[0]
    except (KafkaAwayError, TopicMissingError):
        return ""
    finally:
        topics.close()


def read(kafka: KafkaProcess, topic: Topic) -> dict[int, list[EventBatch]]:
    """The messages in each partition."""
    found = read_topic(kafka.bootstrap, topic.name)
    return {part: list(map(decode, messages)) for part, messages in found.items()}


def by_sequence(found: dict[int, list[EventBatch]]) -> dict[int, EventBatch]:
    """One copy of each message; copies must be equal and in one partition."""
    batches: dict[int, EventBatch] = {}
    home: dict[int, int] = {}
    for part, messages in found.items():
        for batch in messages:
            assert batches.setdefault(batch.sequence, batch) == batch
            assert home.setdefault(batch.sequence, part) == part
    return batches


class Traffic:
    """An event stream that is fed by a thread until told to stop."""

    def __init__(self, kafka: KafkaProcess, topic: Topic, make_event: MakeEvent) -> None:
        self.buffer = EventBuffer(capacity_records=100_000, wake_events=20)
        self.outbox = Outbox(self.buffer, gateway="g", max_events=20)
        sink = KafkaSink(settings_for(kafka, topic, hasty=True))
        self.publisher = Publisher(self.buffer, self.outbox, sink, pace=QUICK)
        self.recorded = 0
        self._make_event = make_event
        self._stop = threading.Event()
        self._pulse = threading.Thread(target=self._feed)
        self.publisher.start()
        self._pulse.start()

    def _feed(self) -> None:
        while not self._stop.wait(0.002):
            self.buffer.attempt(self._make_event())
            self.buffer.refusal("sentiment", 503, "overloaded")
            self.recorded += 1

    def until_published(self, more: int) -> None:
        """Returns when so many further messages were acknowledged."""
        wanted = self.outbox.published.messages + more
        until("it is published", PATIENCE, lambda: self.outbox.published.messages >= wanted)

    def until_failing(self, times: int = 1) -> None:
        """Returns when Kafka was tried so often in vain."""
        wanted = self.publisher.counts.unavailable + times
        until("Kafka is away", PATIENCE, lambda: self.publisher.counts.unavailable >= wanted)

    def end(self) -> int:
        """Stops feeding, closes in order; returns what was lost."""
        self._stop.set()
        self._pulse.join()
        return sum(loss.count for loss in self.publisher.close(30.0))


@pytest.fixture
def traffic(kafka: KafkaProcess, topic: Topic, make_event: MakeEvent) -> Iterator[Traffic]:
    running = Traffic(kafka, topic, make_event)
    running.until_published(2)
    yield running
    running.end()


def account(kafka: KafkaProcess, topic: Topic) -> tuple[int, int, list[int]]:
    """Events, refusals and the sequence numbers that a reader finds."""
    batches = by_sequence(read(kafka, topic))
    events = [event.request_id for batch in batches.values() for event in batch.events]
    assert len(set(events)) == len(events)
    refusals = sum(r.count for batch in batches.values() for r in batch.refusals)
    return len(events), refusals, sorted(batches)


def test_a_broker_killed_under_load_loses_nothing(
    kafka: KafkaProcess, topic: Topic, traffic: Traffic
) -> None:
    kafka.kill9()
    try:
        traffic.until_failing()
    finally:
        kafka.start()
    traffic.until_published(5)
    assert traffic.end() == 0
    events, refusals, sequences = account(kafka, topic)
    assert (events, refusals) == (traffic.recorded, traffic.recorded)
    assert sequences == list(range(len(sequences)))


def test_a_frozen_broker_stops_nothing_and_loses_nothing(
    kafka: KafkaProcess, topic: Topic, traffic: Traffic
) -> None:
    kafka.send(signal.SIGSTOP)
    try:
        traffic.until_failing()
        before = traffic.recorded
        traffic.until_failing(2)
        assert traffic.recorded > before
        assert threading.active_count() < 15, "each attempt leaves a thread behind"
    finally:
        kafka.send(signal.SIGCONT)
    traffic.until_published(5)
    assert traffic.end() == 0
    assert account(kafka, topic)[:2] == (traffic.recorded, traffic.recorded)


def test_a_deleted_topic_is_made_again_and_its_loss_shows_as_missing_numbers(
    kafka: KafkaProcess, topic: Topic, traffic: Traffic, admin: KafkaAdminClient
) -> None:
    before = id_of(kafka, topic)
    admin.delete_topics([topic.name])
    # Until then, a busy broker takes messages into the topic that is to go.
    until("another topic is made", PATIENCE, lambda: id_of(kafka, topic) not in {"", before})
    traffic.until_published(5)
    assert traffic.end() == 0
    events, refusals, sequences = account(kafka, topic)
    assert sequences == list(range(sequences[0], sequences[-1] + 1))
    assert sequences[0] > 0
    assert events < traffic.recorded
    assert refusals < traffic.recorded


def test_a_broker_that_lost_its_disk_gets_its_topic_back(
    kafka: KafkaProcess, topic: Topic, traffic: Traffic
) -> None:
    kafka.kill9()
    for path in sorted(kafka.node.data_folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    kafka.start()
    traffic.until_published(5)
    assert traffic.end() == 0
    found = read(kafka, topic)
    assert len(found) == topic.partitions
    sequences = sorted(by_sequence(found))
    assert sequences == list(range(sequences[0], sequences[-1] + 1))


def test_the_topic_is_made_with_its_settings(
    kafka: KafkaProcess, topic: Topic, admin: KafkaAdminClient
) -> None:
    sink = KafkaSink(settings_for(kafka, topic))
    sink.submit(0, b"x").result(60.0)
    sink.close(1.0)
    described = admin.describe_topics([topic.name])[0]
    assert len(described["partitions"]) == 3
    configs = ["retention.ms", "cleanup.policy", "message.timestamp.type"]
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic.name, configs=configs)]
    said = str(admin.describe_configs(asked))
    assert "3600000" in said
    assert "'delete'" in said
    assert "LogAppendTime" in said


def test_messages_go_round_the_partitions_and_copies_stay_in_one(
    kafka: KafkaProcess, topic: Topic
) -> None:
    for _ in range(2):
        sink = KafkaSink(settings_for(kafka, topic))
        for sequence in range(6):
            batch = EventBatch(gateway="g", sequence=sequence)
            sink.submit(sequence, encode(batch)).result(60.0)
        sink.close(5.0)
    found = read(kafka, topic)
    assert {part: [batch.sequence for batch in messages] for part, messages in found.items()} == {
        0: [0, 3, 0, 3],
        1: [1, 4, 1, 4],
        2: [2, 5, 2, 5],
    }


def test_copies_stay_in_their_partition_when_the_topic_gets_more_of_them(
    kafka: KafkaProcess, topic: Topic, admin: KafkaAdminClient
) -> None:
    sink = KafkaSink(settings_for(kafka, topic))
    message = encode(EventBatch(gateway="g", sequence=4))
    sink.submit(4, message).result(60.0)
    admin.create_partitions({topic.name: 5})
    admin.wait_for_topics([topic.name])
    with pytest.raises(MessageRefusedError):  # as a message that fails for good: a new producer
        sink.submit(4, os.urandom(2_000_000)).result(60.0)
    sink.close(1.0)
    sink.submit(4, message).result(60.0)
    sink.submit(9, encode(EventBatch(gateway="g", sequence=9))).result(60.0)
    sink.close(5.0)
    found = read(kafka, topic)
    assert {part: [batch.sequence for batch in messages] for part, messages in found.items()} == {
        0: [],
        1: [4, 4],
        2: [],
        3: [],
        4: [9],
    }


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_messages_are_compressed(
    kafka: KafkaProcess, topic: Topic, compression: Literal["lz4", "zstd"]
) -> None:
    sink = KafkaSink(replace(settings_for(kafka, topic), compression=compression))
    sink.submit(0, encode(EventBatch(gateway="g" * 50_000, sequence=0))).result(60.0)
    sink.close(5.0)
    assert len(by_sequence(read(kafka, topic))[0].gateway) == 50_000
    stored = sum(
        path.stat().st_size for path in kafka.node.data_folder.glob(f"{topic.name}-*/*.log")
    )
    assert stored < 5_000


def test_a_broker_refuses_what_is_too_large_for_it(
    kafka: KafkaProcess, topic: Topic, admin: KafkaAdminClient
) -> None:
    small = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "2000"}}
    admin.create_topics({topic.name: small}, wait_for_metadata=True)
    sink = KafkaSink(settings_for(kafka, topic))
    with pytest.raises(MessageRefusedError) as refused:
        sink.submit(0, os.urandom(5000)).result(60.0)
    assert refused.value.reason == "too_large"
    sink.close(1.0)
