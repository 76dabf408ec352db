"""What a rollout would find at an endpoint's traffic, told before it begins."""

import math

import numpy as np
import pytest
from evidence_windows import NEW, OLD, aggregate, drawn, window
from numpy.typing import NDArray
from rollout_walk import SPEC

from contracts.endpoint import Arm
from contracts.rollout import RolloutSpec, ShadowStep, Verdict, WeightStep
from contracts.windows import AGE_STRIDE, LABEL_AGES, EndpointWindow, Sparse, age_class
from rollout.checks.warmth import COLD_WINDOWS
from rollout.evidence import ComparisonStage, Evidence
from rollout.forecast import Forecast, forecast

HALF = RolloutSpec(steps=(WeightStep(weight=50),))
COUNT = 60
SECONDS = 10.0 * COUNT


def by_group(names: NDArray[np.int64]) -> Sparse:
    found, counts = np.unique(names, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def traffic(requests: int, groups: int = 32, unnamed: int = 0) -> list[EndpointWindow]:
    """Windows of stable, whose requests are spread over so many groups of callers."""
    rng = np.random.default_rng(1)
    made = []
    for start in range(0, 10 * COUNT, 10):
        evidence = drawn(rng, requests)
        names = rng.integers(0, groups, requests)
        has_name = np.arange(requests) >= unnamed
        failed = rng.permutation(requests) < evidence.errors
        is_positive = rng.permutation(requests) < evidence.labels["positive"]
        evidence.group_requests = by_group(names[has_name])
        evidence.group_errors = by_group(names[has_name & failed])
        evidence.group_labels = {
            "positive": by_group(names[has_name & is_positive]),
            "negative": by_group(names[has_name & ~is_positive]),
        }
        made.append(window(start, aggregate(OLD, Arm.STABLE, start, evidence)))
    return made


def told(spec: RolloutSpec, requests: int, **of_callers: int) -> Forecast:
    return forecast(spec, OLD, traffic(requests, **of_callers), SECONDS)


@pytest.mark.slow
def test_a_larger_fault_is_found_no_later_and_more_traffic_finds_each_sooner() -> None:
    (few,), (many,) = told(HALF, 20).steps, told(HALF, 400).steps
    for step in (few, many):
        errors = [step.found[name] for name in step.found if name.startswith("errors")]
        labels = [step.found[name] for name in step.found if name.startswith("a label")]
        assert errors == sorted(errors, reverse=True)
        assert labels == sorted(labels, reverse=True)
    assert few.found.keys() == many.found.keys()
    assert all(many.found[name] <= few.found[name] for name in few.found)
    assert many.passes < few.passes
    assert few.requests == pytest.approx(20 * 360 / 2)


@pytest.mark.slow
def test_the_hours_are_those_that_the_checks_take_in_such_traffic() -> None:
    (step,) = told(HALF, 100).steps
    fault, taken = "errors, 10 points more", []
    for seed in range(7):
        rng = np.random.default_rng([2, seed])
        evidence = Evidence.begin(HALF.checks, 0.05, ("negative", "positive"))
        for past in traffic(100):
            evidence = evidence.with_history(past.aggregates[0].evidence)
        evidence, windows = evidence.next_stage(ComparisonStage.CANARY).with_share(0.5), 0
        while evidence.verdicts["errorRate"] is not Verdict.FAIL:
            evidence = evidence.after(drawn(rng, 50, errors=0.11), drawn(rng, 50), 10)
            windows += 1
        taken.append(windows * 10 / 3600)
    assert step.found[fault] == pytest.approx(float(np.median(taken)), rel=0.5)


def test_latency_is_found_after_the_windows_in_which_the_first_step_is_cold() -> None:
    spec = RolloutSpec(steps=(WeightStep(weight=25), WeightStep(weight=50)))
    slow = "slow answers, 5 times as many"
    first, second = (step.found[slow] for step in told(spec, 1000).steps)
    assert first > COLD_WINDOWS * 10 / 3600 > second


def test_requests_of_names_that_last_for_minutes_take_longer_to_tell_a_change() -> None:
    windows = traffic(200)
    for at, each in enumerate(windows):
        evidence = each.aggregates[0].evidence
        rng = np.random.default_rng(at // 6)  # who sends the label changes each minute
        ranked = rng.permutation(list(evidence.group_requests)).tolist()
        left, of_groups = evidence.labels["positive"], {}
        for group in ranked:
            of_groups[group] = min(left, evidence.group_requests[group])
            left -= of_groups[group]
        others = {group: n - of_groups[group] for group, n in evidence.group_requests.items()}
        evidence.group_labels = {"positive": of_groups, "negative": others}
    label = "a label, 20 points rarer"
    spec = HALF.model_copy(update={"deadline": 7200.0})
    (alike,) = forecast(spec, OLD, windows, SECONDS).steps
    (single,) = told(spec, 200).steps
    assert alike.found[label] > 2 * single.found[label]
    assert alike.found["errors, 10 points more"] == single.found["errors, 10 points more"]


@pytest.mark.slow
def test_an_arm_that_callers_are_likely_to_miss_is_warned_of() -> None:
    walk = told(SPEC, 200, groups=9)  # of 32: of some ten callers
    assert walk.callers == 10
    assert [round(step.empty, 2) for step in walk.steps] == [0, 0.6, 0.06, 0]
    (five, quarter) = walk.warnings()
    assert five.startswith(
        "At 5 % none of about 10 callers is assigned to the arm, with a probability"
    )
    assert quarter.startswith("At 25 %")


@pytest.mark.slow
def test_no_arm_is_empty_while_requests_come_without_a_callers_name() -> None:
    assert {step.empty for step in told(HALF, 100, groups=9, unnamed=50).steps} == {0.0}


def test_a_rollout_that_would_expire_is_warned_of() -> None:
    short = RolloutSpec(steps=(WeightStep(weight=5),), deadline=600)
    found = told(short, 5)
    assert math.isinf(found.passes_hours)
    assert any("it would expire" in warning for warning in found.warnings())


def test_shadow_is_told_for_errors_alone_at_the_rate_of_its_copies() -> None:
    (step,) = told(RolloutSpec(steps=(ShadowStep(shadow=50),)), 100).steps
    assert {name.partition(",")[0] for name in step.found} == {"errors"}
    assert step.requests == pytest.approx(100 * 360 / 2)


def test_a_check_that_is_off_or_only_reports_finds_nothing_and_holds_nothing() -> None:
    checks = HALF.checks.model_copy(update={"error_rate": None, "latency": None})
    (step,) = told(HALF.model_copy(update={"checks": checks}), 100).steps
    assert {name.partition(",")[0] for name in step.found} == {"a label"}


def test_without_traffic_of_the_version_nothing_is_told() -> None:
    found = forecast(HALF, NEW, traffic(100), SECONDS)
    assert (found.requests, found.steps, found.warnings()) == (0.0, (), ())


def test_how_long_labels_take_is_told_and_warned_of_where_it_is_beyond_the_deadline() -> None:
    windows = traffic(100)
    late, soon = (age_class(age) * AGE_STRIDE + 3 for age in (3.0 * 86_400, 170.0))
    for each in windows:
        each.aggregates[0].evidence.aged_feedback = {late: 9, soon: 1}
        each.aggregates[0].evidence.aged_wrong = {soon: 1}
    found = forecast(HALF, OLD, windows, SECONDS)
    assert found.labels is not None
    assert found.labels.hourly == 3600
    assert found.labels.wrong == (LABEL_AGES[age_class(170.0)],) * 2
    assert found.labels.right == (LABEL_AGES[age_class(3.0 * 86_400)],) * 2
    assert any(said.startswith("Not even nine in ten labels come") for said in found.warnings())
    assert told(HALF, 100).labels is None
