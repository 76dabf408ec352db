"""The bounded buffer between requests and the event stream.

Attempts, refusals and feedback are left here (it is the gateway's ``Recorder``); the outbox takes
them out in another thread. Leaving one costs a short lock and an append: it never waits for room,
never raises and wakes nobody before a message is full. What finds no room is counted as dropped.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from contracts.events import Dropped, Feedback, PredictionEvent, Refusals
from gateway.events.sink import DropReason

# Endpoints times statuses times reasons: far below this, and still a bound. What goes beyond it is
# counted under an empty endpoint.
MAX_COUNTERS = 2048

# What waits in line for its message.
Item = PredictionEvent | Feedback
FEEDBACK_STATUS = 202  # under which lost feedback is counted

_Key = tuple[str, int, str]


class Recorder(Protocol):
    """Takes what happened without ever blocking, raising or slowing a prediction down."""

    def attempt(self, event: PredictionEvent) -> None:
        """One attempt, failures included; what finds no room is counted as dropped."""
        ...

    def refusal(self, endpoint: str, status: int, reason: str) -> None:
        """A request that a known endpoint refused before any attempt."""
        ...

    def feedback(self, told: Feedback) -> None:
        """The truth about one answered text; what finds no room is counted as dropped."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """What one message will carry. ``records``: see ``records_of``."""

    events: list[Item]
    records: int
    refusals: list[Refusals]


@dataclass(frozen=True, slots=True)
class Totals:
    """What was left in the buffer since the start, and the records held now."""

    events: int
    refusals: int
    records: int
    feedback: int


def records_of(item: Item) -> int:
    """An item's share of the buffer: itself, each of its texts, each value that a hook observed."""
    if isinstance(item, Feedback):
        return 1
    records = 1 + len(item.texts)
    if item.observations:
        records += sum(map(len, item.observations.values()))
    return records


class EventBuffer:
    """A queue of events bounded by records (``records_of``), and counters beside it.

    Any thread may leave things; one thread takes them. ``when_full`` is called, in the thread of
    whoever left the event, each time that another ``wake_events`` are waiting.
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
        self._wake: Callable[[], None] = _nobody

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Sets whom to wake when enough events for a message wait; it must not block."""
        self._wake = wake

    def attempt(self, event: PredictionEvent) -> None:
        """Takes one attempt, or counts it as dropped."""
        records = records_of(event)
        with self._lock:
            self._total_events += 1
            if self._records + records > self._capacity:
                self._lose(event.endpoint, event.status, "buffer_full", 1, int(event.answered))
                return
            self._records += records
            self._events.append(event)
            wake = len(self._events) % self._wake_events == 0
        if wake:
            self._wake()

    def refusal(self, endpoint: str, status: int, reason: str) -> None:
        """Counts a request that a known endpoint refused before any attempt."""
        with self._lock:
            self._total_refusals += 1
            _add(self._refusals, (endpoint, status, reason), 1)

    def feedback(self, told: Feedback) -> None:
        """Takes one text's truth, or counts it as dropped. It waits with the events."""
        with self._lock:
            self._total_feedback += 1
            if self._records + 1 > self._capacity:
                self._lose_item(told, "buffer_full")
                return
            self._records += 1
            self._events.append(told)

    def take(self, *, max_events: int, max_records: int) -> Taken:
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
        return Taken(events, taken, [Refusals(*key, count) for key, count in refusals.items()])

    def release(self, records: int) -> None:
        """Gives back the room of events that were taken and are now acknowledged."""
        with self._lock:
            self._records -= records

    def drop(
        self, events: Iterable[Item], refusals: Iterable[Refusals], reason: DropReason
    ) -> None:
        """Counts what was taken and is lost, and gives back its room."""
        with self._lock:
            for event in events:
                self._records -= records_of(event)
                self._lose_item(event, reason)
            for refusal in refusals:
                count = refusal.count
                self._lose(refusal.endpoint, refusal.status, reason, count, count)

    def put_back(self, refusals: Iterable[Refusals]) -> None:
        """Takes refusal counts back whose message is known not to have been written."""
        with self._lock:
            for refusal in refusals:
                key = (refusal.endpoint, refusal.status, refusal.reason)
                _add(self._refusals, key, refusal.count)

    def dropped(self) -> list[Dropped]:
        """All losses since the start."""
        with self._lock:
            return [
                Dropped(*key, count, self._dropped_answered.get(key, 0))
                for key, count in self._dropped.items()
            ]

    def waiting_events(self) -> int:
        """Events and feedback that nobody has taken yet."""
        return len(self._events)

    def has_refusals(self) -> bool:
        """Whether refusals wait to be sent."""
        return bool(self._refusals)

    def totals(self) -> Totals:
        """What was left here since the start, and the records that still take room."""
        with self._lock:
            return Totals(
                self._total_events, self._total_refusals, self._records, self._total_feedback
            )

    def _lose_item(self, item: Item, reason: DropReason) -> None:
        if isinstance(item, Feedback):
            self._lose(item.endpoint, FEEDBACK_STATUS, reason, 1, 0)
        else:
            self._lose(item.endpoint, item.status, reason, 1, int(item.answered))

    def _lose(
        self, endpoint: str, status: int, reason: DropReason, count: int, answered: int
    ) -> None:
        _add(self._dropped, (endpoint, status, reason), count)
        _add(self._dropped_answered, (endpoint, status, reason), answered)


def _add(counters: dict[_Key, int], key: _Key, count: int) -> None:
    if key not in counters and len(counters) >= MAX_COUNTERS:
        key = ("", key[1], key[2])
    counters[key] = counters.get(key, 0) + count


def _nobody() -> None:
    pass
