"""Samples of Prometheus' text format, as gateway and Triton give it at ``/metrics``.

Suites take a snapshot before and after a round and work with the differences.
"""

import math
from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

_CLIENT = httpx.Client(trust_env=False)  # to make one takes longer than to ask


class Snapshot:
    """All samples of one moment."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    @classmethod
    def of(cls, port: int) -> "Snapshot":
        """What is served at a port of 127.0.0.1 now."""
        return cls(_CLIENT.get(f"http://127.0.0.1:{port}/metrics").text)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples of a name that carry these labels."""
        return sum(
            sample.value
            for sample in self._samples
            # The parser ends the name of every counter so; Triton's own names do not.
            if sample.name in {name, f"{name}_total"} and labels.items() <= sample.labels.items()
        )

    def buckets(self, name: str, **labels: str) -> dict[float, float]:
        """Cumulative counts of a histogram by upper edge, in order."""
        found: dict[float, float] = {}
        for sample in self._samples:
            if sample.name == f"{name}_bucket" and labels.items() <= sample.labels.items():
                edge = float(sample.labels["le"])
                found[edge] = found.get(edge, 0.0) + sample.value
        return dict(sorted(found.items()))


def quantile(before: Mapping[float, float], after: Mapping[float, float], share: float) -> float:
    """The upper edge of the bucket that holds a quantile of what came between two snapshots.

    NaN where nothing came; an upper bound on the true quantile otherwise.
    """
    counts = {edge: value - before.get(edge, 0.0) for edge, value in after.items()}
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return math.nan
    return next(edge for edge, count in counts.items() if count >= share * total)
