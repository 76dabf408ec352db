"""Families for ``prometheus_client`` of the metrics that ``contracts.metrics`` declares.

A name, a help text and its labels stand in one place, ``contracts.metrics``. It adds no value by
itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from contracts.metrics import Kind, Metric

Labels = tuple[str, ...]


class FamilyCollector(Collector):
    """A collector that calls a function for its families."""

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """See ``Collector``."""
        return self._families()


def numbers(metric: Metric, values: Iterable[tuple[Labels, float]]) -> Family:
    """A counter's or gauge's family with one number for each set of label values."""
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.family, metric.help, labels=metric.labels)
    for labels, value in values:
        family.add_metric(labels, value)
    return family


Exemplars = Mapping[Labels, Mapping[int, Exemplar]]
_NONE: Exemplars = {}


def histograms(
    metric: Metric,
    values: Iterable[tuple[Labels, Sequence[float], Sequence[int], float]],
    exemplars: Exemplars = _NONE,
) -> Family:
    """A histogram's family.

    Args:
        metric: of kind histogram.
        values: label values, upper edges, counts of each bucket with one more to infinity, and
            the sum of what was counted.
        exemplars: label values -> number of a bucket -> one of the observations in it.
    """
    family = HistogramMetricFamily(metric.family, metric.help, labels=metric.labels)
    for labels, upper, counts, total in values:
        kept = exemplars.get(labels, {})
        buckets = [
            (le, number, kept[place]) if place in kept else (le, number)
            for place, (le, number) in enumerate(_cumulative(upper, counts))
        ]
        family.add_metric(labels, buckets, total)
    return family


def _cumulative(upper: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    names = (*(f"{edge:g}" for edge in upper), "+Inf")
    yield from zip(names, map(float, accumulate(counts)), strict=True)
