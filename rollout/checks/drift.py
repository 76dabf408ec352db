"""Drift: is the candidate further from its own reference profile than stable is from its.

What drifts for both arms alike is no fault of the candidate. The check only reports, unless the
spec lets it gate. Counts add over the rollout. It looks as seldom as output shift does, and spreads
its error over the looks and the statistics.

The excess is the difference of two population stability indices, each less what equal samples would
show, with its standard error by the delta method.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np
from msgspec.structs import replace
from scipy.special import ndtr

from contracts.profile import ReferenceProfile
from contracts.rollout import CheckResult, DriftCheck, Verdict
from contracts.statistics import EDGES, Statistic
from contracts.windows import Sparse, WindowAggregate
from measures.correlation import Floats
from measures.histograms import LEAST, add_counts, dense, merge_bins, stability_index, starts
from measures.state import SequentialState
from rollout.checks import words
from rollout.checks.rates import BETA

DRIFT = "drift"
LABELS = "labels"
FIRST_LOOK = 500  # the candidate's texts
GROWTH = 1.25
SMALLEST_BIN = 0.02  # of the reference
# Texts of a request and of a caller are alike: this number of them counts as one.
EFFECT = 2.0


@dataclass(frozen=True)
class ArmAggregates:
    """What lies beside the counts that other checks rest on.

    Attributes:
        candidate: its aggregate in the window.
        stable: the same of stable.
        candidate_profile: of its package; None if there is none.
        stable_profile: the same of stable.
    """

    candidate: WindowAggregate
    stable: WindowAggregate
    candidate_profile: ReferenceProfile | None = None
    stable_profile: ReferenceProfile | None = None


class DriftLook(SequentialState, frozen=True, array_like=True):
    """What the last look saw, of the statistic with the largest excess for its error."""

    statistic: str
    candidate_psi: float
    stable_psi: float
    error: float


class Drifts(SequentialState, frozen=True):
    """Counts of both arms since the rollout began, by statistic, and what the looks said."""

    candidate: dict[str, Sparse] = msgspec.field(default_factory=dict)
    stable: dict[str, Sparse] = msgspec.field(default_factory=dict)
    texts: int = 0
    looks: int = 0
    seen: DriftLook | None = None
    failed: bool = False
    passed: bool = False

    def after(self, arms: ArmAggregates, check: DriftCheck, alpha: float) -> Self:
        """Returns a copy with one more window, and a look if one is due."""
        of_candidate, of_stable = arms.candidate_profile, arms.stable_profile
        if of_candidate is None or of_stable is None:
            return self
        summed = replace(
            self,
            candidate=_add(self.candidate, _counts(arms.candidate, of_candidate)),
            stable=_add(self.stable, _counts(arms.stable, of_stable)),
            texts=self.texts + arms.candidate.texts,
        )
        grown = math.log(max(summed.texts, FIRST_LOOK) / FIRST_LOOK) / math.log(GROWTH)
        reached = 0 if summed.texts < FIRST_LOOK else math.floor(grown + 1e-9) + 1
        if reached <= self.looks:
            return summed
        spend = 1 / (self.looks + 1) - 1 / (reached + 1)
        looks = [
            look
            for name in summed.candidate
            if (look := _look(name, summed.candidate, summed.stable, of_candidate, of_stable))
        ]
        if not looks:
            return replace(summed, looks=reached)
        scores = [(_excess(look) - check.excess) / max(look.error, 1e-12) for look in looks]
        worst = int(np.argmax(scores))
        return replace(
            summed,
            looks=reached,
            seen=looks[worst],
            failed=self.failed or float(ndtr(-scores[worst])) <= alpha * spend / len(looks),
            passed=float(ndtr(scores[worst])) <= BETA * spend,
        )

    @property
    def verdict(self) -> Verdict:
        """What the looks said so far."""
        if self.failed:
            return Verdict.FAIL
        return Verdict.PASS if self.passed else Verdict.UNKNOWN

    def result(self, check: DriftCheck) -> CheckResult:
        """The result: which statistic is furthest off, in both arms."""
        verdict, seen = self.verdict, self.seen
        if seen is None:
            reason = (
                f"{words.count(self.texts)} texts of the candidate, "
                f"{FIRST_LOOK} and both reference profiles are needed"
            )
            figures = {"texts": float(self.texts)}
        else:
            ending = {
                Verdict.FAIL: f"more than {check.excess:g} beyond stable's",
                Verdict.PASS: f"not {check.excess:g} beyond stable's",
                Verdict.UNKNOWN: f"not yet known whether {check.excess:g} beyond stable's",
            }[verdict]
            reason = (
                f"PSI of {seen.statistic} {seen.candidate_psi:.3f} against "
                f"{seen.stable_psi:.3f}: {ending}"
            )
            figures = {
                "texts": float(self.texts),
                "candidate_psi": seen.candidate_psi,
                "stable_psi": seen.stable_psi,
                "standard_error": seen.error,
                "tolerated": check.excess,
            }
        return CheckResult(
            name=DRIFT,
            verdict=verdict,
            reason=reason,
            figures=figures,
            gate=check.gate,
            required=check.required,
        )


def _look(
    name: str,
    candidate: Mapping[str, Sparse],
    stable: Mapping[str, Sparse],
    of_candidate: ReferenceProfile,
    of_stable: ReferenceProfile,
) -> DriftLook | None:
    one = _index(candidate[name], _reference(of_candidate, name))
    other = _index(stable.get(name, {}), _reference(of_stable, name))
    if one is None or other is None:
        return None
    return DriftLook(name, one[0], other[0], math.sqrt(one[1] + other[1]))


def _index(counts: Sparse, reference: Floats) -> tuple[float, float] | None:
    """PSI less what equal samples would show, and its variance; None if too little is known."""
    n = float(reference.sum())
    m = float(sum(counts.values())) / EFFECT
    if n < LEAST or m < LEAST:
        return None
    at = starts(reference, max(LEAST, SMALLEST_BIN * n))
    seen, known = merge_bins(dense(counts, len(reference)) / EFFECT, at), merge_bins(reference, at)
    p, r = (seen + 0.5) / (seen + 0.5).sum(), (known + 0.5) / (known + 0.5).sum()
    of_p, of_r = np.log(p / r) + 1 - r / p, 1 - p / r - np.log(p / r)
    variance = _variance(of_p, p) / m + _variance(of_r, r) / n
    # Near no drift the slope is 0: the scatter of the chi-square that PSI then is.
    degrees = len(at) - 1
    variance += 2 * degrees * (1 / m + 1 / n) ** 2
    return float(stability_index(seen, known)) - degrees * (1 / m + 1 / n), variance


def _variance(slope: Floats, shares: Floats) -> float:
    return float((shares * slope**2).sum() - (shares * slope).sum() ** 2)


def _excess(look: DriftLook) -> float:
    return look.candidate_psi - max(0.0, look.stable_psi)


def _reference(profile: ReferenceProfile, name: str) -> Floats:
    if name == LABELS:
        return np.array([*profile.labels.values(), 0], dtype=np.float64)
    return np.array(profile.histograms.get(Statistic(name), ()), dtype=np.float64)


def _counts(aggregate: WindowAggregate, profile: ReferenceProfile) -> dict[str, Sparse]:
    """A window's counts of what the profile knows; labels by their place in it."""
    counts: dict[str, Sparse] = {
        statistic.value: aggregate.histograms[statistic.value]
        for statistic in EDGES
        if statistic in profile.histograms and statistic.value in aggregate.histograms
    }
    if profile.labels and aggregate.labels:
        places = {label: place for place, label in enumerate(profile.labels)}
        labels: Sparse = {}
        for label, count in aggregate.labels.items():
            place = places.get(label, len(places))
            labels[place] = labels.get(place, 0) + count
        counts[LABELS] = labels
    return counts


def _add(sums: Mapping[str, Sparse], more: Mapping[str, Sparse]) -> dict[str, Sparse]:
    added = {name: dict(counts) for name, counts in sums.items()}
    add_counts(added, more)
    return added
