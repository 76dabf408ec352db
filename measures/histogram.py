"""A histogram with fixed upper edges: the one way in which Headrace counts values.

Two histograms of the same edges always add, in any order, and nothing is lost in adding. It will
never choose its own edges, never keep a single value, and never swallow a NaN.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contracts.statistics import Edges


class NotANumberError(ValueError):
    """A value to be counted is NaN, so that no bucket is right for it."""


class UnequalEdgesError(ValueError):
    """Two histograms of different edges were to be added."""


class Histogram:
    """Counts of values by bucket.

    A value belongs to the first bucket whose upper edge is at least the value; what lies above the
    last edge, infinity included, belongs to one more bucket without an upper edge. Values below the
    first edge belong to the first bucket.

    Attributes:
        edges: the upper edges, inclusive, with their unit.
        counts: int64 ``[len(edges.upper) + 1]``, the last one for the bucket to infinity.
    """

    __slots__ = ("_upper", "counts", "edges")

    def __init__(
        self, edges: Edges, counts: Sequence[int] | NDArray[np.int64] | None = None
    ) -> None:
        """Takes counts made before, or starts from none.

        Raises:
            ValueError: not one count a bucket, or a negative count.
        """
        self.edges = edges
        self._upper = np.asarray(edges.upper, dtype=np.float64)
        buckets = len(edges.upper) + 1
        self.counts: NDArray[np.int64] = np.zeros(buckets, dtype=np.int64)
        if counts is not None:
            given = np.asarray(counts, dtype=np.int64)
            if given.shape != (buckets,):
                raise ValueError(f"{buckets} counts belong to these edges, not {given.shape}")
            if (given < 0).any():
                raise ValueError("a count can't be negative")
            self.counts += given

    @classmethod
    def of(cls, edges: Edges, values: ArrayLike) -> Self:
        """The histogram of some values; raises as ``add`` does."""
        histogram = cls(edges)
        histogram.add(values)
        return histogram

    def add(self, values: ArrayLike) -> None:
        """Counts values of any shape; either all of them or, on an error, none.

        Raises:
            NotANumberError: a value is NaN.
        """
        flat = np.asarray(values, dtype=np.float64).reshape(-1)
        missing = int(np.isnan(flat).sum())
        if missing:
            raise NotANumberError(f"{missing} of {flat.size} values are NaN")
        buckets = np.searchsorted(self._upper, flat, side="left")
        self.counts += np.bincount(buckets, minlength=len(self.counts))

    def __add__(self, other: "Histogram") -> "Histogram":
        """The counts of both; raises ``UnequalEdgesError`` where the edges differ."""
        if self.edges != other.edges:
            raise UnequalEdgesError("histograms of different edges do not add")
        return Histogram(self.edges, self.counts + other.counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.edges == other.edges and bool((self.counts == other.counts).all())

    __hash__ = None  # type: ignore[assignment]  # mutable, as with list

    def __repr__(self) -> str:
        return f"Histogram({self.total} values, {self.edges.unit})"

    @property
    def total(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> float:
        """Upper edge of the bucket that holds the quantile, ``inf`` for the last bucket.

        The true quantile (the smallest value with at least ``share`` of all values at or below it)
        is at most what is returned, and above the edge before it.

        Args:
            share: 0 to 1.

        Raises:
            ValueError: nothing was counted, or ``share`` is outside 0 to 1.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share {share} is not between 0 and 1")
        total = self.total
        if total == 0:
            raise ValueError("an empty histogram has no quantiles")
        rank = max(1, math.ceil(share * total))
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank, side="left"))
        return float(self._upper[bucket]) if bucket < len(self._upper) else math.inf

    def to_tuple(self) -> tuple[int, ...]:
        """The counts as plain integers, as contracts store them."""
        return tuple(int(count) for count in self.counts)


def merged(edges: Edges, histograms: Iterable[Histogram]) -> Histogram:
    """The sum of any number of histograms, none included."""
    total = Histogram(edges)
    for histogram in histograms:
        total = total + histogram
    return total
