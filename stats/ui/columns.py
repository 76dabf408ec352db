"""Evenly spaced columns of time, and what is drawn of counts in them. Pure.

It never interpolates: a column without counts stays empty, and is drawn so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.windows import MICRO

Counts = NDArray[np.int64]

LEAST_SECONDS = 10  # of a column that is not over, for a rate to mean something


@dataclass(frozen=True, slots=True)
class Span:
    """Columns of equal length, aligned to the epoch.

    Attributes:
        start: of the first column, unix seconds.
        seconds: length of a column.
        count: columns.
    """

    start: int
    seconds: int
    count: int

    @property
    def end(self) -> int:
        """End of the last column, unix seconds."""
        return self.start + self.seconds * self.count

    def column(self, at: float) -> int | None:
        """The column that holds a time; None outside."""
        index = math.floor((at - self.start) / self.seconds)
        return index if 0 <= index < self.count else None


def span(until: float, seconds: int, count: int) -> Span:
    """The columns that end with the one that holds ``until``."""
    end = (math.floor(until / seconds) + 1) * seconds
    return Span(end - seconds * count, seconds, count)


def per_second(
    counts: Counts, over: Span, until: float, *, ongoing: bool = True
) -> list[float | None]:
    """``[columns]`` counts as a rate.

    None before the first count, behind what is known, and, unless it is ``ongoing``, behind the
    last count: an arm that has come or gone is not idle.
    """
    used = np.flatnonzero(counts)
    first = int(used[0]) if used.size else over.count
    last = over.count - 1 if ongoing or not used.size else int(used[-1])
    rates: list[float | None] = []
    for column, count in enumerate(counts.tolist()):
        length = min(until - over.start - over.seconds * column, over.seconds)
        known = first <= column <= last and length >= min(over.seconds, LEAST_SECONDS)
        rates.append(round_value(count / length) if known else None)
    return rates


def shares(part: Counts, whole: Counts) -> list[float | None]:
    """``[columns]`` shares, None if there is no whole."""
    return [
        round_value(int(some) / int(all_)) if all_ else None
        for some, all_ in zip(part, whole, strict=True)
    ]


def means(sums: Counts | None, counts: Counts) -> list[float | None]:
    """``[columns]`` means of a statistic whose sums are in millionths."""
    if sums is None:
        return [None] * len(counts)
    return [
        round_value(int(total) / MICRO / int(count)) if count else None
        for total, count in zip(sums, counts, strict=True)
    ]


def quantiles(grid: Counts | None, share: float, upper: Sequence[float]) -> list[float | None]:
    """``[columns]`` upper edges of the buckets that hold a quantile; None if nothing is counted.

    In the bucket to infinity it is the last edge: the true value is larger.

    Args:
        grid: ``[columns, buckets]`` counts; None: nothing at all was counted.
        share: 0 to 1.
        upper: the buckets' upper edges, one fewer than buckets.
    """
    if grid is None:
        return []
    totals = grid.sum(axis=1)
    ranks = np.maximum(1, np.ceil(share * totals))
    at = np.argmax(np.cumsum(grid, axis=1) >= ranks[:, None], axis=1)
    return [
        round_value(upper[min(int(bucket), len(upper) - 1)]) if total else None
        for bucket, total in zip(at, totals, strict=True)
    ]


def coarsen(grid: Counts, upper: Sequence[float], every: int) -> tuple[Counts, list[float]]:
    """Each ``every`` buckets made one: ``[columns, fewer]`` counts and the upper edges of all.

    The last bucket, to infinity, is made one with its neighbours; its edge stays the last one.
    """
    starts = np.arange(0, grid.shape[1], every)
    merged: Counts = np.add.reduceat(grid, starts, axis=1)
    return merged, [upper[min(int(s) + every, len(upper)) - 1] for s in starts]


def sum_columns(table: Mapping[str, Counts], key: str) -> int:
    """The sum over all columns, 0 if nothing is counted."""
    counts = table.get(key)
    return 0 if counts is None else int(counts.sum())


def round_value(value: float) -> float:
    """Five digits: as many as anyone can see, and a third of the bytes."""
    return float(f"{value:.5g}")
