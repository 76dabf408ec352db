"""In the bake nearly all callers are on the promoted version, whose batches are larger."""

from collections import Counter

import numpy as np
import pytest
from evidence_windows import only

from contracts.rollout import LatencyCheck, Verdict
from contracts.windows import EvidenceCounts
from rollout.evidence import ComparisonStage, Evidence

CHECKS = only(latency=LatencyCheck())
USUAL, QUICKER = 100, 92  # buckets of LATENCY_EDGES


def answers(count: int, bucket: int, rng: np.random.Generator) -> EvidenceCounts:
    took = np.round(rng.normal(bucket, 8, count)).astype(int)
    return EvidenceCounts(requests=count, latency={32: dict(Counter(took.tolist()))})


def verdict(promoted: int, stage: ComparisonStage, past: int = USUAL) -> Verdict:
    """Of the version that has nearly all callers; the few of the other get quick answers."""
    rng = np.random.default_rng(1)
    evidence = Evidence.begin(CHECKS, 0.05, ("a", "b"), ComparisonStage.CANARY)
    for _ in range(40):
        evidence = evidence.with_history(answers(200, past, rng))
    evidence = evidence.next_stage(stage).with_share(0.95)
    for _ in range(60):
        few = answers(20, QUICKER, rng)
        evidence = evidence.after(answers(200, promoted, rng), few, 10.0)
    (result,) = evidence.results()
    return result.verdict


def test_answers_that_only_take_longer_than_the_few_of_the_control_are_no_fault_in_the_bake() -> (
    None
):
    assert verdict(USUAL, ComparisonStage.BAKE) is not Verdict.FAIL
    assert verdict(USUAL, ComparisonStage.CANARY) is Verdict.FAIL


@pytest.mark.parametrize("slower", [4, 12])
def test_a_promoted_version_that_is_slower_than_stable_ever_was_fails(slower: int) -> None:
    assert verdict(USUAL + slower, ComparisonStage.BAKE) is Verdict.FAIL


def test_a_slow_hour_that_meets_both_arms_is_no_fault_in_the_bake() -> None:
    assert verdict(QUICKER, ComparisonStage.BAKE, past=QUICKER - 12) is not Verdict.FAIL
