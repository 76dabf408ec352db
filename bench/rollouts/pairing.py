"""Requests of shadow that class shares need, by pairs and by all requests of both arms.

Every request is copied, requests are independent, and half of the originals have each label. The
check is the default one: its tests, lines and alpha, with the correlation that is assumed of other
labels, which stable never gave.
"""

from dataclasses import dataclass

import numpy as np

from bench.findings import Finding, needed
from bench.rollouts.batched_evidence import CLASS_LINES
from measures.correlation import ASSUMED, Floats
from measures.pairs import Pairs, bet_to_pass
from measures.proportions import HarmTest, History, NonInferiorityTest, Window
from rollout.checks.rates import BETA, LEAST_TO_PASS

SEED = 19
_SIZE = 25.0  # requests a window
_LONGEST = 800  # windows
_ALPHA = 0.05 / 4
_CLASSES = 3  # two labels, and others, of which there are none
_RHO = np.array([0.0, 0.0, ASSUMED])


@dataclass(frozen=True)
class Change:
    """A candidate: shares of the originals of each label whose copies get the other one."""

    name: str
    first: float
    second: float
    is_fault: bool


CHANGES = (
    Change("the same answers: passes", 0.0, 0.0, is_fault=False),
    Change("2 % of the answers change, either way: passes", 0.02, 0.02, is_fault=False),
    Change("5 % of the answers change, either way: passes", 0.05, 0.05, is_fault=False),
    Change("5 points more of a label: caught", 0.1, 0.0, is_fault=True),
    Change("5 points more of a label, 5 % change besides: caught", 0.15, 0.05, is_fault=True),
    Change("10 points more of a label: caught", 0.2, 0.0, is_fault=True),
)


def until(change: Change, rollouts: int, *, paired: bool, seed: int) -> Floats:
    """The candidate's requests until its check said the right word, ``[rollouts]``."""
    rng = np.random.default_rng((SEED, seed))
    shape = (rollouts, _CLASSES)
    past = History(np.tile([250.0, 250.0, 0.0], (rollouts, 1)), np.full(shape, 500.0))
    harm, near = HarmTest.begin(shape), NonInferiorityTest.begin(shape)
    before: Floats = np.zeros((rollouts, 3, _CLASSES))
    found = np.full(rollouts, np.inf)
    for window in range(1, _LONGEST + 1):
        table = _table(change, rollouts, rng)
        pairs = Pairs.of(table, _CLASSES)
        if paired:
            nothing = Window(*(np.zeros(shape) for _ in range(4)))
            bet = bet_to_pass(before, CLASS_LINES.pass_)
            to_fail = pairs.log_to_fail(CLASS_LINES.fail, _RHO)
            to_pass = pairs.log_to_pass(CLASS_LINES.pass_, bet, _RHO)
            harm = harm.after(nothing, past, CLASS_LINES.fail, paired=to_fail)
            near = near.after(nothing, past, CLASS_LINES.pass_, paired=to_pass)
            before = pairs.added(before)
        else:
            both = Window(*np.moveaxis(pairs.arms, -2, 0))
            harm = harm.after(both, past, CLASS_LINES.fail, _RHO)
            near = near.after(both, past, CLASS_LINES.pass_, _RHO)
        if change.is_fault:
            done = harm.e_value().mean(axis=1) * _ALPHA >= 1
        else:
            done = (near.e_value() * BETA >= 1).all(axis=1) & (window * _SIZE >= LEAST_TO_PASS)
        found = np.minimum(found, np.where(done, window * _SIZE, np.inf))
        if np.isfinite(found).all():
            break
    return found


def _table(change: Change, rollouts: int, rng: np.random.Generator) -> Floats:
    """Requests of a window by both labels."""
    first = rng.binomial(int(_SIZE), 0.5, rollouts)
    lost = rng.binomial(first, change.first)
    second = int(_SIZE) - first
    gained = rng.binomial(second, change.second)
    table = np.zeros((rollouts, _CLASSES, _CLASSES))
    table[:, 0, 0], table[:, 0, 1] = first - lost, lost
    table[:, 1, 0], table[:, 1, 1] = gained, second - gained
    return table


def requests(rollouts: int) -> list[Finding]:
    """By pairs and by arms, for each change."""
    return [
        needed(change.name, where, until(change, rollouts, paired=paired, seed=seed))
        for seed, change in enumerate(CHANGES)
        for where, paired in (("by pairs", True), ("by all requests of both arms", False))
    ]
