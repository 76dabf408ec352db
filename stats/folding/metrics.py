"""What Prometheus can ask the fold role. Declared here, counted in ``stats.folding.fold``.

These count the work of this process, not the traffic: an at-least-once reader counts some of it
twice. The traffic's own numbers are in the merged windows.
"""

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from contracts.metrics import (
    FOLD_CHECKED,
    FOLD_CONNECTED,
    FOLD_EMPTY_POLLS,
    FOLD_END,
    FOLD_LAG,
    FOLD_LAST_READ,
    FOLD_MISSING,
    FOLD_OVERSIZED,
    FOLD_POSITION,
    FOLD_STALLED,
    FOLD_STALLS,
)
from service.families import numbers
from stats.folding.fold import FoldCounts

_COUNTERS = {
    "messages": "Messages read, those read again after a rebalance included.",
    "events": "Prediction events in complete ranges that were folded here.",
    "skipped": "Messages that were no batches of a known schema.",
    "copies": "Messages that a gateway had written before.",
    "mistimed": "Messages of a gateway whose clock is off, or that waited long for Kafka.",
    "missing": FOLD_MISSING.help,
    "records": "Window records written.",
    "oversized": FOLD_OVERSIZED.help,
    "failures": "Times that folding had to begin anew.",
    "stalls": FOLD_STALLS.help,
    "empty_polls": FOLD_EMPTY_POLLS.help,
    "assignments": "Times that partitions were assigned.",
}


class FoldCollector(Collector):
    """The counts of one process."""

    def __init__(self, counts: FoldCounts, clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = counts
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(
                f"headrace_fold_{name}", text, value=getattr(self._counts, name)
            )
        counts = self._counts
        for metric, value in (
            (FOLD_CONNECTED, counts.connected),
            (FOLD_STALLED, max(0.0, self._clock() - counts.well)),
            (FOLD_LAST_READ, counts.last_read),
            (FOLD_CHECKED, counts.checked),
        ):
            yield numbers(metric, [((), value)])
        for metric, amounts in (
            (FOLD_END, counts.ends),
            (FOLD_POSITION, counts.positions),
            (FOLD_LAG, counts.lag),
        ):
            yield numbers(metric, [((str(number),), value) for number, value in amounts.items()])


def register(
    counts: FoldCounts,
    registry: CollectorRegistry = REGISTRY,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Makes the counts known to the process' metrics endpoint.

    Args:
        counts: of this process.
        registry: of the process.
        clock: monotonic seconds, as the counts have them.
    """
    registry.register(FoldCollector(counts, clock))
