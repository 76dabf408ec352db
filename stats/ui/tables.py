"""Windows of one endpoint as tables of counts over columns of time. Pure.

Adding is exact, since every count is an integer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from contracts.endpoint import Arm
from contracts.statistics import EDGES, LATENCY_EDGES, LatencyStage, Statistic
from contracts.windows import Sparse, UnkWordCounts, WindowAggregate
from stats.evaluation import board
from stats.ui.columns import Counts, Span, round_value, sum_columns

Slot = tuple[str, Arm]  # version, arm

LATENCY_BUCKETS = len(LATENCY_EDGES.upper) + 1


@dataclass(frozen=True, slots=True)
class Declaration:
    """A statistic of the users' own, as it was declared when it was observed."""

    name: str
    kind: str
    edges: tuple[float, ...] = ()
    values: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many counts it has."""
        return {"histogram": len(self.edges) + 1, "category": len(self.values)}.get(self.kind, 1)

    def row(self, value: str) -> int | None:
        """The place of a bucket's number, or of a category; None of what is neither."""
        if self.kind == "category":
            return self.values.index(value) if value in self.values else None
        inside = self.kind == "histogram" and value.isdecimal() and int(value) < self.rows
        return int(value) if inside else None


@dataclass
class Table:
    """Counts of one version in one arm, or of several added up: ``[columns, ...]`` each.

    Attributes:
        requests: attempts.
        errors: attempts of status 500 and above.
        texts: answered texts.
        truncated: texts that were cut.
        right: texts whose answer feedback found true.
        with_feedback: texts whose truth was told.
        pairs: shadow's texts that were compared with what callers got.
        equal: those of them with the same label.
        histograms: by statistic, ``[columns, buckets]`` of its edges.
        sums: by statistic, ``[columns]``, millionths of its unit.
        latency: by stage, ``[columns, LATENCY_BUCKETS]``.
        latency_sums: by stage, ``[columns]``, microseconds.
        labels: by predicted label, ``[columns]`` texts.
        scores: by predicted label, ``[columns, buckets]`` of ``Statistic.SCORE``.
        statuses: by status, ``[columns]`` attempts.
        own: of the users' own statistics, by declaration: ``[columns, buckets]`` of a histogram,
            ``[columns, values]`` of a category, ``[columns, 1]`` millionths of a counter.
        unfit: observations that no declaration allows, by name.
        unk_words: sketches of the words that became UNK, if an endpoint asks for them.
    """

    columns: int
    requests: Counts = field(init=False)
    errors: Counts = field(init=False)
    texts: Counts = field(init=False)
    truncated: Counts = field(init=False)
    right: Counts = field(init=False)
    with_feedback: Counts = field(init=False)
    pairs: Counts = field(init=False)
    equal: Counts = field(init=False)
    histograms: dict[str, Counts] = field(default_factory=dict)
    sums: dict[str, Counts] = field(default_factory=dict)
    latency: dict[str, Counts] = field(default_factory=dict)
    latency_sums: dict[str, Counts] = field(default_factory=dict)
    labels: dict[str, Counts] = field(default_factory=dict)
    scores: dict[str, Counts] = field(default_factory=dict)
    statuses: dict[int, Counts] = field(default_factory=dict)
    own: dict[Declaration, Counts] = field(default_factory=dict)
    unfit: dict[str, Counts] = field(default_factory=dict)
    unk_words: list[UnkWordCounts] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begins with nothing counted."""
        for name in _PLAIN:
            setattr(self, name, np.zeros(self.columns, dtype=np.int64))

    def add(self, aggregate: WindowAggregate, column: int) -> None:
        """Counts an aggregate into a column."""
        for status, count in aggregate.statuses.items():
            self.requests[column] += count
            self.errors[column] += count if status >= 500 else 0
            self._counts(self.statuses, status)[column] += count
        self.texts[column] += aggregate.texts
        self.truncated[column] += aggregate.truncated
        self.pairs[column] += aggregate.evidence.pairs
        self.equal[column] += aggregate.evidence.pairs_equal
        for answered, truths in aggregate.feedback.items():
            self.right[column] += truths.get(answered, 0)
            self.with_feedback[column] += sum(truths.values())
        self._add_distributions(aggregate, column)
        self._add_own(aggregate, column)
        if aggregate.unk_words.seen:
            self.unk_words.append(aggregate.unk_words)

    def _add_distributions(self, aggregate: WindowAggregate, column: int) -> None:
        for name, buckets in aggregate.histograms.items():
            if name in _BUCKETS:
                _spread(self._counts(self.histograms, name, _BUCKETS[name]), column, buckets)
        for name, amount in aggregate.sums.items():
            self._counts(self.sums, name)[column] += amount
        for name, buckets in aggregate.latency.items():
            _spread(self._counts(self.latency, name, LATENCY_BUCKETS), column, buckets)
        for name, amount in aggregate.latency_sums.items():
            self._counts(self.latency_sums, name)[column] += amount
        for label, count in aggregate.labels.items():
            self._counts(self.labels, label)[column] += count
        for label, buckets in aggregate.label_scores.items():
            _spread(self._counts(self.scores, label, _BUCKETS[Statistic.SCORE]), column, buckets)

    def _add_own(self, aggregate: WindowAggregate, column: int) -> None:
        for own in aggregate.own:
            spec = own.spec
            key = Declaration(spec.name, spec.kind, tuple(spec.edges), tuple(spec.values))
            grid = self._counts(self.own, key, key.rows)
            if spec.kind == "counter":
                grid[column, 0] += own.sum_micro
            for value, count in own.counts.items():
                row = key.row(value)
                if row is not None:
                    grid[column, row] += count
            if own.unfit:
                self._counts(self.unfit, spec.name)[column] += own.unfit
        for name, count in aggregate.undeclared.items():
            self._counts(self.unfit, name)[column] += count

    def include(self, other: "Table") -> None:
        """Adds another table of the same columns."""
        for name in _PLAIN:
            getattr(self, name)[:] += getattr(other, name)
        for name in _KEYED:
            mine, theirs = getattr(self, name), getattr(other, name)
            for key, counts in theirs.items():
                mine[key] = mine[key] + counts if key in mine else counts.copy()
        self.unk_words += other.unk_words

    def _counts(self, held: dict[Any, Counts], key: object, *buckets: int) -> Counts:
        """The counts under a key, ``[columns, *buckets]``; none yet if it is new."""
        if key not in held:
            held[key] = np.zeros((self.columns, *buckets), dtype=np.int64)
        return held[key]


_PLAIN = ("requests", "errors", "texts", "truncated", "right", "with_feedback", "pairs", "equal")
_KEYED = ("histograms", "sums", "latency", "latency_sums", "labels", "scores", "statuses",
          "own", "unfit")  # fmt: skip
_BUCKETS = {statistic.value: len(edges.upper) + 1 for statistic, edges in EDGES.items()}


def _spread(grid: Counts, column: int, buckets: Sparse) -> None:
    if buckets:
        grid[column, list(buckets)] += np.fromiter(buckets.values(), np.int64, len(buckets))


def tables(found: Iterable[board.Series], over: Span) -> dict[Slot, Table]:
    """The counts of each version and arm that were seen, windows outside the span left out."""
    slots: dict[Slot, Table] = {}
    for series, window, column in _place_windows(found, over):
        slot = (series.version, series.arm)
        if slot not in slots:
            slots[slot] = Table(over.count)
        slots[slot].add(window.aggregate(), column)
    return slots


class _StatusCounts(msgspec.Struct):
    """The one field of an aggregate that the list needs: decoding no other is many times faster."""

    statuses: dict[int, int] = {}


_brief_decoder = msgspec.msgpack.Decoder(_StatusCounts)


def attempts(found: Iterable[board.Series], over: Span) -> tuple[Counts, Counts]:
    """``[columns]`` attempts, and those of status 500 and above, of all series given."""
    every, failed = np.zeros((2, over.count), dtype=np.int64)
    for _, window, column in _place_windows(found, over):
        for status, count in _brief_decoder.decode(window.packed).statuses.items():
            every[column] += count
            failed[column] += count if status >= 500 else 0
    return every, failed


def _place_windows(
    found: Iterable[board.Series], over: Span
) -> Iterator[tuple[board.Series, board.Window, int]]:
    """The windows within the span, each with its series and its column."""
    for series in found:
        for window in _windows(series, over):
            column = over.column(window.start)
            if column is not None:
                yield series, window, column


def _windows(series: board.Series, over: Span) -> Iterable[board.Window]:
    """Sums of minutes if columns are no finer, with the windows behind the last of them."""
    if over.seconds % board.MINUTE_SECONDS:
        return series.windows
    after = max((minute.start + minute.seconds for minute in series.minutes), default=0)
    return (*series.minutes, *(window for window in series.windows if window.start >= after))


def add_tables(parts: Iterable[Table], columns: int) -> Table:
    """The sum of tables, none included."""
    total = Table(columns)
    for part in parts:
        total.include(part)
    return total


def mean_milliseconds(table: Table, stage: LatencyStage) -> float | None:
    """The mean latency of a stage over all columns."""
    grid = table.latency.get(stage)
    count = 0 if grid is None else int(grid.sum())
    return round_value(sum_columns(table.latency_sums, stage) / 1000 / count) if count else None
