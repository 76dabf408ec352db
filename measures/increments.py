"""What a window record adds to those before it: the growth of its range, exactly.

A range's record is rewritten as the range grows, so that counters may add only ``new - old``; and a
range that is complete never grows again, so that its aggregates need not be kept. Then the sum of
all growths is what the merged windows hold, in the memory of one range a partition. Pure; it knows
no clock and no Kafka.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from contracts.windows import RANGE_MESSAGES, OwnCounts, WindowAggregate, WindowRecord
from measures.own_statistics import declaration_of

_IDENTITY = {"endpoint", "version", "package", "arm", "start"}


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
class KnownRange:
    """The newest range of a partition of which something was counted."""

    start: int
    end: int
    seen: float  # largest time in it, unix seconds
    record: WindowRecord | None  # None: complete


@dataclass(slots=True)
class RangeLedger:
    """How far each partition of the events was counted, by topic id and partition.

    Ranges of a partition come in their order, for a fold worker that begins again begins at the
    range of its last commit: what lies before the newest one was counted.
    """

    newest: dict[tuple[str, int], KnownRange] = field(default_factory=dict)

    def take(self, record: WindowRecord) -> Growth | None:
        """What the record adds; None if it was counted before."""
        source = (record.topic_id, record.partition)
        known = self.newest.get(source)
        if known is not None and (record.start, record.end) <= (known.start, known.end):
            return None
        complete = record.end - record.start >= RANGE_MESSAGES
        seen = max(record.through, record.newest)
        self.newest[source] = KnownRange(
            record.start, record.end, seen, None if complete else record
        )
        same = known is not None and known.start == record.start
        return growth(known.record if known is not None and same else None, record)

    def forget_before(self, time: float) -> None:
        """Drops topics of which nothing newer was seen, unix seconds; never the newest one."""
        last: dict[str, float] = {}
        for (topic_id, _), known in self.newest.items():
            last[topic_id] = max(known.seen, last.get(topic_id, 0.0))
        newest = max(last, key=lambda name: last[name], default="")
        for topic_id, partition in [*self.newest]:
            if topic_id != newest and last[topic_id] < time:
                del self.newest[topic_id, partition]


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
