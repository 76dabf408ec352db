"""Makes numbered messages of the events in the buffer, and accounts for each event.

Used from one thread; does no I/O. At most one message is pending at a time, and its bytes never
change: a message that may have been written is sent again unchanged, so that readers can drop the
second copy by (gateway, sequence). Every recorded event is at any time in exactly one of these
states: waiting, in an acknowledged message, or counted as dropped with a reason.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from contracts.endpoint import ModelEndpoint
from contracts.events import (
    FEEDBACK_KEYS,
    EventBatch,
    Feedback,
    PredictionEvent,
    Refusals,
    StatisticSpec,
    encode_around,
    encode_event,
    partition_key,
)
from contracts.features import select_counted
from contracts.manifest import Manifest
from gateway.events.buffer import DropReason, EventBuffer, Item, records_of

# Events, texts and observed values that are encoded at a stretch, and the pause after them. No
# other thread of Python runs while the encoder does: 500 events at a stretch stop the event loop
# for a millisecond, in which requests pile up.
_RECORDS_AT_ONCE = 100
_PAUSE_SECONDS = 0.0005

Declared = Callable[[str], list[StatisticSpec]]  # an endpoint's own statistics, by its name


def declared_by(endpoint: ModelEndpoint, manifests: Iterable[Manifest] = ()) -> list[StatisticSpec]:
    """The endpoint's own statistics as events carry them, then those of its versions' features.

    Of one name, the first counts.

    Args:
        endpoint: with users' own statistics.
        manifests: of its versions, stable first.
    """
    found = {
        each.name: StatisticSpec(each.name, each.kind.value, list(each.edges), list(each.values))
        for each in endpoint.spec.statistics
    }
    for manifest in manifests:
        for feature in (*select_counted(manifest.features), *select_counted(manifest.answers)):
            found.setdefault(feature.name, feature.statistic())
    return list(found.values())


@dataclass(slots=True)
class Message:
    """The pending message. ``events`` includes feedback."""

    sequence: int
    payload: bytes
    events: list[Item]
    refusals: list[Refusals]
    last: bool
    key: int | None = None  # of the feedback in it: the partition follows from it
    maybe_written: bool = False


@dataclass(slots=True)
class PublishCounts:
    """What was acknowledged since the start."""

    events: int = 0
    refusals: int = 0
    messages: int = 0
    bytes: int = 0
    feedback: int = 0


def _groups(items: list[Item]) -> list[list[Item]]:
    """Events together, and feedback by its partition key, each in their order."""
    events: list[Item] = []
    by_key: list[list[Item]] = [[] for _ in range(FEEDBACK_KEYS)]
    for item in items:
        (by_key[partition_key(item)] if isinstance(item, Feedback) else events).append(item)
    return [group for group in (events, *by_key) if group]


class Outbox:
    """Makes the next message, and is told its outcome.

    Args:
        buffer: holds the events and counts losses.
        gateway: unique for each start of a gateway process.
        max_events: events a message, at most.
        max_records: events, texts and observed values a message, at most.
        max_bytes: size of an encoded message, at most; larger ones are split.
        declared: the users' own statistics that an endpoint declares.
        pause: lets other threads run, and is called while a message is made.
    """

    def __init__(
        self,
        buffer: EventBuffer,
        *,
        gateway: str,
        max_events: int = 500,
        max_records: int = 4000,
        max_bytes: int = 900_000,
        declared: Declared | None = None,
        pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS),
    ) -> None:
        self._buffer = buffer
        self._gateway = gateway
        self._max_events = max_events
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._declared = declared
        self._pause = pause
        self._sequence = 0
        self._pending: Message | None = None
        self._carried: list[list[Item]] = []  # each for a message of its own
        self.published = PublishCounts()

    @property
    def pending(self) -> Message | None:
        """The message that was made and is not yet acknowledged, refused or given up."""
        return self._pending

    @property
    def full(self) -> bool:
        """Whether a message's worth of events waits, or what belongs to one that was sent."""
        return bool(self._carried) or self._buffer.waiting_events() >= self._max_events

    @property
    def empty(self) -> bool:
        """Whether nothing waits and no message is pending."""
        waits = self._carried or self._buffer.waiting_events() or self._buffer.has_refusals()
        return self._pending is None and not waits

    def message(self, *, heartbeat: bool = False, last: bool = False) -> Message | None:
        """The message to send now: the pending one, or a new one if anything waits.

        ``heartbeat`` asks for a message even if nothing waits. ``last`` marks the message as the
        last one of this gateway, if nothing waits after it.
        """
        if self._pending is None:
            events, refusals = self._take()
            if events or refusals or heartbeat or last:
                self._pending = self._fit(events, refusals, last=last)
        return self._pending

    def acknowledged(self) -> None:
        """The pending message is durable."""
        message = self._resolve()
        self._sequence += 1
        self._buffer.release(sum(map(records_of, message.events)))
        feedback = sum(isinstance(item, Feedback) for item in message.events)
        self.published.events += len(message.events) - feedback
        self.published.feedback += feedback
        self.published.refusals += sum(refusal.count for refusal in message.refusals)
        self.published.messages += 1
        self.published.bytes += len(message.payload)

    def unavailable(self, *, maybe_written: bool) -> None:
        """The sink could not be reached. The message stays pending; it may have been written."""
        if self._pending is not None:
            self._pending.maybe_written |= maybe_written

    def refused(self, reason: DropReason) -> None:
        """The sink will never accept the pending message.

        If it is certain that no copy was written, its number is used again: events that were too
        many for one message go out in smaller ones, others are counted as dropped. If a copy may
        have been written, its number is left out, so that the loss shows as a gap, and everything
        in it is counted as dropped.
        """
        message = self._resolve()
        if message.maybe_written:
            self._sequence += 1
            self._buffer.drop(message.events, message.refusals, reason)
        elif reason == "too_large" and len(message.events) > 1:
            self._max_bytes = min(self._max_bytes, len(message.payload)) // 2
            self._carried.insert(0, message.events)
            self._buffer.put_back(message.refusals)
        elif message.events:
            self._buffer.drop(message.events, (), reason)
            self._buffer.put_back(message.refusals)
        else:
            self._buffer.drop((), message.refusals, reason)

    def give_up(self) -> None:
        """Counts everything that waits or is pending as dropped, because the gateway ends."""
        if self._pending is not None:
            message = self._resolve()
            self._buffer.drop(message.events, message.refusals, "shutdown")
        while not self.empty:
            events, refusals = self._take()
            self._buffer.drop(events, refusals, "shutdown")

    def _take(self) -> tuple[list[Item], list[Refusals]]:
        if self._carried:
            taken = self._buffer.take(max_events=0, max_records=0)
        else:
            taken = self._buffer.take(max_events=self._max_events, max_records=self._max_records)
            self._carried = _groups(taken.events)
        return self._carried.pop(0) if self._carried else [], taken.refusals

    def _fit(self, events: list[Item], refusals: list[Refusals], *, last: bool) -> Message:
        while True:
            ends = last and not self._carried and not self._buffer.waiting_events()
            reason: DropReason = "too_large"
            try:
                payload = self._encode(events, refusals, last=ends)
            except (TypeError, ValueError, msgspec.MsgspecError):
                if not events:
                    raise
                reason = "invalid"  # a lone surrogate in a text field, for one
            else:
                if len(payload) <= self._max_bytes or not events:
                    keys = (partition_key(item) for item in events if isinstance(item, Feedback))
                    key = next(keys, None)
                    return Message(self._sequence, payload, events, refusals, ends, key)
            if len(events) == 1:
                self._buffer.drop(events, (), reason)
                events = []
            else:
                half = len(events) // 2
                self._carried.insert(0, events[half:])
                events = events[:half]

    def _encode(self, items: list[Item], refusals: list[Refusals], *, last: bool) -> bytes:
        events = [item for item in items if isinstance(item, PredictionEvent)]
        return encode_around(
            EventBatch(
                gateway=self._gateway,
                sequence=self._sequence,
                feedback=[item for item in items if isinstance(item, Feedback)],
                refusals=refusals,
                dropped=self._buffer.dropped(),
                statistics=self._statistics(events),
                made=time.time(),
                last=last,
            ),
            self._encode_events(events),
        )

    def _encode_events(self, events: list[PredictionEvent]) -> list[msgspec.Raw]:
        encoded: list[msgspec.Raw] = []
        records = 0
        for event in events:
            encoded.append(encode_event(event))
            records += records_of(event)
            if records >= _RECORDS_AT_ONCE:
                self._pause()
                records = 0
        return encoded

    def _statistics(self, events: list[PredictionEvent]) -> dict[str, list[StatisticSpec]]:
        """The declarations of the statistics that these events hold."""
        if self._declared is None:
            return {}
        observed = {event.endpoint for event in events if event.observations}
        return {endpoint: self._declared(endpoint) for endpoint in sorted(observed)}

    def _resolve(self) -> Message:
        message, self._pending = self._pending, None
        if message is None:
            raise RuntimeError("no message is pending")
        return message
