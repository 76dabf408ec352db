"""How long an accelerator computes, by a table of measured times; it computes nothing.

A table is JSON (``tests/support/h200.json`` is one): engines by name, each ``packed``, with seconds
by the tokens of a run, or ``padded``, with seconds by rows and row length and a price for a shape
that comes for the first time. Between measured points times are interpolated, and beyond the last
one they grow in proportion.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Points = Sequence[tuple[float, float]]


class PackedTimes:
    """Of an engine whose rows are packed.

    Args:
        points: tokens and milliseconds, ascending.
        buckets: tokens that smaller runs are filled up to; larger runs are run as they are.
        most_tokens: of a run; a single message may have more.
    """

    def __init__(self, points: Points, buckets: Sequence[int], most_tokens: int) -> None:
        self._points = [(tokens, milliseconds / 1000) for tokens, milliseconds in points]
        self._buckets = list(buckets)
        self.most_tokens = most_tokens

    def seconds(self, tokens: int) -> float:
        """Of a run of this number of tokens."""
        return _between(self._points, self.fill_up(tokens))

    def fill_up(self, tokens: int) -> int:
        """The tokens of a run of this number, those that fill it up included."""
        at = bisect_left(self._buckets, tokens)
        return self._buckets[at] if at < len(self._buckets) else tokens


class PaddedTimes:
    """Of an engine whose rows are padded; it remembers the shapes that it has run.

    Args:
        shapes: rows, row length and milliseconds.
        first_shape_seconds: what the first run of a shape costs besides.
    """

    def __init__(
        self, shapes: Sequence[tuple[int, int, float]], first_shape_seconds: float
    ) -> None:
        self._by_length = [
            (length, sorted((rows, ms / 1000) for rows, other, ms in shapes if other == length))
            for length in sorted({length for _, length, _ in shapes})
        ]
        self._first = first_shape_seconds
        self._seen: set[tuple[int, int]] = set()

    def seconds(self, rows: int, length: int) -> float:
        """Of a run of such a shape."""
        first = 0.0 if (rows, length) in self._seen else self._first
        self._seen.add((rows, length))
        return first + _between(
            [(known, _between(points, rows)) for known, points in self._by_length], length
        )


def read(table: str | Path, engine: str) -> "PackedTimes | PaddedTimes":
    """One engine of a table.

    Args:
        table: its file.
        engine: by its name there.
    """
    spec: Mapping[str, Any] = json.loads(Path(table).read_text(encoding="utf-8"))["engines"][engine]
    if spec["kind"] == "packed":
        return PackedTimes(spec["points"], spec["buckets"], spec["most_tokens"])
    return PaddedTimes(spec["shapes"], spec["first_shape_ms"] / 1000)


def _between(points: Points, at: float) -> float:
    """The value at a place: that of the first point before it, in proportion behind the last."""
    index = bisect_left([place for place, _ in points], at)
    if index == 0:
        return points[0][1]
    if index == len(points):
        last, value = points[-1]
        return value * at / last
    (low, before), (high, after) = points[index - 1], points[index]
    return before + (after - before) * (at - low) / (high - low)
