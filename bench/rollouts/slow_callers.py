"""Callers of whom some are slow whatever answers them, judged with and without their own past.

Whole rollouts of identical versions, and of versions whose every answer takes longer.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.findings import Finding, needed, share
from bench.rollouts import whole
from bench.rollouts.traffic import Arm, Harm
from bench.rollouts.worlds import Stream, Traffic, World
from measures.correlation import Floats

SEED = 19
WORLDS = (
    World("callers alike", (Stream(1000.0),)),
    World("a tenth of the callers takes 1.5 times as long", (Stream(1000.0, slow_callers=0.1),)),
    World("callers' times scatter by 20 %", (Stream(1000.0, own_times=0.2),)),
    World("callers' times scatter by 40 %", (Stream(1000.0, own_times=0.4),)),
)
SLOWER = Harm("every answer takes 1.3 times as long", slower=1.3)
WAYS = ("own past", "all together")


@dataclass(frozen=True)
class AllTogether:
    """A traffic whose windows tell nothing by caller, as those of older folds."""

    of: Traffic

    def moved(self, rng: np.random.Generator) -> Self:
        """A window later."""
        return replace(self, of=self.of.moved(rng))

    def window(self, low: Floats, high: Floats, rng: np.random.Generator) -> tuple[Arm, Arm]:
        """The traffic's window without callers."""
        one, other = self.of.window(low, high, rng)
        return (
            replace(one, callers=None, attempts=None),
            replace(other, callers=None, attempts=None),
        )

    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        """Of some of the rollouts."""
        return replace(self, of=self.of.of_rows(rows))


def slow_callers(rollouts: int, rows: str = "") -> list[Finding]:
    """How often identical versions go back, and what it takes to find a slower one.

    In the worlds with ``rows`` in their names.
    """
    found = []
    for number, world in enumerate(WORLDS):
        if rows not in world.name:
            continue
        for way in WAYS:
            same, slower = (
                _walked(world, way, rollouts, (SEED, number), harm) for harm in (None, SLOWER)
            )
            is_back = np.array([one.is_back for one in same])
            met = np.array([np.inf if one.is_promoted else one.met for one in slower])
            target = 0.05 if way == WAYS[0] else None
            found += [
                share(world.name, f"identical, back, {way}", is_back, target),
                needed(world.name, f"1.3 times as slow, requests, {way}", met),
            ]
    return found


def _walked(
    world: World, way: str, rollouts: int, seed: tuple[int, ...], harm: Harm | None
) -> list[whole.Ended]:
    rng = np.random.default_rng(list(seed))
    traffic = Traffic.of(world, rollouts, rng)
    if way == WAYS[0]:
        return whole.walked(traffic, rollouts, rng, harm)
    return whole.walked(AllTogether(traffic), rollouts, rng, harm)
