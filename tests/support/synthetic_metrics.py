"""Metrics that one small stack can't cause, exposed by the code that exposes the real ones.

A GPU, a packed engine, an embedder, declared statistics of one's own, a preprocessor that breaks,
models that come back after nobody asked for long, and lost events: synthetic counts grow at every
scrape, and go through ``stats.evaluation.exposition`` and ``gateway.telemetry.metrics``. GPU
metrics are Triton's: names and labels as its documentation has them.
"""

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from contracts import triton_metrics
from contracts.endpoint import Arm
from contracts.events import StatisticSpec
from contracts.statistics import Statistic
from contracts.windows import OwnCounts, WindowAggregate
from gateway.telemetry.metrics import Metrics, ObservedMetric, Reading
from measures.counting import CountingStatus
from measures.increments import Growth
from stats.evaluation.board import Board
from stats.evaluation.exposition import ExpositionSnapshot, RoleHealth, families
from stats.evaluation.totals import TrafficTotals

ENDPOINT = "synthetic"
_GPU = {
    "nv_gpu_utilization": 0.4,
    "nv_gpu_memory_used_bytes": 4e9,
    "nv_gpu_memory_total_bytes": 8e10,
    "nv_gpu_power_usage": 120.0,
}


class SyntheticMetrics(Collector):
    """All of it; each scrape finds a little more."""

    def __init__(self) -> None:
        self._scrapes = 0
        self._gateway = Metrics()
        self._gateway.read_from(self._lost)

    def collect(self) -> Iterator[Metric]:
        self._scrapes += 1
        self._gateway.hook_failed(ENDPOINT, "ValueError")
        self._gateway.awakened(0.8, served=True)
        yield from self._statistics()
        for family in self._gateway.collect():
            if family.name.endswith(("preprocessor_failures", "events_dropped", "wake_seconds")):
                yield family
        for name, value in _GPU.items():
            gauge = GaugeMetricFamily(name, "Triton's.", labels=["gpu_uuid"])
            gauge.add_metric(["GPU-1"], value)
            yield gauge
        for metric in triton_metrics.PACKED:
            counter = CounterMetricFamily(metric.family, metric.help, labels=metric.labels)
            counter.add_metric([f"{ENDPOINT}-0123456789ab", "1"], float(self._scrapes))
            yield counter

    def _lost(self) -> Iterator[Reading]:
        yield Reading(
            ObservedMetric.EVENTS_DROPPED, (ENDPOINT, "200", "buffer_full"), float(self._scrapes)
        )

    def _statistics(self) -> Iterator[Metric]:
        totals = TrafficTotals()
        totals.add(Growth(10, (_aggregate(self._scrapes),), {}, 0, 0, 0), 1.0)
        now = ExpositionSnapshot(
            totals, totals.arms.keys(), {}, Board(), RoleHealth(), CountingStatus(), 1.0
        )
        yield from (
            family
            for family in families(now)
            if family.name.startswith(("headrace_own", "headrace_vector"))
        )


def _aggregate(times: int) -> WindowAggregate:
    return WindowAggregate(
        endpoint=ENDPOINT,
        version="1",
        package="p",
        arm=Arm.STABLE,
        start=0,
        statuses={200: times},
        texts=times,
        histograms={Statistic.VECTOR_NORM: {10: times, 12: times}},
        sums={Statistic.VECTOR_NORM: 2_000_000 * times},
        own=[
            OwnCounts(
                StatisticSpec("links", "histogram", edges=[0.0, 1.0]), {"0": times}, 0, times
            ),
            OwnCounts(StatisticSpec("language", "category", values=["en", "de"]), {"en": times}),
            OwnCounts(StatisticSpec("emoji", "counter"), {}, 1_000_000 * times),
        ],
        undeclared={"colour": times},
    )


@contextlib.contextmanager
def served(port: int, collector: Collector | None = None) -> Iterator[None]:
    """Serves a collector's metrics on a port of 127.0.0.1; without one, these."""
    registry = CollectorRegistry()
    registry.register(collector or SyntheticMetrics())
    server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
