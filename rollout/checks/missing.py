"""What is missing from the evidence: callers who gave up, and requests that never reached an arm.

Other checks judge what was answered. A candidate that hangs hides its failures from callers with
short patience, and one whose queues are long is passed over without an event. So ``hungUp``
compares the share of callers who gave up (499), and ``armShare`` the sizes of the arms with the
split that was asked for. Both are valid however long one looks.
"""

import math
from typing import Self

import numpy as np
from msgspec.structs import replace
from scipy.special import betaln

from contracts.rollout import ArmShareCheck, CheckResult, HungUpCheck, Verdict
from contracts.windows import EvidenceCounts
from measures.correlation import Floats, IntraclassCorrelation
from measures.proportions import (
    HarmTest,
    NonInferiorityTest,
    StableHistory,
    Tolerance,
    WindowCounts,
)
from measures.state import SequentialState
from rollout.checks import words
from rollout.checks.rates import BETA
from rollout.checks.stage import TAKEN_UP_WINDOWS

HUNG_UP = "hungUp"
ARM_SHARE = "armShare"
LEAST_TO_PASS = 100  # requests of the candidate
_MOST_EVIDENCE = 1e300  # that is told: JSON knows no infinity
_PRIOR_REQUESTS = 100.0  # that the believed share of an arm lies near the one that was asked for


class HangUps(SequentialState, frozen=True):
    """Evidence about callers who gave up, of requests that callers sent.

    Attributes:
        past: ``[2]``, stable's hung-up and all requests before the canary.
        correlation: of hanging up, over stable's windows before the canary.
        harm: that the candidate's callers give up more often.
        safe: that they do not, in this step.
        failed: the evidence was enough to fail at some window.
    """

    past: Floats
    correlation: IntraclassCorrelation
    harm: HarmTest
    safe: NonInferiorityTest
    failed: bool = False

    @classmethod
    def begin(cls) -> Self:
        """Nothing known yet."""
        return cls(
            np.zeros(2),
            IntraclassCorrelation.begin(1),
            HarmTest.begin((1,)),
            NonInferiorityTest.begin((1,)),
        )

    def with_history(self, stable: EvidenceCounts) -> Self:
        """Returns a copy with a window of stable before any canary."""
        events, requests = _hung_up(stable)
        return replace(
            self,
            past=self.past + np.array([events[0], requests[0]]),
            correlation=self.correlation.after(events, requests),
        )

    def after(
        self, candidate: EvidenceCounts, stable: EvidenceCounts, check: HungUpCheck, alpha: float
    ) -> Self:
        """With a window of both arms of callers."""
        window = WindowCounts(*_hung_up(candidate), *_hung_up(stable))
        if window.n_c[0] == 0 or window.n_s[0] == 0:
            return self
        past, rho = StableHistory(self.past[:1], self.past[1:]), self.correlation.each
        fail = Tolerance(np.array([check.fail.absolute]), np.array([check.fail.relative]))
        line = Tolerance(np.array([check.pass_.absolute]), np.array([check.pass_.relative]))
        harm = self.harm.after(window, past, fail, rho)
        failed = self.failed or float(harm.e_value()[0]) * alpha >= 1.0
        safe = self.safe.after(window, past, line, rho)
        return replace(self, harm=harm, safe=safe, failed=failed)

    def next_stage(self) -> Self:
        """In another step: what lets it pass is asked again."""
        return replace(self, safe=NonInferiorityTest.begin((1,)))

    @property
    def verdict(self) -> Verdict:
        """What is known so far."""
        if self.failed:
            return Verdict.FAIL
        enough = self.safe.n_c[0] >= LEAST_TO_PASS
        return Verdict.PASS if enough and self._to_pass * BETA >= 1.0 else Verdict.UNKNOWN

    @property
    def _to_pass(self) -> float:
        return min(float(self.safe.e_value()[0]), _MOST_EVIDENCE)

    def result(self, check: HungUpCheck, alpha: float) -> CheckResult:
        """The result with its figures, of the step."""
        safe, to_fail = self.safe, min(float(self.harm.e_value()[0]), _MOST_EVIDENCE)
        verdict = self.verdict
        arms = (
            f"callers gave up at {words.share_of(safe.e_c[0], safe.n_c[0])} against "
            f"{words.share_of(safe.e_s[0], safe.n_s[0])}"
        )
        more = f"more often{words.by_more_than(check.fail)}"
        ending = {
            Verdict.FAIL: f"{more}, {words.evidence(to_fail, 1 / alpha)}",
            Verdict.PASS: f"not more often{words.by_more_than(check.pass_)}",
            Verdict.UNKNOWN: "not yet known",
        }[verdict]
        return CheckResult(
            name=HUNG_UP,
            verdict=verdict,
            reason=f"{arms}: {ending}",
            figures={
                "candidate_events": float(safe.e_c[0]),
                "candidate_requests": float(safe.n_c[0]),
                "stable_events": float(safe.e_s[0]),
                "stable_requests": float(safe.n_s[0]),
                "evidence_to_fail": to_fail,
                "needed_to_fail": 1 / alpha,
                "evidence_to_pass": self._to_pass,
                "needed_to_pass": 1 / BETA,
            },
            gate=check.gate,
            required=check.required,
        )


class ArmShares(SequentialState, frozen=True):
    """The arms' sizes against the split (sample ratio mismatch), step by step.

    Requests of callers without a name are spread one by one, by a hash of the request, so that
    their number in an arm is binomial. Named callers differ in how much they send, and tell
    nothing of the split. The null is that the arm's share lies within the tolerance; the evidence
    is the probability of the counts under a beta mixture over the largest that the null allows
    (Lindon and Malek, Anytime-valid inference for multinomial count data, NeurIPS 2022, arXiv
    2011.03567, with the null widened). Step number i may spend alpha / (i (i + 1)).

    Attributes:
        step: number of steps of callers so far.
        waits: windows that are still left out, until every gateway has the step's split.
        share: of callers, that the candidate was asked to have.
        candidate: its requests without a caller's name, in this step.
        stable: the same of stable.
        failed: the evidence was enough to fail at some window.
    """

    step: int = 0
    waits: int = 0
    share: float = 0.0
    candidate: int = 0
    stable: int = 0
    failed: bool = False

    def after(
        self,
        candidate: EvidenceCounts,
        stable: EvidenceCounts,
        share: float,
        check: ArmShareCheck,
        alpha: float,
    ) -> Self:
        """Adds a window of both arms of callers, of whom the candidate is to have this share."""
        if not 0 < share < 1:
            return self
        now = self
        if share != self.share:
            step = self.step + 1
            now = replace(
                self, step=step, waits=TAKEN_UP_WINDOWS, share=share, candidate=0, stable=0
            )
        if now.waits:
            return replace(now, waits=now.waits - 1)
        now = replace(
            now, candidate=now.candidate + candidate.unnamed, stable=now.stable + stable.unnamed
        )
        failed = now.failed or now.evidence(check) * alpha >= now.step * (now.step + 1)
        return replace(now, failed=failed)

    def evidence(self, check: ArmShareCheck) -> float:
        """The e-value of this step, that the share is not within the tolerance."""
        total = self.candidate + self.stable
        if not total:
            return 1.0
        low, high = _bounds(self.share, check)
        nearest = min(max(self.candidate / total, low), high)
        return math.exp(min(690.0, self._log_mixture() - self._log_likelihood(nearest)))

    def verdict(self, check: ArmShareCheck) -> Verdict:
        """What is known so far; it passes if both bounds of the tolerance are unlikely."""
        if self.failed:
            return Verdict.FAIL
        total, (low, high) = self.candidate + self.stable, _bounds(self.share, check)
        if not total or not low < self.candidate / total < high:
            return Verdict.UNKNOWN
        least = min(self._log_mixture() - self._log_likelihood(bound) for bound in (low, high))
        return Verdict.PASS if least >= math.log(1 / BETA) else Verdict.UNKNOWN

    def result(self, check: ArmShareCheck, alpha: float) -> CheckResult:
        """The result with its figures, of the step."""
        verdict, total = self.verdict(check), self.candidate + self.stable
        found, needed = self.evidence(check), self.step * (self.step + 1) / alpha
        asked = words.percent(self.share)
        reason = (
            f"of the requests without a caller's name {words.share_of(self.candidate, total)} "
            f"reached the candidate, {asked} were to: "
        )
        reason += {
            Verdict.FAIL: "the arms are not what the split says, so they can't be compared",
            Verdict.PASS: f"within {words.percent(check.tolerance)} of that",
            Verdict.UNKNOWN: "not yet known",
        }[verdict]
        return CheckResult(
            name=ARM_SHARE,
            verdict=verdict,
            reason=reason if total else "no requests without a caller's name were counted yet",
            figures={
                "candidate_requests": float(self.candidate),
                "stable_requests": float(self.stable),
                "share": self.share,
                "evidence_to_fail": found,
                "needed_to_fail": needed,
            },
            gate=check.gate,
            required=check.required,
        )

    def _log_mixture(self) -> float:
        one, other = _PRIOR_REQUESTS * self.share, _PRIOR_REQUESTS * (1 - self.share)
        return float(betaln(one + self.candidate, other + self.stable) - betaln(one, other))

    def _log_likelihood(self, share: float) -> float:
        return self.candidate * math.log(share) + self.stable * math.log1p(-share)


def _bounds(share: float, check: ArmShareCheck) -> tuple[float, float]:
    """The least and the largest share within the tolerance, which is of the smaller arm."""
    apart = check.tolerance * min(share, 1 - share)
    return max(share - apart, 1e-9), min(share + apart, 1 - 1e-9)


def _hung_up(counts: EvidenceCounts) -> tuple[Floats, Floats]:
    return np.array([float(counts.hung_up)]), np.array([float(counts.requests + counts.hung_up)])
