"""Families for ``prometheus_client`` of the metrics that ``contracts.metrics`` declares.

A name, a help text and its labels stand in one place, ``contracts.metrics``. It adds no value by
itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from contracts.metrics import Metric

Labels = tuple[str, ...]
Number = tuple[Labels, float]
# Label values, upper edges, counts of each bucket with one more to infinity, and the sum.
Histogram = tuple[Labels, Sequence[float], Sequence[int], float]
Exemplars = Mapping[Labels, Mapping[int, Exemplar]]
_NONE: Exemplars = {}


class FamilyCollector(Collector):
    """A collector that calls a function for its families."""

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """See ``Collector``."""
        return self._families()


class _Rows(Family):
    """A family whose samples are made when somebody asks for them; ``exposition`` does not."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric.family, metric.help, metric.kind.value)
        self.metric = metric

    @property
    def samples(self) -> list[Sample]:
        """As ``prometheus_client`` makes them."""
        return self._to_official().samples

    @samples.setter
    def samples(self, samples: list[Sample]) -> None:
        """The base class begins with none; more would never be told."""
        if samples:
            raise TypeError(f"samples of {self.name} follow from its rows")

    def _to_official(self) -> Family:
        raise NotImplementedError


class NumberFamily(_Rows):
    """A counter or a gauge."""

    def __init__(self, metric: Metric, rows: Iterable[Number]) -> None:
        super().__init__(metric)
        self.rows = tuple(rows)

    def _to_official(self) -> Family:
        kind = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        family = kind(self.metric.family, self.metric.help, labels=self.metric.labels)
        for labels, value in self.rows:
            family.add_metric(labels, value)
        return family


class HistogramFamily(_Rows):
    """A histogram."""

    def __init__(
        self, metric: Metric, rows: Iterable[Histogram], exemplars: Exemplars = _NONE
    ) -> None:
        super().__init__(metric)
        self.rows = tuple(rows)
        self.exemplars = exemplars

    def _to_official(self) -> Family:
        family = HistogramMetricFamily(
            self.metric.family, self.metric.help, labels=self.metric.labels
        )
        for labels, upper, counts, total in self.rows:
            kept = self.exemplars.get(labels, {})
            named = zip(edge_names(tuple(upper)), accumulate(counts), strict=True)
            buckets = [
                (le, float(number), kept[place]) if place in kept else (le, float(number))
                for place, (le, number) in enumerate(named)
            ]
            family.add_metric(labels, buckets, total)
        return family


@lru_cache(maxsize=256)
def edge_names(upper: tuple[float, ...]) -> tuple[str, ...]:
    """Values of the label ``le``."""
    return (*(f"{edge:g}" for edge in upper), "+Inf")


def numbers(metric: Metric, values: Iterable[Number]) -> NumberFamily:
    """A counter's or gauge's family with one number for each set of label values."""
    return NumberFamily(metric, values)


def histograms(
    metric: Metric, values: Iterable[Histogram], exemplars: Exemplars = _NONE
) -> HistogramFamily:
    """A histogram's family.

    Args:
        metric: of kind histogram.
        values: label values, upper edges, counts of each bucket with one more to infinity, and
            the sum of what was counted.
        exemplars: label values -> number of a bucket -> one of the observations in it.
    """
    return HistogramFamily(metric, values, exemplars)
