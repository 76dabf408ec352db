"""What the studies found: rows of ``bench/results/drift.json``.

Made by the studies, shown by ``tables``. Pure.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import chdtri

from measures.correlation import Floats


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        what: the row.
        where: the column: texts a window, or the method.
        unit: ``of the stated rate``, ``of windows`` or ``windows``.
        figure: what was found; a 90th percentile of windows. Infinite: not within those watched.
        of: windows, or streams, that it was found over.
        low: lower end of its 95 % interval, for a rate.
        high: upper end.
        median: for a 90th percentile.
        target: at most so much is asked.
    """

    what: str
    where: str
    unit: str
    figure: float
    of: int
    low: float | None = None
    high: float | None = None
    median: float | None = None
    target: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None without one."""
        return None if self.target is None else self.figure <= self.target

    def plain(self) -> dict[str, object]:
        """For JSON, which knows no infinity: what was never found is null."""
        kept = {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in asdict(self).items()
        }
        return {**kept, "reached": self.reached}


def rate(what: str, texts: int, alarms: int, windows: int, stated: float | None) -> Row:
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
    asked = stated is not None and texts >= 1000
    return Row(
        what,
        f"{texts:,}",
        unit,
        scale * alarms / windows,
        windows,
        low=scale * low / windows,
        high=scale * high / windows,
        target=2.0 if asked else None,
    )


def until(what: str, where: str, windows: Floats, target: float | None = None) -> Row:
    """Median and 90th percentile of windows until detection, infinite where it never came."""
    middle, most = np.quantile(windows, [0.5, 0.9], method="higher")
    return Row(
        what, where, "windows", float(most), len(windows), median=float(middle), target=target
    )
