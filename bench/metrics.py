"""Reads Prometheus' text format, as gateway and Triton give it at ``/metrics``.

Suites take a snapshot before and after a round and work with the differences. Pure.
"""

import math
import re
from collections.abc import Mapping

_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = frozenset[tuple[str, str]]


class Snapshot:
    """All samples of one moment."""

    def __init__(self, text: str) -> None:
        self._samples: dict[tuple[str, Labels], float] = {}
        for line in text.splitlines():
            match = _LINE.match(line)
            if match is not None:
                labels = frozenset(_LABEL.findall(match[2] or ""))
                self._samples[match[1], labels] = float(match[3])

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples of a name that carry these labels."""
        wanted = set(labels.items())
        return sum(
            value for (each, has), value in self._samples.items() if each == name and wanted <= has
        )

    def buckets(self, name: str, **labels: str) -> dict[float, float]:
        """Cumulative counts of a histogram by upper edge, in order."""
        wanted = set(labels.items())
        found: dict[float, float] = {}
        for (each, has), value in self._samples.items():
            if each == f"{name}_bucket" and wanted <= has:
                edge = float(dict(has)["le"].replace("+Inf", "inf"))
                found[edge] = found.get(edge, 0.0) + value
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
