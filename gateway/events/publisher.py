"""The thread that sends messages: one at a time, and each one again until it is acknowledged.

``step`` is one decision and never waits for the sink. The thread calls it again when the next
message is due, full, acknowledged or failed. While the sink can't be reached, the thread tries
again with growing pauses, without end; what waits is bounded by the buffer. The thread never ends
because of an error, and no request ever fails because of one here.

An ``EventSink`` is where messages go; ``kafka_sink.py`` has the real one. It is used from one
thread, takes one message at a time and stores none: a message that is not acknowledged is sent
again.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, Protocol

from contracts.backoff import Backoff
from contracts.events import EventLosses
from gateway.events.buffer import EventBuffer
from gateway.events.outbox import Outbox


class SinkError(Exception):
    """A message was not acknowledged."""


class SinkUnavailableError(SinkError):
    """The sink can't be reached, or did not answer in time: send the same message again.

    ``maybe_written``: the message may have got there all the same.
    """

    def __init__(self, message: str, *, maybe_written: bool) -> None:
        super().__init__(message)
        self.maybe_written = maybe_written


class MessageRefusedError(SinkError):
    """The sink did not take this message and never will."""

    def __init__(self, message: str, *, reason: Literal["too_large", "send_failed"]) -> None:
        super().__init__(message)
        self.reason: Literal["too_large", "send_failed"] = reason


class EventSink(Protocol):
    """A durable log of messages. Used from one thread; futures may end in any."""

    def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
        """Hands one message over, within a few seconds.

        Messages of a key lie where one reader finds all of them. Copies of a message have the
        same ``sequence`` and lie where the same reader finds them. The future ends when the message
        is durable, or with a ``SinkError``. One that has not ended is abandoned by the next
        ``submit``. Errors that are known at once are raised.
        """

    def close(self, timeout_seconds: float) -> None:
        """Abandons a pending message and frees all resources; never raises."""


log = logging.getLogger(__name__)
_PAUSES = Backoff(0.1, 5.0, jitter=0.5)


@dataclass(frozen=True)
class Pace:
    """When to send, in seconds.

    Attributes:
        flush_seconds: an event waits no longer than this for its message to fill.
        heartbeat_seconds: an idle gateway sends an empty message, with its losses, this often.
        pauses: after failures in a row.
        acknowledge_seconds: a message without an answer for so long is sent again.
    """

    flush_seconds: float = 0.5
    heartbeat_seconds: float = 10.0
    pauses: Backoff = _PAUSES
    acknowledge_seconds: float = 20.0


@dataclass(slots=True)
class SendCounts:
    """Failures since the start; the outbox counts what was published."""

    unavailable: int = 0
    refused: int = 0
    connected: bool = False


class Publisher:
    """Sends an outbox's messages to a sink."""

    def __init__(
        self,
        buffer: EventBuffer,
        outbox: Outbox,
        sink: EventSink,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._buffer = buffer
        self._outbox = outbox
        self._sink = sink
        self._pace = pace or Pace()
        self._clock = clock
        self._jitter = jitter
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stop_at: float | None = None
        self._delivery: Future[None] | None = None
        self._give_up_at = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._due_at = clock() + self._pace.flush_seconds
        self._last_sent_at = clock()
        self._ended = False
        self.counts = SendCounts()

    def start(self) -> None:
        """Starts the thread. The sink need not be reachable yet."""
        self._buffer.wake_with(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def close(self, timeout_seconds: float) -> list[EventLosses]:
        """Sends what waits, for so long at most, then counts the rest as dropped.

        Blocks, so that an event loop must call it in a thread. Returns all losses since the start.
        Events that are recorded after this call are counted as waiting.
        """
        self._stop_at = self._clock() + timeout_seconds
        self._wake.set()
        if self._thread is None:
            self._finish()
        else:
            # Longer than the thread's own limit, because calls of the sink have deadlines too.
            self._thread.join(timeout_seconds + 10.0)
        return self._buffer.dropped()

    def step(self) -> float | None:
        """Does what is due. Returns the seconds until the next call; None after the end."""
        now = self._clock()
        if self._stop_at is not None and (now >= self._stop_at or self._ended):
            self._finish()
            return None
        if self._delivery is not None:
            return self._check(self._delivery, now)
        if now < self._retry_at:
            return self._retry_at - now
        return self._send(now)

    def _send(self, now: float) -> float:
        stopping = self._stop_at is not None
        # The same sum as in the wait below: otherwise rounding could make that wait 0.
        heartbeat_at = self._last_sent_at + self._pace.heartbeat_seconds
        heartbeat = now >= heartbeat_at
        wanted = stopping or heartbeat or self._outbox.pending is not None
        if not (wanted or self._outbox.full or now >= self._due_at):
            return min(self._due_at, heartbeat_at) - now
        self._due_at = now + self._pace.flush_seconds
        message = self._outbox.message(heartbeat=heartbeat, last=stopping)
        if message is None:
            return self._pace.flush_seconds
        try:
            self._delivery = self._sink.submit(message.sequence, message.payload, message.key)
        except SinkUnavailableError as error:
            return self._failed(error, now)
        except MessageRefusedError as error:
            return self._refused(error)
        self._give_up_at = now + self._pace.acknowledge_seconds
        self._delivery.add_done_callback(lambda _: self._wake.set())
        return self._check(self._delivery, now)

    def _check(self, delivery: "Future[None]", now: float) -> float:
        if not delivery.done():
            if now < self._give_up_at:
                return self._give_up_at - now
            late = SinkUnavailableError("no answer in time", maybe_written=True)
            return self._failed(late, now)
        error = delivery.exception()
        if error is None:
            return self._acknowledged(now)
        if isinstance(error, MessageRefusedError):
            return self._refused(error)
        if isinstance(error, SinkUnavailableError):
            return self._failed(error, now)
        raise error

    def _acknowledged(self, now: float) -> float:
        message = self._outbox.pending
        self._delivery = None
        self._outbox.acknowledged()
        if not self.counts.connected:
            log.info("events are being published", extra={"failures": self._failures})
        self.counts.connected = True
        self._failures = 0
        self._last_sent_at = now
        self._ended = message is not None and message.last
        return 0.0 if self._outbox.full or self._stop_at is not None else self._due_at - now

    def _refused(self, error: MessageRefusedError) -> float:
        message = self._outbox.pending
        self._ended = message is not None and message.last
        self._delivery = None
        self._last_sent_at = self._clock()
        self.counts.refused += 1
        log.error("an event message was refused", extra={"reason": str(error)})
        self._outbox.refused(error.reason)
        return 0.0

    def _failed(self, error: SinkUnavailableError, now: float) -> float:
        self._delivery = None
        self._outbox.unavailable(maybe_written=error.maybe_written)
        pause = self._pace.pauses.after(self._failures + 1, self._jitter())
        if self.counts.connected or self._failures == 0:
            log.warning("events can't be published, trying again", extra={"reason": str(error)})
        self._failures += 1
        self.counts.unavailable += 1
        self.counts.connected = False
        self._retry_at = now + pause
        return pause

    def _finish(self) -> None:
        self._outbox.give_up()
        self._sink.close(1.0)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                delay = self.step()
            except Exception:
                # A bug must not end the thread. The pending message is sent again.
                log.exception("a bug: the event publisher failed")
                self._delivery = None
                self._outbox.unavailable(maybe_written=True)
                delay = self._pace.pauses.most
            if delay is None:
                return
            if delay > 0:
                self._wake.wait(min(delay, self._until_stop()))

    def _until_stop(self) -> float:
        if self._stop_at is None:
            return self._pace.heartbeat_seconds
        return max(0.0, self._stop_at - self._clock())
