"""Drift against what is usual at this time: shares by quarter-hour of the day and by kind of day.

``Week`` tells which quarter-hours a window lies in, ``Rhythm`` holds what was counted in each, and
``WeekMonitors`` compares windows with it as ``measures.monitoring`` does with one fixed reference.
What a window is expected to hold is interpolated between neighbouring quarter-hours, for a rhythm
does not move in steps. Leading axes are independent streams, which share one clock. Pure.

The chi-square counts each quarter-hour of the reference as if it held the texts of one mean day,
however many days were learnt: days differ from one another by more than chance, and with a growing
reference such differences would weigh more from day to day. So a null that was calibrated while
few days were known stays valid, and is only ever too wide, as more days come.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtri

from measures.correlation import Floats
from measures.histograms import chi_square, stability_index
from measures.monitoring import WEIGHTS, Bins, ChiSquareCalibration, lift

SLOT_SECONDS = 900
SLOTS_A_DAY = 96
WEEKEND = (5, 6)  # Saturday and Sunday, as datetime.weekday counts
MOST_DAYS = 14  # of one kind that a quarter-hour remembers; older ones fade
LEAST_COVERED = 0.95  # of a window's texts must lie in quarter-hours of which something is known
_LAMBDAS = np.array(WEIGHTS)
SHORT = _LAMBDAS >= 0.2  # ``[weights]``: those that tell what begins
# Independent values of a long memory's chi-square in a day, by which its threshold is widened: with
# 1 nothing small was found within a fortnight, with no bound days that differ raised alarms.
_VALUES_A_DAY = 3.0
_TODAY = 0.02  # weight of a window in how today differs

Mix = Mapping[int, float]  # slot -> weight


@dataclass(frozen=True)
class Week:
    """Which quarter-hour of which kind of day a time lies in.

    Attributes:
        zone: of the clock that people who send texts live by.
        apart: days of the week that have a rhythm of their own, each by itself; Monday is 0. All
            other days share one.
    """

    zone: tzinfo = UTC
    apart: tuple[int, ...] = WEEKEND

    @property
    def kinds(self) -> int:
        """Of days."""
        return 1 + len(self.apart)

    @property
    def slots(self) -> int:
        """How many there are."""
        return SLOTS_A_DAY * self.kinds

    def slot(self, at: float) -> int:
        """Of a time in unix seconds."""
        local = datetime.fromtimestamp(at, self.zone)
        day = local.weekday()
        kind = 1 + self.apart.index(day) if day in self.apart else 0
        return kind * SLOTS_A_DAY + (local.hour * 60 + local.minute) // (SLOT_SECONDS // 60)

    def mix(self, at: float) -> dict[int, float]:
        """The two quarter-hours whose middles lie around a time, by nearness; they sum to 1."""
        before = at - SLOT_SECONDS / 2
        part = (before % SLOT_SECONDS) / SLOT_SECONDS
        found = {self.slot(before): 1 - part}
        after = self.slot(before + SLOT_SECONDS)
        found[after] = found.get(after, 0.0) + part
        return found


def kind_of(mix: Mix) -> int:
    """The kind of day that most of a window lies in."""
    return max(mix, key=mix.__getitem__) // SLOTS_A_DAY


def find_thresholds(
    calibration: ChiSquareCalibration, alpha: ArrayLike, degrees: int, day_seconds: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Thresholds of ``WeekMonitors``, and of which weights they are calibrated.

    A weight with a long memory sees how days differ, of which a day tells little however many
    windows it has: it is worth ``_VALUES_A_DAY``. Both results are ``[..., weights]``.

    Args:
        calibration: of one kind of day.
        alpha: ``[...]``, chance of a false alarm.
        degrees: of freedom.
        day_seconds: of traffic that must have been compared.
    """
    fitted = calibration.threshold(alpha, degrees)
    days = calibration.threshold(alpha, degrees, _VALUES_A_DAY * calibration.seconds / 86_400)
    analytic = np.asarray(chdtri(degrees, np.asarray(alpha, np.float64)[..., None]), np.float64)
    ready = calibration.ready(day_seconds)
    found: Floats = np.where(ready, np.where(SHORT, fitted, days), analytic)
    return found, ready


class Rhythm:
    """What was counted in each quarter-hour, of one statistic.

    Attributes:
        totals: ``[..., slots, buckets]`` counts; a day's fade once ``MOST_DAYS`` came after it.
        days: ``[slots]``, how many days are in it.
    """

    def __init__(self, slots: int, buckets: int, shape: tuple[int, ...] = ()) -> None:
        """Nothing learnt yet."""
        self.totals: Floats = np.zeros((*shape, slots, buckets))
        self.days: Floats = np.zeros(slots)

    def learn(self, slot: int, counts: ArrayLike) -> None:
        """Adds ``[..., buckets]`` counts of one day's quarter-hour; an empty one is no day."""
        found = np.asarray(counts, dtype=np.float64)
        if not found.any():
            return
        if self.days[slot] >= MOST_DAYS:
            self.totals[..., slot, :] *= 1 - 1 / MOST_DAYS
        else:
            self.days[slot] += 1
        self.totals[..., slot, :] += found

    def covers(self, mix: Mix) -> bool:
        """Whether enough of a window lies in quarter-hours of which something is known."""
        whole = sum(mix.values())
        known = sum(weight for slot, weight in mix.items() if self.days[slot] > 0)
        return whole > 0 and known >= LEAST_COVERED * whole

    def expect(self, mix: Mix, bins: Bins) -> tuple[Floats, Floats]:
        """Shares ``[..., bins]`` of a window that is covered; and ``[slots]``, their weights."""
        part = np.zeros(len(self.days))
        for slot, weight in mix.items():
            if self.days[slot] > 0:
                part[slot] += weight
        part /= part.sum()
        at = np.flatnonzero(part)
        counts = bins.collapse(self.totals[..., at, :])
        shares = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300)
        found: Floats = (part[at][:, None] * shares).sum(axis=-2)
        return found, part

    def shares(self, mix: Mix) -> Floats:
        """The same ``[..., buckets]``, bucket by bucket."""
        at = [slot for slot in mix if self.days[slot] > 0]
        part = np.array([mix[slot] for slot in at])
        counts = self.totals[..., at, :]
        shares = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300)
        found: Floats = ((part / part.sum())[:, None] * shares).sum(axis=-2)
        return found

    def texts_a_day(self) -> Floats:
        """``[..., slots]``: mean of the days that are in it."""
        found: Floats = self.totals.sum(axis=-1) / np.maximum(self.days, 1)
        return found


@dataclass(frozen=True)
class WeekMonitors:
    """Weighted histograms of some streams, and of what was expected in the same windows.

    Days differ from one another, and slowly. So weights with a short memory expect what is usual
    and how today differed from it so far (about the last fifty windows): they tell what begins.
    Weights with a long memory expect only what is usual: they tell what stays.

    Attributes:
        bins: what is compared; its own shares are not used.
        h: ``[..., weights, bins]`` seen.
        e: ``[..., weights, bins]`` expected.
        u: ``[weights, slots]``, how much of ``e`` each quarter-hour made.
        w: ``[..., weights]``, as in ``Monitors``.
        v: ``[..., weights]``, as in ``Monitors``.
        today: ``[..., bins]``, weighted shares seen less those that are usual.
        today_w: ``[...]``, sum of its weights.
        today_v: ``[...]``, sum of their squares over the windows' texts.
        today_noise: ``[...]``, variance of what was expected of today in the last window.
    """

    bins: Bins
    h: Floats
    e: Floats
    u: Floats
    w: Floats
    v: Floats
    today: Floats
    today_w: Floats
    today_v: Floats
    today_noise: Floats

    @classmethod
    def begin(cls, bins: Bins, slots: int, shape: tuple[int, ...] = ()) -> Self:
        """Nothing seen yet, of streams of this shape."""
        wide = (*shape, len(WEIGHTS))
        empty = np.zeros((*wide, bins.count))
        zero = np.zeros(wide)
        return cls(
            bins,
            h=empty,
            e=empty,
            u=np.zeros((len(WEIGHTS), slots)),
            w=zero,
            v=zero,
            today=empty[..., 0, :],
            today_w=zero[..., 0],
            today_v=zero[..., 0],
            today_noise=zero[..., 0],
        )

    def after(self, window: ArrayLike, expected: Floats, part: Floats) -> Self:
        """With one more window, which holds a text in each stream.

        Args:
            window: ``[..., buckets]`` counts.
            expected: ``[..., bins]`` shares, and
            part: ``[slots]``, as ``Rhythm.expect`` gives them.
        """
        counts = self.bins.collapse(window)
        texts = np.maximum(counts.sum(axis=-1), 1e-300)[..., None]
        seen = counts / texts
        wide = np.where(SHORT[:, None], self._of_today(expected)[..., None, :],
                        expected[..., None, :])  # fmt: skip
        keep, new = 1 - _LAMBDAS, _LAMBDAS
        kept = 1 - _TODAY
        return type(self)(
            self.bins,
            h=keep[:, None] * self.h + new[:, None] * seen[..., None, :],
            e=keep[:, None] * self.e + new[:, None] * wide,
            u=keep[:, None] * self.u + new[:, None] * part,
            w=keep * self.w + new,
            v=keep**2 * self.v + new**2 / texts,
            today=kept * self.today + _TODAY * (seen - expected),
            today_w=kept * self.today_w + _TODAY,
            today_v=kept**2 * self.today_v + _TODAY**2 / texts[..., 0],
            today_noise=self.today_v / np.maximum(np.square(self.today_w), 1e-300),
        )

    def of_day(self, other: Self | None) -> Self:
        """With what another one saw of how today differs, if it has the same bins."""
        if other is None or other.today.shape != self.today.shape:
            return self
        return replace(self, today=other.today, today_w=other.today_w, today_v=other.today_v)

    def _of_today(self, expected: Floats) -> Floats:
        """What is usual, and how today differed from it before this window."""
        apart = self.today / np.maximum(self.today_w, 1e-300)[..., None]
        found = np.maximum(expected + apart, 0.1 * expected)
        shares: Floats = found / found.sum(axis=-1, keepdims=True)
        return shares

    def shares(self) -> Floats:
        """``[..., weights, bins]`` seen, 0 before the first window."""
        return self.h / np.maximum(self.w, 1e-300)[..., None]

    def expect(self) -> Floats:
        """``[..., weights, bins]`` expected in the same windows."""
        return self.e / np.maximum(self.w, 1e-300)[..., None]

    def chi_square(self, texts_a_day: Floats) -> Floats:
        """``[..., weights]``: Pearson's statistic; ``[..., slots]`` texts as ``Rhythm`` tells."""
        q, r, m, n = self._compare(texts_a_day)
        return chi_square(q, r, m, n)

    def psi(self, texts_a_day: Floats) -> Floats:
        """``[..., weights]``: PSI beyond what equal samples would show, at least 0."""
        q, r, m, n = self._compare(texts_a_day)
        index = stability_index(q * m[..., None], r * n[..., None])
        return np.maximum(0.0, index - self.bins.degrees * (1 / m + 1 / n))

    def _compare(self, texts_a_day: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        q, r = self.shares(), self.expect()
        if self.bins.floor:
            q, r = lift(q, self.bins.floor), lift(r, self.bins.floor)
        m = np.maximum(np.square(self.w) / np.maximum(self.v, 1e-300), 1e-9)
        # The noise of a quarter-hour is in all windows that were compared with it.
        known = np.maximum(texts_a_day, 1e-9)[..., None, :]
        noise = (self.u**2 / known).sum(axis=-1) / np.maximum(np.square(self.w), 1e-300)
        noise = noise + SHORT * self.today_noise[..., None]
        return q, r, m, 1 / np.maximum(noise, 1e-300)


def group_bins(group: NDArray[np.intp], totals: Floats, floor: float) -> Bins:
    """Bins that were chosen before, with the shares of all of a rhythm, ``[slots, buckets]``."""
    bins = Bins(group, np.zeros(0), np.zeros(()), floor)
    counts = bins.collapse(totals.sum(axis=-2))
    texts = counts.sum(axis=-1)
    return Bins(group, counts / np.maximum(texts[..., None], 1e-300), texts, floor)
