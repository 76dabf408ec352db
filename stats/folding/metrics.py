"""The fold role's counts for Prometheus, as ``contracts.metrics`` declares them.

These count the work of this process, not the traffic: an at-least-once reader counts some of it
twice. The traffic's own numbers are in the merged windows.
"""

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from contracts import metrics as m
from service.families import numbers
from stats.folding.fold import FoldCounts

_COUNTERS = {
    m.FOLD_MESSAGES: "messages",
    m.FOLD_EVENTS: "events",
    m.FOLD_SKIPPED: "skipped",
    m.FOLD_COPIES: "copies",
    m.FOLD_MISTIMED: "mistimed",
    m.FOLD_MISSING: "missing",
    m.FOLD_RECORDS: "records",
    m.FOLD_OVERSIZED: "oversized",
    m.FOLD_FAILURES: "failures",
    m.FOLD_STALLS: "stalls",
    m.FOLD_EMPTY_POLLS: "empty_polls",
    m.FOLD_ASSIGNMENTS: "assignments",
}


class FoldCollector(Collector):
    """The counts of one process."""

    def __init__(self, counts: FoldCounts, clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = counts
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        counts = self._counts
        for metric, name in _COUNTERS.items():
            yield numbers(metric, [((), getattr(counts, name))])
        for metric, value in (
            (m.FOLD_CONNECTED, counts.connected),
            (m.FOLD_STALLED, max(0.0, self._clock() - counts.well)),
            (m.FOLD_LAST_READ, counts.last_read),
            (m.FOLD_CHECKED, counts.checked),
        ):
            yield numbers(metric, [((), value)])
        for metric, amounts in (
            (m.FOLD_END, counts.ends),
            (m.FOLD_POSITION, counts.positions),
            (m.FOLD_LAG, counts.lag),
        ):
            yield numbers(metric, [((str(number),), value) for number, value in amounts.items()])


def register(
    counts: FoldCounts,
    registry: CollectorRegistry = REGISTRY,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Makes the counts known to the process' metrics endpoint."""
    registry.register(FoldCollector(counts, clock))
