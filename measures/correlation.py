"""How much the requests of a window resemble one another, and how many then count as one.

Texts of one request are not independent, and neither are requests of one window: one caller's
batch, one bad minute. The former is a constant part of the design effect, whatever the size of an
arm; the latter grows with the requests of the window. Both are estimated from the stable arm's
windows from before the canary began, as sums and the last window only; they never see a canary.
Dividing counts by the design effect is a heuristic that simulation supports
(``docs/simulated.md``), and costs power if it errs. Pure.
"""

from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from measures.state import SequentialState

Floats = NDArray[np.float64]

CAUTION = 1.5  # being too careful costs less than being wrong
ENOUGH_WINDOWS = 10
ENOUGH_EVENTS = 10  # with fewer, nothing is known of how they clump
# Of traffic that is not known well enough: what callers' batches usually cause.
ASSUMED = 0.01


def design_effect(n: Floats, rho: Floats | float, within: Floats | float = 1.0) -> Floats:
    """``within + (n - 1) rho``, at least 1: this many of a window count as one.

    Args:
        n: of the window.
        rho: correlation within the window.
        within: the part that texts of one request make (``RequestTexts.effect``).

    Source: Kish, Survey Sampling (1965), on samples in clusters.
    """
    effect: Floats = np.maximum(1.0, np.minimum(within, np.maximum(n, 1.0)) + (n - 1.0) * rho)
    return effect


class RequestTexts(SequentialState, frozen=True):
    """How much the texts of one request resemble one another, as sums over stable's windows.

    A text's neighbours are the other texts of its request.

    Attributes:
        texts: ``[...]``, of all classes.
        events: ``[..., classes]``, texts of the class.
        neighbours: ``[..., classes]``, of these texts; every neighbour is one of a class.
        like: ``[..., classes]``, neighbours that are of the same class.
    """

    texts: Floats
    events: Floats
    neighbours: Floats
    like: Floats

    @classmethod
    def begin(cls, classes: int, shape: tuple[int, ...] = ()) -> Self:
        """Nothing known yet."""
        wide = np.zeros((*shape, classes))
        return cls(np.zeros(shape), wide, wide, wide)

    def after(self, events: Floats, neighbours: Floats, like: Floats) -> Self:
        """With the next window, ``[..., classes]`` each."""
        return type(self)(
            self.texts + events.sum(axis=-1),
            self.events + events,
            self.neighbours + neighbours,
            self.like + like,
        )

    @cached_property
    def each(self) -> Floats:
        """``[..., classes]``: variance of a class's count over that of single texts, 1 or more."""
        p, most = self._shares()
        variance = p * (1 - p) * np.maximum(self.texts, 1.0)[..., None]
        effect = 1.0 + self._excess(p) / np.where(variance > 0, variance, 1.0)
        known = self._is_known(np.minimum(self.events, self.texts[..., None] - self.events), most)
        found: Floats = np.where(known & (variance > 0), np.clip(effect, 1.0, most), most)
        return found

    @cached_property
    def shared(self) -> Floats:
        """``[...]``: the same of a histogram of all classes."""
        p, most = self._shares()
        seen = p > 0
        over = np.where(seen, self._excess(p) / np.where(seen, p, 1.0), 0.0).sum(axis=-1)
        degrees = np.maximum(seen.sum(axis=-1) - 1, 1) * np.maximum(self.texts, 1.0)
        most = most[..., 0]
        known = self._is_known(self.texts, most) & (seen.sum(axis=-1) > 1)
        found: Floats = np.where(known, np.clip(1.0 + over / degrees, 1.0, most), most)
        return found

    @cached_property
    def effect(self) -> Floats:
        """``each`` with ``CAUTION``: what evidence is divided by."""
        return self._add_caution(self.each, self._shares()[1])

    @cached_property
    def shared_effect(self) -> Floats:
        """``shared`` with ``CAUTION``."""
        return self._add_caution(self.shared, self._shares()[1][..., 0])

    def _shares(self) -> tuple[Floats, Floats]:
        """Of each class, and what is divided by if all texts of a request are alike."""
        n = np.maximum(self.texts, 1.0)[..., None]
        return self.events / n, 1.0 + self.neighbours.sum(axis=-1, keepdims=True) / n

    def _excess(self, p: Floats) -> Floats:
        """What neighbours add to the variance of a count: ``sum (x - p) (x' - p)`` over them."""
        every = self.neighbours.sum(axis=-1, keepdims=True)
        excess: Floats = self.like - 2 * p * self.neighbours + p**2 * every
        return excess

    @staticmethod
    def _is_known(events: Floats, most: Floats) -> NDArray[np.bool_]:
        return np.asarray(events >= ENOUGH_EVENTS * most)

    @staticmethod
    def _add_caution(effect: Floats, most: Floats) -> Floats:
        found: Floats = np.minimum(1.0 + CAUTION * (effect - 1.0), most)
        return found


class IntraclassCorrelation(SequentialState, frozen=True):
    """Sums over stable's windows, each ``[events]``.

    Attributes:
        events: how many there were.
        requests: of how many.
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
        """Nothing known yet of this number of events."""
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
        """Rho of each event by itself; ``ASSUMED`` if too little is known.

        At least ``ASSUMED`` of events that were too rare to show how they clump, or had no others.
        """
        return self.subtract(1.0)

    def subtract(self, within: Floats | float) -> Floats:
        """``each``, less what texts of one request make by themselves (``RequestTexts.each``)."""
        p = self.events / np.maximum(self.requests, 1.0)
        variance = p * (1 - p)
        x = self.squares / np.maximum(self.windows - 1, 1.0) / np.where(variance > 0, variance, 1.0)
        rho = np.where(variance > 0, self._estimate(x, within), 0.0)
        rare = np.minimum(self.events, self.requests - self.events) < ENOUGH_EVENTS
        rho = np.where(rare, np.maximum(rho, ASSUMED), rho)
        return np.where(self.windows >= ENOUGH_WINDOWS, rho, ASSUMED)

    @cached_property
    def shared(self) -> float:
        """One rho for the events of a histogram, of which each request has exactly one."""
        return self.shared_beyond(1.0)

    def shared_beyond(self, within: float) -> float:
        """``shared``, less what texts of one request make (``RequestTexts.shared``)."""
        if not len(self.windows) or self.windows.max() < ENOUGH_WINDOWS:
            return ASSUMED
        p = self.events / np.maximum(self.requests, 1.0)
        seen = p > 0
        if seen.sum() < 2:
            return ASSUMED
        squares = (self.squares[seen] / p[seen]).sum() / (seen.sum() - 1)
        x = squares / np.maximum(self.windows - 1, 1.0)
        return float(self._estimate(x, within).max())

    def _estimate(self, x: Floats, within: Floats | float) -> Floats:
        mean = self.requests / np.maximum(self.windows, 1.0)
        rho: Floats = CAUTION * np.maximum(0.0, (x - within) / np.maximum(mean - 1.0, 1.0))
        return np.minimum(rho, 1.0)

    def widen(self, count: int) -> Self:
        """With this number of events more at the end, of which nothing is known."""
        return type(self)(*(np.append(part, np.zeros(count)) for part in self._parts()))

    def _parts(self) -> tuple[Floats, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__)
