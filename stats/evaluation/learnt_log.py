"""What was learnt of drift, by endpoint, in a compacted topic, which outlives process and disk.

The key of a state is its endpoint and the writer's generation, which is above all that the writer
found when it began: so whoever had the endpoint before, and writes late, changes nothing. For one
thread.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol

import msgspec
from kafka import TopicPartition

from measures.dividing import partition_of
from service.kafka import (
    KafkaAddress,
    KafkaAwayError,
    Topic,
    Topics,
    close,
    consumer,
    kafka_errors,
    producer,
)

TOPIC = "headrace.learnt"
_MOST_BYTES = 16_000_000
_POLL_MS = 500
_IDLE_SECONDS = 30.0


class LearntLog(Protocol):
    """Both methods raise ``StreamError``."""

    def load(self, owns: Callable[[str], bool]) -> dict[str, Any]:
        """What was learnt of endpoints that are ours; to be called before anything is saved."""

    def save(self, learnt: Mapping[str, Any]) -> None:
        """Keeps what changed, returning once Kafka has it."""


class KafkaLearntLog:
    """The real one. Makes the topic if it is missing; connects only for each call."""

    def __init__(
        self, address: KafkaAddress, topic: str = TOPIC, partitions: int = 4, replication: int = 1
    ) -> None:
        """Takes the topic's name, and how it is made."""
        self._address = address
        self._topic = Topic(
            topic,
            partitions,
            replication,
            max_message_bytes=_MOST_BYTES,
            is_compacted=True,
        )
        self._generation = 0
        self._stale: dict[str, set[int]] = {}  # generations of others, by endpoint
        self._saved: dict[str, bytes] = {}

    def load(self, owns: Callable[[str], bool]) -> dict[str, Any]:
        """See ``LearntLog``; what can't be read is learnt again."""
        newest: dict[str, tuple[int, bytes]] = {}
        self._stale, generations = {}, [0]
        for key, state in self._states():
            name, _, number = key.decode().rpartition("/")
            generation = int(number)
            generations.append(generation)
            if not owns(name):
                continue
            self._stale.setdefault(name, set()).add(generation)
            if generation >= newest.get(name, (0, b""))[0]:
                newest[name] = generation, state
        self._generation = 1 + max(generations)
        learnt: dict[str, Any] = {}
        for _, state in newest.values():
            if state:
                learnt |= msgspec.json.decode(zlib.decompress(state))
        return learnt

    def save(self, learnt: Mapping[str, Any]) -> None:
        """See ``LearntLog``."""
        by_endpoint: dict[str, dict[str, Any]] = {}
        for key, state in learnt.items():
            by_endpoint.setdefault(endpoint_of(key), {})[key] = state
        packed = {k: zlib.compress(msgspec.json.encode(of), 1) for k, of in by_endpoint.items()}
        changed = {k: state for k, state in packed.items() if self._saved.get(k) != state}
        if not changed:
            return
        seconds = self._address.request_seconds * 2
        client = producer(
            self._address,
            max_request_bytes=_MOST_BYTES,
            delivery_seconds=seconds,
            max_block_ms=self._address.request_ms,
        )
        try:
            with kafka_errors():
                count = len(client.partitions_for(self._topic.name))
                sent = []
                for name, state in changed.items():
                    place = partition_of(name, count)
                    # Those of before go once this one is there: both lie in one partition.
                    of = {self._generation: state} | dict.fromkeys(self._stale.get(name, ()))
                    sent += [
                        client.send(
                            self._topic.name, value, f"{name}/{number}".encode(), partition=place
                        )
                        for number, value in of.items()
                    ]
                for future in sent:
                    future.get(seconds + 1.0)
        finally:
            close(client, 1.0)
        self._saved |= changed
        for name in changed:
            self._stale.pop(name, None)

    def _states(self) -> Iterator[tuple[bytes, bytes]]:
        with closing(Topics(self._address)) as topics:
            topics.ensure(self._topic)
            _, numbers = topics.describe(self._topic.name)
        parts = [TopicPartition(self._topic.name, number) for number in numbers]
        client = consumer(self._address, auto_offset_reset="earliest", max_poll_records=100)
        try:
            with kafka_errors():
                client.assign(parts)
                ends = client.end_offsets(parts, timeout_ms=self._address.request_ms)
                client.seek_to_beginning(*parts)
                heard_at = time.monotonic()
                while any(client.position(part) < ends[part] for part in parts):
                    for records in client.poll(timeout_ms=_POLL_MS).values():
                        heard_at = time.monotonic()
                        yield from ((each.key, each.value or b"") for each in records)
                    if time.monotonic() - heard_at > _IDLE_SECONDS:
                        raise KafkaAwayError(f"no state came for {_IDLE_SECONDS:.0f} s")
        finally:
            close(client)


def endpoint_of(key: str) -> str:
    """The endpoint that something learnt is of, by its key.

    >>> endpoint_of("e/1/abc"), endpoint_of("usual:e/texts/abc")
    ('e', 'e')
    """
    return key.removeprefix("usual:").partition("/")[0]
