"""The fold role as processes on a real Kafka: killed, joined by others, its topics deleted."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from prediction_batches import batch_of

from contracts.events import encode
from contracts.windows import RANGE_MESSAGES, Cell, WindowRecord, decode
from headrace.stack.kafka import KafkaProcess
from measures.merging import Windows
from measures.ranges import PartitionFold
from stats.recount import Asked, recount_kafka

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

PARTITIONS = 4
WINDOW_SECONDS = 2


def until(what: Callable[[], bool], why: str) -> None:
    """Returns when ``what`` is so."""
    tick = threading.Event()
    for _ in range(900):
        if what():
            return
        tick.wait(0.1)
    raise AssertionError(why)


@dataclass
class Kafkas:
    """The topics of one test, and what is in them."""

    bootstrap: str
    suffix: str = field(default_factory=lambda: uuid.uuid4().hex)
    sent: int = 0
    events: int = 0

    @property
    def predictions(self) -> str:
        return f"predictions-{self.suffix}"

    @property
    def windows(self) -> str:
        return f"windows-{self.suffix}"

    def make_topic(self) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics({self.predictions: {"num_partitions": PARTITIONS}})
        admin.wait_for_topics([self.predictions])
        admin.close()

    def delete(self, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics(), "the topic stays")
        admin.close()

    def produce(self, messages: int, *, events: int = 25) -> None:
        """Sends so many messages in turn to all partitions, as a gateway would."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", linger_ms=5)
        rng = random.Random(self.sent)
        sent = []
        for sequence in range(self.sent, self.sent + messages):
            batch = batch_of(rng, sequence=sequence, events=events, time=1e6 + sequence / 10)
            partition = sequence % PARTITIONS
            sent.append(producer.send(self.predictions, encode(batch), partition=partition))
            self.events += events
        for future in sent:
            future.get(30)
        self.sent += messages
        producer.close()

    def read(self, topic: str) -> list[tuple[int, int, float, bytes]]:
        """Partition, offset, time and value of all messages that are there now."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        try:
            numbers = consumer.partitions_for_topic(topic) or ()
            parts = [TopicPartition(topic, number) for number in numbers]
            consumer.assign(parts)
            ends = consumer.end_offsets(parts)
            found = []
            while any(consumer.position(part) < ends[part] for part in parts):
                for records in consumer.poll(timeout_ms=300).values():
                    found += [(r.partition, r.offset, r.timestamp / 1000, r.value) for r in records]
            return found
        finally:
            consumer.close()

    def records(self) -> list[WindowRecord]:
        return [decode(value) for _, _, _, value in self.read(self.windows)]

    def merged(self) -> Windows:
        windows = Windows()
        for record in self.records():
            windows.put(record)
        return windows

    def folded(self) -> int:
        """Messages that are in the windows' topic."""
        return sum(record.end - record.start for record in self.merged().records())

    def until_folded(self) -> None:
        until(lambda: self.folded() == self.sent, f"{self.folded()} of {self.sent} were folded")

    def recounted(self, topic_id: str) -> Windows:
        """The windows as one reader of the whole log counts them."""
        windows = Windows()
        folds: dict[int, PartitionFold] = {}
        for partition, offset, at, value in self.read(self.predictions):
            fold = folds.setdefault(
                partition,
                PartitionFold(topic_id, partition, first=0, window_seconds=WINDOW_SECONDS),
            )
            for record in fold.take(offset, at, value):
                windows.put(msgspec.convert(msgspec.to_builtins(record), WindowRecord))
        for fold in folds.values():
            growing = fold.growing()
            if growing is not None:
                windows.put(growing)
        return windows


@pytest.fixture
def topics(kafka: KafkaProcess) -> Kafkas:
    return Kafkas(kafka.bootstrap)


class Workers:
    """Fold processes of one test."""

    def __init__(self, topics: Kafkas, folder: Path) -> None:
        self._topics = topics
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        flags = {
            "kafka-bootstrap": self._topics.bootstrap,
            "group": f"fold-{self._topics.suffix}",
            "predictions-topic": self._topics.predictions,
            "windows-topic": self._topics.windows,
            "window-seconds": WINDOW_SECONDS,
            "write-seconds": 0.2,
            "session-seconds": 6,
            "request-seconds": 3,
        }
        argv = [f"--{name}={value}" for name, value in flags.items()]
        log = (self._folder / f"fold-{len(self._running)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "stats.fold_main", *argv],
            stderr=log,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        log.close()
        self._running.append(process)
        return process

    def said(self) -> str:
        return "".join(path.read_text() for path in sorted(self._folder.glob("fold-*.log")))

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait(10)


@pytest.fixture
def workers(topics: Kafkas, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(topics, tmp_path)
    yield found
    found.end()


def cells_of(windows: Windows) -> dict[str, list[Cell]]:
    return {
        endpoint: [cell for window in windows.all(endpoint) for cell in window.cells]
        for endpoint in windows.endpoints()
    }


def agree(topics: Kafkas) -> None:
    """Every number of the merged windows is that of a direct recount."""
    merged = topics.merged()
    recounted = topics.recounted(merged.records()[0].topic_id)
    assert merged.endpoints() == recounted.endpoints()
    for endpoint in merged.endpoints():
        assert merged.all(endpoint) == recounted.all(endpoint)
    assert [(r.partition, r.start, r.end, r.events, r.refusals) for r in merged.records()] == [
        (r.partition, r.start, r.end, r.events, r.refusals) for r in recounted.records()
    ]
    counted = sum(
        sum(cell.statuses.values()) for cells in cells_of(merged).values() for cell in cells
    )
    assert counted == topics.events
    again = recount_kafka(
        topics.bootstrap,
        Asked(0.0, time.time()),
        predictions=topics.predictions,
        windows=topics.windows,
    )
    assert again.agrees
    assert (again.events, again.ranges) == (topics.events, len(merged.records()))
    assert (again.gone, again.unfolded) == (0, 0)


def test_two_workers_one_killed_and_a_rebalance_lose_and_double_nothing(
    topics: Kafkas, workers: Workers
) -> None:
    topics.make_topic()
    first = workers.start()
    topics.produce(200)
    until(lambda: topics.folded() > 100, "the first worker folds nothing")
    second = workers.start()
    topics.produce(200)
    until(lambda: workers.said().count("partitions assigned") >= 3, "no rebalance")
    topics.produce(200)
    first.kill()
    topics.produce(200)
    topics.until_folded()
    assert topics.events == 20_000
    agree(topics)
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) == 0


def test_a_worker_that_was_told_to_stop_leaves_nothing_unwritten(
    topics: Kafkas, workers: Workers
) -> None:
    topics.make_topic()
    topics.produce(RANGE_MESSAGES * PARTITIONS + 10)
    worker = workers.start()
    topics.until_folded()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    topics.produce(30)
    workers.start()
    topics.until_folded()
    agree(topics)


def test_events_of_a_topic_that_was_made_anew_are_counted_apart(
    topics: Kafkas, workers: Workers
) -> None:
    topics.make_topic()
    workers.start()
    topics.produce(40)
    topics.until_folded()
    topics.delete(topics.predictions)
    topics.make_topic()
    topics.produce(60)
    topics.until_folded()
    assert len({record.topic_id for record in topics.records()}) == 2


def test_the_windows_topic_is_made_again_after_it_was_deleted(
    topics: Kafkas, workers: Workers
) -> None:
    topics.make_topic()
    workers.start()
    topics.produce(40)
    topics.until_folded()
    topics.delete(topics.windows)
    topics.produce(8)
    # All ranges are open still, so that all comes back.
    topics.until_folded()
    agree(topics)


def test_a_worker_goes_on_when_kafka_was_away(
    kafka: KafkaProcess, topics: Kafkas, workers: Workers
) -> None:
    topics.make_topic()
    workers.start()
    topics.produce(40)
    topics.until_folded()
    kafka.kill9()
    until(lambda: "folding begins anew" in workers.said(), "nobody noticed")
    kafka.start()
    topics.produce(40)
    topics.until_folded()
    agree(topics)
