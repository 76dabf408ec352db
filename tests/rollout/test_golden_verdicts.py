"""Golden cases: what is observed, and the verdict, with the arithmetic worked out here.

Whoever changes what a verdict is has to change a figure in this file. Nothing here calls the
arithmetic of ``measures``: every number is worked out anew by the formulas of ``docs/rollout.md``.
"""

import dataclasses
from math import exp, log, sqrt

import numpy as np
import pytest
from evidence_windows import answered, only, timed
from msgspec.structs import replace

from contracts.rollout import (
    AgreementCheck,
    CheckResult,
    Checks,
    ClassShareCheck,
    ErrorRateCheck,
    LatencyCheck,
    OutputShiftCheck,
    QualityCheck,
    ScoreAgreementCheck,
    ToleranceLine,
    Verdict,
)
from contracts.windows import EvidenceCounts
from rollout.checks.warmth import COLD_WINDOWS
from rollout.evidence import ComparisonStage, Evidence

EQUAL = ToleranceLine(absolute=0, relative=1)
KEPT = 1e-5  # the evidence without some callers and windows is kept in single precision


def begun(
    checks: Checks,
    stable: EvidenceCounts,
    *,
    labels: tuple[str, ...] = (),
    stage: ComparisonStage = ComparisonStage.CANARY,
) -> Evidence:
    """After 20 windows of stable, each the same: without any correlation, so that rho is 0.

    The arm is warm.
    """
    evidence = Evidence.begin(checks, 0.05, labels, stage)
    for _ in range(20):
        evidence = evidence.with_history(stable)
    warm = np.array(float(COLD_WINDOWS))  # latency counts from the first window on
    of_rates = replace(evidence.rates, warmth=replace(evidence.rates.warmth, windows=warm))
    return dataclasses.replace(evidence, rates=of_rates)


def seen(evidence: Evidence, candidate: EvidenceCounts, stable: EvidenceCounts) -> CheckResult:
    return evidence.after(candidate, stable, 10.0).results()[0]


def seen_twice(
    evidence: Evidence, candidate: EvidenceCounts, stable: EvidenceCounts
) -> CheckResult:
    return evidence.after(candidate, stable, 10.0).after(candidate, stable, 10.0).results()[0]


def evidence_of_worse(
    e_c: int,
    n_c: int,
    e_s: int,
    n_s: int,
    theta_s: float,
    *,
    effects: tuple[float, float] = (1, 1),
    lengths: int = 1,
) -> float:
    """E of one window under the line p_c = p_s."""
    values = of_alternatives(e_c, n_c, e_s, n_s, theta_s, effects=effects, lengths=lengths)
    return sum(values) / 7 * (1 - TO_START[1]) + TO_START[1]


def evidence_without_one(
    e_c: int,
    n_c: int,
    e_s: int,
    n_s: int,
    prior: tuple[float, float],
    *,
    effects: tuple[float, float] = (1, 1),
    lengths: int = 1,
) -> float:
    """E of two windows with the same counts, of which the one is left out that leaves least.

    ``prior`` is stable's past, whose share is believed before the first window. Before the second,
    the first one is part of it.
    """
    events, requests = prior
    of_both = [
        of_alternatives(e_c, n_c, e_s, n_s, theta_s, effects=effects, lengths=lengths)
        for theta_s in (events / requests, (events + e_s) / (requests + n_s))
    ]
    first, second = 1 - TO_START[1], TO_START[1] - TO_START[2]  # weights of the beginnings
    least: list[float] = [
        min((one * first + second) * other, (first + second) * other, one * first + second)
        for one, other in zip(*of_both, strict=True)
    ]
    return sum(least) / 7 + TO_START[2]


# Of beginnings after so many windows.
TO_START: dict[int, float] = {windows: 0.5 / (1 + log(1 + windows / 1000)) for windows in (1, 2)}


def of_alternatives(
    e_c: int,
    n_c: int,
    e_s: int,
    n_s: int,
    theta_s: float,
    *,
    effects: tuple[float, float],
    lengths: int,
) -> list[float]:
    """S of one window, of each alternative. The nearest point of the line is the pooled mean.

    The seven alternatives are 1.5, 2, 4 and 10 times stable's odds, and 1, 5 and 20 points more.
    ``effects`` divide each arm's requests; with several ``lengths`` each has these counts.
    """
    d_c, d_s = effects
    w_c, w_s = n_c / d_c, n_s / d_s
    odds = [ratio * theta_s / (1 - theta_s + ratio * theta_s) for ratio in (1.5, 2, 4, 10)]
    points = [min(theta_s + step, (1 + theta_s) / 2) for step in (0.01, 0.05, 0.2)]
    values = []
    for theta_c in odds + points:
        q = (w_c * theta_c + w_s * theta_s) / (w_c + w_s)
        canary = e_c * log(theta_c / q) + (n_c - e_c) * log((1 - theta_c) / (1 - q))
        stable = e_s * log(theta_s / q) + (n_s - e_s) * log((1 - theta_s) / (1 - q))
        values.append(exp(lengths * (canary / d_c + stable / d_s)))
    return values


def test_errors_of_10_percent_against_1_percent_fail() -> None:
    checks = only(error_rate=ErrorRateCheck(fail=EQUAL))
    # Stable's past is 1 %, worth 500 requests: (5 + 0.5) / (500 + 1).
    evidence = begun(checks, EvidenceCounts(requests=1000, errors=10))
    candidate, stable = (
        EvidenceCounts(requests=400, errors=40),
        EvidenceCounts(requests=7600, errors=76),
    )
    # One window by itself may be a stall.
    assert seen(evidence, candidate, stable).verdict is Verdict.UNKNOWN
    result = seen_twice(evidence, candidate, stable)
    found = evidence_without_one(40, 400, 76, 7600, (5.5, 501))
    assert result.verdict is Verdict.FAIL
    assert result.figures["evidence_to_fail"] == pytest.approx(found, rel=KEPT)
    assert found > result.figures["needed_to_fail"] == 20  # one gating check has all of 0.05
    assert result.reason.startswith(
        "errors 80 of 800 (10.0 %) against 152 of 15,200 (1.0 %): worse, evidence 1e"
    )


def test_errors_of_2_percent_in_800_requests_are_not_evidence_yet() -> None:
    checks = only(error_rate=ErrorRateCheck(fail=EQUAL))
    evidence = begun(checks, EvidenceCounts(requests=1000, errors=10))
    result = seen_twice(
        evidence, EvidenceCounts(requests=400, errors=8), EvidenceCounts(requests=7600, errors=76)
    )
    found = evidence_without_one(8, 400, 76, 7600, (5.5, 501))
    assert result.figures["evidence_to_fail"] == pytest.approx(found, rel=KEPT)
    assert found < 20
    assert result.verdict is Verdict.UNKNOWN


def test_a_sentence_tells_the_tolerance_and_what_is_still_needed() -> None:
    evidence = begun(Checks(drift=None), EvidenceCounts(requests=1000, errors=10))
    result = seen(
        evidence, EvidenceCounts(requests=400, errors=4), EvidenceCounts(requests=7600, errors=76)
    )
    assert result.figures["needed_to_fail"] == pytest.approx(80)  # of four checks
    assert result.needs is not None
    assert result.reason == (
        "errors 4 of 400 (1.0 %) against 76 of 7,600 (1.0 %): not yet known, "
        f"about {result.needs:,} more of the candidate's requests are needed"
    )


def test_where_one_request_in_four_has_feedback_four_times_as_many_are_needed() -> None:
    checks = only(quality=QualityCheck())
    told = EvidenceCounts(requests=400, feedback=400, feedback_wrong=80)
    seldom = EvidenceCounts(requests=1600, feedback=400, feedback_wrong=80)
    needs = [seen(begun(checks, each), each, each).needs for each in (told, seldom)]
    assert needs[0] is not None
    assert needs[1] == pytest.approx(4 * needs[0], abs=4)


def evidence_of_not_worse(
    e_c: int, n_c: int, e_s: int, n_s: int, *, theta: float, s: float
) -> float:
    """E of one window under the line p_c = s p_s, whose nearest point solves a quadratic.

    w_c (theta - s q) (1 - q) + w_s (theta - q) (1 - s q) = 0, with weights that add to 1.
    """
    w_c, w_s = n_c / (n_c + n_s), n_s / (n_c + n_s)
    b = -(w_c * (theta + s) + w_s * (1 + s * theta))
    q_s = (-b - sqrt(b * b - 4 * s * theta)) / (2 * s)
    q_c = s * q_s
    log_s = e_c * log(theta / q_c) + (n_c - e_c) * log((1 - theta) / (1 - q_c))
    log_s += e_s * log(theta / q_s) + (n_s - e_s) * log((1 - theta) / (1 - q_s))
    return exp(log_s)


def test_an_equal_share_of_errors_passes_with_enough_requests() -> None:
    checks = only(error_rate=ErrorRateCheck(**{"pass": ToleranceLine(absolute=0, relative=2)}))
    evidence = begun(checks, EvidenceCounts(requests=1000, errors=100))
    result = seen(
        evidence, EvidenceCounts(requests=100, errors=10), EvidenceCounts(requests=900, errors=90)
    )
    # Both arms' rate before this window: (50 + 0.5) / (500 + 1).
    found = evidence_of_not_worse(10, 100, 90, 900, theta=50.5 / 501, s=2)
    assert result.figures["evidence_to_pass"] == pytest.approx(found, rel=1e-9)
    assert found > 20
    assert result.verdict is Verdict.PASS
    assert result.reason == (
        "errors 10 of 100 (10.0 %) against 90 of 900 (10.0 %): "
        f"not worse by more than 2 times, evidence {found:.0f} against 20 needed"
    )


def test_99_requests_never_pass() -> None:
    generous = only(error_rate=ErrorRateCheck(**{"pass": ToleranceLine(absolute=0.5, relative=1)}))
    evidence = begun(generous, EvidenceCounts(requests=1000, errors=0))
    result = seen(evidence, EvidenceCounts(requests=99), EvidenceCounts(requests=900))
    assert result.figures["evidence_to_pass"] > 20
    assert result.verdict is Verdict.UNKNOWN
    assert (
        seen(evidence, EvidenceCounts(requests=100), EvidenceCounts(requests=900)).verdict
        is Verdict.PASS
    )


def test_slow_is_strictly_above_the_bucket_that_holds_stables_95th_percentile() -> None:
    checks = only(latency=LatencyCheck(fail=EQUAL))
    # Of 2,000 past attempts 1,900 lie at or below bucket 10: it holds the 95th percentile. The
    # first window's attempts have no edge to be held against, the other 19 have 5 % above it.
    evidence = begun(checks, timed({10: 95, 12: 5}))
    result = seen_twice(evidence, timed({10: 300, 11: 40, 12: 60}), timed({10: 950, 12: 50}))
    found = evidence_without_one(100, 400, 50, 1000, (500 * 0.05 + 0.5, 501))
    assert result.figures["candidate_events"] == 200
    assert result.figures["evidence_to_fail"] == pytest.approx(found, rel=KEPT)
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith(
        "slower than stable's 95th percentile 200 of 800 (25.0 %) against 100 of 2,000 (5.0 %)"
    )


def test_a_mix_of_longer_texts_is_not_slowness() -> None:
    checks = only(latency=LatencyCheck(fail=EQUAL))
    both = EvidenceCounts(requests=2000, latency={16: {10: 950, 12: 50}, 256: {80: 950, 82: 50}})
    evidence = begun(checks, both)
    longer = EvidenceCounts(requests=400, latency={256: {80: 380, 82: 20}})
    result = seen(evidence, longer, both)
    assert (result.figures["candidate_events"], result.figures["candidate_requests"]) == (20, 400)
    assert result.figures["evidence_to_fail"] < 1


def test_the_evidence_of_length_buckets_multiplies() -> None:
    checks = only(latency=LatencyCheck(fail=EQUAL))
    past = EvidenceCounts(requests=2000, latency={16: {10: 950, 12: 50}, 256: {80: 950, 82: 50}})
    candidate = EvidenceCounts(requests=80, latency={16: {10: 30, 12: 10}, 256: {80: 30, 82: 10}})
    result = seen_twice(begun(checks, past), candidate, past)
    found = evidence_without_one(10, 40, 50, 1000, (25.5, 501), lengths=2)
    assert result.figures["evidence_to_fail"] == pytest.approx(found, rel=KEPT)


def test_classes_fail_by_the_mean_of_their_evidence() -> None:
    checks = only(class_share=ClassShareCheck(fail=EQUAL))
    evidence = begun(checks, answered(500, 500), labels=("negative", "positive"))
    result = seen(evidence, answered(300, 100), answered(3800, 3800))
    theta = 250.5 / 501
    positive = evidence_of_worse(300, 400, 3800, 7600, theta)
    negative = evidence_of_worse(100, 400, 3800, 7600, theta)
    # How others clump was never seen: the usual correlation of 0.01 is assumed.
    effects = 1 + 399 * 0.01, 1 + 7599 * 0.01
    others = evidence_of_worse(0, 400, 0, 7600, 0.5 / 501, effects=effects)
    mean = (positive + negative + others) / 3
    assert result.figures["evidence_to_fail"] == pytest.approx(mean, rel=KEPT)
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith(
        "label 'positive' 300 of 400 (75.0 %) against 3,800 of 7,600 (50.0 %): more frequent"
    )


def test_wrong_answers_by_feedback_fail_quality() -> None:
    checks = only(quality=QualityCheck(fail=EQUAL))
    evidence = begun(checks, EvidenceCounts(requests=1000, feedback=100, feedback_wrong=10))
    candidate = EvidenceCounts(requests=1000, feedback=100, feedback_wrong=40)
    stable = EvidenceCounts(requests=1000, feedback=100, feedback_wrong=10)
    result = seen(evidence, candidate, stable)
    found = evidence_of_worse(40, 100, 10, 100, 50.5 / 501)
    assert result.figures["evidence_to_fail"] == pytest.approx(found, rel=KEPT)
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith("wrong by feedback 40 of 100 (40.0 %) against 10 of 100")


def test_agreement_below_the_limit_fails_and_above_it_passes() -> None:
    checks = only(agreement=AgreementCheck(at_least=0.9))
    evidence = begun(checks, EvidenceCounts(requests=100), stage=ComparisonStage.SHADOW)
    effect = 1 + (500 - 1) * 0.01  # too few windows to know how correlated pairs are

    def e_value(different: int, odds: tuple[float, ...]) -> float:
        values = []
        for ratio in odds:
            theta = ratio * 0.1 / (0.9 + ratio * 0.1)
            log_s = different * log(theta / 0.1) + (500 - different) * log((1 - theta) / 0.9)
            values.append(exp(log_s / effect))
        return sum(values) / len(values)

    bad = seen(
        evidence,
        EvidenceCounts(requests=500, pairs=500, pairs_equal=350),
        EvidenceCounts(requests=500),
    )
    found = e_value(150, (1.25, 1.5, 2, 4, 10))
    assert bad.verdict is Verdict.FAIL
    assert bad.figures["evidence_to_fail"] == pytest.approx(found, rel=1e-9)
    assert bad.reason.startswith("equal labels 350 of 500 (70.0 %): fewer than 90.0 % asked for")

    good = seen(
        evidence,
        EvidenceCounts(requests=500, pairs=500, pairs_equal=495),
        EvidenceCounts(requests=500),
    )
    found = e_value(5, (0.02, 0.1, 0.25, 0.5, 0.75))
    assert good.verdict is Verdict.PASS
    assert good.figures["evidence_to_pass"] == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize(("within", "different"), [(0.1, 150), (0.15, 120), (0.2, 120), (0.3, 0)])
def test_scores_that_moved_further_than_allowed_are_counted_by_their_bucket(
    within: float, different: int
) -> None:
    check = ScoreAgreementCheck(at_least=0.9, within=within, gate=True)
    evidence = begun(
        only(score_agreement=check), EvidenceCounts(requests=100), stage=ComparisonStage.SHADOW
    )
    # Buckets of a tenth from -1 on: 9 and 10 are next to 0; 8 is -0.2 to -0.1, 12 is 0.2 to 0.3.
    scores = {9: 150, 10: 200, 8: 30, 12: 120}
    result = seen(
        evidence, EvidenceCounts(requests=500, pair_scores=scores), EvidenceCounts(requests=500)
    )
    assert result.figures["pairs"] == 500
    assert result.figures["equal"] == 500 - different
    effect = 1 + (500 - 1) * 0.01
    values = []
    for ratio in (1.25, 1.5, 2, 4, 10):
        theta = ratio * 0.1 / (0.9 + ratio * 0.1)
        log_s = different * log(theta / 0.1) + (500 - different) * log((1 - theta) / 0.9)
        values.append(exp(log_s / effect))
    assert result.figures["evidence_to_fail"] == pytest.approx(sum(values) / 5, rel=1e-9)
    assert result.verdict is (Verdict.FAIL if different == 150 else result.verdict)
    assert result.reason.startswith(f"scores within {within:g} of the stable version's")


def test_outputs_that_moved_far_fail_with_their_distance() -> None:
    checks = only(output_shift=OutputShiftCheck(distance=0.1))
    evidence = begun(checks, answered(500, 500), labels=("negative", "positive"))
    result = seen(evidence, answered(900, 100), answered(5000, 5000))
    # p = (0.1, 0.9) against q = (0.5, 0.5), in nats; less the bias of one degree of freedom.
    nats = 0.0
    for p, q in ((0.1, 0.5), (0.9, 0.5)):
        middle = (p + q) / 2
        nats += (p * log(p / middle) + q * log(q / middle)) / 2
    size = 1 / (1 / 1000 + 1 / 10000)
    assert result.figures["distance"] == pytest.approx(sqrt((nats - 1 / (8 * size)) / log(2)))
    assert result.verdict is Verdict.FAIL
    assert result.reason == (
        "distance 0.383 between the arms' labels, over 1,000 of the candidate's: "
        "more than the 0.1 that is tolerated"
    )


def test_correlated_traffic_is_divided_by_its_design_effect() -> None:
    checks = only(error_rate=ErrorRateCheck(fail=EQUAL))
    evidence = Evidence.begin(checks, 0.05, (), ComparisonStage.CANARY)
    for index in range(20):
        evidence = evidence.with_history(
            EvidenceCounts(requests=1000, errors=10 if index % 2 else 50)
        )
    candidate, stable = (
        EvidenceCounts(requests=400, errors=60),
        EvidenceCounts(requests=1000, errors=30),
    )
    result = seen_twice(evidence, candidate, stable)
    # Successive shares differ by 4 points each time; p is 3 %.
    x = 0.04**2 / (0.03 * 0.97 * (1 / 1000 + 1 / 1000))
    rho = 1.5 * (x - 1) / 999
    d_c, d_s = 1 + 399 * rho, 1 + 999 * rho
    found = evidence_without_one(60, 400, 30, 1000, (500 * 0.03 + 0.5, 501), effects=(d_c, d_s))
    assert result.figures["evidence_to_fail"] == pytest.approx(found, rel=KEPT)


def test_errors_that_stable_never_had_are_assumed_to_come_in_clumps() -> None:
    """Fourteen errors at once of an arm that stalls are not fourteen errors by themselves."""
    checks = only(error_rate=ErrorRateCheck(fail=EQUAL))
    evidence = begun(checks, EvidenceCounts(requests=1000))
    stable = EvidenceCounts(requests=7600)
    result = seen_twice(evidence, EvidenceCounts(requests=400, errors=14), stable)
    found = evidence_without_one(
        14, 400, 0, 7600, (0.5, 501), effects=(1 + 399 * 0.01, 1 + 7599 * 0.01)
    )
    assert result.figures["evidence_to_fail"] == pytest.approx(found, rel=KEPT)
    assert evidence_without_one(14, 400, 0, 7600, (0.5, 501)) > 20 > found
    assert result.verdict is Verdict.UNKNOWN
