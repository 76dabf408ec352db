"""Plots of both arms over time as inline SVG, for ``report.py``. Pure: numbers in, text out.

Every plot has the same width and time axis, so that they can be read one above the other. A window
without requests of an arm leaves a gap in its line: no data is never a zero.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

WIDTH, HEIGHT = 860, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 26, 26
_TICKS_Y = 4
_TICKS_X = 6
_DOTS_UP_TO = 60  # points of a line that are drawn as dots too
_HUGE = 1e9
_KEY_WIDTH, _KEY_LINE = 158, 18  # of an arm in the legend, and of its piece of line
_NOTE_LETTER, _NOTE_HEIGHT, _NOTE_ROWS = 6.2, 12, 4  # of the words at moments, at their widest
_SPANS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One arm's values at times (unix seconds); None if there is no value."""

    name: str
    css: str
    points: Sequence[tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class PlotMark:
    """A moment worth a vertical line."""

    at: float
    name: str


@dataclass(frozen=True, slots=True)
class _Frame:
    """From values to pixels."""

    start: float
    end: float
    top: float

    def x(self, at: float) -> float:
        share = (at - self.start) / (self.end - self.start)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - value / self.top * (HEIGHT - _TOP - _BOTTOM)


def plot(title: str, unit: str, lines: Sequence[PlotLine], marks: Iterable[PlotMark] = ()) -> str:
    """One plot with its title, axes, legend and marks.

    Args:
        title: what is shown.
        unit: behind the numbers of the vertical axis, e.g. ``%``.
        lines: the arms; their times together make the horizontal axis.
        marks: moments; those outside the axis are left out.
    """
    times = [at for line in lines for at, _ in line.points]
    values = [value for line in lines for _, value in line.points if value is not None]
    if not values:
        return f'<p class="empty">{escape(title)}: no requests yet.</p>'
    start, end = min(times), max(times)
    end = end if end > start else start + 1.0
    frame = _Frame(start, end, ceiling(max(values)))
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text class="title" x="{_LEFT}" y="14">{escape(title)}</text>',
        *_legend(lines),
        *_vertical(frame, unit),
        *_horizontal(frame),
        *(piece for line in lines for piece in _draw(frame, line, unit)),
        *_marks(frame, marks),
        "</svg>",
    ]
    return "\n".join(parts)


def ceiling(value: float) -> float:
    """The next round number from which four round parts can be made.

    >>> ceiling(0.13), ceiling(7.0), ceiling(0.0)
    (0.2, 8.0, 1.0)
    """
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    step = next(step for step in (1, 2, 4, 8, 10) if value <= step * scale * (1 + 1e-9))
    return float(f"{step * scale:.6g}")


def moments(start: float, end: float) -> list[float]:
    """Round times within a span, few enough to be read."""
    span = end - start
    wanted = span / _TICKS_X
    step = next((size for size in _SPANS if size >= wanted), None)
    if step is None:
        step = math.ceil(wanted / _SPANS[-1]) * _SPANS[-1]
    first = math.ceil(start / step) * step
    return [first + index * step for index in range(math.floor((end - first) / step) + 1)]


def clock(at: float, span: float) -> str:
    """A time of day (UTC), with the date if the span is longer than a day."""
    moment = datetime.fromtimestamp(at, UTC)
    if span > 86400:
        return moment.strftime("%d %b %H:%M")
    return moment.strftime("%H:%M:%S" if span < 1800 else "%H:%M")


def number(value: float) -> str:
    """A figure as people read it: four digits, large ones in groups of three, huge as powers."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= _HUGE:
        return f"{value:.3g}"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _legend(lines: Sequence[PlotLine]) -> Iterable[str]:
    """One key an arm, its line right before its name whatever the name's letters are."""
    first = WIDTH - _RIGHT - _KEY_WIDTH * len(lines)
    for index, line in enumerate(lines):
        x = first + _KEY_WIDTH * index
        yield f'<path class="line {escape(line.css)}" d="M{x} 10h{_KEY_LINE}"/>'
        yield f'<text class="legend" x="{x + _KEY_LINE + 6}" y="14">{escape(line.name)}</text>'


def _vertical(frame: _Frame, unit: str) -> Iterable[str]:
    for index in range(_TICKS_Y + 1):
        value = frame.top * index / _TICKS_Y
        y = round(frame.y(value), 1)
        yield f'<path class="grid" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>'
        label = f"{number(value)}{unit}"
        yield f'<text class="tick" x="{_LEFT - 6}" y="{y + 3.5}" text-anchor="end">{label}</text>'


def _horizontal(frame: _Frame) -> Iterable[str]:
    span = frame.end - frame.start
    for at in moments(frame.start, frame.end):
        x = round(frame.x(at), 1)
        yield f'<path class="grid" d="M{x} {HEIGHT - _BOTTOM}v4"/>'
        yield (
            f'<text class="tick" x="{x}" y="{HEIGHT - 8}" text-anchor="middle">'
            f"{clock(at, span)}</text>"
        )


def _marks(frame: _Frame, marks: Iterable[PlotMark]) -> Iterable[str]:
    """A line a moment, with its name; names that would overlap go below one another."""
    taken = [0.0] * _NOTE_ROWS  # how far each row of names is written
    for mark in sorted(marks, key=lambda mark: mark.at):
        if not frame.start <= mark.at <= frame.end:
            continue
        x = round(frame.x(mark.at), 1)
        yield f'<path class="mark" d="M{x} {_TOP}V{HEIGHT - _BOTTOM}"/>'
        width = _NOTE_LETTER * len(mark.name)
        left = min(x + 3, WIDTH - _RIGHT - width)
        row = next((row for row, end in enumerate(taken) if end <= left), None)
        if row is None:
            continue  # the line stays, and the table below the plots names it
        taken[row] = left + width
        y = _TOP + 9 + _NOTE_HEIGHT * row
        yield f'<text class="note" x="{left:.1f}" y="{y}">{escape(mark.name)}</text>'


def _draw(frame: _Frame, line: PlotLine, unit: str) -> Iterable[str]:
    css = escape(line.css)
    path, is_down = [], False
    known = [(at, value) for at, value in line.points if value is not None]
    for at, value in line.points:
        if value is None:
            is_down = False
            continue
        path.append(f"{'L' if is_down else 'M'}{frame.x(at):.1f} {frame.y(value):.1f}")
        is_down = True
    yield f'<path class="line {css}" d="{"".join(path)}"/>'
    if len(known) > _DOTS_UP_TO:
        return
    for at, value in known:
        told = f"{escape(line.name)}: {number(value)}{unit} at {clock(at, 0)}"
        yield (
            f'<circle class="{css}" cx="{frame.x(at):.1f}" cy="{frame.y(value):.1f}" r="2.5">'
            f"<title>{told}</title></circle>"
        )
