"""Feedback that comes seldom or late: every label counts once, for the version that it is about."""

import numpy as np
import pytest
from evidence_windows import NEW, OLD, aggregate, only, window
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.rollout import CheckResult, QualityCheck, RolloutSpec, RolloutState, WeightStep
from contracts.windows import (
    AGE_STRIDE,
    CALLER_GROUPS,
    LABEL_AGES,
    EndpointWindow,
    EvidenceCounts,
    age_class,
)
from measures import merging
from rollout.checks.labels import LEAST_FEEDBACK, about_answers, counted, in_blocks
from rollout.evidence import Evidence, Stage
from rollout.judge import Judge

SPEC = RolloutSpec(steps=(WeightStep(weight=50),), checks=only(quality=QualityCheck()))
NOTHING = EvidenceCounts()


def told(wrong: int, of: int, requests: int = 10, *, age: float = 0.0) -> EvidenceCounts:
    """Labels of callers without a name, which came so many seconds after the answers."""
    aged = age_class(age) * AGE_STRIDE + CALLER_GROUPS
    return EvidenceCounts(
        requests=requests,
        feedback=of,
        feedback_wrong=wrong,
        aged_feedback={aged: of} if of else {},
        aged_wrong={aged: wrong} if wrong else {},
    )


def begun() -> Evidence:
    evidence = Evidence.begin(SPEC.checks, 0.05, ("a",), Stage.CANARY)
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
    assert stored.rates.feedback[:, 0, 0].tolist() == [1, 1, 0, 0]
    assert not stored.rates.feedback[:, 1:].any()
    assert stored.next_stage(Stage.CANARY).rates.feedback is None


counts = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


@given(st.lists(counts, min_size=1, max_size=30))
def test_no_label_is_lost_and_answers_do_not_decide_when_labels_are_compared(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    windows = [np.array([[min(a, b), b, min(c, d), d]], dtype=float).T for a, b, c, d in drawn]
    waiting, flipped, total = np.zeros((4, 1)), np.zeros((4, 1)), np.zeros((4, 1))
    for window_ in windows:
        other = window_.copy()
        other[[0, 2]] = window_[[1, 3]] - window_[[0, 2]]  # right for wrong
        compared, waiting = in_blocks(window_, waiting)
        compared_too, flipped = in_blocks(other, flipped)
        assert (compared[[1, 3]] == compared_too[[1, 3]]).all()
        assert compared[1] == compared[3] == 0 or min(compared[1], compared[3]) >= LEAST_FEEDBACK
        total += compared
    assert (total + waiting == np.sum(windows, axis=0)).all()


# Which answers labels are about


@given(
    st.lists(st.tuples(st.floats(0, 4000), st.integers(0, CALLER_GROUPS), st.booleans())),
    st.integers(0, 400),
    st.floats(0, 4000),
    st.floats(0, 4000),
)
def test_labels_are_compared_only_if_their_answers_were_given_between_two_times_for_sure(
    labels: list[tuple[float, int, bool]], at: int, since: float, span: float
) -> None:
    evidence, until = EvidenceCounts(), since + span
    for age, group, is_wrong in labels:
        aged = age_class(age) * AGE_STRIDE + group
        evidence.aged_feedback[aged] = evidence.aged_feedback.get(aged, 0) + 1
        if is_wrong:
            evidence.aged_wrong[aged] = evidence.aged_wrong.get(aged, 0) + 1
    found = about_answers(evidence, window(10 * at), since, until)
    sure = []  # whenever in the window the label came
    for age, group, is_wrong in labels:
        oldest = LABEL_AGES[age_class(age)]
        youngest = LABEL_AGES[age_class(age) - 1] if age_class(age) else 0.0
        if 10 * at - oldest >= since and 10 * at + 10 - youngest <= until:
            assert since <= 10 * at - age
            assert 10 * at + 10 - age <= until
            sure.append((group, is_wrong))
    assert found.feedback == len(sure)
    assert found.feedback_wrong == sum(is_wrong for _, is_wrong in sure)
    every = counted((found, EvidenceCounts()))
    for group in range(CALLER_GROUPS):
        assert every[1, 1 + group] == sum(of == group for of, _ in sure)


def merged(one: EvidenceCounts, other: EvidenceCounts) -> EvidenceCounts:
    both = (aggregate(OLD, Arm.STABLE, 0, one), aggregate(OLD, Arm.STABLE, 0, other))
    return merging.merged(both).evidence


# Through the judge


def state(promoted_at: float | None) -> RolloutState:
    return RolloutState(
        id="r", candidate=NEW, stable=OLD, began=0.0, step_began=0.0, promoted_at=promoted_at
    )


def judged(windows: list[EndpointWindow], promoted_at: float | None) -> CheckResult:
    judge = Judge()
    entered = judge.begin(SPEC, state(None), ())
    if promoted_at is not None:
        update = {"promoted_at": promoted_at, "step_began": promoted_at}
        entered = judge.next_stage(SPEC, entered.model_copy(update=update))
    checks = judge.look(SPEC, entered, windows).checks
    return next(check for check in checks if check.name == "quality")


def late(start: int, *, requests: int, age: float = 0.0) -> EndpointWindow:
    """In the bake, feedback on answers that both versions gave before the promotion."""
    return window(
        start,
        aggregate(NEW, Arm.STABLE, start, told(0, 0, requests)),
        aggregate(OLD, Arm.CONTROL, start, told(0, 0, requests)),
        aggregate(NEW, Arm.CANARY, start, told(1, 1, 0, age=age)),
        aggregate(OLD, Arm.STABLE, start, told(0, 1, 0, age=age)),
    )


@pytest.mark.slow
def test_feedback_on_answers_before_the_promotion_belongs_to_the_version_that_gave_them() -> None:
    for requests in (10, 0):  # also where nobody asked in that window
        windows = [late(5000 + 10 * at, requests=requests, age=5000.0) for at in range(200)]
        windows.append(late(7000, requests=10, age=5000.0))
        found = judged(windows, promoted_at=5000.0)
        assert found.verdict == "fail"
        figures = found.figures
        # The first ones may be about answers of the step's first minute, when it was not taken up.
        assert 100 < figures["candidate_events"] == figures["candidate_requests"] < 201


def test_before_the_promotion_each_arm_has_its_own_feedback_alone() -> None:
    windows = [late(10 * at, requests=0) for at in range(57)]
    found = judged(windows, promoted_at=None)
    # The first minute, and the seconds that a label may be old, belong to no arm for sure.
    assert (found.figures["candidate_requests"], found.figures["stable_requests"]) == (50, 50)


def test_labels_of_answers_that_stable_gave_before_the_step_are_not_compared() -> None:
    def at(start: int) -> EndpointWindow:
        return window(
            start,
            aggregate(NEW, Arm.CANARY, start, told(1, 1)),
            aggregate(OLD, Arm.STABLE, start, merged(told(1, 1), told(0, 9, 0, age=7200.0))),
        )

    found = judged([at(start) for start in range(0, 2000, 10)], promoted_at=None)
    assert found.verdict != "fail"
    figures = found.figures
    assert figures["stable_requests"] == figures["stable_events"] == figures["candidate_requests"]
