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


class Cell:
    """One number."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class HistogramCell:
    """Counts between edges; a value goes to the first bucket whose upper edge is not below it."""

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

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._name, self._help, self._labels = name, help_text, tuple(labels)
        self._cells: dict[Labels, Cell] = {}

    def cell(self, labels: Labels) -> "Cell":
        """The number of these label values, to be kept by who counts often."""
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = Cell()
        return cell

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Counts."""
        self.cell(labels).value += amount

    def read(self) -> Iterable[Metric]:
        """For Prometheus."""
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, cell in self._cells.items():
            family.add_metric(labels, cell.value)
        yield family


class Histogram:
    """Observations counted between fixed edges, for each set of label values."""

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str], edges: Sequence[float]
    ) -> None:
        self._name, self._help, self._labels = name, help_text, tuple(labels)
        self._edges = tuple(edges)
        self._cells: dict[Labels, HistogramCell] = {}

    def cell(self, labels: Labels) -> "HistogramCell":
        """The counts of these label values, to be kept by who observes often."""
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = HistogramCell(self._edges)
        return cell

    def observe(self, labels: Labels, value: float) -> None:
        """Counts a value."""
        self.cell(labels).observe(value)

    def read(self) -> Iterable[Metric]:
        """For Prometheus."""
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        edges = [*(f"{edge:g}" for edge in self._edges), "+Inf"]
        for labels, cell in self._cells.items():
            buckets = list(zip(edges, map(float, accumulate(cell.counts)), strict=True))
            family.add_metric(labels, buckets, cell.sum)
        yield family
