"""What a study found, and what was asked of it: one line of a table in ``docs/rollout.md``.

Studies make ``Finding`` objects; ``tables`` writes them, ``__main__`` stores them. Pure.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from measures.correlation import Floats

Study = Callable[[int], list["Finding"]]  # from how many simulated rollouts


@dataclass(frozen=True)
class Finding:
    """One figure of one setting.

    Attributes:
        what: the row.
        where: the column; empty in a table with one.
        figure: what was found, in ``unit``.
        target: at most so much is asked, None: no figure is.
        median: the middle one, where ``figure`` is a 90th percentile.
        low: lower end of the figure's 95 % interval, where it is a share.
        high: upper end.
        unit: ``requests``, ``windows`` or ``share``.
        of: how many simulated.
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
