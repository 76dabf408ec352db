"""Evidence: nothing passes or fails without data, and the order of business is kept."""

import json
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest
from evidence_windows import NEW, OLD, aggregate, answered, drawn, only
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from contracts.endpoint import Arm
from contracts.events import StatisticSpec
from contracts.profile import ReferenceProfile
from contracts.rollout import (
    AgreementCheck,
    ArmShareCheck,
    CheckResult,
    Checks,
    ClassShareCheck,
    DriftCheck,
    ErrorRateCheck,
    HungUpCheck,
    LatencyCheck,
    OutputShiftCheck,
    QualityCheck,
    SameSpaceCheck,
    ScoreAgreementCheck,
    StatisticCheck,
    ToleranceLine,
    Verdict,
)
from contracts.statistics import EDGES, Statistic
from contracts.windows import CALLER_GROUPS, EvidenceCounts, OwnCounts, WindowAggregate
from rollout.evidence import ArmAggregates, ComparisonStage, Evidence

EVERYTHING = Checks(
    agreement=AgreementCheck(),
    score_agreement=ScoreAgreementCheck(gate=True),
    same_space=SameSpaceCheck(),
    quality=QualityCheck(),
    hung_up=HungUpCheck(gate=True),
    arm_share=ArmShareCheck(gate=True),
    statistics=(StatisticCheck(name="language"),),
)
LABELS = ("negative", "positive")
SPEC = StatisticSpec("language", "category", values=["de", "en"])


windows = st.builds(
    EvidenceCounts,
    requests=st.integers(0, 2000),
    hung_up=st.integers(0, 50),
    unnamed=st.integers(0, 2000),
    errors=st.integers(0, 20),
    latency=st.dictionaries(
        st.sampled_from([8, 64, 4096]),
        st.dictionaries(st.integers(0, 273), st.integers(1, 500), max_size=4),
        max_size=2,
    ),
    labels=st.dictionaries(st.sampled_from(["negative", "positive", "odd"]), st.integers(1, 900)),
    label_neighbours=st.dictionaries(st.sampled_from(["negative", "odd"]), st.integers(1, 9000)),
    label_like_neighbours=st.dictionaries(
        st.sampled_from(["negative", "odd"]), st.integers(1, 9000)
    ),
    pairs=st.integers(100, 200),
    pairs_equal=st.integers(0, 100),
    pair_nearness=st.dictionaries(st.integers(0, 98), st.integers(1, 300), max_size=4),
    pair_labels=st.dictionaries(
        st.sampled_from(["negative", "odd"]),
        st.dictionaries(
            st.sampled_from(["negative", "positive"]), st.integers(1, 10**8), max_size=2
        ),
        max_size=2,
    ),
    pair_statuses=st.dictionaries(
        st.sampled_from([200, 502, 503]),
        st.dictionaries(st.sampled_from([200, 504, 503]), st.integers(1, 90), max_size=2),
        max_size=2,
    ),
    feedback=st.integers(50, 100),
    feedback_wrong=st.integers(0, 50),
    group_requests=st.dictionaries(st.integers(0, 31), st.integers(1, 60), max_size=3),
    group_labels=st.dictionaries(
        st.sampled_from(["negative", "odd"]),
        st.dictionaries(st.integers(0, 31), st.integers(1, 60), max_size=3),
        max_size=2,
    ),
).filter(lambda evidence: evidence.errors <= evidence.requests)
pairs_of_arms = st.lists(st.tuples(windows, windows), max_size=4)


PAST = EvidenceCounts(
    requests=1000,
    errors=10,
    latency={64: {10: 950, 12: 50}},
    labels={"negative": 500, "positive": 500},
)


def begun(
    checks: Checks = EVERYTHING,
    stage: ComparisonStage = ComparisonStage.CANARY,
    *,
    labels: tuple[str, ...] = LABELS,
    past: EvidenceCounts = PAST,
) -> Evidence:
    evidence = Evidence.begin(checks, 0.05, labels, stage)
    for _ in range(20):
        evidence = evidence.with_history(past)
    return evidence


def after(evidence: Evidence, seen: Sequence[tuple[EvidenceCounts, EvidenceCounts]]) -> Evidence:
    return reduce(lambda so_far, both: so_far.after(*both, 10.0), seen, evidence)


def of(evidence: Evidence, name: str) -> CheckResult:
    return next(result for result in evidence.results() if result.name == name)


def arms(candidate: Sequence[OwnCounts], stable: Sequence[OwnCounts]) -> ArmAggregates:
    one = aggregate(NEW, Arm.CANARY, 0, EvidenceCounts(requests=1000))
    other = aggregate(OLD, Arm.STABLE, 0, EvidenceCounts(requests=1000))
    one.own, other.own = list(candidate), list(stable)
    return ArmAggregates(one, other)


def test_without_data_everything_is_unknown() -> None:
    results = begun().results()
    assert [result.name for result in results] == [
        "errorRate",
        "latency",
        "quality",
        "classShare",
        "outputShift",
        "agreement",
        "scoreAgreement",
        "sameSpace",
        "drift",
        "hungUp",
        "armShare",
        "statistic.language",
    ]
    assert {result.verdict for result in results} == {Verdict.UNKNOWN}


def test_history_alone_leaves_everything_unknown() -> None:
    assert set(begun().verdicts.values()) == {Verdict.UNKNOWN}
    assert begun().history_windows == 20
    assert begun().with_history(EvidenceCounts()).history_windows == 20


@given(st.lists(windows, max_size=5), st.sampled_from(ComparisonStage), st.booleans())
@settings(max_examples=15)
def test_one_arm_alone_never_gets_a_verdict(
    seen: list[EvidenceCounts], stage: ComparisonStage, candidate_is_there: bool
) -> None:
    nobody = EvidenceCounts()
    both = [(one, nobody) if candidate_is_there else (nobody, one) for one in seen]
    evidence = after(begun(stage=stage), both)
    assert set(evidence.verdicts.values()) == {Verdict.UNKNOWN}


@pytest.mark.slow
@given(pairs_of_arms, st.sampled_from(ComparisonStage))
@settings(max_examples=15)
def test_evidence_is_the_same_after_any_number_of_round_trips(
    seen: list[tuple[EvidenceCounts, EvidenceCounts]], stage: ComparisonStage
) -> None:
    kept = told = begun(stage=stage).with_history(answered(900, 900))
    for one, other in seen:
        kept = kept.after(one, other, 10.0)
        told = Evidence.of_json(json.loads(json.dumps(told.after(one, other, 10.0).to_json())))
    assert told.to_json() == kept.to_json()
    assert told.results() == kept.results()


@pytest.mark.slow
@given(pairs_of_arms)
@settings(max_examples=15)
def test_the_short_verdicts_are_those_of_the_results(
    seen: list[tuple[EvidenceCounts, EvidenceCounts]],
) -> None:
    evidence = after(begun(stage=ComparisonStage.SHADOW), seen)
    assert evidence.verdicts == {result.name: result.verdict for result in evidence.results()}


def test_the_state_is_some_ten_kilobytes() -> None:
    random = np.random.default_rng(7)
    evidence = begun(Checks(), labels=tuple(f"label {number}" for number in range(30)))
    for _ in range(20):
        evidence = evidence.with_history(drawn(random, 5000))
    for _ in range(10):
        evidence = evidence.after(drawn(random, 250), drawn(random, 5000), 10.0)
    assert len(json.dumps(evidence.to_json())) < 67_000
    assert len(evidence.rates.rows.labels) == 10


def test_state_of_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema 99"):
        Evidence.of_json(begun().to_json() | {"schema_version": 99})


def test_evidence_is_stored_under_these_names() -> None:
    told = begun().to_json()
    assert told["rates"].keys() == {
        "labels", "slowness", "correlation", "callers", "past", "harm", "non_inferiority", "sums",
        "windows", "failed", "settled", "paired", "paired_errors", "texts", "feedback", "left_out",
        "groups", "own_past", "beyond_callers", "errors_past",
        "labelling", "warmth", "share_cost",
    }  # fmt: skip
    assert told["rates"]["harm"].keys() == {"log_a", "windows", "e_s", "n_s"}
    assert told["rates"]["non_inferiority"].keys() == {"log_e", "e_c", "n_c", "e_s", "n_s"}
    assert told["outputs"].keys() == {"labels", "test", "is_settled"}
    assert told["outputs"]["test"].keys() == {
        "past", "at", "correlation", "fails", "passes", "without", "has_failed"
    }  # fmt: skip
    assert told["agreement"].keys() == {
        "pairs", "different", "log_fail", "log_pass", "correlation", "failed"
    }  # fmt: skip
    assert told["score_agreement"].keys() == told["agreement"].keys()
    assert told["same_space"].keys() == told["agreement"].keys() | {"near", "shared"}
    drifts = {"candidate", "stable", "texts", "looks", "seen", "failed", "passed"}
    assert told["drifts"].keys() == drifts
    assert told["rates"]["harm"]["log_a"][0][0] is None  # minus infinity has no JSON


def test_the_order_of_the_arms_matters() -> None:
    bad, good = answered(200, 200, errors=60), answered(4000, 4000, errors=40)
    checks = Checks()
    assert of(after(begun(checks), [(bad, good)] * 2), "errorRate").verdict is Verdict.FAIL
    better = after(begun(checks), [(answered(400, 400), answered(3000, 3000, errors=900))])
    assert of(better, "errorRate").verdict is Verdict.PASS


def test_fail_goes_before_pass_and_stays() -> None:
    both = [(answered(200, 200, errors=60), answered(4000, 4000, errors=40))] * 2
    failed = after(begun(), both)
    healthy = [(answered(2000, 2000), answered(2000, 2000, errors=40))] * 20
    later = after(failed.next_stage(ComparisonStage.CANARY), healthy)
    assert later.rates.has_passed("errorRate")
    assert later.verdicts["errorRate"] is Verdict.FAIL
    assert Evidence.of_json(later.to_json()).verdicts["errorRate"] is Verdict.FAIL


def test_to_pass_begins_anew_at_each_stage_and_to_fail_goes_on() -> None:
    checks = Checks(latency=None, drift=None)
    passed = after(begun(checks), [(answered(2000, 2000), answered(2000, 2000))] * 3)
    assert set(passed.verdicts.values()) == {Verdict.PASS}
    anew = passed.next_stage(ComparisonStage.CANARY)
    assert set(anew.verdicts.values()) == {Verdict.UNKNOWN}
    one, other = of(passed, "errorRate").figures, of(anew, "errorRate").figures
    assert one["evidence_to_fail"] == other["evidence_to_fail"]
    assert other["evidence_to_pass"] == 1


def test_weak_evidence_of_several_stages_adds_up() -> None:
    bad = (answered(100, 100, errors=8), answered(4000, 4000, errors=80))
    evidence = begun(only(error_rate=ErrorRateCheck()))
    said = []
    for _ in range(6):
        evidence = evidence.after(*bad, 10.0).next_stage(ComparisonStage.CANARY)
        said.append(evidence.verdicts["errorRate"])
    assert said[0] is Verdict.UNKNOWN
    assert said[-1] is Verdict.FAIL


def test_each_gating_check_spends_an_equal_part_of_the_error() -> None:
    assert begun(Checks()).alpha == pytest.approx(0.05 / 4)  # drift only reports
    reported = Checks(error_rate=ErrorRateCheck(gate=False), drift=DriftCheck(gate=True))
    assert begun(reported).alpha == pytest.approx(0.05 / 4)
    assert begun(only(quality=QualityCheck())).alpha == pytest.approx(0.05)


def test_latency_is_reported_in_shadow_and_not_judged() -> None:
    quick = EvidenceCounts(requests=1000, latency={64: {10: 950, 12: 50}})
    slow = EvidenceCounts(requests=1000, latency={64: {200: 1000}})
    shadow = after(begun(stage=ComparisonStage.SHADOW, past=quick), [(slow, quick)] * 5)
    result = of(shadow, "latency")
    assert (result.verdict, result.required) == (Verdict.UNKNOWN, False)
    assert "5,000 of 5,000 (100.0 %) against 250 of 5,000 (5.0 %)" in result.reason
    assert result.reason.endswith("not judged in shadow")
    canary = shadow.next_stage(ComparisonStage.CANARY)
    assert of(canary, "latency").figures["evidence_to_fail"] == pytest.approx(1)
    assert of(canary, "latency").required
    assert after(canary, [(quick, quick)] * 3).verdicts["latency"] is Verdict.PASS
    assert after(canary, [(slow, quick)]).verdicts["latency"] is Verdict.UNKNOWN
    assert after(canary, [(slow, quick)] * 2).verdicts["latency"] is Verdict.FAIL


def test_quality_is_not_waited_for_in_shadow() -> None:
    evidence = begun(only(quality=QualityCheck(required=True)), ComparisonStage.SHADOW)
    assert not of(evidence, "quality").required
    assert of(evidence.next_stage(ComparisonStage.CANARY), "quality").required


def test_agreement_keeps_its_verdict_after_shadow_and_is_not_waited_for_then() -> None:
    pairs = EvidenceCounts(requests=400, pairs=400, pairs_equal=399)
    shadow = after(begun(stage=ComparisonStage.SHADOW), [(pairs, EvidenceCounts(requests=400))] * 3)
    assert of(shadow, "agreement").verdict is Verdict.PASS
    assert of(shadow, "agreement").required
    bad = EvidenceCounts(requests=400, pairs=400, pairs_equal=0)
    canary = after(
        shadow.next_stage(ComparisonStage.CANARY), [(bad, EvidenceCounts(requests=400))] * 3
    )
    assert of(canary, "agreement").verdict is Verdict.PASS
    assert not of(canary, "agreement").required


def test_a_ranker_whose_scores_move_fails_score_agreement_and_nothing_else_sees_it() -> None:
    same = {9: 200, 10: 200}  # differences up to a tenth, down and up
    shadow = EvidenceCounts(requests=400, labels={"relevant": 400}, pairs=400, pairs_equal=400)
    stable = EvidenceCounts(requests=400, labels={"relevant": 400})
    begins = begun(EVERYTHING, ComparisonStage.SHADOW)
    alike = after(begins, [(structs.replace(shadow, pair_scores=same), stable)] * 3)
    assert of(alike, "scoreAgreement").verdict is Verdict.PASS
    moved = {10: 250, 13: 150}
    apart = after(begins, [(structs.replace(shadow, pair_scores=moved), stable)] * 3)
    assert of(apart, "scoreAgreement").verdict is Verdict.FAIL
    others = {name: word for name, word in apart.verdicts.items() if name != "scoreAgreement"}
    assert Verdict.FAIL not in others.values()
    assert others["agreement"] is Verdict.PASS
    later = apart.next_stage(ComparisonStage.CANARY)
    assert later.verdicts["scoreAgreement"] is Verdict.FAIL


def test_a_label_that_stable_never_gave_fails_class_shares() -> None:
    odd = EvidenceCounts(requests=400, labels={"positive": 160, "negative": 160, "odd": 80})
    result = of(after(begun(), [(odd, answered(4000, 4000))]), "classShare")
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith("other labels 80 of 400 (20.0 %) against 0 of 8,000 (0.0 %)")


def test_of_three_classes_one_that_gets_rarer_is_told_as_rarer() -> None:
    # What "a" loses is spread so thin over eight others that none of them grows by two points.
    labels = {"a": 2000} | {f"x{number}": 1000 for number in range(8)}
    stable = EvidenceCounts(requests=10000, labels=labels)
    fewer = {"a": 240} | {f"x{number}": 345 for number in range(8)}
    candidate = EvidenceCounts(requests=3000, labels=fewer)
    evidence = begun(only(class_share=ClassShareCheck()), labels=tuple(labels)[:9], past=stable)
    result = of(after(evidence, [(candidate, stable)] * 2), "classShare")
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith("label 'a' 480 of 6,000 (8.0 %) against 4,000 of 20,000")
    assert "rarer by more than 2 points" in result.reason


def test_labels_are_learnt_from_stable_where_nobody_told_them() -> None:
    seen = [(answered(1500, 1500), answered(1500, 1500))] * 4
    told, learnt = after(begun(), seen), after(begun(labels=()), seen)
    assert learnt.rates.rows.labels == LABELS
    assert learnt.verdicts == told.verdicts


def test_evidence_before_the_labels_are_known_is_kept() -> None:
    failing = (EvidenceCounts(requests=400, errors=60), EvidenceCounts(requests=8000, errors=80))
    evidence = after(begun(labels=(), past=EvidenceCounts(requests=1000, errors=10)), [failing] * 2)
    assert evidence.rates.rows.labels == ()
    later = after(evidence, [(answered(400, 400), answered(4000, 4000))])
    assert later.verdicts["errorRate"] is Verdict.FAIL
    assert later.rates.harm.log_a.shape[0] == len(later.rates.rows.tests)


def of_callers(difference: float) -> EvidenceCounts:
    """Half the groups of callers get positive answers so much more often, half so much less."""
    more, less = round(100 * (0.5 + difference)), round(100 * (0.5 - difference))
    positive = {at: more if at % 2 else less for at in range(CALLER_GROUPS)}
    return EvidenceCounts(
        requests=100 * CALLER_GROUPS,
        labels={"negative": 50 * CALLER_GROUPS, "positive": 50 * CALLER_GROUPS},
        group_requests=dict.fromkeys(range(CALLER_GROUPS), 100),
        group_labels={
            "positive": positive,
            "negative": {at: 100 - count for at, count in positive.items()},
        },
    )


def test_arms_may_differ_as_callers_do_and_a_version_that_is_worse_than_that_fails() -> None:
    # 0.05 / sqrt(32) / sqrt(0.05 x 0.95) is a deviation of 4 points: 12, and 2 that are tolerated.
    checks = only(class_share=ClassShareCheck())
    for difference, share, expected in (
        (0.05, 0.58, Verdict.UNKNOWN),
        (0.05, 0.75, Verdict.FAIL),
        (0.0, 0.58, Verdict.FAIL),
    ):
        stable = of_callers(difference)
        canary = EvidenceCounts(
            requests=1000,
            labels={"negative": round(1000 * (1 - share)), "positive": round(1000 * share)},
        )
        evidence = begun(checks, past=stable).with_share(0.05)
        result = of(after(evidence, [(canary, stable)] * 20), "classShare")
        assert result.verdict is expected
        caller_spread = 3 * difference / np.sqrt(32 * 0.05 * 0.95)
        assert result.figures["apart_by_callers"] == pytest.approx(caller_spread, abs=0.002)


@pytest.mark.parametrize(
    ("checks", "name", "positive"),
    [
        (only(class_share=ClassShareCheck()), "classShare", 55),
        (only(output_shift=OutputShiftCheck()), "outputShift", 60),
    ],
)
def test_what_callers_hide_need_not_pass_again_if_it_passed_in_shadow(
    checks: Checks, name: str, positive: int
) -> None:
    same = (of_callers(0.05), of_callers(0.05))
    shadow = after(begun(checks, ComparisonStage.SHADOW, past=same[0]), [same] * 3)
    assert of(shadow, name).verdict is Verdict.PASS
    canary = shadow.next_stage(ComparisonStage.CANARY).with_share(0.05)
    assert of(canary, name).required  # where it answered nobody
    few = EvidenceCounts(requests=100, labels={"negative": 100 - positive, "positive": positive})
    canary = after(canary, [(few, same[1])])
    result = of(canary, name)
    assert (result.verdict, result.required) == (Verdict.UNKNOWN, False)
    assert "passed in shadow" in result.reason
    next_step = after(canary.next_stage(ComparisonStage.CANARY), [(few, same[1])])
    assert not of(next_step, name).required
    unseen = (
        begun(checks, ComparisonStage.SHADOW, past=same[0])
        .next_stage(ComparisonStage.CANARY)
        .with_share(0.05)
    )
    assert of(unseen, name).required


@pytest.mark.parametrize(
    ("checks", "name", "near", "far"),
    [
        (only(class_share=ClassShareCheck()), "classShare", 545, 620),
        (only(output_shift=OutputShiftCheck()), "outputShift", 620, 680),
    ],
)
def test_a_version_is_promoted_only_where_its_answers_are_as_near_as_callers_can_make_them(
    checks: Checks, name: str, near: int, far: int
) -> None:
    # Callers make 6.1 points at a quarter, 0.052 as a distance: to pass, 11.1 points and 0.152.
    stable = of_callers(0.05)
    shadow = after(begun(checks, ComparisonStage.SHADOW, past=stable), [(stable, stable)] * 3)
    canary = shadow.next_stage(ComparisonStage.CANARY)
    for positive, waits_in_last_step in ((near, False), (far, True)):
        answers = EvidenceCounts(
            requests=1000, labels={"negative": 1000 - positive, "positive": positive}
        )
        for is_last_step in (False, True):
            step = canary.with_share(0.25, is_last_step=is_last_step)
            result = of(after(step, [(answers, stable)] * 2), name)
            assert result.verdict is Verdict.UNKNOWN
            assert result.required is (is_last_step and waits_in_last_step)
            assert ("needed" in result.reason) is result.required


def test_class_shares_must_pass_where_callers_are_alike() -> None:
    checks, alike = only(class_share=ClassShareCheck()), (of_callers(0.0), of_callers(0.0))
    shadow = after(begun(checks, ComparisonStage.SHADOW, past=alike[0]), [alike] * 3)
    assert of(shadow.next_stage(ComparisonStage.CANARY).with_share(0.05), "classShare").required


def test_answers_may_be_as_far_apart_as_callers_are_and_not_further() -> None:
    checks, stable = only(output_shift=OutputShiftCheck()), of_callers(0.05)
    for positive, named, expected in (
        (680, stable, Verdict.UNKNOWN),
        (950, stable, Verdict.FAIL),
        (680, of_callers(0.0), Verdict.FAIL),
    ):
        canary = EvidenceCounts(
            requests=1000, labels={"negative": 1000 - positive, "positive": positive}
        )
        evidence = begun(checks, past=named).with_share(0.05)
        result = of(after(evidence, [(canary, named)] * 20), "outputShift")
        assert result.verdict is expected


def test_vectors_are_compared_by_their_norms_and_class_shares_hold_nothing_up() -> None:
    same = EvidenceCounts(requests=2000, norms={12: 2000})
    evidence = begun(Checks(), labels=(), past=same)
    passed = after(evidence, [(same, same)] * 4)
    assert of(passed, "outputShift").verdict is Verdict.PASS
    assert "norms" in of(passed, "outputShift").reason
    assert not of(passed, "classShare").required
    shrunk = EvidenceCounts(requests=2000, norms={9: 2000})
    assert after(evidence, [(shrunk, same)]).verdicts["outputShift"] is Verdict.FAIL


def test_an_edited_tolerance_begins_its_check_anew_and_leaves_the_others() -> None:
    strict = only(error_rate=ErrorRateCheck(), class_share=ClassShareCheck())
    bad = (answered(100, 300, errors=60), answered(4000, 4000, errors=40))
    failed = after(begun(strict), [bad] * 2)
    assert set(failed.verdicts.values()) == {Verdict.FAIL}
    loose = strict.model_copy(
        update={"error_rate": ErrorRateCheck(fail=ToleranceLine(absolute=0.5, relative=1))}
    )
    edited = failed.with_checks(loose, 0.05)
    assert edited.verdicts == {"errorRate": Verdict.UNKNOWN, "classShare": Verdict.FAIL}
    assert after(edited, [bad]).verdicts["errorRate"] is not Verdict.FAIL
    assert failed.with_checks(strict, 0.05) is failed


def test_a_check_that_is_asked_for_later_has_its_past() -> None:
    bad = (answered(200, 200, errors=60), answered(4000, 4000, errors=40))
    evidence = after(begun(only(output_shift=OutputShiftCheck())), [bad] * 2)
    assert "errorRate" not in evidence.verdicts
    assert evidence.with_checks(Checks(), 0.05).verdicts["errorRate"] is Verdict.FAIL


def test_what_is_needed_shrinks_to_nothing() -> None:
    evidence = begun(only(error_rate=ErrorRateCheck()))
    needs = []
    while evidence.verdicts["errorRate"] is Verdict.UNKNOWN:
        evidence = evidence.after(
            EvidenceCounts(requests=100, errors=1), EvidenceCounts(requests=2000, errors=20), 10.0
        )
        needs.append(of(evidence, "errorRate").needs)
    assert needs[-1] is None
    counts = [count for count in needs if count is not None]
    assert len(counts) > 3
    assert counts == sorted(counts, reverse=True)
    # The estimate after the first window is about what it took.
    assert counts[0] == pytest.approx(100 * (len(needs) - 1), rel=0.3)


def own(german: int, english: int, *, unfit: int = 0) -> OwnCounts:
    return OwnCounts(SPEC, {"de": german, "en": english}, unfit=unfit)


def test_users_own_statistics_are_compared_where_both_arms_have_one_declaration() -> None:
    evidence = begun(only(statistics=[StatisticCheck(name="language")]))
    past = aggregate(OLD, Arm.STABLE, 0, EvidenceCounts(requests=1000))
    past.own = [own(500, 500)]
    for _ in range(20):
        evidence = evidence.with_history(past.evidence, past)
    both = (EvidenceCounts(requests=1000), EvidenceCounts(requests=1000))
    same = evidence
    for _ in range(3):
        same = same.after(*both, 10.0, arms([own(500, 500)], [own(500, 500)]))
    assert same.verdicts == {"statistic.language": Verdict.PASS}
    other = evidence.after(*both, 10.0, arms([own(950, 50)], [own(500, 500)]))
    assert other.verdicts == {"statistic.language": Verdict.FAIL}
    unfit = evidence.after(*both, 10.0, arms([own(300, 300, unfit=400)], [own(500, 500)]))
    assert unfit.verdicts == {"statistic.language": Verdict.FAIL}
    redeclared = OwnCounts(StatisticSpec("language", "category", values=["de"]), {"de": 1000})
    unlike = evidence.after(*both, 10.0, arms([redeclared], [own(500, 500)]))
    assert unlike.verdicts == {"statistic.language": Verdict.UNKNOWN}


def test_answers_of_a_regression_are_compared_as_outputs_and_have_no_classes() -> None:
    spec = StatisticSpec("prediction", "histogram", edges=[0.0, 10.0])

    def numbers(low: int, middle: int, high: int) -> OwnCounts:
        return OwnCounts(spec, {"0": low, "1": middle, "2": high})

    answers = EvidenceCounts(requests=1000)
    asked = only(output_shift=OutputShiftCheck(), class_share=ClassShareCheck())
    evidence = begun(asked, labels=(), past=answers)
    past = aggregate(OLD, Arm.STABLE, 0, answers)
    past.own = [numbers(200, 600, 200)]
    for _ in range(20):
        evidence = evidence.with_history(past.evidence, past)
    both = (answers, answers)
    same = evidence
    for _ in range(8):
        same = same.after(*both, 10.0, arms([numbers(200, 600, 200)], [numbers(200, 600, 200)]))
    assert same.verdicts["outputShift"] is Verdict.PASS
    required = [result.name for result in same.results() if result.required]
    assert required == ["outputShift"]
    assert Evidence.of_json(same.to_json()).verdicts == same.verdicts
    other = evidence.after(*both, 10.0, arms([numbers(600, 200, 200)], [numbers(200, 600, 200)]))
    assert other.verdicts["outputShift"] is Verdict.FAIL


def spread(center: int) -> dict[int, int]:
    """Counts over the buckets of tokens, most of them near one."""
    buckets = len(EDGES[Statistic.TOKENS].upper) + 1
    return {bucket: 20 + 200 * (abs(bucket - center) < 3) for bucket in range(buckets)}


def profile(center: int) -> ReferenceProfile:
    counts = tuple(10 * count for count in spread(center).values())
    return ReferenceProfile(
        texts=sum(counts), source="texts", histograms={Statistic.TOKENS: counts}
    )


def counted(center: int, arm: Arm) -> WindowAggregate:
    made = aggregate(NEW, arm, 0, EvidenceCounts(requests=1000))
    made.texts = 1000
    made.histograms = {"tokens": spread(center)}
    return made


@pytest.mark.parametrize(
    ("candidate", "stable", "verdict"),
    [(8, 8, Verdict.PASS), (9, 9, Verdict.PASS), (11, 8, Verdict.FAIL), (8, 11, Verdict.PASS)],
)
def test_drift_counts_only_as_far_as_stable_does_not_drift_as_much(
    candidate: int, stable: int, verdict: Verdict
) -> None:
    evidence = begun(only(drift=DriftCheck(gate=True)))
    for _ in range(40):
        evidence = evidence.after(
            EvidenceCounts(requests=1000),
            EvidenceCounts(requests=1000),
            10.0,
            ArmAggregates(
                counted(candidate, Arm.CANARY), counted(stable, Arm.STABLE), profile(8), profile(8)
            ),
        )
    assert of(evidence, "drift").verdict is verdict
    assert Evidence.of_json(json.loads(json.dumps(evidence.to_json()))).results() == (
        evidence.results()
    )


def test_drift_without_a_profile_is_unknown() -> None:
    evidence = begun(only(drift=DriftCheck(gate=True)))
    seen = ArmAggregates(counted(11, Arm.CANARY), counted(8, Arm.STABLE), None, profile(8))
    for _ in range(5):
        evidence = evidence.after(
            EvidenceCounts(requests=10), EvidenceCounts(requests=10), 10.0, seen
        )
    assert of(evidence, "drift").verdict is Verdict.UNKNOWN
    assert "reference profiles" in of(evidence, "drift").reason


def test_latency_has_its_own_words_where_no_edge_is_known() -> None:
    few = EvidenceCounts(requests=10, latency={64: {10: 10}})
    evidence = begun(only(latency=LatencyCheck()), past=EvidenceCounts(requests=10))
    result = of(after(evidence, [(few, few)]), "latency")
    assert result.reason.startswith("slower than stable's 95th percentile none against none")
    assert result.needs is None
