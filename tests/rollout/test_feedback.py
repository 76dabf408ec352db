"""Feedback that comes seldom or late: every label counts once, for the version that it is about."""

import numpy as np
import pytest
from evidence_windows import NEW, OLD, aggregate, only, window
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.rollout import CheckResult, QualityCheck, RolloutSpec, RolloutState, WeightStep
from contracts.windows import EndpointWindow, EvidenceCounts
from rollout.checks.rates import LEAST_FEEDBACK, split_in_blocks
from rollout.evidence import ComparisonStage, Evidence
from rollout.judge import WindowsJudge

SPEC = RolloutSpec(steps=(WeightStep(weight=50),), checks=only(quality=QualityCheck()))
NOTHING = EvidenceCounts()


def told(wrong: int, of: int, requests: int = 10) -> EvidenceCounts:
    return EvidenceCounts(requests=requests, feedback=of, feedback_wrong=wrong)


def begun() -> Evidence:
    evidence = Evidence.begin(SPEC.checks, 0.05, ("a",), ComparisonStage.CANARY)
    for _ in range(20):
        evidence = evidence.with_history(EvidenceCounts(requests=100, feedback=5, feedback_wrong=1))
    return evidence.with_share(0.5)


def quality(evidence: Evidence) -> CheckResult:
    return next(result for result in evidence.results() if result.name == "quality")


@pytest.mark.slow
def test_labels_that_never_share_a_window_are_evidence_together() -> None:
    evidence = begun()
    for _ in range(200):
        evidence = evidence.after(told(1, 1), told(0, 0), 10).after(told(0, 0), told(0, 1), 10)
    assert quality(evidence).verdict == "fail"
    figures = quality(evidence).figures
    assert (figures["candidate_requests"], figures["stable_requests"]) == (200, 200)


def test_labels_of_windows_without_a_request_in_an_arm_are_evidence_too() -> None:
    evidence = begun()
    for _ in range(200):
        evidence = evidence.after(told(1, 1, requests=0), told(0, 1), 10)
    assert quality(evidence.after(told(1, 1), told(0, 1), 10)).verdict == "fail"


def test_what_waits_survives_being_stored_and_ends_with_the_step() -> None:
    evidence = begun().after(told(1, 1), told(0, 0), 10)
    stored = Evidence.of_json(evidence.to_json())
    assert stored.rates.feedback is not None
    assert stored.rates.feedback.tolist() == [1, 1, 0, 0]
    assert stored.next_stage(ComparisonStage.CANARY).rates.feedback is None


counts = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


@given(st.lists(counts, min_size=1, max_size=30))
def test_no_label_is_lost_and_answers_do_not_decide_when_labels_are_compared(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    windows = [np.array([min(a, b), b, min(c, d), d], dtype=float) for a, b, c, d in drawn]
    waiting, flipped, total = np.zeros(4), np.zeros(4), np.zeros(4)
    for window_ in windows:
        other = window_.copy()
        other[[0, 2]] = window_[[1, 3]] - window_[[0, 2]]  # right for wrong
        compared, waiting = split_in_blocks(window_, waiting)
        compared_too, flipped = split_in_blocks(other, flipped)
        assert (compared[[1, 3]] == compared_too[[1, 3]]).all()
        assert compared[1] == compared[3] == 0 or min(compared[1], compared[3]) >= LEAST_FEEDBACK
        total += compared
    assert (total + waiting == np.sum(windows, axis=0)).all()


# Through the judge


def state(promoted_at: float | None) -> RolloutState:
    return RolloutState(
        id="r", candidate=NEW, stable=OLD, began=0.0, step_began=0.0, promoted_at=promoted_at
    )


def judged(windows: list[EndpointWindow], promoted_at: float | None) -> CheckResult:
    judge = WindowsJudge()
    begun_ = judge.begin(SPEC, state(promoted_at), ())
    checks = judge.look(SPEC, begun_, windows).checks
    return next(check for check in checks if check.name == "quality")


def late(start: int, *, requests: int) -> EndpointWindow:
    """In the bake, feedback on answers that both versions gave before the promotion."""
    return window(
        start,
        aggregate(NEW, Arm.STABLE, start, told(0, 0, requests)),
        aggregate(OLD, Arm.CONTROL, start, told(0, 0, requests)),
        aggregate(NEW, Arm.CANARY, start, told(1, 1, 0)),
        aggregate(OLD, Arm.STABLE, start, told(0, 1, 0)),
    )


@pytest.mark.slow
def test_feedback_on_answers_before_the_promotion_belongs_to_the_version_that_gave_them() -> None:
    for requests in (10, 0):  # also where nobody asked in that window
        windows = [late(10 * at, requests=requests) for at in range(200)]
        windows.append(late(2000, requests=10))
        found = judged(windows, promoted_at=0.0)
        assert found.verdict == "fail"
        assert found.figures["candidate_events"] == found.figures["candidate_requests"] == 201


def test_before_the_promotion_each_arm_has_its_own_feedback_alone() -> None:
    windows = [late(10 * at, requests=0) for at in range(50)]
    found = judged(windows, promoted_at=None)
    assert (found.figures["candidate_requests"], found.figures["stable_requests"]) == (50, 50)
