"""The evaluate role as a process on a real Kafka: its counters are the windows since its start."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from fold_world import Topics, Workers, until
from own_ports import own_ports
from own_servers import KafkaProcess
from prediction_batches import batch_of
from prometheus_client.parser import text_string_to_metric_families

from contracts import metrics
from contracts.events import encode
from stats.recounting.counters import CounterRecount, recount_counters_kafka

pytestmark = pytest.mark.real


@dataclass
class Exporter:
    """One after the other, on one port."""

    topics: Topics
    folder: Path
    port: int = field(default_factory=lambda: own_ports(1)[0])
    running: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        flags = {
            "endpoints": self.folder / "endpoints",
            "store-url": (self.folder / "packages").as_uri(),
            "learnt-topic": f"{self.topics.windows}.learnt",
            "kafka-bootstrap": self.topics.bootstrap,
            "windows-topic": self.topics.windows,
            "port": self.port,
            "request-seconds": 3,
        }
        with (self.folder / "stats.log").open("ab") as log:
            self.running = subprocess.Popen(
                [sys.executable, "-P", "-m", "stats.evaluate_main"]
                + [f"--{name}={value}" for name, value in flags.items()],
                stderr=log,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )
        until(self.ready, "the exporter is not ready")

    def ready(self) -> bool:
        try:
            return self.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=60)

    def attempts(self) -> int:
        families = text_string_to_metric_families(self.get("/metrics").text)
        return int(
            sum(s.value for f in families for s in f.samples if s.name == metrics.ATTEMPTS.name)
        )

    def recount(self) -> CounterRecount:
        counters = self.get("/counters.json").json()
        return recount_counters_kafka(self.topics.bootstrap, counters, topic=self.topics.windows)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        assert self.running is not None
        self.running.send_signal(number)
        return self.running.wait(60)


@pytest.fixture
def topics(kafka: KafkaProcess) -> Iterator[Topics]:
    found = Topics(kafka.bootstrap)
    found.make()
    yield found
    found.close()


@pytest.fixture
def exporter(topics: Topics, tmp_path: Path) -> Iterator[Exporter]:
    workers = Workers(topics, tmp_path)
    workers.start()
    found = Exporter(topics, tmp_path)
    yield found
    if found.running is not None and found.running.poll() is None:
        found.kill()
    workers.end()


def produce(topics: Topics, messages: int) -> int:
    """Sends messages of now, and waits until they are folded; how many attempts are in them."""
    rng, first, now = random.Random(topics.sent), topics.sent, time.time() - 60
    batches = [batch_of(rng, sequence=first + n, events=10, time=now) for n in range(messages)]
    topics.send([encode(batch) for batch in batches])
    topics.until_folded()
    return sum(len(batch.events) for batch in batches)


def test_counters_equal_the_windows_since_the_start_also_after_kills(
    topics: Topics, exporter: Exporter
) -> None:
    produce(topics, 70)
    for _ in range(2):
        exporter.start()
        assert exporter.attempts() == 0
        sent = produce(topics, 90)
        until(lambda: exporter.attempts() == sent, "not all attempts are counted")  # noqa: B023
        found = exporter.recount()
        assert (found.differences, found.why_not, found.overflow) == ((), "", {})
        assert found.numbers > 300
        board = exporter.get("/ui/view.json")
        assert board.status_code == 200
        exporter.kill()


def test_a_kafka_that_was_away_costs_no_count_and_doubles_none(
    kafka: KafkaProcess, topics: Topics, exporter: Exporter
) -> None:
    exporter.start()
    sent = produce(topics, 40)
    until(lambda: exporter.attempts() == sent, "not all attempts are counted")
    kafka.kill9()
    log = exporter.folder / "stats.log"
    until(lambda: "can't be read" in log.read_text(), "nobody noticed")
    kafka.start()
    sent += produce(topics, 40)
    until(lambda: exporter.attempts() == sent, "not all attempts are counted after Kafka was away")
    assert exporter.recount().differences == ()
    assert exporter.kill(signal.SIGTERM) == 0
