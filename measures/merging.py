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
from measures.watermark import Watermark

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
    """The newest record of every range, and the windows that they add up to.

    Windows that did not change are not added up again: what is handed out is shared, and is only
    to be read.
    """

    def __init__(self) -> None:
        self._records: dict[RangeKey, WindowRecord] = {}
        self._watermark = Watermark()
        self._sums: dict[tuple[str, WindowKey], EndpointWindow] = {}
        # endpoint -> window -> range -> its aggregates there
        self._aggregates: defaultdict[
            str, dict[WindowKey, dict[RangeKey, list[WindowAggregate]]]
        ] = defaultdict(dict)

    def put(self, record: WindowRecord) -> bool:
        """Takes a record, which must not change any more; false if a larger end is held."""
        key = (record.topic_id, record.partition, record.start)
        held = self._records.get(key)
        if held is not None and held.end >= record.end:
            return False
        self._records[key] = record
        before = {} if held is None else by_window(held)
        after = by_window(record)
        for place in before.keys() | after.keys():
            if before.get(place) != after.get(place):
                self._place(place, key, after.get(place, []))
        self._watermark.take(record.topic_id, record.partition, record.through)
        return True

    def forget_before(self, time: float) -> None:
        """Drops the ranges whose messages and events are all older, unix seconds."""
        for key, record in list(self._records.items()):
            if max(record.through, record.newest) < time:
                del self._records[key]
                for place in by_window(record):
                    self._place(place, key, [])
        self._watermark.forget_before(time)

    def known_through(self) -> float:
        """The time up to which every partition has been folded: see ``Watermark.known_until``."""
        return self._watermark.known_until()

    def list_closed(
        self, endpoint: str, *, after: float, now: float, lateness_seconds: float
    ) -> tuple[EndpointWindow, ...]:
        """The endpoint's windows that are not expected to grow any more, oldest first.

        Args:
            endpoint: its name.
            after: windows that start earlier are left out, unix seconds.
            now: unix seconds.
            lateness_seconds: how late an event may come.
        """
        until = min(now, self.known_through()) - lateness_seconds
        return self._list_windows(endpoint, after, until)

    def all(self, endpoint: str) -> tuple[EndpointWindow, ...]:
        """All windows of the endpoint, those that still grow too, oldest first."""
        return self._list_windows(endpoint, 0.0, float("inf"))

    def endpoints(self) -> tuple[str, ...]:
        """The endpoints that have windows, sorted."""
        return tuple(sorted(name for name, windows in self._aggregates.items() if windows))

    def records(self) -> tuple[WindowRecord, ...]:
        """The record of the largest end of every range, sorted by range."""
        return tuple(self._records[key] for key in sorted(self._records))

    def _list_windows(
        self, endpoint: str, after: float, until: float
    ) -> tuple[EndpointWindow, ...]:
        return tuple(
            self._sum(endpoint, window)
            for window in sorted(self._aggregates.get(endpoint, ()))
            if window[0] >= after and sum(window) <= until
        )

    def _sum(self, endpoint: str, window: WindowKey) -> EndpointWindow:
        held = self._sums.get((endpoint, window))
        if held is None:
            aggregates = by_slot(self._aggregates[endpoint][window].values())
            held = self._sums[endpoint, window] = EndpointWindow(endpoint, *window, aggregates)
        return held

    def _place(
        self, place: tuple[str, WindowKey], key: RangeKey, aggregates: list[WindowAggregate]
    ) -> None:
        """Says what a range holds of a window; nothing: an empty list."""
        endpoint, window = place
        self._sums.pop(place, None)
        ranges = self._aggregates[endpoint].setdefault(window, {})
        ranges.pop(key, None)
        if aggregates:
            ranges[key] = aggregates
        elif not ranges:
            del self._aggregates[endpoint][window]


def by_window(record: WindowRecord) -> dict[tuple[str, WindowKey], list[WindowAggregate]]:
    """A record's aggregates by endpoint and window."""
    found: dict[tuple[str, WindowKey], list[WindowAggregate]] = {}
    for aggregate in record.aggregates:
        place = (aggregate.endpoint, (aggregate.start, record.window_seconds))
        found.setdefault(place, []).append(aggregate)
    return found


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
