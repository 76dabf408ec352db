"""The windows of one endpoint: the sums of what records of ranges say of it, as they come.

They are the same as those of ``MergedWindows``, which keeps the record of every range; here only
ranges that still grow are kept, and only what is of the endpoint. Pure; for one thread at a time.
"""

import msgspec

from contracts.windows import EndpointWindow, WindowRecord
from measures.increments import RangeLedger
from measures.merging import WindowKey, by_slot


class EndpointWindows:
    """Windows that are handed out never change: one that grows is replaced."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._ledger = RangeLedger()
        self._windows: dict[WindowKey, EndpointWindow] = {}

    def put(self, record: WindowRecord) -> None:
        """Takes a record, or the endpoint's piece of any division of it; harmless to repeat."""
        ours = [one for one in record.aggregates if one.endpoint == self._endpoint]
        part = msgspec.structs.replace(record, piece=0, pieces=1, aggregates=ours, refusals={})
        growth = self._ledger.take(part) if ours else None
        for aggregate in growth.aggregates if growth else ():
            window = (aggregate.start, record.window_seconds)
            held = self._windows.get(window)
            parts = [held.aggregates if held else [], [aggregate]]
            self._windows[window] = EndpointWindow(self._endpoint, *window, by_slot(parts))

    def list_between(self, after: float, until: float) -> tuple[EndpointWindow, ...]:
        """Those that start at ``after`` or later and end at ``until`` or earlier, unix seconds."""
        return tuple(
            self._windows[window]
            for window in sorted(self._windows)
            if window[0] >= after and sum(window) <= until
        )

    def forget_before(self, time: float) -> None:
        """Drops windows, and ranges that will not grow any more, that are older, unix seconds."""
        self._windows = {of: window for of, window in self._windows.items() if sum(of) >= time}
        self._ledger.forget_before(time)
