"""In shadow, classes are judged by pairs of answers to the same requests."""

import json
from functools import reduce

import pytest
from evidence_windows import answered, only
from msgspec.structs import replace

from contracts.rollout import CheckResult, ClassShareCheck, OutputShiftCheck, Verdict
from contracts.windows import MICRO, EvidenceCounts
from rollout.evidence import Evidence, Stage

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


def of_older_gateways(evidence: EvidenceCounts) -> EvidenceCounts:
    return replace(evidence, pair_labels={})


def begun() -> Evidence:
    return reduce(
        lambda evidence, _: evidence.with_history(STABLE),
        range(20),
        Evidence.begin(CHECKS, 0.05, LABELS, Stage.SHADOW),
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
    evidence = after(begun(), *[of_older_gateways(SELECTED)] * 10)
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
    evidence = after(Evidence.begin(CHECKS, 0.05, LABELS, Stage.SHADOW), *[SELECTED] * 20)
    events, requests = evidence.rates.past[:, -2]
    assert (events, requests) == (20 * 460, 20 * 1000)
    canary = evidence.next_stage(Stage.CANARY)
    assert after(canary, answered(46, 54)).rates.e_values.max() < 10


def test_pairs_count_in_shadow_alone() -> None:
    canary = begun().next_stage(Stage.CANARY)
    told, untold = (after(canary, window) for window in (SELECTED, of_older_gateways(SELECTED)))
    assert told.to_json() == untold.to_json()


def test_evidence_that_an_older_controller_kept_goes_on_by_pairs() -> None:
    kept = json.loads(json.dumps(after(begun(), of_older_gateways(copies((54, 46)))).to_json()))
    del kept["rates"]["paired"]
    evidence = after(Evidence.of_json(kept), *[SELECTED] * 10)
    assert evidence.verdicts["classShare"] is Verdict.PASS
    stored = json.loads(json.dumps(evidence.to_json()))
    assert Evidence.of_json(stored).to_json() == stored


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
