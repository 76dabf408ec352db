"""The messages of one partition into records of its ranges.

It takes every message in the order of the log. A record is a function of the log alone: of the
messages in its range, and of the ``LOOKBACK_MESSAGES`` before it, which tell the second copy of a
message from a first one. Pure; it never asks what offset comes next, and never keeps a message.
"""

from collections import deque

import msgspec

from contracts.events import EventBatch, UnknownSchemaError, decode, decoded
from contracts.windows import (
    LOOKBACK_MESSAGES,
    MISTIMED_SECONDS,
    RANGE_MESSAGES,
    REVISION,
    WindowRecord,
)
from measures.folding import Fold

_Identity = tuple[str, int]


class OutOfOrderError(ValueError):
    """An offset came after a larger one: this is not the log that it was before."""


class _Sender(msgspec.Struct):
    gateway: str
    sequence: int


_sender = msgspec.json.Decoder(_Sender)


def range_start(offset: int) -> int:
    """The first offset of the range that an offset lies in."""
    return offset - offset % RANGE_MESSAGES


def read_from(first: int) -> int:
    """Where to begin reading, so that the range which begins at ``first`` can be folded."""
    return max(0, first - LOOKBACK_MESSAGES)


class PartitionFold:
    """Folds one partition from a range's start onwards.

    Attributes:
        next: the offset behind the last message that was folded; ``first`` before any.
        missing: offsets between two messages that were not in the log.
    """

    def __init__(self, topic_id: str, partition: int, *, first: int, window_seconds: int) -> None:
        """Begins at ``first``, the start of a range; what comes before it is only remembered."""
        self.next = first
        self.missing = 0
        self._topic_id = topic_id
        self._partition = partition
        self._window_seconds = window_seconds
        self._first = first
        self._began = False
        self._seen: dict[_Identity, int] = {}
        self._order: deque[tuple[int, _Identity]] = deque()
        self._open: _OpenRange | None = None

    def take(self, offset: int, time: float, message: bytes) -> list[WindowRecord]:
        """Folds one message; returns the records of ranges that are complete by it, mostly none.

        Args:
            offset: larger than that of the message before.
            time: the message's own, unix seconds.
            message: of ``headrace.predictions``.

        Raises:
            OutOfOrderError: this offset was folded already.
        """
        if offset < self._first:
            self._remember(offset, _identity_of(message))
            return []
        if offset < self.next:
            raise OutOfOrderError(f"offset {offset} comes after {self.next - 1} was folded")
        complete = self._leave_for(offset)
        if self._began:
            self.missing += offset - self.next
        self._began, self.next = True, offset + 1
        opened = self._open = self._open or self._enter(offset)
        identity = _identity_of(message)
        if identity is not None and identity in self._seen:
            opened.copies += 1
        else:
            opened.add(message, time)
        self._remember(offset, identity)
        opened.end, opened.through = offset + 1, max(opened.through, time)
        if self.next == opened.start + RANGE_MESSAGES:
            self._open = None
            complete.append(self._record(opened))
        return complete

    def growing(self) -> WindowRecord | None:
        """The record of the range that is not complete, as far as it got; None before any message.

        Its aggregates grow with the next message: encode it before that.
        """
        return None if self._open is None else self._record(self._open)

    def _leave_for(self, offset: int) -> list[WindowRecord]:
        """The open range's record if this offset lies behind the range, for it won't grow more."""
        opened = self._open
        if opened is None or offset < opened.start + RANGE_MESSAGES:
            return []
        self._open = None
        return [self._record(opened)]

    def _enter(self, offset: int) -> "_OpenRange":
        start = range_start(offset)
        while self._order and self._order[0][0] < start - LOOKBACK_MESSAGES:
            seen_at, identity = self._order.popleft()
            if self._seen[identity] == seen_at:
                del self._seen[identity]
        return _OpenRange(start, self._window_seconds)

    def _remember(self, offset: int, identity: _Identity | None) -> None:
        if identity is not None:
            self._seen[identity] = offset
            self._order.append((offset, identity))

    def _record(self, opened: "_OpenRange") -> WindowRecord:
        fold = opened.fold
        return WindowRecord(
            topic_id=self._topic_id,
            partition=self._partition,
            start=opened.start,
            end=opened.end,
            newest=fold.newest,
            events=fold.events,
            through=opened.through,
            skipped=opened.skipped,
            copies=opened.copies,
            mistimed=opened.mistimed,
            aggregates=fold.aggregates(),
            refusals=fold.refusals,
            window_seconds=self._window_seconds,
            revision=REVISION,
        )


class _OpenRange:
    """A range that grows."""

    def __init__(self, start: int, window_seconds: int) -> None:
        self.start = start
        self.end = start
        self.through = 0.0
        self.skipped = 0
        self.copies = 0
        self.mistimed = 0
        self.fold = Fold(window_seconds)

    def add(self, message: bytes, time: float) -> None:
        try:
            batch: EventBatch = decode(message)
        except (UnknownSchemaError, msgspec.DecodeError):
            self.skipped += 1  # told to people by whoever writes the record
        else:
            self.fold.add(batch)
            # One clock made them all: the first one tells.
            if batch.events and abs(batch.events[0].time - time) > MISTIMED_SECONDS:
                self.mistimed += 1


def _identity_of(message: bytes) -> _Identity | None:
    """Who sent it and which it was; None of what is no batch."""
    try:
        sender = decoded(_sender, message)
    except msgspec.DecodeError:
        return None
    return sender.gateway, sender.sequence
