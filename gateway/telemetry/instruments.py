"""Counters and histograms cheap enough for every request, read out only when Prometheus asks.

``metrics.py`` declares them. ``prometheus_client``'s own take a lock and build label objects on
each call, some ten microseconds a request in all; these are plain dictionaries that belong to the
event loop's thread. They are only ever written and read there.
"""

from bisect import bisect_left
from collections.abc import Iterable

from prometheus_client.core import Metric as Family

from contracts.metrics import Metric
from service.families import histograms, numbers

Labels = tuple[str, ...]


class CounterChild:
    """The number of one set of label values."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class HistogramChild:
    """The counts between edges of one set of label values.

    A value goes to the first bucket whose upper edge is not below it.
    """

    __slots__ = ("_edges", "counts", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self._edges, value)] += 1
        self.sum += value


class Counter:
    """A number that only grows, for each set of label values."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._children: dict[Labels, CounterChild] = {}

    def child(self, labels: Labels) -> "CounterChild":
        """The number of these label values, to be kept by who counts often."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = CounterChild()
        return child

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Counts."""
        self.child(labels).value += amount

    def read(self) -> Iterable[Family]:
        """For Prometheus."""
        amounts = ((labels, child.value) for labels, child in self._children.items())
        yield numbers(self._metric, amounts)


class Histogram:
    """Observations counted between fixed edges, for each set of label values."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._children: dict[Labels, HistogramChild] = {}

    def child(self, labels: Labels) -> "HistogramChild":
        """The counts of these label values, to be kept by who observes often."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = HistogramChild(self._metric.buckets)
        return child

    def observe(self, labels: Labels, value: float) -> None:
        """Counts a value."""
        self.child(labels).observe(value)

    def read(self) -> Iterable[Family]:
        """For Prometheus."""
        counted = (
            (labels, self._metric.buckets, child.counts, child.sum)
            for labels, child in self._children.items()
        )
        yield histograms(self._metric, counted)
