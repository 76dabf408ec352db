"""What a window record adds to those before it: the growth of its range, exactly.

A range's record, or a piece of it, is rewritten as the range grows, so that counters may add only
``new - old``; and a range that is complete never grows again, so that its aggregates need not be
kept. Then the sum of all growths is what the merged windows hold, in the memory of the ranges that
are still open. Pure; it knows no clock and no Kafka.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from contracts.windows import RANGE_MESSAGES, OwnCounts, WindowAggregate, WindowRecord
from measures.dividing import divide, join
from measures.own_statistics import declaration_of
from measures.watermark import Watermark

_IDENTITY = {"endpoint", "version", "package", "arm", "start"}
_Key = tuple[str, int, int]  # topic id, partition, start


@dataclass(frozen=True, slots=True)
class Growth:
    """What came with one record.

    Attributes:
        window_seconds: length of its windows.
        aggregates: what each aggregate gained, those that gained nothing left out.
        refusals: endpoint -> status and reason -> count.
        events: prediction events.
        skipped: messages that were no batches of a known schema.
        copies: messages that were in the log before.
        mistimed: messages from a clock that was far off Kafka's.
    """

    window_seconds: int
    aggregates: tuple[WindowAggregate, ...]
    refusals: Mapping[str, Mapping[str, int]]
    events: int
    skipped: int
    copies: int
    mistimed: int = 0


@dataclass(frozen=True, slots=True)
class _KnownRange:
    seen: float  # largest time in it, unix seconds
    records: Mapping[int, WindowRecord]  # by piece; none: all are complete


class RangeLedger:
    """Which ranges are known, and how far each piece of each had grown."""

    def __init__(self) -> None:
        self._held: dict[_Key, _KnownRange] = {}
        self._watermark = Watermark()
        self._newest: dict[tuple[str, int], int] = {}  # topic id, partition -> last range's start
        self._horizon = 0.0

    def take(self, record: WindowRecord) -> Growth | None:
        """What a piece adds; None if one of at least its end is known, or was.

        A range that is complete in all its pieces does not count again in others, which are made
        of it if partitions are added; one that still grows goes on in them. Or in fewer, if its
        next worker does not know of new partitions yet, or the topic was made again.
        """
        key = (record.topic_id, record.partition, record.start)
        held = self._held.get(key)
        known = {} if held is None else held.records
        if any(one.pieces != record.pieces for one in known.values()):
            known = _divide_again(known.values(), record.pieces)
        old = known.get(record.piece)
        if (held is not None and not known) or (old is not None and old.end >= record.end):
            return None
        seen, log = max(record.through, record.newest), (record.topic_id, record.partition)
        newest = self._newest.get(log, -1)
        if held is None and seen < self._horizon and record.start < newest:
            return None  # folded again after it was forgotten: nobody knows what is new in it
        self._newest[log] = max(newest, record.start)
        records = {**known, record.piece: record}
        complete = [one for one in records.values() if one.end - one.start >= RANGE_MESSAGES]
        self._held[key] = _KnownRange(
            max(seen, held.seen if held else seen),
            {} if len(complete) == record.pieces else records,
        )
        self._watermark.take(*log, record.through, record.piece, record.pieces)
        return growth(old, record)

    def forget_before(self, time: float) -> None:
        """Drops what is known of ranges whose messages and events are all older, unix seconds.

        Not the last one of a partition: after a long pause it grows on.
        """
        self._horizon = max(self._horizon, time)
        self._held = {
            key: held
            for key, held in self._held.items()
            if held.seen >= time or key[2] == self._newest[key[0], key[1]]
        }
        self._watermark.forget_before(time)

    def known_through(self) -> float:
        """The time up to which every partition has been folded: see ``Watermark.known_until``."""
        return self._watermark.known_until()

    def __len__(self) -> int:
        return len(self._held)


def _divide_again(known: Collection[WindowRecord], pieces: int) -> Mapping[int, WindowRecord]:
    """What is known of a range, as if it had been divided into that many pieces."""
    # At the same end there may be a piece that never came.
    whole = join(known)
    before = msgspec.structs.replace(whole, end=max(one.end for one in known) - 1)
    return dict(enumerate(divide(before, pieces)))


def growth(old: WindowRecord | None, new: WindowRecord) -> Growth:
    """What a range's record gained since an older one of the same range; all of it without one."""
    before = (
        {} if old is None else {_identity(aggregate): aggregate for aggregate in old.aggregates}
    )
    gained = (
        aggregate_growth(before.get(_identity(aggregate)), aggregate)
        for aggregate in new.aggregates
    )
    return Growth(
        window_seconds=new.window_seconds,
        aggregates=tuple(aggregate for aggregate in gained if aggregate is not None),
        refusals=_subtract(new.refusals, {} if old is None else old.refusals),
        events=new.events - (0 if old is None else old.events),
        skipped=new.skipped - (0 if old is None else old.skipped),
        copies=new.copies - (0 if old is None else old.copies),
        mistimed=new.mistimed - (0 if old is None else old.mistimed),
    )


def aggregate_growth(old: WindowAggregate | None, new: WindowAggregate) -> WindowAggregate | None:
    """What an aggregate gained; None if that is nothing. ``new`` itself if there was none."""
    if old is None:
        return new
    gained = WindowAggregate(new.endpoint, new.version, new.package, new.arm, new.start)
    return gained if _fill(gained, new, old) else None


def _identity(aggregate: WindowAggregate) -> tuple[str, str, str, str, int]:
    return aggregate.endpoint, aggregate.version, aggregate.package, aggregate.arm, aggregate.start


def _fill(gained: msgspec.Struct, new: msgspec.Struct, old: msgspec.Struct) -> bool:
    """Sets every count of ``gained`` to what ``new`` has beyond ``old``; whether any is not 0."""
    any_more = False
    for name in new.__struct_fields__:
        if name in _IDENTITY:
            continue
        now, then = getattr(new, name), getattr(old, name)
        if now == then:
            continue
        any_more = True
        if isinstance(now, int):
            setattr(gained, name, now - then)
        elif isinstance(now, dict):
            setattr(gained, name, _subtract(now, then))
        elif isinstance(now, list):
            setattr(gained, name, _own_growth(now, then))
        else:
            _fill(getattr(gained, name), now, then)
    return any_more


def _subtract(now: Mapping[Any, Any], then: Mapping[Any, Any]) -> dict[Any, Any]:
    """``now - then`` at any depth of mappings, without what is 0."""
    found: dict[Any, Any] = {}
    for key in now.keys() | then.keys():
        one, other = now.get(key), then.get(key)
        if one == other:
            continue
        if isinstance(one if one is not None else other, Mapping):
            found[key] = _subtract(one or {}, other or {})
        else:
            found[key] = (one or 0) - (other or 0)
    return found


def _own_growth(now: list[OwnCounts], then: list[OwnCounts]) -> list[OwnCounts]:
    before = {declaration_of(own.spec): own for own in then}
    found = []
    for own in now:
        old = before.get(declaration_of(own.spec))
        if own == old:
            continue
        gained = OwnCounts(own.spec)
        if old is None:
            gained = own
        else:
            gained.counts = _subtract(own.counts, old.counts)
            gained.sum_micro = own.sum_micro - old.sum_micro
            gained.unfit = own.unfit - old.unfit
        found.append(gained)
    return found
