"""In shadow, classes, errors and norms are judged by pairs of attempts at the same requests."""

from functools import reduce

import pytest
from evidence_windows import answered, only
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.endpoint import Arm
from contracts.rollout import (
    CheckResult,
    ClassShareCheck,
    ErrorRateCheck,
    OutputShiftCheck,
    Verdict,
)
from contracts.windows import MICRO, EvidenceCounts, WindowAggregate
from measures.merging import merge
from rollout.evidence import ComparisonStage, Evidence

CHECKS = only(class_share=ClassShareCheck(), output_shift=OutputShiftCheck())
LABELS = ("negative", "positive")
STABLE = answered(460, 540)  # of a window, 46 % positive


def copies(
    same: tuple[int, int], gained: int = 0, lost: int = 0, *, texts: int = 1
) -> EvidenceCounts:
    """Copies of a window, by their originals.

    Args:
        same: negative and positive requests that both versions answer alike.
        gained: negative requests that the shadow calls positive.
        lost: positive ones that it calls negative.
        texts: of each request.
    """
    counts = answered(texts * (same[1] + gained), texts * (same[0] + lost))
    pairs = {
        "negative": {"negative": same[0], "positive": gained},
        "positive": {"negative": lost, "positive": same[1]},
    }
    return replace(
        counts,
        requests=sum(same) + gained + lost,
        pair_labels={
            original: {label: count * MICRO for label, count in answers.items() if count}
            for original, answers in pairs.items()
        },
    )


# Of what is copied 30 % are positive: copies are no sample of all requests.
SELECTED = copies((70, 30))
FAULT = copies((65, 30), gained=5)


def without_labels(evidence: EvidenceCounts) -> EvidenceCounts:
    return replace(evidence, pair_labels={})


def begun() -> Evidence:
    return reduce(
        lambda evidence, _: evidence.with_history(STABLE),
        range(20),
        Evidence.begin(CHECKS, 0.05, LABELS, ComparisonStage.SHADOW),
    )


def after(evidence: Evidence, *windows: EvidenceCounts) -> Evidence:
    return reduce(lambda so_far, window: so_far.after(window, STABLE, 10.0), windows, evidence)


def of(evidence: Evidence, name: str) -> CheckResult:
    return next(result for result in evidence.results() if result.name == name)


def test_what_is_seldom_copied_is_no_change_of_the_candidates() -> None:
    evidence = after(begun(), *[SELECTED] * 10)
    assert evidence.verdicts == {"classShare": Verdict.PASS, "outputShift": Verdict.PASS}
    assert of(evidence, "classShare").figures["evidence_to_fail"] < 1
    events = {name: of(evidence, "classShare").figures[name] for name in
              ("candidate_requests", "stable_requests")}  # fmt: skip
    assert events == {"candidate_requests": 1000, "stable_requests": 1000}


def test_copies_of_gateways_that_tell_no_labels_are_judged_by_all_requests_as_before() -> None:
    evidence = after(begun(), *[without_labels(SELECTED)] * 10)
    assert evidence.verdicts["classShare"] is Verdict.FAIL
    assert of(evidence, "classShare").figures["stable_requests"] == 10_000
    assert evidence.rates.paired is None


def test_a_window_of_both_kinds_of_gateways_is_judged_by_those_that_tell() -> None:
    both = replace(SELECTED, requests=200, labels={"negative": 140, "positive": 60})
    alone, together = after(begun(), SELECTED), after(begun(), both)
    of_both, of_one = (one.rates.evidence_to_fail("classShare") for one in (together, alone))
    assert of_both == of_one != 1


def test_equal_answers_pass_within_300_requests() -> None:
    assert after(begun(), SELECTED).verdicts["classShare"] is Verdict.UNKNOWN
    assert after(begun(), SELECTED, SELECTED, SELECTED).verdicts["classShare"] is Verdict.PASS


def test_a_class_that_grows_by_5_points_is_found_though_the_whole_has_more_of_it() -> None:
    """35 % of the copies, 30 % of their originals, 46 % of all requests."""
    evidence = after(begun(), *[FAULT] * 15)
    result = of(evidence, "classShare")
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith(
        "label 'positive' 525 of 1,500 (35.0 %) against 450 of 1,500 (30.0 %): more frequent"
    )


def test_it_is_told_how_many_more_requests_are_needed() -> None:
    result = of(after(begun(), SELECTED), "classShare")
    # Of other labels, which stable never gave, 100 copies of a window count as 50: evidence of 3.69
    # where 20 are needed, and 100 (log 20 / log 3.69 - 1) more.
    assert result.needs == 130
    fewer, enough = (
        after(begun(), SELECTED, *[copies((negative, 20))] * 2) for negative in (20, 45)
    )
    assert fewer.verdicts["classShare"] is Verdict.UNKNOWN
    assert enough.verdicts["classShare"] is Verdict.PASS
    assert of(after(begun(), FAULT), "classShare").needs is None


def test_a_request_of_several_texts_counts_once() -> None:
    one, many = after(begun(), SELECTED), after(begun(), copies((70, 30), texts=16))
    assert many.rates.harm.to_json() == one.rates.harm.to_json()
    assert many.rates.requests_in_stage("classShare") == 100


def test_stables_shares_are_learnt_in_shadow_as_before() -> None:
    """What callers get is held against all of stable's requests, and not against the copied."""
    evidence = after(Evidence.begin(CHECKS, 0.05, LABELS, ComparisonStage.SHADOW), *[SELECTED] * 20)
    events, requests = evidence.rates.past[:, -2]
    assert (events, requests) == (20 * 460, 20 * 1000)
    canary = evidence.next_stage(ComparisonStage.CANARY)
    assert after(canary, answered(46, 54)).rates.e_values.max() < 10


def test_pairs_count_in_shadow_alone() -> None:
    canary = begun().next_stage(ComparisonStage.CANARY)
    told, untold = (after(canary, window) for window in (SELECTED, without_labels(SELECTED)))
    assert told.to_json() == untold.to_json()


@pytest.mark.parametrize("label", ["odd", "negative"])
def test_a_label_that_stable_never_gave_is_one_of_the_others(label: str) -> None:
    window = replace(
        SELECTED,
        pair_labels={
            "negative": {"negative": 50 * MICRO, label: 20 * MICRO},
            "positive": {"positive": 30 * MICRO},
        }
        if label == "odd"
        else SELECTED.pair_labels,
    )
    result = of(after(begun(), *[window] * 4), "classShare")
    assert (result.verdict is Verdict.FAIL) == (label == "odd")
    if label == "odd":
        assert result.reason.startswith("other labels 80 of 400 (20.0 %) against 0 of 400 (0.0 %)")


ERRORS = only(error_rate=ErrorRateCheck())
# 2 % of stable's requests fail, of what is copied 10 %, by either version and by chance.
FAILING = answered(440, 540, errors=20)


def attempts(well: int, gained: int = 0, lost: int = 0, both: int = 0) -> EvidenceCounts:
    """Copies of a window, by who failed: nobody, the shadow alone, stable alone, or both."""
    return EvidenceCounts(
        requests=well + gained + lost + both,
        errors=gained + both,
        pair_statuses={200: {200: well, 502: gained}, 502: {200: lost, 502: both}},
    )


def of_errors(*windows: EvidenceCounts, past: int = 20) -> Evidence:
    begins = reduce(
        lambda evidence, _: evidence.with_history(FAILING),
        range(past),
        Evidence.begin(ERRORS, 0.05, LABELS, ComparisonStage.SHADOW),
    )
    return reduce(lambda so_far, window: so_far.after(window, FAILING, 10.0), windows, begins)


def test_what_fails_more_often_and_is_copied_more_often_is_no_fault_of_the_candidates() -> None:
    windows = [attempts(81, 9, 9, 1)] * 40
    unpaired = of_errors(*[replace(window, pair_statuses={}) for window in windows])
    assert unpaired.verdicts == {"errorRate": Verdict.FAIL}
    paired = of_errors(*windows)
    assert paired.verdicts["errorRate"] is not Verdict.FAIL
    result = of(paired, "errorRate")
    assert result.reason.startswith("errors 400 of 4,000 (10.0 %) against 400 of 4,000 (10.0 %)")
    assert result.figures["evidence_to_fail"] < 1


def test_a_copy_that_fails_where_its_original_did_says_nothing_against_the_candidate() -> None:
    assert of_errors(*[attempts(90, both=10)] * 40).verdicts["errorRate"] is Verdict.PASS


def test_a_shadow_that_fails_more_often_than_its_originals_goes_back() -> None:
    evidence = of_errors(*[attempts(92, 6, 1, 1)] * 40)
    assert of(evidence, "errorRate").verdict is Verdict.FAIL
    assert of(evidence, "errorRate").figures["stable_requests"] <= 4000


def test_a_shadow_that_always_fails_goes_back_in_its_second_window() -> None:
    fails = attempts(0, 40)
    one, two = of_errors(fails), of_errors(fails, fails)
    assert [each.verdicts["errorRate"] for each in (one, two)] == [Verdict.UNKNOWN, Verdict.FAIL]


def test_a_shadow_that_fails_as_seldom_as_stable_passes_within_500_requests() -> None:
    assert of_errors(attempts(450)).verdicts["errorRate"] is Verdict.PASS
    result = of(of_errors(attempts(150)), "errorRate")
    assert result.verdict is Verdict.UNKNOWN
    assert 200 < (result.needs or 0) < 400


def test_what_no_version_had_a_part_in_is_blamed_on_nobody() -> None:
    """No Triton, or no room in one: of such a pair nothing is known."""
    lost = EvidenceCounts(
        requests=200,
        errors=110,
        pair_statuses={200: {200: 90, 503: 100}, 503: {502: 10}},
    )
    evidence = of_errors(*[lost] * 10)
    assert evidence.verdicts["errorRate"] is Verdict.PASS
    assert of(evidence, "errorRate").figures["candidate_requests"] == 900


def test_a_window_without_pairs_that_tell_is_no_evidence_by_requests_either() -> None:
    away = EvidenceCounts(requests=50, errors=50, pair_statuses={200: {503: 50}})
    assert of_errors(*[away] * 10).verdicts["errorRate"] is Verdict.UNKNOWN


def test_stables_errors_are_learnt_in_shadow_as_before() -> None:
    evidence = of_errors(*[attempts(81, 9, 9, 1)] * 10, past=20)
    assert evidence.rates.past[:, 0].tolist() == [30 * 20, 30 * 1000]
    canary = evidence.next_stage(ComparisonStage.CANARY)
    assert after(canary, answered(460, 530, errors=20)).rates.e_values[0] < 10


@given(
    st.lists(
        st.tuples(*[st.integers(0, 60)] * 4).filter(any),
        min_size=2,
        max_size=6,
    )
)
def test_pairs_of_two_gateways_are_judged_as_if_one_had_told_them(
    counts: list[tuple[int, int, int, int]],
) -> None:
    halves = [attempts(*each) for each in counts]
    of_both = [
        merge(
            WindowAggregate("sentiment", "2", "b" * 64, Arm.SHADOW, 0, evidence=each)
            for each in pair
        ).evidence
        for pair in zip(halves[::2], halves[1::2], strict=False)
    ]
    at_once = [
        attempts(*(one + other for one, other in zip(*pair, strict=True)))
        for pair in zip(counts[::2], counts[1::2], strict=False)
    ]
    together, alone = of_errors(*of_both, past=3), of_errors(*at_once, past=3)
    assert together.to_json() == alone.to_json()


VECTORS = EvidenceCounts(requests=1000, norms={10: 600, 14: 400})


def vectors(same: dict[int, int], moved: int = 0) -> EvidenceCounts:
    """Copies of a window by the bucket of their norm, some of bucket 10 moved to 20."""
    norms = {bucket: {bucket: count * MICRO} for bucket, count in same.items()}
    if moved:
        norms.setdefault(10, {})[20] = moved * MICRO
    return EvidenceCounts(
        requests=sum(same.values()) + moved,
        norms={**same, **({20: moved} if moved else {})},
        pair_norms=norms,
    )


def of_norms(*windows: EvidenceCounts) -> Evidence:
    begins = reduce(
        lambda evidence, _: evidence.with_history(VECTORS),
        range(20),
        Evidence.begin(only(output_shift=OutputShiftCheck()), 0.05, (), ComparisonStage.SHADOW),
    )
    return reduce(lambda so_far, window: so_far.after(window, VECTORS, 10.0), windows, begins)


def test_norms_that_are_seldom_copied_are_no_change_of_the_candidates() -> None:
    windows = [vectors({10: 90, 14: 10})] * 20
    unpaired = of_norms(*[replace(window, pair_norms={}) for window in windows])
    assert unpaired.verdicts == {"outputShift": Verdict.FAIL}
    assert of_norms(*windows).verdicts == {"outputShift": Verdict.PASS}


def test_norms_that_the_candidate_changes_are_found_among_what_is_copied() -> None:
    assert of_norms(*[vectors({10: 60, 14: 10}, moved=30)] * 20).verdicts == {
        "outputShift": Verdict.FAIL
    }


def test_norms_of_a_request_count_once_however_many_vectors_it_has() -> None:
    one = vectors({10: 90, 14: 10})
    many = replace(one, norms={bucket: 16 * count for bucket, count in one.norms.items()})
    assert of_norms(many).to_json() == of_norms(one).to_json()
