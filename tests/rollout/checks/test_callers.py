"""How far callers can set the arms of one version apart: by hand, and against random splits."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.windows import CALLER_GROUPS, EvidenceCounts
from measures.correlation import Floats
from rollout.checks.callers import DEVIATIONS, CallerVariation, GroupCounts
from rollout.checks.rows import CLASSES, ERRORS, CheckRows

LABELS = ("negative", "positive")
ROWS = CheckRows(LABELS)
CALLERS = 400


def window(group: Floats, requests: Floats, positive: Floats) -> EvidenceCounts:
    """Of callers in these groups."""
    by_group = [
        np.bincount(group.astype(int), part, CALLER_GROUPS).astype(int)
        for part in (requests, requests - positive, positive)
    ]
    every, negative, others = ({at: int(n) for at, n in enumerate(part) if n} for part in by_group)
    return EvidenceCounts(
        requests=int(requests.sum()),
        labels={
            "negative": int((requests - positive).sum()),
            "positive": int(positive.sum()),
        },
        group_requests=every,
        group_labels={"negative": negative, "positive": others},
    )


def learnt(*windows: EvidenceCounts) -> CallerVariation:
    callers = CallerVariation.begin(len(LABELS))
    for evidence in windows:
        callers = callers.after(GroupCounts.of(evidence, LABELS))
    return callers


def simulated(rng: np.random.Generator, spread: float) -> tuple[CallerVariation, Floats, Floats]:
    """What was learnt of 30 windows, and each caller's requests and own share."""
    sizes = np.minimum(1000.0 / np.arange(1, CALLERS + 1), 40.0)
    own = np.clip(0.4 + spread * rng.normal(size=CALLERS), 0, 1)
    group = rng.integers(0, CALLER_GROUPS, CALLERS).astype(float)
    windows = []
    for _ in range(30):
        requests = rng.poisson(sizes).astype(float)
        base = rng.uniform(0.7, 1.3)  # of all callers alike, this window
        positive = rng.binomial(requests.astype(int), np.clip(base * own, 0, 1)).astype(float)
        windows.append(window(group, requests, positive))
    return learnt(*windows), sizes, own


def test_two_groups_worked_out_by_hand() -> None:
    evidence = window(np.array([0.0, 1.0]), np.array([100.0, 100.0]), np.array([60.0, 40.0]))
    # 10 above and 10 below one half each: 200, of which 0.25 x (100 x 1/2 + 100 x 1/2) by chance.
    expected = DEVIATIONS * np.sqrt((200 - 25) / (0.5 * 0.5)) / 200
    spread = learnt(evidence).spread(ROWS, 0.5)
    assert spread[CLASSES : CLASSES + 2] == pytest.approx([expected, expected])
    assert not spread[:CLASSES].any()
    assert spread[CLASSES + 2] == 0  # nobody answered any other label


def test_arms_of_one_version_are_rarely_further_apart_than_told_and_often_by_a_third() -> None:
    rng = np.random.default_rng(11)
    beyond, third, splits = 0, 0, 0
    for _ in range(20):
        callers, sizes, own = simulated(rng, spread=0.1)
        told = callers.spread(ROWS, 0.1)[CLASSES + 1]
        for _ in range(100):
            mine = rng.random(CALLERS) < 0.1
            one, other = (np.average(own[arm], weights=sizes[arm]) for arm in (mine, ~mine))
            beyond += abs(one - other) > told
            third += abs(one - other) > told / DEVIATIONS
            splits += 1
    assert beyond / splits < 0.02
    assert 0.15 < third / splits < 0.45


def test_like_callers_are_told_to_be_alike_however_the_base_rate_moves() -> None:
    rng = np.random.default_rng(12)
    told = [simulated(rng, spread=0.0)[0].spread(ROWS, 0.5)[CLASSES + 1] for _ in range(20)]
    assert np.median(told) < 0.01
    assert max(told) < 0.02


def test_requests_of_nobody_tell_nothing_of_callers() -> None:
    evidence = EvidenceCounts(requests=1000, errors=100, labels={"negative": 800, "positive": 100})
    assert not learnt(evidence, evidence).spread(ROWS, 0.05).any()


def test_the_distance_of_answers_is_that_of_the_shares() -> None:
    evidence = window(np.array([0.0, 1.0]), np.array([100.0, 100.0]), np.array([60.0, 40.0]))
    callers = learnt(evidence)
    spread = callers.spread(ROWS, 0.5)[CLASSES]
    # Two classes of a half: apart^2 x (2 + 2) / (8 ln 2).
    assert callers.distance(0.5) == pytest.approx(spread * np.sqrt(0.5 / np.log(2)))
    assert callers.distance(0.0) == 0
    assert CallerVariation.begin(0).distance(0.5) == 0


def test_few_callers_on_an_arm_are_further_apart_and_none_where_both_answer_the_same() -> None:
    callers = simulated(np.random.default_rng(13), spread=0.2)[0]
    small, large, most = (callers.spread(ROWS, share)[CLASSES] for share in (0.05, 0.5, 0.95))
    assert small == pytest.approx(most)
    assert small > 2 * large > 0
    assert not callers.spread(ROWS, 0.0).any()


def test_errors_and_wrong_answers_are_told_apart_by_callers_too() -> None:
    evidence = EvidenceCounts(
        requests=200, errors=20, feedback=200, feedback_wrong=60,
        group_requests={0: 100, 1: 100}, group_errors={0: 20},
        group_feedback={0: 100, 1: 100}, group_wrong={0: 60},
    )  # fmt: skip
    errors, *_, wrong = learnt(evidence).spread(ROWS, 0.5)[:CLASSES]
    assert wrong > errors > 0


def test_it_survives_json_bit_by_bit_and_labels_that_come_late() -> None:
    callers = simulated(np.random.default_rng(14), spread=0.2)[0]
    again = CallerVariation.of_json(json.loads(json.dumps(callers.to_json())))
    assert again.to_json() == callers.to_json()
    late = (
        CallerVariation.begin(0)
        .after(GroupCounts.of(EvidenceCounts(requests=10), ()))
        .with_labels(2)
    )
    assert late.above.shape == callers.above.shape
    assert late.requests[0] == 10


def of_sessions(
    rng: np.random.Generator, requests: int, lives: int, windows: int = 120, callers: int = 60
) -> CallerVariation:
    """What was learnt of names that last for so many windows, each with one label."""
    callers_ = CallerVariation.begin(len(LABELS))
    left = rng.integers(0, lives, callers)
    group, positive = rng.integers(0, CALLER_GROUPS, callers), rng.random(callers) < 0.4
    sizes = np.full(callers, float(requests))
    for _ in range(windows):
        evidence = window(group.astype(float), sizes, sizes * positive)
        callers_ = callers_.after(GroupCounts.of(evidence, LABELS))
        left -= 1
        over = left < 0
        left = np.where(over, lives - 1, left)
        group = np.where(over, rng.integers(0, CALLER_GROUPS, callers), group)
        positive = np.where(over, rng.random(callers) < 0.4, positive)
    return callers_


def near_classes(callers: CallerVariation) -> Floats:
    """The effect of both labels."""
    found: Floats = callers.near_effect(ROWS)[CLASSES : CLASSES + 2]
    return found


@pytest.mark.parametrize(("requests", "lives"), [(15, 1), (15, 6), (15, 12), (1, 12), (3, 6)])
def test_a_session_counts_for_about_as_many_requests_as_it_has(requests: int, lives: int) -> None:
    rng = np.random.default_rng(35)
    found = [near_classes(of_sessions(rng, requests, lives)) for _ in range(5)]
    assert 0.7 * requests * lives < np.median(found) < 2 * requests * lives


def test_sessions_of_one_request_are_requests() -> None:
    rng = np.random.default_rng(35)
    found = [near_classes(of_sessions(rng, 1, 1)) for _ in range(10)]
    assert np.median(found) == 1
    assert np.max(found) < 1.5


def test_callers_who_last_are_a_tolerance_and_no_design_effect() -> None:
    rng = np.random.default_rng(35)
    found = [near_classes(simulated(rng, spread=0.1)[0]) for _ in range(10)]
    assert np.median(found) < 1.1
    assert np.max(found) < 2


def test_the_effect_is_the_same_of_the_histogram_of_two_labels() -> None:
    callers = of_sessions(np.random.default_rng(35), 15, 6)
    assert callers.shared_near_effect == pytest.approx(near_classes(callers).mean(), rel=0.01)
    assert callers.near_effect(ROWS)[ERRORS.start] == 1


counts = st.lists(st.integers(0, 40), min_size=4, max_size=4)


@given(st.lists(st.tuples(counts, counts), max_size=12))
def test_no_traffic_makes_a_request_count_for_more_than_one(
    windows: list[tuple[list[int], list[int]]],
) -> None:
    group = np.array([0.0, 1.0, 1.0, 7.0])
    callers = learnt(
        *(
            window(group, np.array(one) + np.array(other), np.array(other, dtype=float))
            for one, other in windows
        )
    )
    effect = callers.near_effect(ROWS)
    assert (effect >= 1).all()
    assert np.isfinite(effect).all()
    assert effect[CLASSES] == pytest.approx(effect[CLASSES + 1], abs=0.01)
    assert callers.shared_near_effect >= 1


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=6), st.permutations(range(4)))
def test_which_group_a_name_falls_into_changes_nothing(
    windows: list[tuple[list[int], list[int]]], order: list[int]
) -> None:
    def learnt_of(group: Floats) -> CallerVariation:
        return learnt(
            *(
                window(group, np.array(one) + np.array(other), np.array(other, dtype=float))
                for one, other in windows
            )
        )

    group = np.array([0.0, 1.0, 5.0, 7.0])
    one, other = learnt_of(group), learnt_of(group[order])
    # Sums of rounded squares, in another order.
    assert one.near_effect(ROWS) == pytest.approx(other.near_effect(ROWS), rel=0.01, abs=0.01)
