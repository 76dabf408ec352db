"""Production's monitors over many simulated streams at once.

Everything that decides is ``measures.monitoring``; this only takes a stream's bins apart by
statistic and keeps what the monitors said after each window.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from drifting.population import STATISTICS, widths
from measures.correlation import Floats
from measures.monitoring import WARNS, WEIGHTS, Bins, Calibration, Monitors, levels, spend


@dataclass(frozen=True)
class Seen:
    """What the monitors said; leading axes are streams and windows.

    Attributes:
        chi_square: float32 ``[streams, windows, statistics, weights]``.
        psi: float32 of the same shape, beyond what equal samples would show.
    """

    chi_square: NDArray[np.float32]
    psi: NDArray[np.float32]


@dataclass
class Endpoint:
    """All statistics of one endpoint, in as many independent streams as there are references.

    Attributes:
        monitors: one a statistic, over all streams.
        calibrations: one a statistic; empty until ``calibrated`` was called.
    """

    monitors: list[Monitors]
    calibrations: list[Calibration] = field(default_factory=list)

    @classmethod
    def begin(cls, references: Floats, window_texts: float) -> Self:
        """Nothing seen yet.

        Args:
            references: ``[streams, all bins]`` counts. Which buckets merge is decided by the first
                of them for all streams, so that they can be walked side by side.
            window_texts: of a window, as production is told.
        """
        monitors = []
        for counts in apart(references):
            chosen = Bins.of(counts[0], window_texts)
            texts = counts.sum(axis=-1)
            bins = Bins(chosen.group, chosen.collapse(counts) / texts[:, None], texts, chosen.floor)
            monitors.append(Monitors.begin(bins, (len(references),)))
        return cls(monitors)

    def copy(self) -> "Endpoint":
        """The same state; monitors are values, so what one walks the other does not."""
        return Endpoint(list(self.monitors), list(self.calibrations))

    def walk(self, counts: Floats, *, sized: bool = True) -> Seen:
        """Shows ``[streams, windows, all bins]`` of counts to the monitors, window by window.

        Where it is not ``sized``, PSI stays 0: it costs as much as all the rest.
        """
        streams, windows, _ = counts.shape
        shape = (streams, windows, len(STATISTICS), len(WEIGHTS))
        seen = Seen(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        for at, part in enumerate(apart(counts)):
            monitors = self.monitors[at]
            for window in range(windows):
                monitors = monitors.after(part[:, window])
                seen.chi_square[:, window, at] = monitors.chi_square()
                if sized:
                    seen.psi[:, window, at] = monitors.psi()
            self.monitors[at] = monitors
        return seen

    def calibrated(self, stable: Seen) -> None:
        """Learns from what the monitors said of stable traffic."""
        self.calibrations = []
        streams, windows = stable.chi_square.shape[:2]
        many = np.full(streams, float(windows))
        for at in range(len(STATISTICS)):
            # What Calibration.after comes to, window by window.
            found = stable.chi_square[:, :, at].astype(np.float64)
            self.calibrations.append(
                Calibration(many, 60.0 * many, found.sum(axis=1), (found**2).sum(axis=1))
            )

    def thresholds(self, windows_per_alarm: float) -> Floats:
        """``[streams, statistics, weights]``, for one false alarm in so many windows."""
        return self._limits(windows_per_alarm, self.calibrations)

    def uncalibrated(self, windows_per_alarm: float) -> Floats:
        """The same by chi-square's own quantiles, as if no window depended on another."""
        nothing = Calibration.begin(self.monitors[0].w.shape[:-1])
        return self._limits(windows_per_alarm, [nothing] * len(self.monitors))

    def _limits(self, windows_per_alarm: float, calibrations: list[Calibration]) -> Floats:
        degrees = [monitors.bins.degrees for monitors in self.monitors]
        alpha = spend(1.0, windows_per_alarm, sum(each > 0 for each in degrees))
        found = [
            calibration.threshold(np.broadcast_to(alpha, calibration.windows.shape), each)
            if each
            else np.full_like(calibration.total, np.inf)
            for each, calibration in zip(degrees, calibrations, strict=True)
        ]
        return np.stack(found, axis=1)


def significant(seen: Seen, thresholds: Floats) -> NDArray[np.bool_]:
    """``[streams, windows]``: whether any statistic is beyond its threshold at any weight."""
    beyond: NDArray[np.bool_] = seen.chi_square > thresholds[:, None]
    found: NDArray[np.bool_] = beyond.any(axis=(-2, -1))  # type: ignore[assignment]
    return found


def level(seen: Seen, thresholds: Floats, warns: float = WARNS) -> NDArray[np.int64]:
    """``[streams, windows]``: the endpoint's level, 0, 1 (warns) or 2 (alarms)."""
    ratio = seen.chi_square.astype(np.float64) / thresholds[:, None]
    found: NDArray[np.int64] = levels(ratio, seen.psi.astype(np.float64), warns).max(axis=-1)
    return found


def apart(counts: Floats) -> list[Floats]:
    """``[..., all bins]`` by statistic, in the order of ``STATISTICS``."""
    return np.split(counts, np.cumsum(widths())[:-1], axis=-1)


def beginnings(alarms: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``[streams, windows]``: where an alarm begins; one that goes on is still the same."""
    before = np.concatenate([np.zeros((len(alarms), 1), bool), alarms[:, :-1]], axis=1)
    found: NDArray[np.bool_] = alarms & ~before
    return found
