"""Topics of one test on a real Kafka, and fold processes that share their partitions."""

import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import waiting
from kafka import KafkaAdminClient, KafkaProducer
from kafka_topics import everything, partitions_of
from merged_windows import all_endpoints, all_windows
from prediction_batches import batch_of

from contracts.events import TOPIC, EventBatch, encode
from contracts.windows import WindowRecord, decode
from measures.merging import MergedWindows
from measures.ranges import PartitionFold
from service.kafka import KafkaAddress, KafkaAwayError, TopicMissingError
from stats.errors import LogReplacedError
from stats.reading.record_log import KafkaRecordLog, largest
from stats.recounting.recount import Recount, RecountScope, recount_kafka

WINDOW_SECONDS = 2
FIRST_TIME = 1e6
# (endpoint, version, arm, window, status) -> attempts, by counting alone
Attempts = Counter[tuple[str, str, str, int, int]]


def until(what: Callable[[], bool], why: str) -> None:
    """Returns when ``what`` is so."""
    waiting.until(why, 300, what, every_seconds=0.1)


@dataclass
class Topics:
    """The topics of one test, and what is in them."""

    bootstrap: str
    partitions: int = 4
    suffix: str = field(default_factory=lambda: uuid.uuid4().hex)
    sent: int = 0  # offsets that were taken in all partitions
    events: int = 0  # of batches, each once
    attempts: Attempts = field(default_factory=Counter)
    _windows: MergedWindows = field(default_factory=MergedWindows)
    _log: KafkaRecordLog | None = None

    gateways: bool = False  # the topic that gateways write to, in place of one of the test's own

    @property
    def predictions(self) -> str:
        return TOPIC if self.gateways else f"predictions-{self.suffix}"

    @property
    def windows(self) -> str:
        return f"windows-{self.suffix}"

    def make(self) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics({self.predictions: {"num_partitions": self.partitions}})
        admin.wait_for_topics([self.predictions])
        admin.close()

    def grow(self, partitions: int) -> None:
        """Adds partitions to the topic of predictions, up to so many."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_partitions({self.predictions: partitions})
        admin.wait_for_topics([self.predictions])
        admin.close()
        self.partitions = partitions

    def delete(self, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics(), "the topic stays")
        admin.close()

    def batch(self, sequence: int, events: int, at: float) -> EventBatch:
        """The batch of a number, which is counted."""
        batch = batch_of(random.Random(sequence), sequence=sequence, events=events, time=at)
        self.events += events
        for event in batch.events:
            start = int(event.time // WINDOW_SECONDS) * WINDOW_SECONDS
            key = (event.endpoint, event.version, event.arm.value, start, event.status)
            self.attempts[key] += 1
        return batch

    def send(self, values: Sequence[bytes | None]) -> None:
        """Sends messages in turn to all partitions, and waits for all."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", linger_ms=5)
        sent = []
        for n, value in enumerate(values):
            key = b"deleted" if value is None else None  # no value without a key
            partition = (self.sent + n) % self.partitions
            sent.append(producer.send(self.predictions, value, key=key, partition=partition))
        for future in sent:
            future.get(30)
        self.sent += len(values)
        producer.close()

    def produce(self, messages: int, *, events: int = 25) -> None:
        """Sends so many messages of events, as a gateway would."""
        first = self.sent
        self.send(
            [
                encode(self.batch(first + n, events, FIRST_TIME + (first + n) / 10))
                for n in range(messages)
            ]
        )

    def read(self, topic: str) -> list[tuple[int, int, float, bytes]]:
        """Partition, offset, time and value of all messages that are there now."""
        return [
            (found.partition, found.offset, found.timestamp / 1000, found.value or b"")
            for found in everything(self.bootstrap, topic)
        ]

    def written(self) -> int:
        """Window records in Kafka."""
        with partitions_of(self.bootstrap, self.windows) as (_, ends):
            return sum(ends.values())

    def records(self) -> list[WindowRecord]:
        return [decode(value) for _, _, _, value in self.read(self.windows)]

    def merged(self) -> MergedWindows:
        """The windows as the roles that read them see them."""
        try:
            if self._log is None:
                self._log = KafkaRecordLog(KafkaAddress((self.bootstrap,)), 0.0, self.windows)
                self._windows = MergedWindows()
            while True:
                for piece in largest(self._log.poll(0.1)):
                    self._windows.put(piece)
                if not self._log.list_unread():
                    return self._windows
        except TopicMissingError:
            return MergedWindows()
        except (KafkaAwayError, LogReplacedError):
            self.close()
            return MergedWindows()

    def merged_in_time(self) -> MergedWindows | None:
        """The same, of some records; None where a busy broker did not answer in time."""
        found = self.merged()
        return found if found.records() else None

    def close(self) -> None:
        """Ends the reading."""
        if self._log is not None:
            self._log.close()
        self._log = None

    def folded(self) -> int:
        """Messages that are in the windows' topic."""
        return sum(record.end - record.start for record in self.merged().records())

    def until_folded(self) -> None:
        until(lambda: self.folded() == self.sent, f"{self.folded()} of {self.sent} were folded")

    def recounted(self, topic_id: str) -> MergedWindows:
        """The windows as one reader of the whole log counts them."""
        windows = MergedWindows()
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

    def recount(self) -> Recount:
        """As ``headrace recount`` counts."""
        asked = RecountScope(0.0, time.time() + 1)
        return recount_kafka(
            self.bootstrap, asked, predictions=self.predictions, windows=self.windows
        )

    def recount_in_time(self) -> Recount | None:
        """The same; None where a busy broker did not answer in time."""
        try:
            return self.recount()
        except KafkaAwayError:
            return None


def attempts_of(windows: MergedWindows) -> Attempts:
    found: Attempts = Counter()
    for endpoint in all_endpoints(windows):
        for window in all_windows(windows, endpoint):
            for aggregate in window.aggregates:
                for status, count in aggregate.statuses.items():
                    found[
                        endpoint, aggregate.version, aggregate.arm.value, aggregate.start, status
                    ] += count
    return found


def agree(topics: Topics) -> Recount:
    """Every number of the merged windows is that of a direct recount, and of plain counting."""
    merged = waiting.until("the windows are read", 300, topics.merged_in_time)
    recounted = topics.recounted(merged.records()[0].topic_id)
    assert all_endpoints(merged) == all_endpoints(recounted)
    for endpoint in all_endpoints(merged):
        assert all_windows(merged, endpoint) == all_windows(recounted, endpoint)
    assert [(r.partition, r.start, r.end, r.events, r.refusals) for r in merged.records()] == [
        (r.partition, r.start, r.end, r.events, r.refusals) for r in recounted.records()
    ]
    assert attempts_of(merged) == topics.attempts
    again = waiting.until("all is recounted", 300, topics.recount_in_time)
    assert again.agrees
    assert (again.events, again.ranges) == (topics.events, len(merged.records()))
    assert (again.gone, again.unfolded) == (0, 0)
    return again


class Workers:
    """Fold processes of one test. They reach Kafka at ``bootstrap``, if not where the test does."""

    def __init__(
        self, topics: Topics, folder: Path, write_seconds: float = 0.2, bootstrap: str = ""
    ) -> None:
        self._topics = topics
        self._bootstrap = bootstrap or topics.bootstrap
        self._write_seconds = write_seconds
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> "subprocess.Popen[bytes]":
        flags = {
            "kafka-bootstrap": self._bootstrap,
            "group": f"fold-{self._topics.suffix}",
            "predictions-topic": self._topics.predictions,
            "windows-topic": self._topics.windows,
            "window-seconds": WINDOW_SECONDS,
            "write-seconds": self._write_seconds,
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

    def has_partitions(self, process: "subprocess.Popen[bytes]") -> bool:
        """Whether a worker was ever given its share."""
        path = self._folder / f"fold-{self._running.index(process)}.log"
        return "partitions assigned" in path.read_text()

    @property
    def assignments(self) -> int:
        """How often partitions were assigned to any of them."""
        return self.said().count("partitions assigned")

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait(60)
