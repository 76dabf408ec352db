"""What hides from answers: callers who give up on a candidate, and requests that pass it over."""

import random
from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest

from contracts.endpoint import Arm
from contracts.rollout import ArmShareCheck, CheckResult, Checks, HungUpCheck, Verdict
from contracts.windows import CALLER_CAP, EvidenceCounts
from rollout.checks.missing import ArmShares, HangUps
from rollout.evidence import ComparisonStage, Evidence

CHECKS = Checks(
    error_rate=None,
    latency=None,
    output_shift=None,
    class_share=None,
    drift=None,
    hung_up=HungUpCheck(gate=True),
    arm_share=ArmShareCheck(gate=True),
)
ALPHA = 0.025
Draw = Callable[[np.random.Generator], tuple[EvidenceCounts, EvidenceCounts]]


def drawn(
    generator: np.random.Generator,
    *,
    share: float = 0.05,
    reaches: float = 1.0,
    gives_up: float = 0.01,
    more: float = 0.0,
    requests: int = 400,
) -> tuple[EvidenceCounts, EvidenceCounts]:
    """A window of both arms; ``reaches`` of the candidate's requests come to it."""
    arms = []
    to_candidate = int(generator.binomial(requests, share * reaches))
    for count, rate in ((to_candidate, gives_up + more), (requests - to_candidate, gives_up)):
        hung_up = int(generator.binomial(count, rate))
        arms.append(EvidenceCounts(requests=count - hung_up, hung_up=hung_up, unnamed=count))
    return arms[0], arms[1]


def judged(seed: int, windows: int, draw: Draw, share: float = 0.05) -> Evidence:
    generator = np.random.default_rng(seed)
    evidence = Evidence.begin(CHECKS, 2 * ALPHA, ("a",), ComparisonStage.CANARY).with_share(share)
    for _ in range(20):
        evidence = evidence.with_history(draw(generator)[1])
    return reduce(lambda so_far, _: so_far.after(*draw(generator), 10.0), range(windows), evidence)


def verdict(evidence: Evidence, name: str) -> Verdict:
    return evidence.verdicts[name]


def test_evidence_without_measure_is_told_and_can_be_stored() -> None:
    check = HungUpCheck(gate=False)
    hung_ups = HangUps.begin().with_history(EvidenceCounts(requests=10_000))
    for _ in range(100):
        bad = EvidenceCounts(requests=10_000, hung_up=9_000)
        hung_ups = hung_ups.after(bad, EvidenceCounts(requests=10_000), check, ALPHA)
    found = hung_ups.result(check, ALPHA)
    assert CheckResult.model_validate_json(found.model_dump_json(by_alias=True)) == found


def test_a_candidate_that_hangs_fails_by_the_callers_who_gave_up() -> None:
    bad = judged(1, 20, lambda g: drawn(g, more=0.3))
    assert verdict(bad, "hungUp") is Verdict.FAIL
    assert verdict(bad, "armShare") is not Verdict.FAIL
    result = next(each for each in bad.results() if each.name == "hungUp")
    assert result.gate
    assert "callers gave up at" in result.reason
    assert "more often by more than 1.25 times and 1 point" in result.reason


def test_a_candidate_of_whom_every_caller_gave_up_is_seen_though_nothing_was_answered() -> None:
    def draw(generator: np.random.Generator) -> tuple[EvidenceCounts, EvidenceCounts]:
        candidate, stable = drawn(generator)
        every = candidate.requests + candidate.hung_up
        return EvidenceCounts(hung_up=every, unnamed=every), stable

    assert verdict(judged(2, 20, draw), "hungUp") is Verdict.FAIL


def test_equal_patience_passes() -> None:
    assert verdict(judged(3, 40, lambda g: drawn(g, requests=4000)), "hungUp") is Verdict.PASS


def test_a_candidate_that_is_passed_over_fails_by_the_size_of_its_arm() -> None:
    bad = judged(4, 20, lambda g: drawn(g, reaches=0.6, requests=4000))
    assert verdict(bad, "armShare") is Verdict.FAIL
    assert verdict(bad, "hungUp") is not Verdict.FAIL


def test_a_split_as_it_was_asked_for_passes() -> None:
    assert verdict(judged(5, 20, lambda g: drawn(g, requests=40_000)), "armShare") is Verdict.PASS


def test_a_difference_within_the_tolerance_is_none() -> None:
    bad = judged(6, 20, lambda g: drawn(g, reaches=0.95, requests=40_000))
    assert verdict(bad, "armShare") is not Verdict.FAIL


def test_windows_in_which_gateways_take_up_a_new_split_are_left_out() -> None:
    """Some still send the share of the step before."""
    generator = np.random.default_rng(7)
    shares = ArmShares()
    for share, was in ((0.05, 0.0), (0.25, 0.05), (0.5, 0.25)):
        for window in range(200):
            sent = was if window < 3 else share
            shares = shares.after(*drawn(generator, share=sent), share, ArmShareCheck(), ALPHA)
    assert shares.verdict(ArmShareCheck()) is not Verdict.FAIL
    assert shares.step == 3


def test_named_callers_tell_nothing_of_the_split() -> None:
    named = EvidenceCounts(requests=900), EvidenceCounts(requests=100)
    assert verdict(judged(8, 50, lambda _: named), "armShare") is Verdict.UNKNOWN


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_identical_versions_fail_as_seldom_as_was_asked(share: float) -> None:
    """Looked at after every window of 100, each check may fail one of 40."""
    failed = {"hungUp": 0, "armShare": 0}
    for seed in range(40):
        generator = np.random.default_rng(1000 + seed)
        hung_ups, shares = HangUps.begin(), ArmShares()
        for _ in range(20):
            hung_ups = hung_ups.with_history(drawn(generator, share=share)[1])
        for _ in range(100):
            both = drawn(generator, share=share)
            hung_ups = hung_ups.after(*both, HungUpCheck(), ALPHA)
            shares = shares.after(*both, share, ArmShareCheck(), ALPHA)
        failed["hungUp"] += hung_ups.failed
        failed["armShare"] += shares.failed
    # 4 or more of 40 at a true rate of 1 in 40 have a probability of 2 %.
    assert max(failed.values()) < 4


def test_fold_counts_whom_the_split_sent_and_who_gave_up() -> None:
    from msgspec.structs import replace
    from prediction_batches import event_of

    from contracts.events import EventBatch
    from measures.folding import Fold

    one = replace(
        event_of(random.Random(1)),
        arm=Arm.CANARY,
        version="2",
        time=1e6,
        endpoint="e",
        repeated=False,
        caller=0,
        status=499,
        cached=0,
    )
    named = replace(one, caller=5)
    events = [one, *[named] * (CALLER_CAP + 5), replace(one, repeated=True)]
    fold = Fold(10)
    fold.add(EventBatch("g", 0, [*events, replace(one, status=200, cached=len(one.texts))]))
    (found,) = fold.aggregates()
    assert found.evidence.hung_up == 1 + CALLER_CAP
    assert found.evidence.unnamed == 2
