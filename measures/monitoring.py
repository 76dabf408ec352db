"""Drift over time: exponentially weighted histograms against a reference, by a calibrated null.

Leading axes are independent streams. One window by itself (weight 1) sees large shifts at once;
small weights see small ones, because they remember many windows.

A statistic's own traffic shows how it varies without drift (hour of day, similar texts):
``ChiSquareCalibration`` fits a gamma distribution to the chi-square values of that traffic. It can
only raise the threshold, never lower it. One false-alarm budget is spent over time, statistics and
weights. Pure; it raises no alarm itself.

Sources: shared formulas of docs/statistics.md; Lowry et al., A multivariate exponentially weighted
moving average control chart (Technometrics 34, 1992), for the weights; the gamma by moments is
Satterthwaite's approximation to a sum of dependent chi-squares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtri, gammainccinv, ndtri, stdtrit

from measures.correlation import Floats
from measures.histograms import LEAST, chi_square, stability_index, starts
from measures.state import SequentialState

WEIGHTS: Final = (1.0, 0.2, 0.05, 0.01)
WARNS, ALARMS = 0.1, 0.2  # PSI beyond what equal samples would show
# Questions that share an endpoint's budget of false alarms, each a third of it: whether texts are
# those of the reference, whether they are what is usual at this time, and whether their topics are.
QUESTIONS: Final = 3
_LAMBDAS: Final = np.array(WEIGHTS)
# Values of chi-square that are as good as independent, of this number of successive ones: its
# autocorrelation is the square of the weighted share's, (1 - lambda)^k.
_FRESH: Final = (1 - (1 - _LAMBDAS) ** 2) / (1 + (1 - _LAMBDAS) ** 2)
_FEWEST_FRESH: Final = 5.0  # below that, the calibration of a weight means nothing


@dataclass(frozen=True)
class Bins:
    """Which buckets of a histogram are compared together, chosen only by the reference.

    Attributes:
        group: ``[buckets]``, the bin of each; bins are numbered from 0.
        shares: ``[..., bins]`` of the reference.
        texts: ``[...]``, how many the reference holds.
        floor: share that the last bin may reach before it counts as drift; 0 unless the reference
            knows almost only one value, so that there is nothing else to compare.
    """

    group: NDArray[np.intp]
    shares: Floats
    texts: Floats
    floor: float = 0.0

    @classmethod
    def of(cls, reference: ArrayLike, window_texts: float) -> Self:
        """Bins that hold at least ``LEAST`` texts of a window without drift, neighbours merged.

        Args:
            reference: ``[buckets]`` counts.
            window_texts: texts of the smallest window that will be compared.

        Raises:
            ValueError: the reference is empty.
        """
        counts = np.asarray(reference, dtype=np.float64)
        texts = float(counts.sum())
        if texts <= 0:
            raise ValueError("an empty reference has no shares")
        least = LEAST / min(texts, window_texts)
        at = starts(counts / texts, least)
        if len(at) == 1 and len(counts) > 1:
            # Only one value, such as no unknown token: whatever else comes is one bin of its own.
            group = np.ones(len(counts), dtype=np.intp)
            group[int(counts.argmax())] = 0
            floor = min(least, 0.5)
        else:
            group = np.searchsorted(at, np.arange(len(counts)), side="right") - 1
            floor = 0.0
        bins = cls(group, np.zeros(0), np.array(texts), floor)
        return cls(group, bins.collapse(counts) / texts, np.array(texts), floor)

    @property
    def count(self) -> int:
        """How many bins there are."""
        return int(self.group.max()) + 1

    @property
    def degrees(self) -> int:
        """Of freedom of chi-square; 0: nothing to compare."""
        return self.count - 1

    def collapse(self, counts: ArrayLike) -> Floats:
        """``[..., buckets]`` counts by bin, ``[..., bins]``."""
        held: Floats = np.asarray(counts, dtype=np.float64) @ np.eye(self.count)[self.group]
        return held


@dataclass(frozen=True)
class Monitors:
    """Weighted histograms of some streams against a reference, one a weight.

    ``h <- (1 - l) h + l p`` with the weights' sum ``W`` alike, so that ``h / W`` are shares from
    the first window on; ``v`` is the sum of squared weights over the windows' texts, so that
    ``W^2 / v`` texts are known.

    Attributes:
        bins: what is compared.
        h: ``[..., weights, bins]``.
        w: ``[..., weights]``.
        v: ``[..., weights]``.
    """

    bins: Bins
    h: Floats
    w: Floats
    v: Floats

    @classmethod
    def begin(cls, bins: Bins, shape: tuple[int, ...] = ()) -> Self:
        """Nothing seen yet, of streams of this shape."""
        wide = (*shape, len(WEIGHTS))
        return cls(bins, np.zeros((*wide, bins.count)), np.zeros(wide), np.zeros(wide))

    def after(self, window: ArrayLike, effect: ArrayLike = 1.0) -> Self:
        """With one more window; one without texts changes nothing.

        Args:
            window: ``[..., buckets]`` counts.
            effect: ``[...]`` design effect, at least 1: this many texts of the window count as one.
        """
        counts = self.bins.collapse(window)[..., None, :]
        texts = counts.sum(axis=-1)
        held = np.maximum(texts, 1e-300)
        known = np.asarray(effect, dtype=np.float64)[..., None] / held
        seen = texts > 0
        h = (1 - _LAMBDAS)[:, None] * self.h + _LAMBDAS[:, None] * counts / held[..., None]
        w = (1 - _LAMBDAS) * self.w + _LAMBDAS
        v = (1 - _LAMBDAS) ** 2 * self.v + _LAMBDAS**2 * known
        return type(self)(
            self.bins,
            np.where(seen[..., None], h, self.h),
            np.where(seen, w, self.w),
            np.where(seen, v, self.v),
        )

    def shares(self) -> Floats:
        """``[..., weights, bins]``, 0 before the first window."""
        return self.h / np.maximum(self.w, 1e-300)[..., None]

    def texts(self) -> Floats:
        """``[..., weights]``: how many texts the shares are worth."""
        return np.where(self.v > 0, np.square(self.w) / np.maximum(self.v, 1e-300), 0.0)

    def chi_square(self) -> Floats:
        """``[..., weights]``: Pearson's statistic, about chi-square without drift."""
        q, r, m = self._compare()
        found: Floats = chi_square(q, r, np.maximum(m, 1e-9), self.bins.texts[..., None])
        return np.where(m > 0, found, 0.0)

    def psi(self) -> Floats:
        """``[..., weights]``: PSI beyond what equal samples would show, at least 0."""
        q, r, m = self._compare()
        n = np.broadcast_to(self.bins.texts[..., None], m.shape)
        held = np.maximum(m, 1e-9)
        index = stability_index(q * held[..., None], r * n[..., None])
        expected = self.bins.degrees * (1 / held + 1 / n)
        return np.where(m > 0, np.maximum(0.0, index - expected), 0.0)

    def _compare(self) -> tuple[Floats, Floats, Floats]:
        """Shares seen, shares of the reference, and the texts seen; the floor in both."""
        q, r = self.shares(), self.bins.shares[..., None, :]
        if self.bins.floor:
            q = lift(q, self.bins.floor)
            r = lift(r, self.bins.floor)
        return q, np.broadcast_to(r, q.shape), self.texts()


def lift(shares: Floats, floor: float) -> Floats:
    """``[..., 2]`` shares, the last one at least ``floor``."""
    last = np.maximum(shares[..., -1:], floor)
    return np.concatenate([1 - last, last], axis=-1)


class ChiSquareCalibration(SequentialState, frozen=True):
    """What chi-square did on the endpoint's own traffic, without drift as far as anyone knows.

    Attributes:
        windows: ``[...]``, drift windows seen.
        seconds: ``[...]``, how long they were, together.
        total: ``[..., weights]``, sum of chi-square.
        squares: ``[..., weights]``, sum of its squares.
    """

    windows: Floats
    seconds: Floats
    total: Floats
    squares: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> Self:
        """Nothing seen yet."""
        wide = (*shape, len(WEIGHTS))
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(wide), np.zeros(wide))

    def after(self, found: Floats, seconds: ArrayLike, *, learn: ArrayLike = True) -> Self:
        """With one more window's ``[..., weights]`` of chi-square, if ``learn`` says so."""
        more = np.asarray(learn, dtype=np.float64)
        wide = more[..., None]
        return type(self)(
            self.windows + more,
            self.seconds + more * np.asarray(seconds, dtype=np.float64),
            self.total + wide * found,
            self.squares + wide * found**2,
        )

    def ready(self, seconds: float) -> NDArray[np.bool_]:
        """``[..., weights]``: whether so much was seen, and enough of it was new to the weight."""
        found: NDArray[np.bool_] = (self.seconds[..., None] >= seconds) & (
            self.windows[..., None] * _FRESH >= _FEWEST_FRESH
        )
        return found

    def threshold(self, alpha: ArrayLike, degrees: int, most_fresh: ArrayLike = np.inf) -> Floats:
        """``[..., weights]``: what chi-square exceeds with chance ``alpha`` without drift.

        At least the quantile of chi-square itself. Beyond that the gamma of the same mean and
        variance, its distance to the mean widened as a prediction's from few values is: by the
        quantile of Student's t over the normal one. Weights that remember long have seen few.

        Args:
            alpha: ``[...]``, above 0 and below 0.5.
            degrees: of freedom, at least 1.
            most_fresh: ``[...]``, the most independent values that were seen, however many windows
                there were.
        """
        chance = np.asarray(alpha, dtype=np.float64)[..., None]
        analytic = np.asarray(chdtri(degrees, chance), dtype=np.float64)
        windows = self.windows[..., None]
        fresh = np.minimum(windows * _FRESH, np.asarray(most_fresh, dtype=np.float64)[..., None])
        held = np.maximum(windows, 1.0)
        mean = self.total / held
        # Dependent values scatter less than their distribution: by 1 - 1/fresh.
        shrink = np.maximum(1 - 1 / np.maximum(fresh, _FEWEST_FRESH), 0.5)
        variance = np.maximum(self.squares / held - mean**2, 0.0) / shrink
        usable = self.ready(0.0) & (mean > 0) & (variance > 0)
        mean, variance = np.where(usable, mean, 1.0), np.where(usable, variance, 1.0)
        gamma = variance / mean * gammainccinv(mean**2 / variance, chance)
        freedom = np.maximum(fresh, _FEWEST_FRESH) - 1
        widened = stdtrit(freedom, 1 - chance) / -ndtri(chance) * np.sqrt(1 + 1 / (freedom + 1))
        fitted = mean + np.maximum(gamma - mean, 0.0) * widened
        found: Floats = np.where(usable, np.maximum(analytic, fitted), analytic)
        return found

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        """As ``SequentialState.of_json``; other sums than one a weight raise ``ValueError`` too."""
        found = super().of_json(data)
        if found.total.shape[-1:] != (len(WEIGHTS),) or found.squares.shape != found.total.shape:
            raise ValueError(f"{found.total.shape} is not one sum a weight")
        return found


def spend(seconds: ArrayLike, interval_seconds: float, statistics: int) -> Floats:
    """``[...]``: chance of a false alarm that one test of a window may take.

    Tests are one a weight and statistic; over ``interval_seconds`` they spend one alarm together,
    however long the windows are. One of ``QUESTIONS`` has that many times the endpoint's interval.
    """
    share = np.asarray(seconds, dtype=np.float64) / interval_seconds
    return np.clip(share / (max(1, statistics) * len(WEIGHTS)), 1e-15, 0.25)


def levels(ratio: Floats, psi: Floats, warns: float = WARNS) -> NDArray[np.int64]:
    """``[...]`` of ``[..., weights]``: 0 quiet, 1 warns, 2 alarms; significant and large enough.

    Args:
        ratio: chi-square over its threshold.
        psi: PSI beyond what equal samples would show, of the same weight.
        warns: PSI from which it warns.
    """
    reached = np.where(psi >= ALARMS, 2, np.where(psi >= warns, 1, 0))
    found: NDArray[np.int64] = np.where(ratio > 1, reached, 0).max(axis=-1)
    return found
