"""Fixtures that several packages' tests share: the real components."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from headrace.stack.kafka import KafkaFiles, KafkaNode, KafkaProcess, prepare

# How long an example takes says more about the machine's other work than about our code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.register_profile(  # for make check
    "quick", deadline=None, max_examples=20, stateful_step_count=20
)
hypothesis.settings.load_profile("untimed")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


@pytest.fixture(scope="session")
def kafka_files() -> KafkaFiles:
    """Apache Kafka itself, downloaded at the first use on a machine."""
    cache = os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace"
    return prepare(Path(cache))


@pytest.fixture(scope="session")
def kafka(
    kafka_files: KafkaFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaProcess]:
    """A real broker that is up. Who kills or wipes it starts it again. Topics: one a test."""
    port, controller_port = free_ports(2)
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), port=port, controller_port=controller_port)
    process = KafkaProcess(kafka_files, node)
    process.start()
    yield process
    process.stop()
