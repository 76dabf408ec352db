"""Same space: the share of texts whose vectors are near stable's and find the same neighbours.

Of a version that claims stable's vector space, in shadow. Neighbours are looked for as a search
does that has an index of stable's vectors: both vectors of a text ask it. From evidence to verdict
it is an agreement of pairs.
"""

from typing import ClassVar, Self

from msgspec.structs import replace

from contracts.rollout import CheckResult, SameSpaceCheck
from contracts.windows import NEAREST, SPACE_EDGES, EvidenceCounts
from rollout.checks import words
from rollout.checks.agreement import PairAgreement
from rollout.checks.stage import ComparisonStage

SAME_SPACE = "sameSpace"
_ROUNDING = 1e-9


class SameSpace(PairAgreement, frozen=True):
    """Evidence about pairs of vectors; ``different`` are those that are not alike.

    Attributes:
        near: pairs whose cosine is large enough.
        shared: neighbours that both vectors found, of all pairs.
    """

    name: ClassVar[str] = SAME_SPACE
    what: ClassVar[str] = "vectors alike"
    nothing: ClassVar[str] = (
        "no vectors were compared yet: their neighbours need 50 different texts"
    )

    near: int = 0
    shared: int = 0

    def after_window(self, candidate: EvidenceCounts, check: SameSpaceCheck, alpha: float) -> Self:
        """Returns a copy with a window of shadow."""
        pairs = alike = near = found = 0
        most = (1 - check.cosine) / 2 + _ROUNDING
        for at, count in candidate.pair_nearness.items():
            bucket, shared = divmod(at, NEAREST + 1)
            is_near = bucket < len(SPACE_EDGES) and SPACE_EDGES[bucket] <= most
            pairs, near, found = pairs + count, near + count * is_near, found + count * shared
            alike += count * (is_near and shared >= check.neighbours * NEAREST - _ROUNDING)
        counts = EvidenceCounts(pairs=pairs, pairs_equal=alike)
        after = self.after(counts, check.at_least, alpha)
        return replace(after, near=self.near + near, shared=self.shared + found)

    def result(self, check: SameSpaceCheck, alpha: float, stage: ComparisonStage) -> CheckResult:
        """The result, with cosines and neighbours among its figures."""
        neighbours = self.shared / (NEAREST * self.pairs) if self.pairs else 0.0
        found = super().result(check, alpha, stage)
        figures = {"cosine": check.cosine, "near": float(self.near), "neighbours": neighbours}
        of_pairs = (
            f"; a cosine of {check.cosine:g} has {words.share_of(self.near, self.pairs)}, and both "
            f"find {words.percent(neighbours)} of the nearest texts"
        )
        reason = found.reason + (of_pairs if self.pairs else "")
        return found.model_copy(update={"reason": reason, "figures": {**found.figures, **figures}})
