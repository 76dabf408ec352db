"""One caller, or one bad window, never ends a rollout; several callers and windows do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.rollout import Checks, Verdict
from contracts.windows import EvidenceCounts
from rollout.checks.left_out import ENOUGH
from rollout.evidence import ComparisonStage, Evidence

LABELS = ("negative", "positive")
# Group of callers -> (requests, errors, positive answers) of a window.
Told = dict[int, tuple[int, int, int]]

GOOD: Told = dict.fromkeys(range(8), (25, 0, 10))
STABLE: Told = dict.fromkeys(range(32), (200, 1, 80))


def counts(told: Told) -> EvidenceCounts:
    """An arm's window, all of whose callers have a name."""
    requests = {group: n for group, (n, _, _) in told.items()}
    errors = {group: e for group, (_, e, _) in told.items() if e}
    positive = {group: p for group, (_, _, p) in told.items()}
    negative = {group: n - e - p for group, (n, e, p) in told.items()}
    return EvidenceCounts(
        requests=sum(requests.values()),
        errors=sum(errors.values()),
        labels={"negative": sum(negative.values()), "positive": sum(positive.values())},
        group_requests=requests,
        group_errors=errors,
        group_labels={"negative": negative, "positive": positive},
    )


def begun() -> Evidence:
    evidence = Evidence.begin(
        Checks(drift=None, latency=None), 0.05, LABELS, ComparisonStage.CANARY
    )
    for _ in range(20):
        evidence = evidence.with_history(counts(STABLE))
    return evidence.with_share(0.25)


def after(evidence: Evidence, candidate: Told, stable: Told, windows: int) -> Evidence:
    for _ in range(windows):
        evidence = evidence.after(counts(candidate), counts(stable), 10.0)
    return evidence


def failing(evidence: Evidence) -> set[str]:
    return {name for name, verdict in evidence.verdicts.items() if verdict is Verdict.FAIL}


@pytest.mark.slow
def test_what_one_caller_sends_is_no_fault_of_the_version_that_answers_it() -> None:
    poison = after(begun(), GOOD | {3: (25, 20, 2)}, STABLE, 60)
    job = after(begun(), GOOD | {3: (80, 0, 80)}, STABLE, 60)
    of_stable = after(begun(), GOOD, STABLE | {3: (3000, 0, 3000)}, 60)
    assert failing(poison) | failing(job) | failing(of_stable) == set()
    # That is what leaving out one group does: with all callers, the evidence is there.
    assert (poison.rates.harm.e_value()[0], job.rates.harm.e_value()[-2]) > (1e6, 1e6)


def test_a_check_says_that_what_it_saw_comes_from_few() -> None:
    job = after(begun(), GOOD | {3: (80, 0, 80)}, STABLE, 60)
    reasons = {result.name: result.reason for result in job.results()}
    said = "; what speaks against it comes only from one group of callers, or one window"
    assert reasons["classShare"].endswith(said)
    assert reasons["outputShift"].endswith(said)
    assert not reasons["errorRate"].endswith(said)


def test_what_several_callers_suffer_is() -> None:
    assert "errorRate" in failing(
        after(begun(), GOOD | {3: (25, 20, 2), 4: (25, 20, 2)}, STABLE, 4)
    )
    moved = dict.fromkeys(range(8), (25, 0, 20))
    assert failing(after(begun(), moved, STABLE, 10)) == {"classShare", "outputShift"}


def test_a_group_that_is_nearly_all_of_an_arm_is_not_left_out() -> None:
    one: Told = {3: (10, 8, 1)}
    windows = ENOUGH // 10
    assert failing(after(begun(), one, STABLE, windows - 1)) == set()
    assert failing(after(begun(), one, STABLE, windows)) == {"errorRate"}


def test_requests_of_nobody_are_never_left_out() -> None:
    evidence = begun()
    for _ in range(3):
        candidate = EvidenceCounts(
            requests=200, errors=20, labels={"negative": 100, "positive": 80}
        )
        evidence = evidence.after(candidate, counts(STABLE), 10.0)
    assert "errorRate" in failing(evidence)


def test_one_bad_window_is_no_fault_and_several_are() -> None:
    stalled = dict.fromkeys(range(8), (25, 8, 7))
    evidence = after(begun(), GOOD, STABLE, 5)
    once = after(after(evidence, stalled, STABLE, 1), GOOD, STABLE, 5)
    assert "errorRate" not in failing(once)
    assert "errorRate" in failing(after(once, stalled, STABLE, 2))


told = st.dictionaries(
    st.integers(0, 31),
    st.tuples(st.integers(3, 30), st.integers(0, 1), st.integers(0, 2)),
    min_size=2,
    max_size=6,
)


habits = st.lists(
    st.tuples(st.integers(1, 60), st.floats(0, 1), st.floats(0, 1)), min_size=6, max_size=6
)


@pytest.mark.slow
@given(st.lists(st.tuples(told, told), min_size=1, max_size=6), st.integers(0, 31), habits, habits)
@settings(max_examples=30)
def test_the_evidence_without_a_caller_is_the_same_whatever_it_does_and_decides(
    windows: list[tuple[Told, Told]],
    group: int,
    one: list[tuple[int, float, float]],
    other: list[tuple[int, float, float]],
) -> None:
    found = []
    for does in (one, other):
        evidence = begun()
        for (candidate, stable), (n, fails, positive) in zip(windows, does, strict=False):
            e = round(n * fails)
            own = {group: (n, e, round((n - e) * positive))}
            evidence = evidence.after(counts(candidate | own), counts(stable), 10.0)
        found.append(evidence.rates)
    sets = [rates.left_out.log_a[2 + group] for rates in found]
    assert sets[0] == pytest.approx(sets[1], rel=1e-6)
    started = 0.5 / (1 + np.log1p(len(windows) / 1000))
    for rates, left in zip(found, sets, strict=True):
        if not rates.is_alone:
            of_classes = np.exp(left[-3:]).mean(axis=-1) + started
            assert (rates.e_values[-3:] <= of_classes * (1 + 1e-9)).all()
