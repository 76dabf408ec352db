"""``python -P -m bench.exposition``: what a gateway's metrics of many endpoints take to write.

A gateway that has answered one request of each endpoint writes its metrics, in turns by
``prometheus_client`` and by ``service.exposition``; medians, seconds of the processor.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from contracts.endpoint import Arm
from contracts.events import Latency, PredictionEvent
from gateway.telemetry.metrics import Metrics
from service import exposition
from service.families import FamilyCollector

_LATENCY = Latency(0.0005, 0.001, 0.002, 0.01, 0.0135)


def main() -> int:
    """Reads the command line, measures, prints a table."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.exposition", description=__doc__)
    parser.add_argument("--endpoints", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    print("| endpoints | lines | prometheus_client | OpenMetrics | here | OpenMetrics |")
    print("|---:|---:|---:|---:|---:|---:|")
    for endpoints in arguments.endpoints:
        ways = ways_of(asked(endpoints))
        took: list[list[float]] = [[] for _ in ways]
        for _ in range(arguments.turns):
            for way, times in zip(ways, took, strict=True):
                began = time.thread_time()
                text = way()
                times.append(time.thread_time() - began)
        shown = " | ".join(f"{statistics.median(times):.3f}" for times in took)
        lines = text.count(b"\n")
        print(f"| {endpoints} | {lines} | {shown} |", flush=True)
    return 0


def ways_of(metrics: Metrics) -> list[Callable[[], bytes]]:
    """To write the same: by ``prometheus_client``, as OpenMetrics, and here in both forms."""
    collector = FamilyCollector(metrics.collect)
    return [
        lambda: generate_latest(collector),
        lambda: generate_openmetrics(collector),
        lambda: exposition.text(metrics.collect()),
        lambda: exposition.text(metrics.collect(), openmetrics=True),
    ]


def asked(endpoints: int) -> Metrics:
    """A gateway's metrics after one answer of each endpoint."""
    metrics = Metrics()
    for number in range(endpoints):
        event = PredictionEvent(
            f"request-{number}", 0.0, f"endpoint-{number}", "1", "package", Arm.STABLE, 200,
            answered=True, latency=_LATENCY,
        )  # fmt: skip
        metrics.attempt_finished(event, 1, 10)
    return metrics


if __name__ == "__main__":
    sys.exit(main())
