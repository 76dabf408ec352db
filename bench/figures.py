"""Figures of several rounds, what a target asks of them, and how they are printed.

Suites make ``Figure`` objects; ``__main__`` prints and stores them. Pure.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median


class Better(StrEnum):
    """Which side of its target a figure should be on."""

    MORE = "at least"
    LESS = "at most"


@dataclass(frozen=True)
class Target:
    """A figure of the performance targets."""

    value: float
    better: Better


@dataclass(frozen=True)
class Figure:
    """One measured quantity: a value a round."""

    name: str
    unit: str
    rounds: Sequence[float]
    target: Target | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The middle round; NaN if no round gave a value."""
        known = [value for value in self.rounds if not math.isnan(value)]
        return median(known) if known else math.nan

    @property
    def ratio(self) -> float | None:
        """Median to target, turned so that 1 or more means reached."""
        if self.target is None:
            return None
        if self.target.better is Better.MORE:
            return self.median / self.target.value
        return self.target.value / self.median if self.median > 0 else math.inf

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.name,
            "unit": self.unit,
            "rounds": list(self.rounds),
            "median": self.median,
            "target": None if self.target is None else self.target.value,
            "target_side": None if self.target is None else self.target.better.value,
            "ratio_to_target": self.ratio,
            "note": self.note,
        }


@dataclass
class Report:
    """What a suite found. ``raw`` holds each round's whole results."""

    suite: str
    about: str
    figures: list[Figure] = field(default_factory=list)
    raw: list[dict[str, object]] = field(default_factory=list)

    def add(
        self,
        name: str,
        unit: str,
        rounds: Iterable[float],
        target: Target | None = None,
        note: str = "",
    ) -> None:
        """Adds a figure."""
        self.figures.append(Figure(name, unit, list(rounds), target, note))


def table(report: Report) -> str:
    """The report for people: a line a figure."""
    rows = [("", "median", "spread", "unit", "target", "ratio")]
    for figure in report.figures:
        known = [value for value in figure.rounds if not math.isnan(value)]
        spread = f"{_short(min(known))} .. {_short(max(known))}" if known else ""
        target, ratio = "", ""
        if figure.target is not None and figure.ratio is not None:
            target = f"{figure.target.better.value} {_short(figure.target.value)}"
            ratio = f"{figure.ratio:.2f}"
        rows.append((figure.name, _short(figure.median), spread, figure.unit, target, ratio))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = [f"{report.suite}: {report.about}"]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join(cells).rstrip())
    lines += [f"  {figure.name}: {figure.note}" for figure in report.figures if figure.note]
    return "\n".join(lines)


def _short(value: float) -> str:
    if math.isnan(value):
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
