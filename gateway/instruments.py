"""Counters and histograms cheap enough for every request, read out only when Prometheus asks.

``metrics.py`` declares them. ``prometheus_client``'s own take a lock and build label objects on
each call, some ten microseconds a request in all; these are plain dictionaries that belong to the
event loop's thread. They are only ever written and read there.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

Labels = tuple[str, ...]


class Counter:
    """A number that only grows, for each set of label values."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._name, self._help, self._labels = name, help_text, tuple(labels)
        self._values: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Counts."""
        self._values[labels] = self._values.get(labels, 0) + amount

    def value(self, labels: Labels) -> float:
        """What was counted so far."""
        return self._values.get(labels, 0)

    def read(self) -> Iterable[Metric]:
        """For Prometheus."""
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


class Histogram:
    """Observations counted between fixed edges, for each set of label values."""

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str], edges: Sequence[float]
    ) -> None:
        self._name, self._help, self._labels = name, help_text, tuple(labels)
        self._edges = tuple(edges)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Counts a value in the first bucket whose upper edge is not below it."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._edges) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._edges, value)] += 1
        self._sums[labels] += value

    def read(self) -> Iterable[Metric]:
        """For Prometheus."""
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        edges = [*(f"{edge:g}" for edge in self._edges), "+Inf"]
        for labels, counts in self._counts.items():
            buckets = list(zip(edges, map(float, accumulate(counts)), strict=True))
            family.add_metric(labels, buckets, self._sums[labels])
        yield family
