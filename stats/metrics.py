"""What Prometheus can ask the fold role. Declared here, counted in ``stats.fold``.

These count the work of this process, not the traffic: an at-least-once reader counts some of it
twice. The traffic's own numbers are in the merged windows.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from contracts.metrics import FOLD_CONNECTED, FOLD_LAG, FOLD_MISSING, FOLD_OVERSIZED
from service.families import numbers
from stats.fold import FoldCounts

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
    "assignments": "Times that partitions were assigned.",
}


class FoldCollector(Collector):
    """The counts of one process."""

    def __init__(self, counts: FoldCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(
                f"headrace_fold_{name}", text, value=getattr(self._counts, name)
            )
        yield numbers(FOLD_CONNECTED, [((), self._counts.connected)])
        lag = self._counts.lag.items()
        yield numbers(FOLD_LAG, [((str(partition),), messages) for partition, messages in lag])


def register(counts: FoldCounts, registry: CollectorRegistry = REGISTRY) -> None:
    """Makes the counts known to the process' metrics endpoint."""
    registry.register(FoldCollector(counts))
