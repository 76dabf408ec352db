"""The messages of one partition into records of its ranges.

It takes every message in the order of the log. A record is a function of the log only: of the
messages in its range; of the numbers of those before it, which tell a copy of a message from the
first one; and of the feedback in the ``LOOKBACK_MESSAGES`` before it, for a truth that is told
again counts once. Pure; it never asks what offset comes next, and never keeps a message.
"""

from collections.abc import Iterable

import msgspec

from contracts.events import EventBatch, Feedback, UnknownSchemaError, decode, decode_with
from contracts.windows import (
    LOOKBACK_MESSAGES,
    MISTIMED_SECONDS,
    RANGE_MESSAGES,
    Sender,
    WindowRecord,
)
from measures.folding import Fold
from measures.sequences import LARGEST, Checkpoint, GatewaySequences

_Text = tuple[str, float, int]  # request id, time of the answer, which text of it


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

    def __init__(
        self,
        topic_id: str,
        partition: int,
        *,
        first: int,
        window_seconds: int,
        known: GatewaySequences | None = None,
    ) -> None:
        """Begins at ``first``, the start of a range; what comes before it is only remembered.

        Args:
            topic_id: of the topic.
            partition: of the topic.
            first: offset.
            window_seconds: of event time.
            known: of the messages before the first that will be taken; changes.
        """
        self.next = first
        self.missing = 0
        self._topic_id = topic_id
        self._partition = partition
        self._window_seconds = window_seconds
        self._first = first
        self._began = False
        self._known = known or GatewaySequences()
        self._told = SeenFeedback()
        self._open: _OpenRange | None = None
        self._checkpoint = Checkpoint(first, self._known.encode())

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
            self._is_copy(_sender_of(message))
            self._told.new(feedback_of(message), offset)
            return []
        if offset < self.next:
            raise OutOfOrderError(f"offset {offset} comes after {self.next - 1} was folded")
        complete = self._leave_for(offset)
        if self._began:
            self.missing += offset - self.next
        self._began, self.next = True, offset + 1
        opened = self._open = self._open or self._enter(offset)
        sender = _sender_of(message)
        if self._is_copy(sender):
            opened.copies += 1
            self._told.new(feedback_of(message), offset)
        else:
            opened.add(message, offset, time, self._told)
        opened.end, opened.through = offset + 1, max(opened.through, time)
        if self.next == opened.start + RANGE_MESSAGES:
            self._open = None
            complete.append(self._record(opened))
        return complete

    @property
    def checkpoint(self) -> Checkpoint:
        """What was known at the start of the range that ``next`` lies in."""
        if self._open is None:
            return Checkpoint(self.next, self._known.encode())
        return self._checkpoint

    def growing(self) -> WindowRecord | None:
        """The record of the range that is not complete, as far as it got; None before any message.

        Its aggregates grow with the next message: encode it before that.
        """
        return None if self._open is None else self._record(self._open)

    def _leave_for(self, offset: int) -> list[WindowRecord]:
        """The open range's record if this offset lies behind the range: it won't grow more."""
        opened = self._open
        if opened is None or offset < opened.start + RANGE_MESSAGES:
            return []
        self._open = None
        return [self._record(opened)]

    def _enter(self, offset: int) -> "_OpenRange":
        start = range_start(offset)
        self._checkpoint = Checkpoint(start, self._known.encode())
        self._told.forget_before(read_from(start))
        return _OpenRange(start, self._window_seconds)

    def _is_copy(self, sender: "_Sender | None") -> bool:
        return sender is not None and self._known.is_copy(sender.gateway, sender.sequence)

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
            senders=opened.senders,
            feedback_repeated=opened.feedback_repeated,
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
        self.senders: dict[str, Sender] = {}
        self.feedback_repeated = 0
        self.fold = Fold(window_seconds)

    def add(self, message: bytes, offset: int, time: float, told: "SeenFeedback") -> None:
        try:
            batch: EventBatch = decode(message)
        except (UnknownSchemaError, msgspec.DecodeError):
            self.skipped += 1  # told to people by the program that writes the record
        else:
            if batch.feedback:
                new = told.new(batch.feedback, offset)
                self.feedback_repeated += len(batch.feedback) - len(new)
                batch = msgspec.structs.replace(batch, feedback=new)
            self.fold.add(batch)
            sent_by(self.senders, batch)
            # One clock made them all: the first one tells.
            if batch.events and abs(batch.events[0].time - time) > MISTIMED_SECONDS:
                self.mistimed += 1


class SeenFeedback:
    """Which texts have a truth, by the feedback of the last messages of a partition."""

    def __init__(self) -> None:
        self._offsets: dict[_Text, int] = {}  # the one told last comes last

    def new(self, feedback: Iterable[Feedback], offset: int) -> list[Feedback]:
        """Those that tell of a text for the first time; remembers all.

        The first truth counts, whatever a later one says: a window in which it was counted may
        have been judged since.
        """
        found = []
        for each in feedback:
            text = (each.request_id, each.answered_at, each.text)
            if self._offsets.pop(text, None) is None:
                found.append(each)
            self._offsets[text] = offset
        return found

    def forget_before(self, offset: int) -> None:
        """Drops what was last told earlier."""
        while self._offsets:
            text = next(iter(self._offsets))
            if self._offsets[text] >= offset:
                return
            del self._offsets[text]


class _Feedback(msgspec.Struct):
    feedback: list[Feedback] = []


_feedback = msgspec.json.Decoder(_Feedback)


def feedback_of(message: bytes) -> list[Feedback]:
    """The feedback in a message; none in what is no batch."""
    try:
        return decode_with(_feedback, message).feedback
    except msgspec.DecodeError:
        return []


def sent_by(senders: dict[str, Sender], batch: EventBatch) -> None:
    """Takes note of who sent a message that counts, and of what its gateway says of losses."""
    if not 0 <= batch.sequence <= LARGEST:
        return
    sender = senders.setdefault(batch.gateway, Sender())
    sender.numbers.append(batch.sequence)
    sender.ended |= batch.last
    sender.dropped = {}  # totals, of which the newest message has the largest
    for lost in batch.dropped:
        reasons = sender.dropped.setdefault(lost.endpoint, {})
        reasons[lost.reason] = reasons.get(lost.reason, 0) + lost.count


def _sender_of(message: bytes) -> _Sender | None:
    """Who sent it and which it was; None of what is no batch."""
    try:
        return decode_with(_sender, message)
    except msgspec.DecodeError:
        return None
