"""Score agreement: the share of texts whose score stays near stable's on the same texts, in shadow.

For versions of one label and for rankers, whose labels never differ: their answers are scores. The
differences come in buckets of a tenth, and only what lies wholly beyond ``within`` counts as
different. The rest, from evidence to verdict, is that of agreement of labels.
"""

from typing import ClassVar, Self

from contracts.rollout import CheckResult, ScoreAgreementCheck
from contracts.statistics import EDGES, Statistic
from contracts.windows import EvidenceCounts
from rollout.checks.agreement import PairAgreement
from rollout.checks.stage import ComparisonStage

SCORE_AGREEMENT = "scoreAgreement"
# A bucket of ``pair_scores`` holds (1 + difference) / 2 between two of these.
_UPPER = EDGES[Statistic.SCORE].upper
_ROUNDING = 1e-6


class ScoreAgreement(PairAgreement, frozen=True):
    """Evidence about pairs of scores; ``different`` are those that are too far apart."""

    name: ClassVar[str] = SCORE_AGREEMENT
    what: ClassVar[str] = "scores within {check.within:g} of the stable version's"
    nothing: ClassVar[str] = "no scores were compared yet"

    def after_window(
        self, candidate: EvidenceCounts, check: ScoreAgreementCheck, alpha: float
    ) -> Self:
        """Returns a copy with a window of shadow."""
        return self.after(compare_scores(candidate, check.within), check.at_least, alpha)

    def result(
        self, check: ScoreAgreementCheck, alpha: float, stage: ComparisonStage
    ) -> CheckResult:
        """The result, with ``within`` among its figures."""
        found = super().result(check, alpha, stage)
        return found.model_copy(update={"figures": {**found.figures, "within": check.within}})


def compare_scores(candidate: EvidenceCounts, within: float) -> EvidenceCounts:
    """Pairs of scores, of which those are equal whose difference may be ``within``."""
    pairs = equal = 0
    for bucket, count in candidate.pair_scores.items():
        pairs += count
        equal += count * (_least_difference(bucket) <= within - _ROUNDING)
    return EvidenceCounts(pairs=pairs, pairs_equal=equal)


def _least_difference(bucket: int) -> float:
    """The smallest difference of two scores, up or down, that falls into a bucket."""
    lower = 2 * _UPPER[bucket - 1] - 1 if bucket > 0 else -1.0
    upper = 2 * _UPPER[bucket] - 1 if bucket < len(_UPPER) else 1.0
    return max(0.0, lower, -upper)
