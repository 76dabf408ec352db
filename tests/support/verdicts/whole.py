"""Whole rollouts of identical versions: how many are wrongly rolled back, how long others take.

Each is judged by the checks of a default endpoint, as production does: after every window of 10 s,
from shadow to 5, 25 and 50 percent, and then through the bake of an hour. A failing check that
gates ends it; a step is over when every required check has passed.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from contracts.rollout import RolloutSpec
from contracts.windows import WINDOW_SECONDS
from measures.correlation import Floats
from rollout.checks.rates import LATENCY
from verdicts.batched_evidence import NAMES, BatchedEvidence
from verdicts.findings import Finding, needed, share
from verdicts.traffic import Arm, Harm, Places, World, harmed

HISTORY = 30  # windows of stable before
STEPS = ("shadow", "5 %", "25 %", "50 %", "bake")
# The candidate's part of the split in each step; copies of all requests in shadow.
LOW = np.array([0.0, 0.0, 0.0, 0.0, 0.0])
HIGH = np.array([np.inf, 0.05, 0.25, 0.5, 0.95])
SHARE = np.array([0.0, 0.05, 0.25, 0.5, 0.95])  # of callers on the candidate
BAKE = len(STEPS) - 1
BAKE_WINDOWS = round(RolloutSpec().bake / WINDOW_SECONDS)
LONGEST = round(RolloutSpec().deadline / WINDOW_SECONDS)  # windows, then it expires
CHUNK = 504  # rollouts side by side

WORLDS = tuple(
    World(requests, spread, correlation)
    for correlation, spread, requests in product(
        (0.0, 0.005, 0.02), (0.0, 0.3), (600.0, 1500.0, 4000.0)
    )
)


HARMS = (
    Harm("2 % of requests fail", fails=0.02),
    Harm("every answer takes half as long again", slower=1.5),
    Harm("one in four of a class is called the other", flips=0.25),
    Harm("2 % of requests fail, of callers alone", fails=0.02, in_shadow=False),
    Harm("one in four is called the other, of callers alone", flips=0.25, in_shadow=False),
)


@dataclass(frozen=True)
class RolloutEnd:
    """How one rollout went.

    Attributes:
        step: the one it ended in; ``settled`` where it went through all.
        causes: checks that ended it; empty at the deadline.
        windows: how many it took to be promoted; infinite where it never was.
        met: requests of callers that the candidate got, before its promotion.
        lasted: windows from its beginning to its end, whatever that was.
    """

    step: str
    causes: tuple[str, ...]
    windows: float
    met: float
    lasted: int

    @property
    def is_promoted(self) -> bool:
        """Whether it got all callers."""
        return bool(np.isfinite(self.windows))

    @property
    def is_back(self) -> bool:
        """Whether callers are back on the version before: by a check, or at the deadline."""
        return self.step != "settled"


class Traffic(Protocol):
    """The traffic of many endpoints at once, a row each."""

    def moved(self, rng: np.random.Generator) -> Self:
        """A window later."""
        ...

    def window(self, low: Floats, high: Floats, rng: np.random.Generator) -> tuple[Arm, Arm]:
        """Candidate and stable in this window, as ``verdicts.traffic.window``."""
        ...

    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        """Of some of the endpoints."""
        ...


def walk(
    worlds: Sequence[World], seed: Sequence[int], harm: Harm | None = None
) -> list[RolloutEnd]:
    """One rollout in each of these worlds, side by side, of identical versions or a harmful one."""
    rng = np.random.default_rng(list(seed))
    return walked(Places.of(list(worlds), rng), len(worlds), rng, harm)


def walked(
    traffic: Traffic,
    rollouts: int,
    rng: np.random.Generator,
    harm: Harm | None = None,
    *,
    shortest: int = 0,
    longest: int = LONGEST,
    bake: int = BAKE_WINDOWS,
) -> list[RolloutEnd]:
    """One rollout in each row of a traffic, which begins with stable's history.

    A step with callers takes ``shortest`` windows at least, the bake so many, and what is not
    promoted after ``longest`` expires.
    """
    evidence = BatchedEvidence.begin(rollouts, RolloutSpec().false_rollback)
    nobody = np.zeros(rollouts)
    for _ in range(HISTORY):
        traffic = traffic.moved(rng)
        evidence = evidence.with_history(traffic.window(nobody, nobody, rng)[1])
    ended: dict[int, RolloutEnd] = {}
    index = np.arange(rollouts)
    step, began, met = np.zeros(rollouts, dtype=np.int64), nobody, nobody
    answering = nobody  # windows in which callers met the candidate
    at = 0
    while len(index):
        at += 1
        traffic = traffic.moved(rng)
        candidate, stable = traffic.window(LOW[step], HIGH[step], rng)
        if harm is not None:
            candidate = harmed(candidate, harm, step == 0, rng, WINDOW_SECONDS * answering)
        answering = answering + (step > 0)
        met = met + candidate.requests * ((step > 0) & (step < BAKE))
        evidence = evidence.after(candidate, stable, SHARE[step], step == BAKE)
        on = _may_go_on(evidence, step) & (step < BAKE) & ~evidence.failed.any(axis=1)
        on &= (step == 0) | (at - began >= shortest)
        step, began = step + on, np.where(on, at, began)
        evidence = evidence.next_stage(on)
        is_over = evidence.failed.any(axis=1) | ((step == BAKE) & (at - began >= bake))
        is_over |= (at >= longest) & (step < BAKE)
        for row in np.flatnonzero(is_over):
            failed = evidence.failed[row]
            ended[int(index[row])] = _ended(int(step[row]), failed, began[row], met[row], at)
        if is_over.any():
            rows = np.flatnonzero(~is_over)
            index, step, began, met = index[rows], step[rows], began[rows], met[rows]
            answering = answering[rows]
            traffic, evidence = traffic.of_rows(rows), evidence.of_rows(rows)
    return [ended[row] for row in range(rollouts)]


def _may_go_on(evidence: BatchedEvidence, step: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where every required check passes: of shadows no latency, of few callers no answers."""
    passed = evidence.passed()
    passed[:, NAMES.index(LATENCY)] |= step == 0
    passed |= (step > 0)[:, None] & evidence.blurred(SHARE[step], step == BAKE - 1)
    return np.asarray(passed.all(axis=1))


def _ended(
    step: int, failed: NDArray[np.bool_], began: float, met: float, lasted: int
) -> RolloutEnd:
    causes = tuple(name for name, is_failing in zip(NAMES, failed, strict=True) if is_failing)
    promoted = float(began) if step == BAKE else np.inf
    where = STEPS[step] if causes or step < BAKE else "settled"
    return RolloutEnd(where, causes, promoted, float(met), lasted)


def walks(
    rollouts: int, processes: int, harm: Harm | None = None, seed: tuple[int, ...] = (6,)
) -> list[RolloutEnd]:
    """So many rollouts, spread over the worlds; the same ones with any number of processes."""
    every = [_world(index) for index in range(rollouts)]
    chunks = [every[first : first + CHUNK] for first in range(0, rollouts, CHUNK)]
    seeds = [(*seed, number) for number in range(len(chunks))]
    harms = [harm] * len(chunks)
    if processes == 1:
        found = [walk(*job) for job in zip(chunks, seeds, harms, strict=True)]
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(walk, chunks, seeds, harms))
    return [one for chunk in found for one in chunk]


def _world(index: int) -> World:
    """The traffic that a rollout meets."""
    return WORLDS[index % len(WORLDS)]


def identical(rollouts: int, processes: int = 1) -> list[Finding]:
    """How whole rollouts of identical versions end, over all worlds and by kind of traffic."""
    ended = walks(rollouts, processes)
    met = [(_world(index).spread, _world(index).correlation) for index in range(rollouts)]
    found = of_group("all", ended, 0.05)
    for spread, rho in sorted(set(met)):
        group = [one for one, its in zip(ended, met, strict=True) if its == (spread, rho)]
        callers = "callers differ" if spread else "callers alike"
        found += of_group(f"{callers}, correlation {rho:g}", group, None if spread else 0.02)
    return found


def of_group(what: str, ended: Sequence[RolloutEnd], target: float | None) -> list[Finding]:
    """How rollouts of identical versions ended, of which ``target`` at most may go back."""
    found = [share(what, "back, wrongly", np.array([one.is_back for one in ended]), target)]
    found += [
        share(what, f"by {name}", np.array([name in one.causes for one in ended])) for name in NAMES
    ]
    late = np.array([one.is_back and not one.causes for one in ended])
    found.append(share(what, "at the deadline of 24 h", late))
    took = np.array([one.windows for one in ended])
    return [*found, needed(what, "windows to promotion", took, unit="windows")]


def harmful(rollouts: int, processes: int = 1) -> list[Finding]:
    """How whole rollouts of harmful versions end, by harm and by whether callers differ."""
    found = []
    for number, harm in enumerate(HARMS):
        ended = walks(rollouts // len(HARMS), processes, harm, seed=(7, number))
        spreads = [_world(index).spread for index in range(len(ended))]
        for spread in sorted(set(spreads)):
            group = [one for one, its in zip(ended, spreads, strict=True) if its == spread]
            what = f"{harm.name}, callers {'differ' if spread else 'alike'}"
            promoted = np.array([one.is_promoted for one in group])
            met = np.array([one.met for one in group])
            found += [
                share(what, "promoted, wrongly", promoted, 0.05),
                share(what, "back in shadow", np.array([one.step == STEPS[0] for one in group])),
                share(what, "settled", np.array([not one.is_back for one in group])),
                needed(what, "requests that callers sent it before it went", met),
            ]
    return found
