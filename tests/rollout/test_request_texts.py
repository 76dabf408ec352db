"""Texts of one request that resemble one another count for less, in an arm of any size."""

from functools import reduce

import pytest
from evidence_windows import answered, only
from msgspec.structs import replace

from contracts.rollout import Checks, ClassShareCheck, OutputShiftCheck, Verdict
from contracts.windows import EvidenceCounts
from rollout.evidence import ComparisonStage, Evidence

TEXTS = 16
CHECKS = only(class_share=ClassShareCheck(), output_shift=OutputShiftCheck())


def of_requests(positive: int, negative: int) -> EvidenceCounts:
    """A window of so many requests, of 16 texts with one label each."""
    requests = {"positive": positive, "negative": negative}
    neighbours = {label: TEXTS * (TEXTS - 1) * count for label, count in requests.items()}
    return replace(
        answered(TEXTS * positive, TEXTS * negative),
        requests=positive + negative,
        label_neighbours=neighbours,
        label_like_neighbours=dict(neighbours),
    )


def of_single_texts(evidence: EvidenceCounts) -> EvidenceCounts:
    return replace(evidence, label_neighbours={}, label_like_neighbours={})


def begun(
    *windows: EvidenceCounts,
    checks: Checks = CHECKS,
    stage: ComparisonStage = ComparisonStage.CANARY,
) -> Evidence:
    evidence = Evidence.begin(checks, 0.05, ("negative", "positive"), stage)
    return reduce(lambda so_far, window: so_far.with_history(window), windows * 20, evidence)


STABLE = of_requests(50, 50)
FEW = of_requests(4, 2)  # of a small arm: two thirds in place of a half, which comes by chance


def after(evidence: Evidence, *windows: EvidenceCounts) -> Evidence:
    return reduce(lambda so_far, window: so_far.after(window, STABLE, 10.0), windows, evidence)


def test_requests_of_16_like_texts_count_once_in_a_small_arm_too() -> None:
    counted = after(begun(STABLE), *[FEW] * 6)
    single = begun(answered(50, 50))
    for _ in range(6):
        single = single.after(answered(4, 2), answered(50, 50), 10.0)
    assert set(counted.verdicts.values()) == {Verdict.UNKNOWN}
    logs = (one.rates.harm.log_a[3:5] for one in (counted, single))  # of both labels
    assert next(logs) == pytest.approx(next(logs))


def test_windows_without_neighbours_are_judged_as_if_texts_were_requests() -> None:
    evidence = after(begun(of_single_texts(STABLE)), *[FEW] * 6)
    assert evidence.verdicts["classShare"] is Verdict.FAIL
    assert (evidence.rates.within == 1).all()


def test_output_shift_looks_by_requests_and_not_by_texts() -> None:
    counted, before = (
        after(begun(history), *[FEW] * 6).outputs.test
        for history in (STABLE, of_single_texts(STABLE))
    )
    assert counted is not None
    assert before is not None
    assert float(before.passes.size()) / float(counted.passes.size()) == pytest.approx(TEXTS)


def test_a_scatter_that_requests_make_is_not_counted_as_the_windows_too() -> None:
    """Shares of 47 and 53 % in turn scatter less than requests of 16 like texts would."""
    evidence = begun(of_requests(47, 53), of_requests(53, 47))
    assert (evidence.rates.rho[-3:-1] == 0).all()
    assert (begun(*map(of_single_texts, (of_requests(47, 53), STABLE))).rates.rho[-3:-1] > 0).all()
    test = after(evidence, STABLE).outputs.test
    assert test is not None
    assert float(test.passes.size()) == pytest.approx(50)  # 1 / (1 / 100 + 1 / 100) requests


def test_what_is_known_of_requests_is_learnt_before_the_canary_alone() -> None:
    evidence = begun(STABLE)
    later = after(evidence, *[of_requests(20, 20)] * 3)
    assert evidence.rates.texts is not None
    assert later.rates.texts is not None
    assert later.rates.texts.to_json() == evidence.rates.texts.to_json()
    shadow = after(begun(STABLE, stage=ComparisonStage.SHADOW), FEW)
    assert shadow.rates.texts is not None
    assert float(shadow.rates.texts.texts) == 21 * TEXTS * 100


def test_a_class_that_falls_is_as_alike_in_a_request_as_it_is_where_it_grows() -> None:
    labels = ("a", "b", "c")
    window = EvidenceCounts(
        requests=90,
        labels=dict.fromkeys(labels, 60),
        label_neighbours=dict.fromkeys(labels, 60),
        label_like_neighbours={"a": 60, "b": 30},
    )
    evidence = Evidence.begin(CHECKS, 0.05, labels, ComparisonStage.CANARY)
    for _ in range(20):
        evidence = evidence.with_history(window)
    of_classes = evidence.rates.within[-8:]
    assert of_classes[:4].tolist() == of_classes[4:].tolist()
    assert of_classes[0] > of_classes[1] > of_classes[2] == 1
