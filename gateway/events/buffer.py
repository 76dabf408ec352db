"""The bounded buffer between requests and the event stream.

It is the gateway's ``Recorder``: requests append their attempts, refusals and feedback. Another
thread (``gateway.events.publisher``) takes them out and sends them to Kafka: every half second, or
sooner if it is woken because there is enough for a message. To append never raises and never waits
for Kafka, only for the lock that ``take`` holds while it empties the queue. When the buffer is
full, an event is dropped, and counted as dropped.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from contracts.events import EventLosses, Feedback, PredictionEvent, Refusals

# A bound on the counters, of which there is one for each endpoint, status and reason: usually far
# fewer. What exceeds it is counted under an empty endpoint.
MAX_COUNTERS = 2048

DropReason = Literal["buffer_full", "too_large", "invalid", "send_failed", "shutdown"]

# What is queued for the event stream.
Item = PredictionEvent | Feedback
FEEDBACK_STATUS = 202  # under which lost feedback is counted

_Key = tuple[str, int, str]


class Recorder(Protocol):
    """Takes events for the event stream; never blocks, raises or slows a prediction down."""

    def attempt(self, event: PredictionEvent) -> None:
        """One attempt, failed ones included; counted as dropped when the buffer is full."""

    def refusal(self, endpoint: str, status: int, reason: str) -> None:
        """A request for a known endpoint that was refused before any attempt."""

    def feedback(self, feedback: Feedback) -> None:
        """The true label of one answered text; counted as dropped when the buffer is full."""


@dataclass(frozen=True, slots=True)
class MessageContents:
    """The contents of one message. ``records``: see ``records_of``."""

    events: list[Item]
    records: int
    refusals: list[Refusals]


@dataclass(frozen=True, slots=True)
class Totals:
    """Events, refusals and feedback since the start, and the records in the buffer now."""

    events: int
    refusals: int
    records: int
    feedback: int


def records_of(item: Item) -> int:
    """An item's size: one record for itself, each of its texts, and each observed value."""
    if isinstance(item, Feedback):
        return 1
    records = 1 + len(item.texts)
    if item.observations:
        records += sum(map(len, item.observations.values()))
    return records


class EventBuffer:
    """A queue of events bounded by records (``records_of``), with counters of refusals and drops.

    Any thread may append; one thread takes. The callback of ``wake_with`` is called in the
    appending thread whenever the length of the queue reaches a multiple of ``wake_events``.
    """

    def __init__(self, *, capacity_records: int, wake_events: int) -> None:
        if capacity_records < 1 or wake_events < 1:
            raise ValueError("capacity_records and wake_events must be at least 1")
        self._capacity = capacity_records
        self._wake_events = wake_events
        self._lock = threading.Lock()
        self._events: deque[Item] = deque()
        self._records = 0
        self._refusals: dict[_Key, int] = {}
        self._dropped: dict[_Key, int] = {}
        self._dropped_answered: dict[_Key, int] = {}
        self._total_events = 0
        self._total_refusals = 0
        self._total_feedback = 0
        self._wake: Callable[[], None] = _do_nothing

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Sets the callback for when enough events for a message are queued; it must not block."""
        self._wake = wake

    def attempt(self, event: PredictionEvent) -> None:
        """Appends one attempt, or counts it as dropped."""
        with self._lock:
            self._total_events += 1
            wake = self._append(event)
        if wake:
            self._wake()

    def refusal(self, endpoint: str, status: int, reason: str) -> None:
        """Counts a request for a known endpoint that was refused before any attempt."""
        with self._lock:
            self._total_refusals += 1
            _add(self._refusals, (endpoint, status, reason), 1)

    def feedback(self, feedback: Feedback) -> None:
        """Appends one text's true label to the queue of events, or counts it as dropped."""
        with self._lock:
            self._total_feedback += 1
            wake = self._append(feedback)
        if wake:
            self._wake()

    def take(self, *, max_events: int, max_records: int) -> MessageContents:
        """Takes the oldest events, at least one if any waits, and all refusal counts."""
        events: list[Item] = []
        taken = 0
        with self._lock:
            while self._events and len(events) < max_events:
                records = records_of(self._events[0])
                if events and taken + records > max_records:
                    break
                events.append(self._events.popleft())
                taken += records
            refusals, self._refusals = self._refusals, {}
        return MessageContents(
            events, taken, [Refusals(*key, count) for key, count in refusals.items()]
        )

    def release(self, records: int) -> None:
        """Frees the space of events that were taken and are now acknowledged by Kafka."""
        with self._lock:
            self._records -= records

    def drop(
        self, events: Iterable[Item], refusals: Iterable[Refusals], reason: DropReason
    ) -> None:
        """Counts as dropped what was taken and could not be sent, and frees its space."""
        with self._lock:
            for event in events:
                self._records -= records_of(event)
                self._count_dropped_item(event, reason)
            for refusal in refusals:
                count = refusal.count
                self._count_dropped(refusal.endpoint, refusal.status, reason, count, count)

    def put_back(self, refusals: Iterable[Refusals]) -> None:
        """Adds refusal counts again whose message is known not to have been written."""
        with self._lock:
            for refusal in refusals:
                key = (refusal.endpoint, refusal.status, refusal.reason)
                _add(self._refusals, key, refusal.count)

    def dropped(self) -> list[EventLosses]:
        """All that was dropped since the start."""
        with self._lock:
            return [
                EventLosses(*key, count, self._dropped_answered.get(key, 0))
                for key, count in self._dropped.items()
            ]

    def waiting_events(self) -> int:
        """Events and feedback in the queue."""
        return len(self._events)

    def has_refusals(self) -> bool:
        """Whether refusals wait to be sent."""
        return bool(self._refusals)

    def totals(self) -> Totals:
        """Totals since the start, and the records that still take space."""
        with self._lock:
            return Totals(
                self._total_events, self._total_refusals, self._records, self._total_feedback
            )

    def _append(self, item: Item) -> bool:
        """Queues an item, or counts it as dropped; returns whether to wake the other thread."""
        records = records_of(item)
        if self._records + records > self._capacity:
            self._count_dropped_item(item, "buffer_full")
            return False
        self._records += records
        self._events.append(item)
        return len(self._events) % self._wake_events == 0

    def _count_dropped_item(self, item: Item, reason: DropReason) -> None:
        if isinstance(item, Feedback):
            self._count_dropped(item.endpoint, FEEDBACK_STATUS, reason, 1, 0)
        else:
            self._count_dropped(item.endpoint, item.status, reason, 1, int(item.answered))

    def _count_dropped(
        self, endpoint: str, status: int, reason: DropReason, count: int, answered: int
    ) -> None:
        _add(self._dropped, (endpoint, status, reason), count)
        _add(self._dropped_answered, (endpoint, status, reason), answered)


def _add(counters: dict[_Key, int], key: _Key, count: int) -> None:
    if key not in counters and len(counters) >= MAX_COUNTERS:
        key = ("", key[1], key[2])
    counters[key] = counters.get(key, 0) + count


def _do_nothing() -> None:
    pass
