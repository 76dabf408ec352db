"""The windows that merged records add up to, by another way than those who read them."""

from collections import defaultdict

from contracts.windows import EndpointWindow, WindowAggregate
from measures.merging import MergedWindows, merge


def all_windows(records: MergedWindows, endpoint: str) -> tuple[EndpointWindow, ...]:
    """All windows of an endpoint, oldest first."""
    found: defaultdict[tuple[int, int], defaultdict[tuple[str, ...], list[WindowAggregate]]]
    found = defaultdict(lambda: defaultdict(list))
    for record in records.records():
        for one in record.aggregates:
            if one.endpoint == endpoint:
                slot = (one.version, one.package, one.arm)
                found[one.start, record.window_seconds][slot].append(one)
    return tuple(
        EndpointWindow(endpoint, *window, [merge(slots[slot]) for slot in sorted(slots)])
        for window, slots in sorted(found.items())
    )


def all_endpoints(records: MergedWindows) -> tuple[str, ...]:
    """The endpoints that have windows, sorted."""
    return tuple(sorted({one.endpoint for each in records.records() for one in each.aggregates}))
