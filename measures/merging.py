"""Window records into the windows of endpoints: the newest record of each range, then sums.

Adding is exact in any order, since all counts are integers. Pure: it knows no clock and no Kafka,
and never changes a record that it was given.
"""

import copy
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from contracts.endpoint import Arm
from contracts.windows import EndpointWindow, OwnCounts, WindowAggregate, WindowRecord
from measures.histograms import add_counts
from measures.own_statistics import declaration_of

RangeKey = tuple[str, int, int]  # topic id, partition, start
WindowKey = tuple[int, int]  # start, seconds
_Slot = tuple[str, str, Arm]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WindowAggregate)
_IDENTITY = {"endpoint", "version", "package", "arm", "start"}


def merge(aggregates: Iterable[WindowAggregate]) -> WindowAggregate:
    """The sum of aggregates of one endpoint, version, package, arm and window; at least one.

    Raises:
        ValueError: aggregates of different keys, or none.
    """
    total: WindowAggregate | None = None
    for aggregate in aggregates:
        if total is None:
            total = _copy(aggregate)
        elif any(getattr(total, name) != getattr(aggregate, name) for name in _IDENTITY):
            raise ValueError("aggregates of different keys do not add")
        else:
            _add_struct(total, aggregate)
    if total is None:
        raise ValueError("no aggregates to add")
    return total


def _copy(aggregate: WindowAggregate) -> WindowAggregate:
    """A deep copy: ``copy.deepcopy`` takes twenty times as long, and each record needs many."""
    copied: WindowAggregate = _decoder.decode(_encoder.encode(aggregate))
    return copied


def add(total: WindowAggregate, more: WindowAggregate) -> None:
    """Adds the counts of ``more`` to ``total`` in place, whatever their keys are."""
    _add_struct(total, more)


def _add_struct(total: msgspec.Struct, more: msgspec.Struct) -> None:
    for name in total.__struct_fields__:
        if name in _IDENTITY:
            continue
        mine, theirs = getattr(total, name), getattr(more, name)
        if isinstance(mine, int):
            setattr(total, name, mine + theirs)
        elif isinstance(mine, dict):
            add_counts(mine, theirs)
        elif isinstance(mine, list):
            add_own(mine, theirs)
        else:
            _add_struct(mine, theirs)


def add_own(
    total: list[OwnCounts], more: Iterable[OwnCounts], most: int | None = None
) -> list[OwnCounts]:
    """Adds counts of users' statistics in place; returns those for which there was no room.

    Args:
        total: one of each declaration.
        more: is not changed.
        most: declarations that ``total`` may hold; None: any number.
    """
    held = {declaration_of(own.spec): own for own in total}
    left = []
    for own in more:
        mine = held.get(declaration_of(own.spec))
        if mine is not None:
            add_counts(mine.counts, own.counts)
            mine.sum_micro += own.sum_micro
            mine.unfit += own.unfit
        elif most is None or len(total) < most:
            total.append(copy.deepcopy(own))
        else:
            left.append(own)
    return left


class MergedWindows:
    """The newest record of every range, and the windows that they add up to."""

    def __init__(self) -> None:
        self._records: dict[RangeKey, WindowRecord] = {}

    def put(self, record: WindowRecord) -> bool:
        """Takes a record, which must not change any more; false if a larger end is held."""
        key = (record.topic_id, record.partition, record.start)
        held = self._records.get(key)
        if held is not None and held.end >= record.end:
            return False
        self._records[key] = record
        return True

    def all(self, endpoint: str) -> tuple[EndpointWindow, ...]:
        """All windows of the endpoint, oldest first."""
        found: defaultdict[WindowKey, list[WindowAggregate]] = defaultdict(list)
        for record in self._records.values():
            for aggregate in record.aggregates:
                if aggregate.endpoint == endpoint:
                    found[aggregate.start, record.window_seconds].append(aggregate)
        return tuple(
            EndpointWindow(endpoint, *window, by_slot([found[window]])) for window in sorted(found)
        )

    def endpoints(self) -> tuple[str, ...]:
        """The endpoints that have windows, sorted."""
        records = self._records.values()
        return tuple(sorted({one.endpoint for record in records for one in record.aggregates}))

    def records(self) -> tuple[WindowRecord, ...]:
        """The record of the largest end of every range, sorted by range."""
        return tuple(self._records[key] for key in sorted(self._records))


def by_slot(parts: Iterable[list[WindowAggregate]]) -> list[WindowAggregate]:
    """The sums of aggregates of one endpoint and window, by version, package and arm."""
    slots: dict[_Slot, list[WindowAggregate]] = {}
    for aggregates in parts:
        for aggregate in aggregates:
            slots.setdefault((aggregate.version, aggregate.package, aggregate.arm), []).append(
                aggregate
            )
    return [
        aggregates[0] if len(aggregates) == 1 else merge(aggregates)
        for aggregates in (slots[slot] for slot in sorted(slots))
    ]
