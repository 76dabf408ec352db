"""Output shift of an endpoint's answers: of labels if it answers labels, of norms of vectors.

If the labels are not known before, stable's first answers show which of the two it is.
"""

from typing import Self

import numpy as np
from msgspec.structs import replace

from contracts.rollout import CheckResult, OutputShiftCheck, Verdict
from contracts.statistics import EDGES, Statistic
from contracts.windows import EvidenceCounts
from measures.correlation import Floats, RequestTexts
from measures.histograms import dense
from measures.state import SequentialState
from rollout.checks import shift
from rollout.checks.callers import MOST_CALLER_SPREAD, GroupCounts
from rollout.checks.left_out import classes_by_group
from rollout.checks.rates import LEAST_TO_PASS
from rollout.checks.rows import by_label, count_answers, pair_norms
from rollout.checks.shift import ShiftTest

OUTPUT_SHIFT = "outputShift"
_NORM_BINS = len(EDGES[Statistic.VECTOR_NORM].upper) + 1


class Outputs(SequentialState, frozen=True):
    """The test of answers.

    Attributes:
        labels: what is compared one by one; others share a class. Empty for vectors.
        test: None while stable's answers have shown neither labels nor norms.
        is_settled: it passed in shadow, where both arms had the same requests.
    """

    labels: tuple[str, ...]
    test: ShiftTest | None
    is_settled: bool = False

    @classmethod
    def begin(cls, labels: tuple[str, ...] = ()) -> Self:
        """No evidence; of labels, or of what is not known yet."""
        if not labels:
            return cls(labels, None)
        return cls(labels, ShiftTest.begin(len(labels) + 1, is_grouped=True))

    @classmethod
    def of_norms(cls) -> Self:
        """No evidence; of vectors."""
        return cls((), ShiftTest.begin(_NORM_BINS))

    @property
    def are_vectors(self) -> bool:
        """Whether norms are compared."""
        return self.test is not None and not self.labels

    def pair_norms(self, copies: EvidenceCounts) -> Floats | None:
        """Norms of vectors and of their originals, ``[bins, bins]``; None if none are told."""
        return pair_norms(copies, _NORM_BINS) if self.are_vectors else None

    def with_history(self, stable: EvidenceCounts) -> Self:
        """Returns a copy with a window of stable from before the rollout."""
        if self.test is None:
            return self
        return replace(self, test=self.test.with_history(self._counts(stable)))

    def after(
        self,
        candidate: EvidenceCounts,
        stable: EvidenceCounts,
        check: OutputShiftCheck,
        alpha: float,
        *,
        caller_spread: float = 0.0,
        before_canary: bool,
        pairs: Floats | None = None,
        texts: RequestTexts | None = None,
        is_alone: bool = False,
        near: float = 1.0,
    ) -> Self:
        """Adds a window of both arms, whose labels callers may set apart by ``caller_spread``.

        With ``pairs`` of shadow (``rows.pair_labels``, ``pair_norms``), the originals of the copies
        take the place of all of stable's requests. Pairs scatter less than the arms that the test
        assumes: it errs more rarely than it may. ``texts`` tell how much labels of one request
        resemble one another; among pairs a request counts once. ``is_alone``: one group of callers
        is nearly all of an arm, and is not left out. ``near``: this many requests count as
        one besides, for a caller's of near windows.
        """
        if self.test is None:
            return self
        if pairs is not None:
            asked = shift.limits(check.distance, alpha, caller_spread)
            test = self.test.after(pairs.sum(axis=0), pairs.sum(axis=1), asked, before_canary=False)
            return replace(self, test=test.with_history(self._counts(stable)))
        test = self.test.after(
            self._counts(candidate),
            self._counts(stable),
            shift.limits(check.distance, alpha, caller_spread),
            texts,
            None
            if before_canary or not self.labels
            else self._groups(candidate, stable, is_alone=is_alone),
            before_canary=before_canary,
            near=near if self.labels else 1.0,
        )
        return replace(self, test=test)

    def next_stage(self, *, is_end_of_shadow: bool = False) -> Self:
        """Returns a copy with the evidence to pass begun again."""
        is_settled = self.is_settled
        if is_end_of_shadow:
            is_settled = shift.verdict(self.test) is Verdict.PASS
        test = self.test.next_stage() if self.test else None
        return replace(self, test=test, is_settled=is_settled)

    def restart(self) -> Self:
        """Returns a copy with no evidence, but what is known of stable."""
        return replace(self, test=self.test.restart() if self.test else None, is_settled=False)

    def result(
        self,
        check: OutputShiftCheck,
        alpha: float,
        caller_spread: float,
        *,
        is_last_step: bool = False,
    ) -> CheckResult:
        """What the test says, if callers make ``caller_spread`` of the distance at most.

        In the last step it must have passed at a distance that is larger by that.
        """
        seen = float(self.test.passes.n_c) if self.test else 0.0
        is_hidden = caller_spread > MOST_CALLER_SPREAD * check.distance and seen >= LEAST_TO_PASS
        if is_last_step and self.test is not None:
            is_hidden = is_hidden and bool(self.test.passes.passed_beyond_callers)
        return shift.result(
            self.test,
            OUTPUT_SHIFT,
            "norms" if self.are_vectors else "labels",
            shift.limits(check.distance, alpha, caller_spread),
            check,
            is_settled=self.is_settled and is_hidden,
        )

    def _groups(
        self, candidate: EvidenceCounts, stable: EvidenceCounts, *, is_alone: bool
    ) -> shift.Groups:
        one, other = (
            classes_by_group(GroupCounts.of(arm, self.labels)) for arm in (candidate, stable)
        )
        return shift.Groups(one, other, is_alone=is_alone)

    def _counts(self, evidence: EvidenceCounts) -> Floats:
        if self.labels:
            return np.array(by_label(count_answers(evidence), self.labels), dtype=np.float64)
        norms = dense(evidence.norms, _NORM_BINS) + dense(evidence.cached_norms, _NORM_BINS)
        return norms.astype(np.float64)
