"""What simulated studies found, what was asked of it, and the tables that documents show of it.

Pure.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, chdtri

from measures.correlation import Floats


@dataclass(frozen=True)
class Finding:
    """One figure of one setting.

    Attributes:
        what: the row.
        where: the column; empty in a table with one.
        figure: what was found, in ``unit``. Infinite: it was never reached.
        target: at most so much is asked, None: no figure is.
        of: how many were simulated.
        unit: ``requests``, ``windows`` or ``minutes`` that were needed, ``share``, ``alarms``, and
            of alarms also ``of windows`` and ``of the stated rate``.
        median: the middle one, where ``figure`` is a 90th percentile.
        low: lower end of the figure's 95 % interval, where it is a share or a rate.
        high: upper end.
    """

    what: str
    where: str
    figure: float
    target: float | None
    of: int
    unit: str
    median: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None without one."""
        return None if self.target is None else self.figure <= self.target

    def plain(self) -> dict[str, object]:
        """For JSON, which knows no infinity: what was never reached is null."""
        kept = {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in asdict(self).items()
        }
        return {**kept, "reached": self.reached}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Self:
        """What ``plain`` told."""
        parts = {name: value for name, value in plain.items() if name != "reached"}
        if parts["figure"] is None:
            parts["figure"] = math.inf
        if parts["median"] is None and parts["low"] is None:  # of no share
            parts["median"] = math.inf
        return cls(**parts)


def needed(
    what: str, where: str, amounts: Floats, target: float | None = None, unit: str = "requests"
) -> Finding:
    """Median and 90th percentile of what was needed, infinite where nothing sufficed."""
    middle, most = np.quantile(amounts, [0.5, 0.9], method="higher")
    return Finding(what, where, float(most), target, len(amounts), unit, float(middle))


def share(
    what: str, where: str, happened: NDArray[np.bool_], target: float | None = None
) -> Finding:
    """How often something happened, with Clopper and Pearson's interval."""
    count, of = int(happened.sum()), len(happened)
    low, high = interval(count, of)
    return Finding(what, where, count / of, target, of, "share", low=low, high=high)


def interval(count: int, of: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson, 1934)."""
    low = float(betaincinv(count, of - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 0.975)) if count < of else 1.0
    return low, high


def rate(what: str, texts: int, alarms: int, windows: int, stated: float | None) -> Finding:
    """How often quiet traffic alarmed, with the exact interval of a Poisson count.

    Args:
        what: the row.
        texts: a window.
        alarms: counted.
        windows: that could have alarmed.
        stated: windows to a false alarm, as it is set; the figure is then a multiple of that rate,
            which windows of 1,000 texts and more are asked to keep within 2. None: a share.
    """
    low = float(chdtri(2 * alarms, 0.975)) / 2 if alarms else 0.0
    high = float(chdtri(2 * alarms + 2, 0.025)) / 2
    unit, scale = ("of windows", 1.0) if stated is None else ("of the stated rate", stated)
    target = 2.0 if stated is not None and texts >= 1000 else None
    found = [scale * count / windows for count in (alarms, low, high)]
    return Finding(what, f"{texts:,}", found[0], target, windows, unit, low=found[1], high=found[2])


def table(findings: Sequence[Finding], *, turned: bool = False) -> str:
    """A row for each ``what``, a column for each ``where``; the other way round if ``turned``."""
    cells = {
        (found.where, found.what) if turned else (found.what, found.where): _cell(found)
        for found in findings
    }
    rows = dict.fromkeys(row for row, _ in cells)
    columns = list(dict.fromkeys(column for _, column in cells))
    lines = [
        "| | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        *(
            f"| {row} | " + " | ".join(cells.get((row, column), "") for column in columns) + " |"
            for row in rows
        ),
    ]
    return "\n".join(lines)


def _cell(found: Finding) -> str:
    missed = "" if found.reached in {True, None} else ": **not reached**"
    match found.unit:
        case "share":
            asked = "" if found.target is None else f"; at most {_percent(found.target)}"
            return _with_interval(found, _percent) + asked + missed
        case "requests":
            asked = "" if found.target is None else f"; at most {_count(found.target)}"
            return f"{_count(found.median)} / {_count(found.figure)}{asked}{missed}"
        case "windows" | "minutes":
            return f"{_count(found.median)} / {_count(found.figure)}{missed}"
        case "of windows":
            return f"{_number(100 * found.figure)} %{missed}"
        case _:
            return _with_interval(found, _number) + missed


def _with_interval(found: Finding, shown: Callable[[float], str]) -> str:
    if found.low is None or found.high is None:
        return shown(found.figure)
    return f"{shown(found.figure)} ({shown(found.low)} to {shown(found.high)})"


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.0995 else f"{100 * value:.0f} %"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _count(value: float | None) -> str:
    return "never" if value is None or value == float("inf") else f"{value:,.0f}"
