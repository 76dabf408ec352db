"""A range's record counted again from the raw messages, and every number in which two differ."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from contracts.events import EventBatch, Feedback, UnknownSchemaError, decode, decode_with
from contracts.windows import (
    LOOKBACK_MESSAGES,
    MISTIMED_SECONDS,
    OwnCounts,
    WindowAggregate,
    WindowRecord,
)
from measures.folding import Fold
from measures.own_statistics import declaration_of
from measures.ranges import feedback_of, sent_by
from measures.sequences import LARGEST

_COMPARED = (
    "newest",
    "events",
    "through",
    "skipped",
    "copies",
    "mistimed",
    "feedback_repeated",
)


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One message of ``headrace.predictions``. ``time`` as Kafka keeps it, unix seconds."""

    offset: int
    time: float
    value: bytes


@dataclass(frozen=True, slots=True)
class CountDifference:
    """A number that is not what the raw events say. What is absent is 0."""

    where: str  # "sentiment 1 stable 1700000000 statuses 500"
    written: float
    counted: float


class _Head(msgspec.Struct):
    gateway: str
    sequence: int
    made: float = 0.0


_head = msgspec.json.Decoder(_Head)
# A message that reached Kafka this long after it was made may be a copy of one from before.
_DELAY_SECONDS = 5.0


class Duplicates:
    """Which messages of a partition are copies, and which feedback, only by the raw messages.

    It knows nothing of what the fold role kept. A message that was made long before it was written
    may have been written before too, so the messages since it was made are read as well.
    """

    def __init__(
        self, earlier: Callable[[float], Iterable[RawMessage]] = lambda _: (), since: float = 0.0
    ) -> None:
        """Begins with no message.

        Args:
            earlier: messages of the partition from this unix time on, up to the first of those
                that are passed to ``is_copy``.
            since: Kafka's time of that first one.
        """
        self._earlier = earlier
        self._since = since
        self._largest: dict[str, int] = {}
        # Text of a request whose truth was told -> offset of the message that told it last.
        self._told: dict[tuple[str, float, int], int] = {}

    def is_copy(self, message: RawMessage) -> bool:
        """Whether this message, or a later one of its gateway, was written before; remembers it."""
        head = _head_of(message)
        if head is None:
            return False
        # As far back as a gateway's clock may be ahead.
        from_time = head.made - MISTIMED_SECONDS
        if 0 < head.made < message.time - _DELAY_SECONDS and from_time < self._since:
            self._since = from_time
            for one in self._earlier(from_time):
                if (before := _head_of(one)) is not None:
                    self._remember(before)
        is_copy = head.sequence <= self._largest.get(head.gateway, -1)
        self._remember(head)
        return is_copy

    def first_told(self, message: RawMessage, range_start: int) -> list[Feedback]:
        """The feedback that tells of a text for the first time, as the range sees it.

        Args:
            message: in the order of the log.
            range_start: of the range that it lies in.
        """
        since, first = range_start - LOOKBACK_MESSAGES, []
        for each in feedback_of(message.value):
            text = (each.request_id, each.answered_at, each.text)
            if self._told.get(text, since - 1) < since:
                first.append(each)
            self._told[text] = message.offset
        return first

    def _remember(self, head: _Head) -> None:
        self._largest[head.gateway] = max(self._largest.get(head.gateway, -1), head.sequence)


def _head_of(message: RawMessage) -> _Head | None:
    try:
        head = decode_with(_head, message.value)
    except msgspec.DecodeError:
        return None
    return head if 0 <= head.sequence <= LARGEST else None


@dataclass(frozen=True, slots=True)
class GatewaySent:
    """What one start of a gateway sent within a time.

    Attributes:
        gateway: its name.
        first: its first number in the time.
        last: its last one.
        missing: numbers between the two that are not in the log.
        dropped: endpoint -> reason -> what it lost between the two, as it says itself; since its
            start, if the first number is 0.
        heard: Kafka's time of its last message, unix seconds.
        ended: it said that this was its last message.
    """

    gateway: str
    first: int
    last: int
    missing: tuple[int, ...]
    dropped: Mapping[str, Mapping[str, int]]
    heard: float
    ended: bool


class SentMessages:
    """Who sent what within a time, over all partitions.

    Numbers rise with Kafka's time. So all numbers between the first and the last of the time are
    in it, or missing.
    """

    def __init__(self, begin: float, end: float) -> None:
        """Takes the time, by Kafka's clock, unix seconds."""
        self._begin = begin
        self._end = end
        self._sent: dict[str, dict[int, tuple[float, EventBatch]]] = {}

    def note(self, batch: EventBatch, time: float) -> None:
        """Takes a message that is no copy."""
        if self._begin <= time < self._end and 0 <= batch.sequence <= LARGEST:
            only = msgspec.structs.replace(batch, events=[], refusals=[], feedback=[])
            self._sent.setdefault(batch.gateway, {})[batch.sequence] = (time, only)

    def gateways(self) -> tuple[GatewaySent, ...]:
        """All of them, sorted by name."""
        return tuple(_summarise(name, messages) for name, messages in sorted(self._sent.items()))


def _summarise(name: str, messages: Mapping[int, tuple[float, EventBatch]]) -> GatewaySent:
    first, last = min(messages), max(messages)
    heard, newest = messages[last]
    before = {} if first == 0 else _count_dropped(messages[first][1])
    dropped: dict[str, dict[str, int]] = {}
    for (endpoint, reason), count in _count_dropped(newest).items():
        if more := count - before.get((endpoint, reason), 0):
            dropped.setdefault(endpoint, {})[reason] = more
    missing = tuple(number for number in range(first, last) if number not in messages)
    return GatewaySent(name, first, last, missing, dropped, heard, newest.last)


def _count_dropped(batch: EventBatch) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for lost in batch.dropped:
        found[lost.endpoint, lost.reason] += lost.count
    return found


def recount_record(
    record: WindowRecord,
    messages: Iterable[RawMessage],
    copies: Duplicates | None = None,
    sent: SentMessages | None = None,
) -> WindowRecord:
    """The record that the range's messages make.

    Args:
        record: says which range, up to which offset, in windows of what length.
        messages: of its partition, in order; those before the range tell copies, those behind it
            are left out.
        copies: what is known of messages before these.
        sent: is told of every message that counts.
    """
    copies, fold, found = copies or Duplicates(), Fold(record.window_seconds), _empty_record(record)
    for message in messages:
        if message.offset >= record.end:
            break
        is_inside = message.offset >= record.start
        found.through = max(found.through, message.time) if is_inside else found.through
        is_copy = copies.is_copy(message)
        first = copies.first_told(message, record.start)
        if not is_inside or is_copy:
            found.copies += is_inside
            continue
        try:
            batch = decode(message.value)
        except (UnknownSchemaError, msgspec.DecodeError):
            found.skipped += 1
            continue
        if batch.feedback:
            found.feedback_repeated += len(batch.feedback) - len(first)
            batch = msgspec.structs.replace(batch, feedback=first)
        fold.add(batch)
        sent_by(found.senders, batch)
        if sent is not None:
            sent.note(batch, message.time)
        if batch.events:
            found.mistimed += abs(batch.events[0].time - message.time) > MISTIMED_SECONDS
    found.newest, found.events = fold.newest, fold.events
    found.aggregates, found.refusals = fold.aggregates(), fold.refusals
    return found


def _empty_record(record: WindowRecord) -> WindowRecord:
    return msgspec.structs.replace(
        record,
        newest=0.0,
        events=0,
        through=0.0,
        skipped=0,
        copies=0,
        mistimed=0,
        aggregates=[],
        refusals={},
        senders={},
        feedback_repeated=0,
    )


def differences(written: WindowRecord, counted: WindowRecord) -> tuple[CountDifference, ...]:
    """Every number in which two records of one range differ, sorted by where it stands."""
    return differing(dict(_numbers(written)), dict(_numbers(counted)))


def differing(
    written: Mapping[str, float], counted: Mapping[str, float]
) -> tuple[CountDifference, ...]:
    """Every number in which the two differ, sorted by where it stands; what is absent is 0."""
    return tuple(
        CountDifference(where, written.get(where, 0), counted.get(where, 0))
        for where in sorted(written.keys() | counted.keys())
        if written.get(where, 0) != counted.get(where, 0)
    )


def numbers(record: WindowRecord) -> int:
    """How many numbers a record holds."""
    return sum(1 for _ in _numbers(record))


def _numbers(record: WindowRecord) -> Iterator[tuple[str, float]]:
    for name in _COMPARED:
        yield name, getattr(record, name)
    yield from flatten("refusals", record.refusals)
    for gateway, sender in record.senders.items():
        yield f"gateway {gateway} messages", len(sender.numbers)
        yield f"gateway {gateway} numbers", sum(sender.numbers)
        yield f"gateway {gateway} ended", sender.ended
        yield from flatten(f"gateway {gateway} dropped", sender.dropped)
    for aggregate in record.aggregates:
        yield from _of_aggregate(aggregate)


def _of_aggregate(aggregate: WindowAggregate) -> Iterator[tuple[str, float]]:
    of = aggregate
    path = f"{of.endpoint} {of.version} {of.package[:12]} {of.arm.value} {of.start}"
    told = msgspec.structs.asdict(aggregate)
    for name in ("endpoint", "version", "package", "arm", "start", "own", "evidence", "unk_words"):
        del told[name]
    yield from flatten(path, told)
    yield from flatten(f"{path} evidence", msgspec.structs.asdict(aggregate.evidence))
    yield from flatten(f"{path} unk_words", msgspec.structs.asdict(aggregate.unk_words))
    for own in aggregate.own:
        yield from own_numbers(path, own)


def own_numbers(path: str, own: OwnCounts) -> Iterator[tuple[str, float]]:
    """The counts of a statistic of the users' own, by where they stand."""
    name = f"{path} own {own.spec.name} {declaration_of(own.spec)[1:]}"
    yield f"{name} sum_micro", own.sum_micro
    yield f"{name} unfit", own.unfit
    yield from flatten(name, own.counts)


def flatten(path: str, value: Any) -> Iterator[tuple[str, float]]:  # noqa: ANN401 - nested counts
    """Counts at any depth of mappings, by their keys from the outermost on."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(f"{path} {key}", inner)
    else:
        yield path, value
