"""How much the requests of a window resemble one another, and how many then count as one.

Requests of one window are not independent: one caller's batch, one bad minute. The intraclass
correlation is estimated from the stable arm's windows from before the canary began, window by
window, as sums and the last window alone; it never sees a canary. Dividing counts by the design
effect is a heuristic that simulation supports (``docs/rollout.md``), and costs power where it errs.
Pure.
"""

from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from measures.state import State

Floats = NDArray[np.float64]

CAUTION = 1.5  # being too careful costs less than being wrong
ENOUGH_WINDOWS = 10
# Of traffic that is not known well enough: what callers' batches usually cause.
ASSUMED = 0.01


def design_effect(n: Floats, rho: Floats | float) -> Floats:
    """``1 + (n - 1) rho``, at least 1: so many requests of a window count as one.

    Source: Kish, Survey Sampling (1965), on samples in clusters.
    """
    effect: Floats = np.maximum(1.0, 1.0 + (n - 1.0) * rho)
    return effect


class IntraclassCorrelation(State, frozen=True):
    """Sums over stable's windows, each ``[events]``.

    Attributes:
        events: how many there were.
        requests: of so many.
        share: in the last window that had requests.
        size: requests of that window.
        squares: sum over consecutive windows of the squared difference of shares, over
            ``1/n_j + 1/n_i``.
        windows: how many had requests.
    """

    events: Floats
    requests: Floats
    share: Floats
    size: Floats
    squares: Floats
    windows: Floats

    @classmethod
    def begin(cls, count: int) -> Self:
        """Nothing known yet of so many events."""
        zero = np.zeros(count)
        return cls(zero, zero, zero, zero, zero, zero)

    def after(self, events: Floats, requests: Floats) -> Self:
        """With the next window; events without requests in it are left as they are."""
        held = requests > 0
        n = np.where(held, requests, 1.0)
        share = events / n
        has_pair = held & (self.size > 0)
        spread = 1 / n + 1 / np.maximum(self.size, 1.0)
        return type(self)(
            self.events + events,
            self.requests + requests,
            np.where(held, share, self.share),
            np.where(held, requests, self.size),
            self.squares + np.where(has_pair, (share - self.share) ** 2 / spread, 0.0),
            self.windows + held,
        )

    @cached_property
    def each(self) -> Floats:
        """Rho of each event by itself; ``ASSUMED`` where too little is known."""
        p = self.events / np.maximum(self.requests, 1.0)
        variance = p * (1 - p)
        x = self.squares / np.maximum(self.windows - 1, 1.0) / np.where(variance > 0, variance, 1.0)
        rho = np.where(variance > 0, self._of(x), 0.0)
        return np.where(self.windows >= ENOUGH_WINDOWS, rho, ASSUMED)

    @cached_property
    def shared(self) -> float:
        """One rho for the events of a histogram, of which each request has exactly one."""
        if not len(self.windows) or self.windows.max() < ENOUGH_WINDOWS:
            return ASSUMED
        p = self.events / np.maximum(self.requests, 1.0)
        seen = p > 0
        if seen.sum() < 2:
            return 0.0
        squares = (self.squares[seen] / p[seen]).sum() / (seen.sum() - 1)
        x = squares / np.maximum(self.windows - 1, 1.0)
        return float(self._of(x).max())

    def _of(self, x: Floats) -> Floats:
        mean = self.requests / np.maximum(self.windows, 1.0)
        rho: Floats = CAUTION * np.maximum(0.0, (x - 1.0) / np.maximum(mean - 1.0, 1.0))
        return np.minimum(rho, 1.0)

    def widened(self, count: int) -> Self:
        """With so many more events at the end, of which nothing is known."""
        return type(self)(*(np.append(part, np.zeros(count)) for part in self._parts()))

    def _parts(self) -> tuple[Floats, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__)
