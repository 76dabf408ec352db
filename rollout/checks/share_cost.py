"""What a large share of callers costs an arm in latency, learnt from the steps before the bake.

An arm with more callers has larger batches and more of the engine, and its answers take longer,
whatever version it is of. While the candidate has 5 %, stable has 95 % and pays that; in the bake
the promoted version does. So how many times as many slow answers stable had is what the bake may
have for its share. It never judges: it only moves the line that the bake is held to.
"""

from typing import Self

import numpy as np
from msgspec.structs import replace

from measures.correlation import Floats
from measures.evalue import WindowCounts
from measures.state import SequentialState
from rollout.checks.callers import DEVIATIONS
from rollout.checks.rows import LATENCY

LEAST_SLOW = 5.0  # slow answers of the candidate in a step, before it tells a cost
MOST = 10.0  # times as many slow answers, that are put down to the share


class ShareCost(SequentialState, frozen=True):
    """The logarithm of the factor on slow answers between an arm of all callers and one of none.

    Attributes:
        step: ``[..., 6]``, of this step's windows: stable's slow answers and the candidate's, each
            weighted by the other arm's part of the requests (Mantel and Haenszel), their squares
            and product, and the candidate's slow answers.
        apart: ``[...]``, how much more of the callers stable has in this step, of 1.
        known: ``[..., 2]``, of the steps before: the precision of the logarithm, and that times it.
    """

    step: Floats
    apart: Floats
    known: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> Self:
        """Nothing known yet."""
        return cls(np.zeros((*shape, 6)), np.zeros(shape), np.zeros((*shape, 2)))

    def after(self, window: WindowCounts, share: Floats | float) -> Self:
        """With a window of a step in which the candidate has this share of callers.

        Steps of half of the callers and more tell nothing.
        """
        e_c, n_c, e_s, n_s = (
            part[..., LATENCY] for part in (window.e_c, window.n_c, window.e_s, window.n_s)
        )
        both = np.maximum(n_c + n_s, 1.0)
        stable, candidate = (e_s * n_c / both).sum(axis=-1), (e_c * n_s / both).sum(axis=-1)
        slow = e_c.sum(axis=-1)
        squares = (stable**2, stable * candidate, candidate**2)
        more = np.stack([stable, candidate, *squares, slow], axis=-1)
        apart = np.maximum(np.asarray(1.0 - 2.0 * share), 0.0)
        return replace(self, step=self.step + more, apart=apart)

    def next_stage(self) -> Self:
        """With what this step tells, in another one."""
        stable, candidate, a, b, c, slow = np.moveaxis(self.step, -1, 0)
        is_told = (slow >= LEAST_SLOW) & (stable > 0) & (self.apart > 0)
        ratio = np.where(is_told, stable, 1.0) / np.where(is_told, candidate, 1.0)
        # Windows are independent: their scatter holds whatever correlation they have within. Few
        # of them scatter little by chance, but no less than counts do.
        scatter = (a - 2 * ratio * b + ratio**2 * c) / np.where(is_told, stable, 1.0) ** 2
        variance = np.maximum(scatter, 1.0 / np.maximum(slow, 1.0))
        precision = np.where(is_told, self.apart**2 / variance, 0.0)
        cost = np.log(ratio) / np.where(is_told, self.apart, 1.0)
        known = self.known + np.stack([precision, precision * cost], axis=-1)
        return type(self)(np.zeros_like(self.step), np.zeros_like(self.apart), known)

    def factor(self, share: Floats | float) -> Floats:
        """``[...]``: how many times as many slow answers a version may have for its share.

        It is at least 1: the learnt cost and three standard deviations of it.
        """
        precision, weighted = np.moveaxis(self.known, -1, 0)
        known = np.maximum(precision, 1e-9)
        most = weighted / known + DEVIATIONS / np.sqrt(known)
        log_factor = np.where(precision > 0, most, 0.0) * (2.0 * np.asarray(share) - 1.0)
        return np.asarray(np.exp(np.clip(log_factor, 0.0, np.log(MOST))))
