"""How many labels show that a candidate is not less accurate: of pairs that disagree, and of any.

The arithmetic of pairs is ``measures.labelled_pairs``, over many rollouts at once; that of
labels of both arms is the test of the check ``quality``. Stable is wrong at 20 % of the texts and
5 % of the pairs disagree. Pairs are independent, the texts have two classes, so that one of two
different answers is right, and one looks after every label, or every hundred of both arms.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.findings import Finding, needed, share
from measures.correlation import Floats
from measures.labelled_pairs import Labels, bounds, is_not_worse
from measures.proportions import History, NonInferiorityTest, Tolerance, Window

SEED = 12
MARGIN = 0.02
WRONG = 0.2
DISAGREE = 0.05
BETA = 0.05
_MOST = 400  # labels of pairs
_MOST_OF_BOTH = 100_000
_BY_PAIRS = "labels of pairs that disagree"
_BY_BOTH = "labels of both versions' answers"


@dataclass(frozen=True)
class Version:
    """A candidate: how much less accurate it is than stable, and what is asked of the labels."""

    name: str
    worse: float


EQUAL = Version("as accurate: shown not to be worse by 2 points", 0.0)
LINE = Version("worse by 2 points: wrongly called not worse", 0.02)


def labels(rollouts: int) -> list[Finding]:
    """Labels until a good version passes; versions on the line that pass; how often bounds hold."""
    took = {
        f"{_BY_PAIRS}, {pairs:,} pairs": _until(EQUAL, pairs, rollouts)
        for pairs in (10_000, 50_000)
    }
    took[_BY_BOTH] = _until_of_both(rollouts)
    good = [needed(EQUAL.name, where, amounts) for where, amounts in took.items()]
    for most in (30, 60, 120, 240):
        what = f"as accurate: shown with {most} labels"
        good += [share(what, where, amounts <= most) for where, amounts in took.items()]
    for version in (LINE, Version("worse by 4 points: wrongly called not worse", 0.04)):
        good += [
            share(
                version.name,
                f"{_BY_PAIRS}, {pairs:,} pairs",
                np.isfinite(_until(version, pairs, rollouts)),
                BETA,
            )
            for pairs in (10_000, 50_000)
        ]
    for worse in (0.0, 0.01, 0.02):
        good += [
            share(
                f"worse by {100 * worse:g} points: the bounds ever leave it out",
                f"{_BY_PAIRS}, {pairs:,} pairs",
                _left_out(Version("", worse), pairs, rollouts),
                0.05,
            )
            for pairs in (10_000, 50_000)
        ]
    return good


def _drawn(version: Version, pairs: int, rollouts: int) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Whether the candidate is right, ``[_MOST, rollouts]``; pairs, and those that disagree."""
    rng = np.random.default_rng([SEED, round(1000 * version.worse), pairs])
    right = (1 - version.worse / DISAGREE) / 2
    disagree = rng.binomial(pairs, DISAGREE, rollouts).astype(float)
    return rng.random((_MOST, rollouts)) < right, np.full(rollouts, float(pairs)), disagree


def _until(version: Version, pairs: int, rollouts: int) -> Floats:
    """Labels until the version is called not worse, infinite where it never is."""
    right, compared, disagree = _drawn(version, pairs, rollouts)
    amounts, candidate = np.full(rollouts, np.inf), np.zeros(rollouts)
    for number, each in enumerate(right, start=1):
        candidate = candidate + each
        told = Labels(candidate, number - candidate, np.zeros(rollouts))
        shown = is_not_worse(told, compared, disagree, MARGIN, BETA)
        amounts = np.where(shown & np.isinf(amounts), number, amounts)
    return amounts


def _left_out(version: Version, pairs: int, rollouts: int) -> NDArray[np.bool_]:
    """Whether the bounds leave the true difference out after any of the labels."""
    right, compared, disagree = _drawn(version, pairs, rollouts)
    left, candidate = np.zeros(rollouts, dtype=np.bool_), np.zeros(rollouts)
    for number, each in enumerate(right, start=1):
        candidate = candidate + each
        found = bounds(
            Labels(candidate, number - candidate, np.zeros(rollouts)), compared, disagree
        )
        left |= (found.lower > -version.worse) | (found.upper < -version.worse)
    return left


def _until_of_both(rollouts: int) -> Floats:
    """The same by labels of independent answers of both versions, half of them of each."""
    rng = np.random.default_rng([SEED, 1])
    test, past = NonInferiorityTest.begin((rollouts, 1)), np.zeros((rollouts, 1))
    amounts, seen, half = np.full(rollouts, np.inf), 0, np.full((rollouts, 1), 50.0)
    while np.isinf(amounts).any() and seen < _MOST_OF_BOTH:
        wrong = rng.binomial(50, WRONG, (2, rollouts, 1)).astype(float)
        window = Window(wrong[0], half, wrong[1], half)
        test = test.after(window, History(past, past), Tolerance(MARGIN, 1.0))
        seen += 100
        shown = (test.e_value()[:, 0] >= 1 / BETA) & np.isinf(amounts)
        amounts = np.where(shown, seen, amounts)
    return amounts
