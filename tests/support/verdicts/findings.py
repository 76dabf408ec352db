"""What simulated studies found, what was asked of it, and tables of it.

Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

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
        unit: ``requests`` or ``windows`` that were needed, ``share``, or what is counted.
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


def table(findings: Sequence[Finding]) -> str:
    """A row for each ``what``, a column for each ``where``."""
    cells = {(found.what, found.where): _cell(found) for found in findings}
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
    if found.unit != "share":
        asked = "" if found.target is None else f"; at most {_count(found.target)}"
        middle = "" if found.unit not in {"requests", "windows"} else f"{_count(found.median)} / "
        return f"{middle}{_count(found.figure)}{asked}{missed}"
    asked = "" if found.target is None else f"; at most {_percent(found.target)}"
    shown = _percent(found.figure)
    if found.low is not None and found.high is not None:
        shown += f" ({_percent(found.low)} to {_percent(found.high)})"
    return shown + asked + missed


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.0995 else f"{100 * value:.0f} %"


def _count(value: float | None) -> str:
    return "never" if value is None or value == float("inf") else f"{value:,.0f}"
