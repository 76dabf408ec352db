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

from measures.dividing import partition_of
from service.kafka import (
    KafkaAddress,
    Topic,
    Topics,
    close,
    kafka_errors,
    producer,
)
from stats.reading.raw_log import KafkaRawLog

TOPIC = "headrace.learnt"
_MOST_BYTES = 16_000_000
_FUTURE_SECONDS = 86_400.0


class _State(msgspec.Struct):
    """A message: all that was learnt of an endpoint, by whoever wrote it in which generation."""

    endpoint: str
    generation: int
    learnt: dict[str, Any]


_decoder = msgspec.json.Decoder(_State)


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
        """See ``LearntLog``."""
        newest: dict[str, _State] = {}
        self._stale, self._generation = {}, 1
        for state in self._states():
            self._generation = max(self._generation, state.generation + 1)
            if owns(state.endpoint):
                self._stale.setdefault(state.endpoint, set()).add(state.generation)
                if state.generation >= newest.get(state.endpoint, state).generation:
                    newest[state.endpoint] = state
        return {key: told for state in newest.values() for key, told in state.learnt.items()}

    def save(self, learnt: Mapping[str, Any]) -> None:
        """See ``LearntLog``."""
        by_endpoint: dict[str, dict[str, Any]] = {}
        for key, state in learnt.items():
            by_endpoint.setdefault(endpoint_of(key), {})[key] = state
        states = {name: _State(name, self._generation, of) for name, of in by_endpoint.items()}
        packed = {k: zlib.compress(msgspec.json.encode(state), 1) for k, state in states.items()}
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

    def _states(self) -> Iterator[_State]:
        with closing(Topics(self._address)) as topics:
            topics.ensure(self._topic)
        with closing(KafkaRawLog(self._address, self._topic.name)) as log:
            future = time.time() + _FUTURE_SECONDS
            ends = log.spans(future, future)
            for number, first in log.beginnings().items():
                for message in log.messages(number, first, ends[number][0]):
                    if message.value:
                        yield _decoder.decode(zlib.decompress(message.value))


def endpoint_of(key: str) -> str:
    """The endpoint that something learnt is of, by its key.

    >>> endpoint_of("e/1/abc"), endpoint_of("usual:e/texts/abc")
    ('e', 'e')
    """
    return key.removeprefix("usual:").partition("/")[0]
