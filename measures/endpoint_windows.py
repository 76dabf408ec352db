"""The windows of one endpoint: the sums of what records of ranges say of it, as they come.

Only ranges that still grow are kept, and only what is of the endpoint. Pure; for one thread at a
time.
"""

import msgspec

from contracts.endpoint import Arm
from contracts.windows import EndpointWindow, WindowAggregate, WindowRecord
from measures.increments import RangeLedger
from measures.merging import merge

_Slot = tuple[str, str, Arm]  # version, package


class EndpointWindows:
    """Windows that are handed out never change: one that grows is replaced."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._ledger = RangeLedger()
        # Start and seconds -> sums.
        self._windows: dict[tuple[int, int], dict[_Slot, WindowAggregate]] = {}

    def put(self, record: WindowRecord) -> None:
        """Takes a record, or the endpoint's piece of any division of it; harmless to repeat."""
        ours = [one for one in record.aggregates if one.endpoint == self._endpoint]
        part = msgspec.structs.replace(record, piece=0, pieces=1, aggregates=ours, refusals={})
        growth = self._ledger.take(part) if ours else None
        for aggregate in growth.aggregates if growth else ():
            sums = self._windows.setdefault((aggregate.start, record.window_seconds), {})
            slot = (aggregate.version, aggregate.package, aggregate.arm)
            sums[slot] = merge([sums[slot], aggregate]) if slot in sums else aggregate

    def list_between(self, after: float, until: float) -> tuple[EndpointWindow, ...]:
        """Those that start at ``after`` or later and end at ``until`` or earlier, unix seconds."""
        return tuple(
            EndpointWindow(self._endpoint, *window, [sums[slot] for slot in sorted(sums)])
            for window, sums in sorted(self._windows.items())
            if window[0] >= after and sum(window) <= until
        )

    def forget_before(self, time: float) -> None:
        """Drops windows, and ranges that will not grow any more, that are older, unix seconds."""
        self._windows = {of: sums for of, sums in self._windows.items() if sum(of) >= time}
        self._ledger.forget_before(time)
