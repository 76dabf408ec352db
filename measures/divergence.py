"""Output shift: is the canary's distribution of answers further from stable's than is tolerated.

It takes both arms' histograms over the same window. Windows are strata, so that a mix of traffic
that changes for both arms is no shift. It looks only when the canary's requests have grown by a
quarter, and spends its error on the looks, so that it stays valid under continuous looking. Leading
axes are independent (one a rollout in the simulations). Pure.

Sources: Jensen-Shannon divergence is Lin's (IEEE Trans. Inf. Theory 37, 1991), its square root a
metric (Endres and Schindelin, 2003). For near distributions it is an eighth of the chi-square
distance, so that ``8 N JSD`` of samples is about noncentral chi-square with ``K - 1`` degrees.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray
from scipy.special import chndtr

from measures.correlation import Floats, design_effect
from measures.state import SequentialState

FIRST_LOOK = 50  # the canary's requests, at least; and of each class at least:
FIRST_LOOK_PER_CLASS = 10
GROWTH = 1.25  # of the canary's requests between looks
_LN_2 = float(np.log(2.0))


@dataclass(frozen=True)
class ShiftLimits:
    """What is asked of a shift.

    Attributes:
        distance: Jensen-Shannon distance that is tolerated, 0 to 1.
        alpha: chance of a wrong fail at that distance, over all looks.
        beta: chance of a wrong pass at that distance, over all looks.
        caller_spread: distance that is no fault of the canary's, since its callers are others. What
            fails is further than both together: distances of a metric add up to no more.
    """

    distance: float = 0.1
    alpha: float = 0.0125
    beta: float = 0.05
    caller_spread: Floats | float = 0.0


class Shift(SequentialState, frozen=True):
    """Both arms' distributions so far, and what the looks said.

    The evidence to fail goes on through the stages; the evidence to pass is a second ``Shift``,
    begun again at each stage.

    Attributes:
        h: ``[...]``, sum of the windows' weights ``n_c n_s / (n_c + n_s)``.
        p: ``[..., classes]``, sum of weight times the canary's shares; ``q`` stable's.
        spread: ``[...]``, sum of ``h^2 (d_c / n_c + d_s / n_s)``: h^2 / spread requests are known.
        n_c: ``[...]``, the canary's requests.
        looks: ``[...]``, looks that were made or passed over.
        failed: ``[...]``, some look failed.
        passed: ``[...]``, the last look passed.
        passed_beyond_callers: ``[...]``, the last look passed at a distance that is larger by
            ``ShiftLimits.caller_spread``.
    """

    h: Floats
    p: Floats
    q: Floats
    spread: Floats
    n_c: Floats
    looks: NDArray[np.int64]
    failed: NDArray[np.bool_]
    passed: NDArray[np.bool_]
    passed_beyond_callers: NDArray[np.bool_]

    @classmethod
    def begin(cls, classes: int, shape: tuple[int, ...] = ()) -> Self:
        """Nothing seen yet, of this number of classes."""
        zero, wide = np.zeros(shape), np.zeros((*shape, classes))
        no = np.zeros(shape, dtype=np.bool_)
        return cls(zero, wide, wide, zero, zero, np.zeros(shape, dtype=np.int64), no, no, no)

    def after(
        self,
        canary: Floats,
        stable: Floats,
        limits: ShiftLimits,
        rho: Floats | float = 0.0,
        within: Floats | float = 1.0,
        *,
        near: Floats | float = 1.0,
    ) -> Self:
        """With one more window, and a look if one is due.

        Args:
            canary: ``[..., classes]`` counts; a window in which an arm has none tells nothing.
            stable: ``[..., classes]`` counts.
            limits: the same at each call, but ``caller_spread``.
            rho: intra-window correlation, of the answers' classes.
            within: the part of the design effect that texts of one request make.
            near: a factor on it, for callers' requests of near windows.
        """
        n_c, n_s = canary.sum(axis=-1), stable.sum(axis=-1)
        one, other = np.maximum(n_c, 1.0), np.maximum(n_s, 1.0)
        weight = n_c * n_s / np.maximum(n_c + n_s, 1.0)
        d_c, d_s = design_effect(one, rho, within), design_effect(other, rho, within)
        variance = near * (d_c / one + d_s / other)
        summed = replace(
            self,
            h=self.h + weight,
            p=self.p + (weight / one)[..., None] * canary,
            q=self.q + (weight / other)[..., None] * stable,
            spread=self.spread + weight**2 * variance,
            n_c=self.n_c + np.where(n_s > 0, n_c, 0.0),
        )
        return summed.look(limits)

    def look(self, limits: ShiftLimits) -> Self:
        """With a look at what is known, if one is due."""
        first = max(FIRST_LOOK, FIRST_LOOK_PER_CLASS * self.p.shape[-1])
        grown = np.log(np.maximum(self.n_c, first) / first) / np.log(GROWTH)
        reached = np.where(self.n_c < first, 0, np.floor(grown + 1e-9) + 1).astype(np.int64)
        due = reached > self.looks
        if not due.any():
            return self
        # Look i spends 1 / ((i + 1) (i + 2)); looks that one window passed over spend together.
        spend = 1.0 / (self.looks + 1) - 1.0 / (reached + 1)
        statistic, size = self.statistic(), self.size()
        centre = 8.0 * size * limits.distance**2 * _LN_2
        furthest = 8.0 * size * (limits.distance + limits.caller_spread) ** 2 * _LN_2
        most = self.p.shape[-1] - 1
        above = 1.0 - chndtr(statistic, most, furthest)
        # Empty classes have no scatter: with fewer degrees it is harder to pass.
        seen = np.maximum(self.occurring() - 1, 1)
        is_enough = size * limits.distance**2 * _LN_2 >= 1.0
        fails = above <= limits.alpha * spend
        passes, nearly = (
            (chndtr(statistic, seen, line) <= limits.beta * spend) & is_enough
            for line in (centre, furthest)
        )
        return replace(
            self,
            looks=np.where(due, reached, self.looks),
            failed=self.failed | (due & fails),
            passed=np.where(due, passes, self.passed),
            passed_beyond_callers=np.where(due, nearly, self.passed_beyond_callers),
        )

    def size(self) -> Floats:
        """``[...]``: N, the harmonic half of both arms' effective requests."""
        # Not ``**``: of a number it is C's pow, which rounds otherwise than for an array.
        return np.where(self.spread > 0, np.square(self.h) / np.maximum(self.spread, 1e-300), 0.0)

    def occurring(self) -> Floats:
        """``[...]``: how many classes were seen at all."""
        count: Floats = ((self.p + self.q) > 0).sum(axis=-1)
        return count

    def statistic(self) -> Floats:
        """``[...]``: T = 8 N JSD."""
        h = np.maximum(self.h, 1e-300)[..., None]
        t: Floats = 8.0 * self.size() * jensen_shannon(self.p / h, self.q / h)
        return t

    def distance(self) -> Floats:
        """``[...]``: Jensen-Shannon distance, 0 to 1, less what equal samples would show."""
        h = np.maximum(self.h, 1e-300)[..., None]
        bias = (self.occurring() - 1) / (8.0 * np.maximum(self.size(), 1e-300))
        excess = jensen_shannon(self.p / h, self.q / h) - bias
        return np.where(self.h > 0, np.sqrt(np.maximum(0.0, excess) / _LN_2), 0.0)


def jensen_shannon(p: ArrayLike, q: ArrayLike) -> Floats:
    """Jensen-Shannon divergence in nats, 0 to ln 2, of shares ``[..., classes]``."""
    one, other = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    middle = (one + other) / 2
    total: Floats = (_relative_entropy(one, middle) + _relative_entropy(other, middle)).sum(
        axis=-1
    ) / 2
    return np.maximum(total, 0.0)  # rounding can leave a little less than nothing


def _relative_entropy(p: Floats, m: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / m), 0.0)
