"""What the arms of the steps tell of a large share's cost, and what the bake makes of it."""

from collections import Counter

import numpy as np
import pytest
from evidence_windows import only
from hypothesis import given
from hypothesis import strategies as st

from contracts.rollout import LatencyCheck, Verdict
from contracts.windows import EvidenceCounts
from measures.evalue import WindowCounts
from rollout.checks.rows import LATENCY
from rollout.checks.share_cost import MOST, ShareCost
from rollout.evidence import ComparisonStage, Evidence

USUAL, COST, NEIGHBOUR = 100, 4, 6  # buckets of LATENCY_EDGES


def window(slow: int, requests: int, stable_slow: int, stable: int) -> WindowCounts:
    rows = np.zeros((4, LATENCY.stop))
    rows[:, LATENCY.start] = slow, requests, stable_slow, stable
    return WindowCounts(*rows)


def learnt(share: float, slow: int, stable_slow: int, windows: int = 20) -> ShareCost:
    cost = ShareCost.begin()
    n_c = round(2000 * share)
    for _ in range(windows):
        cost = cost.after(window(slow, n_c, stable_slow, 2000 - n_c), share)
    return cost.next_stage()


def test_it_is_what_the_large_arm_had_more_of_slow_answers() -> None:
    doubled = float(learnt(0.05, 50, 1900, windows=2000).factor(0.95))
    assert doubled == pytest.approx(2.0, rel=0.02)
    # From arms of a quarter and three quarters, that is from half of the difference.
    of_quarter = float(learnt(0.25, 25, 150, windows=2000).factor(0.95))
    assert of_quarter == pytest.approx(2.0**1.8, rel=0.05)


def test_what_few_slow_answers_tell_is_taken_with_three_standard_deviations() -> None:
    few, more = (float(learnt(0.05, 5, 190, windows=at).factor(0.95)) for at in (4, 40))
    assert few == pytest.approx(2.0 * np.exp(3 / np.sqrt(20)), rel=0.01)
    assert 2.0 < more < few


def test_nothing_is_put_down_to_a_share_that_was_never_seen_or_has_few_slow_answers() -> None:
    assert float(ShareCost.begin().factor(0.95)) == 1.0
    assert float(learnt(0.05, 2, 76, windows=2).factor(0.95)) == 1.0
    assert float(learnt(0.5, 50, 100).factor(0.95)) == 1.0


def test_a_version_that_was_slower_in_its_small_arm_is_allowed_nothing() -> None:
    assert float(learnt(0.05, 20, 190).factor(0.95)) == 1.0


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 1900), st.sampled_from([0.05, 0.25, 0.5])),
        max_size=30,
    ),
    st.floats(0.5, 1),
)
def test_it_only_ever_widens_the_line_and_never_beyond_its_bound(
    windows: list[tuple[int, int, float]], share: float
) -> None:
    cost = ShareCost.begin()
    for slow, stable_slow, step in windows:
        cost = cost.after(window(slow, 100, stable_slow, 1900), step).next_stage()
    assert 1.0 <= float(cost.factor(share)) <= MOST * (1 + 1e-9)


def answers(count: int, bucket: float, rng: np.random.Generator) -> EvidenceCounts:
    took = np.round(rng.normal(bucket, 8, count)).astype(int)
    return EvidenceCounts(requests=count, latency={32: dict(Counter(took.tolist()))})


def baked(slower: float, *, has_steps: bool) -> Verdict:
    """After a step of 5 % and a bake in which a neighbour slows everything for minutes."""
    rng = np.random.default_rng(1)
    evidence = Evidence.begin(
        only(latency=LatencyCheck()), 0.05, ("a", "b"), ComparisonStage.CANARY
    )
    for _ in range(40):
        evidence = evidence.with_history(answers(950, USUAL + COST, rng))
    evidence = evidence.with_share(0.05)
    for _ in range(60 if has_steps else 0):
        arms = answers(50, USUAL + slower, rng), answers(950, USUAL + COST, rng)
        evidence = evidence.after(*arms, 10.0)
    assert evidence.verdicts["latency"] is not Verdict.FAIL
    evidence = evidence.next_stage(ComparisonStage.BAKE).with_share(0.95)
    for at in range(120):
        now = USUAL + NEIGHBOUR * (at // 20 % 2)
        arms = answers(950, now + COST + slower, rng), answers(50, now, rng)
        evidence = evidence.after(*arms, 10.0)
    return evidence.verdicts["latency"]


def test_a_neighbours_load_in_the_bake_is_no_fault_of_a_share_whose_cost_is_known() -> None:
    assert baked(0, has_steps=True) is not Verdict.FAIL
    assert baked(0, has_steps=False) is Verdict.FAIL


def test_a_version_that_its_small_arm_let_look_as_quick_as_stable_fails_in_the_bake() -> None:
    assert baked(COST, has_steps=True) is Verdict.FAIL
