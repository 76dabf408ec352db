"""Each version has a cache of its own, and is judged by all the answers that callers got."""

import pytest
from msgspec.structs import replace

from contracts.rollout import Checks, Verdict
from contracts.windows import EvidenceCounts
from measures.own_past import OwnPast
from rollout.checks.rows import CheckRows
from rollout.checks.slowness import Slowness
from rollout.evidence import ComparisonStage, Evidence

LABELS = ("negative", "positive")


def arm(requests: int, kept: int) -> EvidenceCounts:
    """So many requests, 40 % positive; of the positive ones a cache has kept so many."""
    positive = requests * 4 // 10
    negative = requests - positive
    return EvidenceCounts(
        requests=requests - kept,
        labels={"negative": negative, "positive": positive - kept},
        cached_labels={"positive": kept} if kept else {},
        group_requests={3: requests - kept},
        group_labels={"negative": {3: negative}, "positive": {3: positive - kept}},
        group_cached_labels={"positive": {3: kept}} if kept else {},
    )


def begun(stage: ComparisonStage) -> Evidence:
    evidence = Evidence.begin(Checks(drift=None, latency=None), 0.05, LABELS, stage)
    for _ in range(20):
        evidence = evidence.with_history(arm(1000, 300))
    return evidence.with_share(0.05)


@pytest.mark.slow
def test_a_cache_that_keeps_less_in_a_small_arm_changes_no_verdict() -> None:
    evidence = begun(ComparisonStage.CANARY)
    for _ in range(200):
        evidence = evidence.after(arm(100, 0), arm(1900, 600), 10.0)
    assert evidence.verdicts["classShare"] is Verdict.PASS
    assert evidence.verdicts["outputShift"] is Verdict.PASS


def test_answers_of_a_cache_that_differ_are_seen() -> None:
    evidence = begun(ComparisonStage.CANARY)
    for _ in range(30):
        moved = replace(arm(100, 0), cached_labels={"positive": 60})
        evidence = evidence.after(moved, arm(1900, 600), 10.0)
    assert evidence.verdicts["classShare"] is Verdict.FAIL


def test_a_row_counts_what_was_inferred_and_what_was_kept() -> None:
    rows, slowness, nothing = CheckRows.of(LABELS), Slowness.begin(), OwnPast.begin()
    kept, inferred = (rows.counts(arm(1000, kept), slowness, nothing, nothing) for kept in (300, 0))
    assert kept[0][-3:].tolist() == inferred[0][-3:].tolist() == [600, 400, 0]
    assert kept[1][-3:].tolist() == inferred[1][-3:].tolist() == [1000] * 3
    assert (kept[1][0], inferred[1][0]) == (700, 1000)  # errors are of what was inferred


@pytest.mark.parametrize("kept", [0, 300])
def test_in_shadow_copies_are_held_against_what_was_inferred(kept: int) -> None:
    """If no event tells the original's answer, so that nothing is paired."""
    evidence = begun(ComparisonStage.SHADOW).with_share(0.0)
    stable = arm(1000, kept)
    copies = replace(stable, cached_labels={}, group_cached_labels={})
    for _ in range(60):
        evidence = evidence.after(copies, stable, 10.0)
    assert evidence.verdicts["classShare"] is Verdict.PASS
