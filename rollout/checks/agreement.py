"""Agreement: the share of equal labels on the same texts, in shadow, against a limit.

Two tests of one proportion that stay valid under continuous looking: to fail, that fewer agree than
the limit; to pass, that more do. After shadow the verdict stays as it is.

Evidence of a window is the likelihood of a fixed set of alternatives over that of the limit itself,
which is the null's point nearest to all of them. Pairs of one window depend on one another as
callers' texts do, so counts are divided by a design effect learnt from the windows before.
"""

from typing import Any, ClassVar, Self

import numpy as np
from msgspec.structs import replace

from contracts.rollout import CheckResult, Verdict
from contracts.windows import EvidenceCounts
from measures.correlation import Floats, IntraclassCorrelation, design_effect
from measures.state import SequentialState
from rollout.checks import words
from rollout.checks.rates import BETA
from rollout.checks.stage import ComparisonStage

AGREEMENT = "agreement"
LEAST_TO_PASS = 100  # pairs
# Odds of a different label, as multiples of those at the limit.
TO_FAIL = np.array([1.25, 1.5, 2.0, 4.0, 10.0])
TO_PASS = np.array([0.02, 0.1, 0.25, 0.5, 0.75])
_LEAST_DIFFERENT = 0.001  # a limit of 1 would need endless evidence


class PairAgreement(SequentialState, frozen=True):
    """Evidence about pairs.

    Attributes:
        pairs: how many were compared; ``different`` of them had other labels.
        log_fail: ``[len(TO_FAIL)]``, log-likelihood ratios against the limit.
        log_pass: ``[len(TO_PASS)]``, the same.
        correlation: of different labels, over shadow's windows.
        failed: the evidence was enough to fail at some window.
    """

    name: ClassVar[str] = AGREEMENT
    what: ClassVar[str] = "equal labels"
    nothing: ClassVar[str] = "no labels were compared yet"

    pairs: int
    different: int
    log_fail: Floats
    log_pass: Floats
    correlation: IntraclassCorrelation
    failed: bool = False

    @classmethod
    def begin(cls) -> Self:
        """Nothing known yet."""
        return cls(
            0, 0, np.zeros(len(TO_FAIL)), np.zeros(len(TO_PASS)), IntraclassCorrelation.begin(1)
        )

    def after(self, candidate: EvidenceCounts, at_least: float, alpha: float) -> Self:
        """Returns a copy with a window of shadow."""
        pairs, different = candidate.pairs, candidate.pairs - candidate.pairs_equal
        if pairs == 0:
            return self
        effect = float(design_effect(np.array(float(pairs)), float(self.correlation.each[0])))
        log_fail = self.log_fail + _log_ratio(TO_FAIL, pairs, different, at_least) / effect
        after = replace(
            self,
            pairs=self.pairs + pairs,
            different=self.different + different,
            log_fail=log_fail,
            log_pass=self.log_pass + _log_ratio(TO_PASS, pairs, different, at_least) / effect,
            correlation=self.correlation.after(
                np.array([float(different)]), np.array([float(pairs)])
            ),
        )
        return replace(after, failed=self.failed or after.evidence_to_fail * alpha >= 1.0)

    @property
    def evidence_to_fail(self) -> float:
        """The e-value: the mean over the alternatives."""
        return _mean(self.log_fail)

    @property
    def evidence_to_pass(self) -> float:
        """The e-value to pass."""
        return _mean(self.log_pass)

    @property
    def verdict(self) -> Verdict:
        """What the pairs say so far."""
        if self.failed:
            return Verdict.FAIL
        enough = self.pairs >= LEAST_TO_PASS and self.evidence_to_pass * BETA >= 1.0
        return Verdict.PASS if enough else Verdict.UNKNOWN

    def after_window(self, candidate: EvidenceCounts, check: Any, alpha: float) -> Self:  # noqa: ANN401
        """Returns a copy with a window of shadow; ``check`` is the spec's, of its own kind."""
        return self.after(candidate, check.at_least, alpha)

    def result(self, check: Any, alpha: float, stage: ComparisonStage) -> CheckResult:  # noqa: ANN401
        """The result; if shadow is over without a verdict, it is no longer waited for."""
        verdict = self.verdict
        equal = self.pairs - self.different
        start = f"{self.what.format(check=check)} {words.share_of(equal, self.pairs)}"
        limit = f"{words.percent(check.at_least)} asked for"
        reason = {
            Verdict.FAIL: (
                f"{start}: fewer than {limit}, {words.evidence(self.evidence_to_fail, 1 / alpha)}"
            ),
            Verdict.PASS: (
                f"{start}: at least the {limit}, {words.evidence(self.evidence_to_pass, 1 / BETA)}"
            ),
            Verdict.UNKNOWN: f"{start}: not yet known whether at least the {limit}",
        }[verdict]
        if self.pairs == 0:
            reason = self.nothing
        return CheckResult(
            name=self.name,
            verdict=verdict,
            reason=reason,
            figures={
                "pairs": float(self.pairs),
                "equal": float(equal),
                "at_least": check.at_least,
                "evidence_to_fail": self.evidence_to_fail,
                "needed_to_fail": 1 / alpha,
                "evidence_to_pass": self.evidence_to_pass,
                "needed_to_pass": 1 / BETA,
            },
            gate=check.gate,
            required=check.required and stage is ComparisonStage.SHADOW,
            needs=max(0, LEAST_TO_PASS - self.pairs) or None
            if verdict is Verdict.UNKNOWN
            else None,
        )


def _log_ratio(odds: Floats, pairs: int, different: int, at_least: float) -> Floats:
    limit = max(1.0 - at_least, _LEAST_DIFFERENT)
    theta = odds * limit / (1 - limit + odds * limit)
    ratio: Floats = different * np.log(theta / limit) + (pairs - different) * np.log(
        (1 - theta) / (1 - limit)
    )
    return ratio


def _mean(logs: Floats) -> float:
    return float(np.exp(np.minimum(logs, 690.0)).mean())
