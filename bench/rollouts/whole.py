"""Whole rollouts of identical versions: how many are wrongly rolled back, how long others take.

Called by ``__main__``. Each is judged by the checks of a default endpoint, as production does:
after every window of 10 s, from shadow to 5, 25 and 50 percent, and then through the bake of an
hour. A failing check that gates ends it; a step is over when every required check has passed.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bench.rollouts.abreast import NAMES, Abreast
from bench.rollouts.findings import Finding, needed, share
from bench.rollouts.traffic import Places, World, window
from contracts.rollout import RolloutSpec
from measures.correlation import Floats
from rollout.checks.rates import CLASS_SHARE, LATENCY

HISTORY = 30  # windows of stable before
STEPS = ("shadow", "5 %", "25 %", "50 %", "bake")
# The candidate's part of the split in each step; copies of all requests in shadow.
LOW = np.array([0.0, 0.0, 0.0, 0.0, 0.0])
HIGH = np.array([np.inf, 0.05, 0.25, 0.5, 0.95])
SHARE = np.array([0.0, 0.05, 0.25, 0.5, 0.95])  # of callers on the candidate
BAKE = len(STEPS) - 1
BAKE_WINDOWS = 360  # an hour
LONGEST = 1080  # windows: three hours, then it counts as undecided
CHUNK = 504  # rollouts side by side

WORLDS = tuple(
    World(requests, spread, correlation)
    for correlation, spread, requests in product(
        (0.0, 0.005, 0.02), (0.0, 0.3), (600.0, 1500.0, 4000.0)
    )
)


@dataclass(frozen=True)
class Ended:
    """How one rollout went.

    Attributes:
        world: the traffic that it met.
        step: the one it ended in; ``settled`` where it went through all.
        causes: checks that ended it, wrongly.
        windows: how many it took to be promoted; infinite where it never was.
    """

    world: World
    step: str
    causes: tuple[str, ...]
    windows: float


def walk(worlds: Sequence[World], seed: Sequence[int], *, with_bake: bool) -> list[Ended]:
    """One rollout of identical versions in each of these worlds, side by side."""
    rng = np.random.default_rng(list(seed))
    places = Places.of(list(worlds), rng)
    evidence = Abreast.begin(len(worlds), RolloutSpec().false_rollback)
    nobody = np.zeros(len(worlds))
    for _ in range(HISTORY):
        places = places.moved(rng)
        evidence = evidence.with_history(window(places, nobody, nobody, rng)[1])
    ended: dict[int, Ended] = {}
    index = np.arange(len(worlds))
    step, began = np.zeros(len(worlds), dtype=np.int64), np.zeros(len(worlds))
    at = 0
    while len(index):
        at += 1
        places = places.moved(rng)
        arms = window(places, LOW[step], HIGH[step], rng)
        evidence = evidence.after(*arms, SHARE[step], step == BAKE)
        on = _may_go_on(evidence, step) & (step < BAKE)
        step, began = step + on, np.where(on, at, began)
        evidence = evidence.next_stage(on)
        is_over = evidence.failed.any(axis=1) | _is_through(step, at - began, with_bake=with_bake)
        is_over |= (at >= LONGEST) & (step < BAKE)
        for row in np.flatnonzero(is_over):
            ended[int(index[row])] = _ended(
                worlds[index[row]], int(step[row]), evidence.failed[row], began[row]
            )
        if is_over.any():
            rows = np.flatnonzero(~is_over)
            index, step, began = index[rows], step[rows], began[rows]
            places, evidence = places.of_rows(rows), evidence.of_rows(rows)
    return [ended[row] for row in range(len(worlds))]


def _may_go_on(evidence: Abreast, step: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where every required check passes: of shadows no latency, of few callers no class shares."""
    passed = evidence.passed()
    passed[:, NAMES.index(LATENCY)] |= step == 0
    passed[:, NAMES.index(CLASS_SHARE)] |= (step > 0) & evidence.blurred(SHARE[step])
    return np.asarray(passed.all(axis=1))


def _is_through(step: NDArray[np.int64], since: Floats, *, with_bake: bool) -> NDArray[np.bool_]:
    through: NDArray[np.bool_] = (step == BAKE) & (since >= (BAKE_WINDOWS if with_bake else 0))
    return through


def _ended(world: World, step: int, failed: NDArray[np.bool_], began: float) -> Ended:
    causes = tuple(name for name, is_failing in zip(NAMES, failed, strict=True) if is_failing)
    promoted = float(began) if step == BAKE else np.inf
    where = STEPS[step] if causes or step < BAKE else "settled"
    return Ended(world, where, causes, promoted)


def walks(rollouts: int, processes: int, seed: int = 6) -> list[Ended]:
    """So many rollouts, spread over the worlds; the same ones with any number of processes."""
    every = [WORLDS[index % len(WORLDS)] for index in range(rollouts)]
    chunks = [every[first : first + CHUNK] for first in range(0, rollouts, CHUNK)]
    seeds = [(seed, number) for number in range(len(chunks))]
    if processes == 1:
        found = [walk_baked(*job) for job in zip(chunks, seeds, strict=True)]
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(walk_baked, chunks, seeds))
    return [one for chunk in found for one in chunk]


def walk_baked(worlds: Sequence[World], seed: Sequence[int]) -> list[Ended]:
    """Rollouts that go through the bake as well."""
    return walk(worlds, seed, with_bake=True)


def identical(rollouts: int, processes: int = 1) -> list[Finding]:
    """How whole rollouts of identical versions end, over all worlds and by kind of traffic."""
    ended = walks(rollouts, processes)
    found = _of_group("all", ended, 0.05)
    for spread, rho in sorted({(one.world.spread, one.world.correlation) for one in ended}):
        group = [one for one in ended if (one.world.spread, one.world.correlation) == (spread, rho)]
        callers = "callers differ" if spread else "callers alike"
        found += _of_group(f"{callers}, correlation {rho:g}", group, None if spread else 0.02)
    return found


def _of_group(what: str, ended: Sequence[Ended], target: float | None) -> list[Finding]:
    wrong = np.array([bool(one.causes) and one.step != STEPS[BAKE] for one in ended])
    took = np.array([one.windows for one in ended])
    promoted = np.isfinite(took)
    found = [share(what, "rolled back", wrong, target)]
    found += [
        share(what, name, wrong & np.array([name in one.causes for one in ended])) for name in NAMES
    ]
    found.append(share(what, "promoted", promoted))
    found.append(share(what, "undecided after 3 h", ~promoted & ~wrong))
    if promoted.any():
        reverted = np.array([one.step == STEPS[BAKE] for one in ended])
        found.append(needed(what, "windows to promotion", took[promoted], unit="windows"))
        found.append(share(what, "of those reverted in the bake", reverted[promoted]))
    return found
