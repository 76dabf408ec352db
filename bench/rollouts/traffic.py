"""Traffic of one endpoint, window by window, as rollouts meet it: made up, and hard on purpose.

Called by ``whole``. Callers are heavy-tailed (Zipf), stick to an arm, have rates of their own and
are capped as production caps them. Base rates wander and step for both arms; each arm's windows are
clumpy on top. The versions can be identical, or the candidate worse by so much.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.statistics import LATENCY_EDGES
from contracts.windows import CALLER_CAP, Judged
from measures.correlation import Floats

LABELS = ("NEGATIVE", "POSITIVE")
LENGTHS = (16, 64)  # length buckets, tokens
_LENGTH_SHARES = (0.7, 0.3)
_MEDIAN_SECONDS = (0.012, 0.025)
_SIGMA = 0.4  # of the logarithm of an answer's time
_SLOW_SLOPE = 0.103 / _SIGMA  # of the share beyond the 95th percentile, a unit of log-time


@dataclass(frozen=True)
class World:
    """What is true of an endpoint's traffic.

    Attributes:
        requests: mean of a window, before the cap.
        callers: how many there are; the k-th one sends in proportion to ``k ** -tail``.
        errors: base share of failing requests.
        positive: base share of one of two labels.
        spread: standard deviation of a caller's own log-odds of an error, and of a label.
        correlation: intra-window correlation of errors, slow answers and labels, in each arm.
        wander: standard deviation, a window, of the base rates' log-odds; shared by both arms.
        jump: chance, a window, that the base rates step by a factor of up to 3; shared.
    """

    requests: float = 1000.0
    callers: int = 500
    tail: float = 1.1
    errors: float = 0.005
    positive: float = 0.4
    spread: float = 0.0
    correlation: float = 0.0
    wander: float = 0.02
    jump: float = 0.01


class Traffic:
    """One endpoint's traffic, in order of time. It draws, and remembers where the rates are."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        """Callers get their places in the split, and rates of their own."""
        self._world, self._rng = world, rng
        weights = np.arange(1, world.callers + 1.0) ** -world.tail
        self._weights = weights / weights.sum()
        self._place = rng.random(world.callers)
        self._own_errors = rng.normal(0, world.spread, world.callers)
        self._own_label = rng.normal(0, world.spread, world.callers)
        self._errors = _log_odds(world.errors)
        self._label = _log_odds(world.positive)
        self._seconds = 0.0  # log of a factor

    def split(self, canary: float) -> tuple[Judged, Judged]:
        """A window in which ``canary`` (0 to 1) of callers meet the candidate: (it, stable)."""
        counts = self._window()
        mine = self._place < canary
        return self._arm(np.where(mine, counts, 0)), self._arm(np.where(mine, 0, counts))

    def copied(self) -> tuple[Judged, Judged]:
        """A window of shadow: the same requests to both, which agree on every label."""
        counts = self._window()
        stable = self._arm(counts)
        candidate = self._arm(counts)
        candidate.labels = dict(stable.labels)
        candidate.pairs = candidate.pairs_equal = sum(stable.labels.values())
        return candidate, stable

    def _window(self) -> NDArray[np.int64]:
        """Each caller's requests; the base rates move first."""
        world, rng = self._world, self._rng
        moved = rng.normal(0, world.wander, 3)
        if rng.random() < world.jump:
            moved = moved + rng.uniform(-np.log(3), np.log(3), 3) * (1, 0.3, 0.2)
        # Drawn back to where they were, so that no rollout ends in a world of errors alone.
        self._errors += moved[0] - 0.01 * (self._errors - _log_odds(world.errors))
        self._label += moved[1] - 0.01 * (self._label - _log_odds(world.positive))
        self._seconds += 0.5 * moved[2] - 0.01 * self._seconds
        total = rng.poisson(world.requests)
        return np.minimum(rng.multinomial(total, self._weights), CALLER_CAP)

    def _arm(self, counts: NDArray[np.int64]) -> Judged:
        rng = self._rng
        failed = rng.binomial(counts, _rate(self._clumped(self._errors) + self._own_errors))
        answered = counts - failed
        positive = int(
            rng.binomial(answered, _rate(self._clumped(self._label) + self._own_label)).sum()
        )
        total = int(answered.sum())
        return Judged(
            requests=int(counts.sum()),
            errors=int(failed.sum()),
            latency=self._latency(total),
            labels={LABELS[0]: total - positive, LABELS[1]: positive},
        )

    def _clumped(self, log_odds: float) -> float:
        """The log-odds of this arm's window, around its mean, with the intra-window correlation."""
        rho = self._world.correlation
        if rho == 0:
            return log_odds
        p, sums = float(_rate(np.array(log_odds))), 1 / rho - 1
        return _log_odds(min(max(self._rng.beta(p * sums, (1 - p) * sums), 1e-9), 1 - 1e-9))

    def _latency(self, answered: int) -> dict[int, dict[int, int]]:
        """Answers by length bucket and time, slower and faster together within a window."""
        noise = np.sqrt(self._world.correlation * 0.05 * 0.95) / _SLOW_SLOPE
        factor = self._seconds + self._rng.normal(0, noise)
        found: dict[int, dict[int, int]] = {}
        numbers = self._rng.multinomial(answered, _LENGTH_SHARES)
        for length, number, shares in zip(LENGTHS, numbers, _TIMES, strict=True):
            moved = np.roll(shares, round(factor / _EDGE))
            counts = self._rng.multinomial(number, moved)
            held = np.nonzero(counts)[0]
            found[length] = dict(zip(held.tolist(), counts[held].tolist(), strict=True))
        return found


def _log_odds(p: float) -> float:
    return float(np.log(p / (1 - p)))


def _rate(log_odds: Floats) -> Floats:
    rate: Floats = 1 / (1 + np.exp(-log_odds))
    return rate


_EDGE = float(np.log(LATENCY_EDGES.upper[1] / LATENCY_EDGES.upper[0]))


def _times(median: float) -> Floats:
    """Share of answers in each bucket of ``LATENCY_EDGES``, log-normal around a median."""
    at = np.log(np.array(LATENCY_EDGES.upper) / median)
    weights = np.append(np.exp(-0.5 * (at / _SIGMA) ** 2), 0.0)
    weights[weights < 1e-7 * weights.max()] = 0.0
    shares: Floats = weights / weights.sum()
    return shares


_TIMES = tuple(_times(median) for median in _MEDIAN_SECONDS)
