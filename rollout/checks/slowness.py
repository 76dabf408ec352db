"""What counts as slow: above the 95th percentile bucket of stable's past, within a length bucket.

An arm with few callers gets smaller batches and another mix of lengths, so latencies are compared
with stable's only for texts of the same length. The edge comes only from stable's past windows; a
latency is slow strictly above it.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contracts.statistics import LATENCY_EDGES
from contracts.windows import CALLER_STRIDE, EvidenceCounts
from measures.own_past import CallersAnswers

# Tokens of the longest text, at most; shorter ones join the first, longer ones the last.
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
PERCENTILE = 0.95
ENOUGH = 100  # past attempts of a length, before its edge means anything
_BUCKETS = len(LATENCY_EDGES.upper) + 1


class Slowness:
    """Stable's past latencies: int64 ``[lengths, latency buckets]``."""

    def __init__(self, past: NDArray[np.int64]) -> None:
        self.past = past

    @classmethod
    def begin(cls) -> Self:
        """Nothing known yet."""
        return cls(np.zeros((len(LENGTHS), _BUCKETS), dtype=np.int64))

    def after(self, stable: EvidenceCounts) -> Self:
        """Returns a copy with one more window of stable."""
        if not stable.latency:
            return self
        past = self.past.copy()
        for tokens, counts in stable.latency.items():
            row = past[_length(tokens)]
            for bucket, count in counts.items():
                row[bucket] += count
        return type(self)(past)

    @cached_property
    def edges(self) -> tuple[int | None, ...]:
        """The bucket that holds the percentile, a length; None if too little is known."""
        cumulated = np.cumsum(self.past, axis=-1)
        totals = cumulated[:, -1]
        ranks = np.ceil(PERCENTILE * totals)
        buckets = (cumulated < ranks[:, None]).sum(axis=-1)
        return tuple(
            int(bucket) if total >= ENOUGH else None
            for bucket, total in zip(buckets, totals, strict=True)
        )

    def count_slow(self, evidence: EvidenceCounts) -> tuple[list[int], list[int]]:
        """Slow attempts and all attempts of a window, a length; both 0 if no edge is known."""
        slow, timed = [0] * len(LENGTHS), [0] * len(LENGTHS)
        for tokens, counts in evidence.latency.items():
            at = _length(tokens)
            edge = self.edges[at]
            if edge is not None:
                slow[at] += sum(count for bucket, count in counts.items() if bucket > edge)
                timed[at] += sum(counts.values())
        return slow, timed

    def of_callers(self, evidence: EvidenceCounts) -> CallersAnswers:
        """The part of ``counted`` that is of callers with a name: an entry for each time."""
        keys: list[int] = []
        counts: list[int] = []
        lengths: list[int] = []
        edges: list[int] = []
        for tokens, of_length in evidence.caller_latency.items():
            at = _length(tokens)
            edge = self.edges[at]
            keys += of_length.keys()
            counts += of_length.values()
            lengths += [at] * len(of_length)
            edges += [-1 if edge is None else edge] * len(of_length)
        bucket, latency = np.divmod(np.array(keys, dtype=np.intp), CALLER_STRIDE)
        edge_of = np.array(edges, dtype=np.intp)
        timed = np.where(edge_of < 0, 0.0, np.array(counts, dtype=np.float64))
        slow = np.where(latency > edge_of, timed, 0.0)
        return CallersAnswers((bucket,), np.array(lengths, dtype=np.intp), slow, timed)

    def to_json(self) -> dict[str, Any]:
        """Counts by length and bucket, those that are not 0."""
        rows: dict[str, dict[str, int]] = {}
        for at, bucket in zip(*(part.tolist() for part in np.nonzero(self.past)), strict=True):
            rows.setdefault(str(at), {})[str(bucket)] = int(self.past[at, bucket])
        return rows

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        """The state that ``to_json`` told."""
        slowness = cls.begin()
        for at, counts in data.items():
            for bucket, count in counts.items():
                slowness.past[int(at), int(bucket)] = count
        return slowness


def _length(tokens: int) -> int:
    return next((at for at, most in enumerate(LENGTHS) if tokens <= most), len(LENGTHS) - 1)
