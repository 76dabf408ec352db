"""Windows of one endpoint as tables of counts over evenly spaced columns of time.

Called by ``view.py`` for whatever the page draws against time. Adding is exact, since every count
is an integer. It never interpolates: a column without counts stays empty, and is drawn so.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Arm
from contracts.statistics import EDGES, LATENCY_EDGES, Stage, Statistic
from contracts.windows import MICRO, Cell, Sparse
from stats import board

Counts = NDArray[np.int64]
Slot = tuple[str, Arm]  # version, arm

LEAST_SECONDS = 10  # of a column that is not over, for a rate to mean something
LATENCY_BUCKETS = len(LATENCY_EDGES.upper) + 1


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


@dataclass
class Table:
    """Counts of one version in one arm, or of several added up: ``[columns, ...]`` each.

    Attributes:
        requests: attempts.
        errors: attempts of status 500 and above.
        texts: answered texts.
        truncated: texts that were cut.
        right: texts whose answer feedback found true.
        judged: texts with feedback.
        pairs: shadow's texts that were compared with what callers got.
        equal: those of them with the same label.
        histograms: by statistic, ``[columns, buckets]`` of its edges.
        sums: by statistic, ``[columns]``, millionths of its unit.
        latency: by stage, ``[columns, LATENCY_BUCKETS]``.
        latency_sums: by stage, ``[columns]``, microseconds.
        labels: by predicted label, ``[columns]`` texts.
        scores: by predicted label, ``[columns, buckets]`` of ``Statistic.SCORE``.
        statuses: by status, ``[columns]`` attempts.
    """

    columns: int
    requests: Counts = field(init=False)
    errors: Counts = field(init=False)
    texts: Counts = field(init=False)
    truncated: Counts = field(init=False)
    right: Counts = field(init=False)
    judged: Counts = field(init=False)
    pairs: Counts = field(init=False)
    equal: Counts = field(init=False)
    histograms: dict[str, Counts] = field(default_factory=dict)
    sums: dict[str, Counts] = field(default_factory=dict)
    latency: dict[str, Counts] = field(default_factory=dict)
    latency_sums: dict[str, Counts] = field(default_factory=dict)
    labels: dict[str, Counts] = field(default_factory=dict)
    scores: dict[str, Counts] = field(default_factory=dict)
    statuses: dict[int, Counts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begins with nothing counted."""
        for name in _PLAIN:
            setattr(self, name, np.zeros(self.columns, dtype=np.int64))

    def add(self, cell: Cell, column: int) -> None:
        """Counts a cell into a column."""
        for status, count in cell.statuses.items():
            self.requests[column] += count
            self.errors[column] += count if status >= 500 else 0
            self._row(self.statuses, status)[column] += count
        self.texts[column] += cell.texts
        self.truncated[column] += cell.truncated
        self.pairs[column] += cell.judged.pairs
        self.equal[column] += cell.judged.pairs_equal
        for answered, truths in cell.feedback.items():
            self.right[column] += truths.get(answered, 0)
            self.judged[column] += sum(truths.values())
        for name, buckets in cell.histograms.items():
            if name in _BUCKETS:
                _spread(self._grid(self.histograms, name, _BUCKETS[name]), column, buckets)
        for name, total in cell.sums.items():
            self._row(self.sums, name)[column] += total
        for name, buckets in cell.latency.items():
            _spread(self._grid(self.latency, name, LATENCY_BUCKETS), column, buckets)
        for name, total in cell.latency_sums.items():
            self._row(self.latency_sums, name)[column] += total
        for label, count in cell.labels.items():
            self._row(self.labels, label)[column] += count
        for label, buckets in cell.label_scores.items():
            _spread(self._grid(self.scores, label, _BUCKETS[Statistic.SCORE]), column, buckets)

    def include(self, other: "Table") -> None:
        """Adds another table of the same columns."""
        for name in _PLAIN:
            getattr(self, name)[:] += getattr(other, name)
        for name in _KEYED:
            mine, theirs = getattr(self, name), getattr(other, name)
            for key, counts in theirs.items():
                mine[key] = mine[key] + counts if key in mine else counts.copy()

    def _row(self, held: dict[int, Counts] | dict[str, Counts], key: int | str) -> Counts:
        rows: dict[int | str, Counts] = held  # type: ignore[assignment]  # of either key
        found = rows.get(key)
        if found is None:
            found = rows[key] = np.zeros(self.columns, dtype=np.int64)
        return found

    def _grid(self, held: dict[str, Counts], key: str, buckets: int) -> Counts:
        found = held.get(key)
        if found is None:
            found = held[key] = np.zeros((self.columns, buckets), dtype=np.int64)
        return found


_PLAIN = ("requests", "errors", "texts", "truncated", "right", "judged", "pairs", "equal")
_KEYED = ("histograms", "sums", "latency", "latency_sums", "labels", "scores", "statuses")
_BUCKETS = {statistic.value: len(edges.upper) + 1 for statistic, edges in EDGES.items()}


def _spread(grid: Counts, column: int, buckets: Sparse) -> None:
    if buckets:
        grid[column, list(buckets)] += np.fromiter(buckets.values(), np.int64, len(buckets))


def tables(found: Iterable[board.Series], over: Span) -> dict[Slot, Table]:
    """The counts of each version and arm that were seen, windows outside the span left out."""
    slots: dict[Slot, Table] = {}
    for series in found:
        for window in _windows(series, over):
            column = over.column(window.start)
            if column is None:
                continue
            slot = (series.version, series.arm)
            if slot not in slots:
                slots[slot] = Table(over.count)
            slots[slot].add(window.cell(), column)
    return slots


class _Brief(msgspec.Struct):
    """The one field of a cell that the list needs: decoding no other is many times faster."""

    statuses: dict[int, int] = {}


_brief_decoder = msgspec.msgpack.Decoder(_Brief)


def attempts(found: Iterable[board.Series], over: Span) -> tuple[Counts, Counts]:
    """``[columns]`` attempts, and those of status 500 and above, of all series given."""
    every, failed = np.zeros((2, over.count), dtype=np.int64)
    for series in found:
        for window in _windows(series, over):
            column = over.column(window.start)
            if column is None:
                continue
            for status, count in _brief_decoder.decode(window.packed).statuses.items():
                every[column] += count
                failed[column] += count if status >= 500 else 0
    return every, failed


def _windows(series: board.Series, over: Span) -> Iterable[board.Window]:
    """Sums of minutes where columns are no finer, with the windows behind the last of them."""
    if over.seconds % board.MINUTE_SECONDS:
        return series.windows
    after = max((minute.start + minute.seconds for minute in series.minutes), default=0)
    return (*series.minutes, *(window for window in series.windows if window.start >= after))


def added(parts: Iterable[Table], columns: int) -> Table:
    """The sum of tables, none included."""
    total = Table(columns)
    for part in parts:
        total.include(part)
    return total


def per_second(
    counts: Counts, over: Span, until: float, *, ongoing: bool = True
) -> list[float | None]:
    """``[columns]`` counts as a rate.

    None before the first count, behind what is known, and, unless it is ``ongoing``, behind the
    last count: an arm that has come or gone is not one that nobody asks.

    Args:
        counts: ``[columns]``.
        over: their columns.
        until: time up to which events are counted, unix seconds.
        ongoing: whether more can come.
    """
    used = np.flatnonzero(counts)
    first = int(used[0]) if used.size else over.count
    last = over.count - 1 if ongoing or not used.size else int(used[-1])
    rates: list[float | None] = []
    for column, count in enumerate(counts.tolist()):
        length = min(until - over.start - over.seconds * column, over.seconds)
        known = first <= column <= last and length >= min(over.seconds, LEAST_SECONDS)
        rates.append(rounded(count / length) if known else None)
    return rates


def shares(part: Counts, whole: Counts) -> list[float | None]:
    """``[columns]`` shares, None where there is no whole."""
    return [
        rounded(int(some) / int(all_)) if all_ else None
        for some, all_ in zip(part, whole, strict=True)
    ]


def means(sums: Counts | None, counts: Counts) -> list[float | None]:
    """``[columns]`` means of a statistic whose sums are in millionths."""
    if sums is None:
        return [None] * len(counts)
    return [
        rounded(int(total) / MICRO / int(count)) if count else None
        for total, count in zip(sums, counts, strict=True)
    ]


def quantiles(grid: Counts | None, share: float, upper: Sequence[float]) -> list[float | None]:
    """``[columns]`` upper edges of the buckets that hold a quantile; None where nothing is counted.

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
        rounded(upper[min(int(bucket), len(upper) - 1)]) if total else None
        for bucket, total in zip(at, totals, strict=True)
    ]


def coarse(grid: Counts, upper: Sequence[float], every: int) -> tuple[Counts, list[float]]:
    """Each ``every`` buckets made one: ``[columns, fewer]`` counts and the upper edges of all.

    The last bucket, to infinity, is made one with its neighbours; its edge stays the last one.
    """
    starts = np.arange(0, grid.shape[1], every)
    merged: Counts = np.add.reduceat(grid, starts, axis=1)
    return merged, [upper[min(int(s) + every, len(upper)) - 1] for s in starts]


def total(table: Mapping[str, Counts], key: str) -> int:
    """The sum over all columns, 0 where nothing is counted."""
    counts = table.get(key)
    return 0 if counts is None else int(counts.sum())


def rounded(value: float) -> float:
    """Five digits: as many as anyone can see, and a third of the bytes."""
    return float(f"{value:.5g}")


def mean_milliseconds(table: Table, stage: Stage) -> float | None:
    """The mean latency of a stage over all columns."""
    grid = table.latency.get(stage)
    count = 0 if grid is None else int(grid.sum())
    return rounded(total(table.latency_sums, stage) / 1000 / count) if count else None
