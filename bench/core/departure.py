"""How events leave a gateway: with what Kafka costs in its process, and what another could save.

A process of its own for Kafka would still have to be told every event. So ``bench.core --events``
sets production's way beside ways that do less: what they leave out is the most that can be saved,
and what it costs to hand the events over is what remains of it.
"""

import os
import pickle
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from typing import IO, Protocol

import lz4.frame
import msgspec

from gateway.events.buffer import EventBuffer, Item
from gateway.events.kafka_sink import KafkaSettings, KafkaSink
from gateway.events.publisher import EventSink, Publisher
from service.kafka import KafkaAddress

_MOST_EVENTS, _MOST_RECORDS = 500, 4000  # of a message, as in an outbox
_FLUSH_SECONDS = 0.5  # as a publisher's
_SENT_SECONDS = 20.0

Dump = Callable[[list[Item]], bytes]


class Way(StrEnum):
    """A way for events to leave."""

    COMPRESSED = "made, compressed and dropped"
    KAFKA = "sent to Kafka"
    MADE = "made and dropped"
    TAKEN = "taken and dropped"
    PICKLED = "pickled into a pipe"
    PACKED = "packed into a pipe"


COMPARED = (Way.KAFKA, Way.MADE, Way.TAKEN, Way.PICKLED, Way.PACKED)
DUMPS: dict[Way, Dump | None] = {
    Way.TAKEN: None,
    Way.PICKLED: lambda events: pickle.dumps(events, pickle.HIGHEST_PROTOCOL),
    Way.PACKED: msgspec.msgpack.Encoder().encode,
}


class Departure(Protocol):
    """What is asked between two turns to let events go."""

    def step(self) -> object:
        """Lets go what is due."""
        ...

    def close(self, timeout_seconds: float) -> object:
        """Frees what it holds."""
        ...


class Nowhere:
    """A sink that compresses messages as Kafka's client does, if told, and drops them."""

    def __init__(self, *, compresses: bool = True) -> None:
        self._compresses = compresses

    def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
        """See ``EventSink``."""
        del sequence, key
        if self._compresses:
            lz4.frame.compress(message)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def close(self, timeout_seconds: float) -> None:
        """See ``EventSink``."""


class _BlockingKafka(KafkaSink):
    """Kafka, waited for: what its client's thread does is within the turn that is counted."""

    def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
        """See ``EventSink``."""
        sent = super().submit(sequence, message, key)
        sent.result(_SENT_SECONDS)
        return sent


def sink(way: Way, bootstrap: str | None) -> EventSink:
    """Where a publisher's messages go."""
    if way is not Way.KAFKA:
        return Nowhere(compresses=way is Way.COMPRESSED)
    if bootstrap is None:
        raise ValueError("Kafka's address is missing")
    return _BlockingKafka(KafkaSettings(KafkaAddress((bootstrap,))))


def departure(way: Way, publisher: Publisher, buffer: EventBuffer) -> Departure:
    """What lets a gateway's events go: its publisher, or what is there in its place."""
    return HandingOver(buffer, DUMPS[way]) if way in DUMPS else publisher


class HandingOver:
    """Takes events as a publisher does, and writes what ``dump`` makes of them into a pipe.

    A process at its other end reads and forgets. Without ``dump`` nothing is written.
    """

    def __init__(
        self, buffer: EventBuffer, dump: Dump | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._buffer = buffer
        self._dump = dump
        self._clock = clock
        self._due = clock() + _FLUSH_SECONDS
        self._pipe: IO[bytes] | None = None
        if dump is not None:
            self._reader = subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
            )
            self._pipe = self._reader.stdin

    def step(self) -> None:
        """See ``Departure``."""
        now = self._clock()
        if self._buffer.waiting_events() < _MOST_EVENTS and now < self._due:
            return
        self._due = now + _FLUSH_SECONDS
        taken = self._buffer.take(max_events=_MOST_EVENTS, max_records=_MOST_RECORDS)
        if self._dump is not None and self._pipe is not None:
            left = memoryview(self._dump(taken.events))
            while left:
                left = left[os.write(self._pipe.fileno(), left) :]
        self._buffer.release(taken.records)

    def close(self, timeout_seconds: float) -> None:
        """Ends the reader."""
        if self._pipe is not None:
            self._pipe.close()
            self._reader.wait(timeout_seconds)
