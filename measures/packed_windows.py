"""Windows of many endpoints in little memory: ranges that have ended are added up as they come.

``MergedWindows`` keeps the record of every range, because one that grows is replaced by the next. A
range that has ended never grows any more: its counts go into the sum of each window, which is kept
packed, and of the record only its end stays, by which a repeat is known. So what is kept grows with
endpoints and windows, and not with gateways, partitions and messages.

The windows are the same as those of ``MergedWindows``. Pure; for one thread at a time.
"""

import zlib
from typing import NamedTuple

import msgspec

from contracts.windows import RANGE_MESSAGES, EndpointWindow, WindowAggregate, WindowRecord
from measures.merging import MergedWindows, RangeKey, WindowKey, by_slot, by_window
from measures.watermark import Watermark

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[WindowAggregate])


class _EndedRange(NamedTuple):
    """A range whose counts are in the windows; times in unix seconds."""

    end: int
    last: float


class PackedWindows:
    """As ``MergedWindows``, for a reader that needs only the windows."""

    def __init__(self) -> None:
        self._growing = MergedWindows()
        self._ended: dict[RangeKey, _EndedRange] = {}
        self._packed: dict[str, dict[WindowKey, bytes]] = {}
        self._watermark = Watermark()
        self._sums: dict[str, dict[WindowKey, EndpointWindow]] = {}
        # Endpoints whose windows were asked for since ``forget_before``, and before that.
        self._asked: set[str] = set()
        self._asked_before: set[str] = set()

    def put(self, record: WindowRecord) -> bool:
        """Takes a record, which must not change any more; false if a larger end is held."""
        key = (record.topic_id, record.partition, record.start)
        if key in self._ended:
            return False
        added = by_window(record)
        changed = set(added)
        if record.end - record.start < RANGE_MESSAGES:
            if not self._growing.put(record):
                return False
        else:
            changed |= self._growing.drop(key)
            self._ended[key] = _EndedRange(record.end, max(record.through, record.newest))
            for (endpoint, window), aggregates in added.items():
                self._add(endpoint, window, aggregates)
        for endpoint, window in changed:
            self._sums.get(endpoint, {}).pop(window, None)
        self._watermark.take(record.topic_id, record.partition, record.through)
        return True

    def forget_before(self, time: float) -> None:
        """Drops the windows that are older, unix seconds, and sums that are not used."""
        for endpoint, windows in list(self._packed.items()):
            for window in [window for window in windows if sum(window) < time]:
                del windows[window]
            if not windows:
                del self._packed[endpoint]
        self._ended = {key: ended for key, ended in self._ended.items() if ended.last >= time}
        self._growing.forget_before(time)
        self._watermark.forget_before(time)
        wanted = self._asked | self._asked_before
        self._sums = {
            name: {window: held for window, held in sums.items() if sum(window) >= time}
            for name, sums in self._sums.items()
            if name in wanted
        }
        self._asked_before, self._asked = self._asked, set()

    def known_through(self) -> float:
        """The time up to which every partition has been folded: see ``Watermark.known_until``."""
        return self._watermark.known_until()

    def list_closed(
        self, endpoint: str, *, after: float, now: float, lateness_seconds: float
    ) -> tuple[EndpointWindow, ...]:
        """The endpoint's windows that will not grow any more, as ``MergedWindows.list_closed``."""
        self._asked.add(endpoint)
        until = min(now, self._watermark.known_until()) - lateness_seconds
        growing = {(each.start, each.seconds): each for each in self._growing.all(endpoint)}
        packed = self._packed.get(endpoint, {})
        return tuple(
            self._sum(endpoint, window, growing.get(window))
            for window in sorted(packed.keys() | growing.keys())
            if window[0] >= after and sum(window) <= until
        )

    def _sum(
        self, endpoint: str, window: WindowKey, growing: EndpointWindow | None
    ) -> EndpointWindow:
        sums = self._sums.setdefault(endpoint, {})
        if window not in sums:
            parts = [self._unpack(endpoint, window), growing.aggregates if growing else []]
            sums[window] = EndpointWindow(endpoint, *window, by_slot(parts))
        return sums[window]

    def _add(self, endpoint: str, window: WindowKey, more: list[WindowAggregate]) -> None:
        total = by_slot([self._unpack(endpoint, window), more])
        packed = zlib.compress(_encoder.encode(total), 1)
        self._packed.setdefault(endpoint, {})[window] = packed

    def _unpack(self, endpoint: str, window: WindowKey) -> list[WindowAggregate]:
        packed = self._packed.get(endpoint, {}).get(window)
        return [] if packed is None else _decoder.decode(zlib.decompress(packed))
