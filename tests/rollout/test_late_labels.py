"""Labels that come late, and callers who begin to label otherwise: no fault of a version."""

from dataclasses import replace

import pytest
from evidence_windows import only
from verdicts.late_labels import (
    COMPLAINTS_AND_HOURS,
    COMPLAINTS_AND_MINUTES,
    CONFIRMED_FIRST,
    CONFIRMED_FIRST_PROMOTED,
    PROMOTED,
    STRICT_CALLER,
    World,
    rolled_out,
)

from contracts.rollout import QualityCheck, Verdict
from contracts.windows import EvidenceCounts, Sparse
from rollout.checks.labels import Labelling, counted
from rollout.evidence import Evidence, Stage

SHORT = replace(COMPLAINTS_AND_HOURS, hours=1.0)


@pytest.mark.parametrize(
    "world",
    [SHORT, COMPLAINTS_AND_MINUTES, CONFIRMED_FIRST, PROMOTED, CONFIRMED_FIRST_PROMOTED],
    ids=lambda world: world.name[:40],
)
def test_identical_versions_stay_however_long_labels_take(world: World) -> None:
    endings = [rolled_out(world, seed) for seed in range(3)]
    assert not any(ending.failed for ending in endings)


@pytest.mark.parametrize("world", [SHORT, COMPLAINTS_AND_MINUTES, CONFIRMED_FIRST, PROMOTED])
def test_a_version_that_is_wrong_twice_as_often_goes_back_however_long_labels_take(
    world: World,
) -> None:
    worse = replace(world, hours=6.0 if world is SHORT else world.hours, candidate_wrong=0.2)
    assert all(rolled_out(worse, seed).failed for seed in range(3))


def test_one_caller_that_labels_by_a_stricter_rule_ends_no_rollout_and_is_told() -> None:
    endings = [rolled_out(STRICT_CALLER, seed) for seed in range(3)]
    assert not any(ending.failed or ending.passed for ending in endings)
    assert all("label otherwise: of the candidate's answers" in end.reason for end in endings)


def test_a_version_that_is_wrong_for_many_callers_goes_back_where_one_labels_strictly() -> None:
    worse = replace(STRICT_CALLER, candidate_wrong=0.35)
    assert all(rolled_out(worse, seed).failed for seed in range(3))


# Who labels


def told(of_groups: dict[int, tuple[int, int]]) -> EvidenceCounts:
    """Labels and wrong ones by group of callers."""
    every: Sparse = {group: n for group, (n, _) in of_groups.items()}
    wrong: Sparse = {group: wrong for group, (_, wrong) in of_groups.items()}
    return EvidenceCounts(
        requests=100,
        feedback=sum(every.values()),
        feedback_wrong=sum(wrong.values()),
        group_feedback=every,
        group_wrong=wrong,
    )


ALIKE = dict.fromkeys(range(8), (10, 1))


def begun() -> Evidence:
    evidence = Evidence.begin(only(quality=QualityCheck()), 0.05, ("a",), Stage.CANARY)
    for _ in range(20):
        evidence = evidence.with_history(told(ALIKE))
    return evidence.with_share(0.5)


def after(evidence: Evidence, candidate: dict[int, tuple[int, int]], windows: int) -> Evidence:
    for _ in range(windows):
        evidence = evidence.after(told(candidate), told(ALIKE), 10.0)
    return evidence


def test_quality_is_left_without_each_group_of_callers_in_turn() -> None:
    one = after(begun(), ALIKE | {3: (20, 20)}, 40)
    two = after(begun(), ALIKE | {3: (20, 20), 4: (20, 20)}, 40)
    assert one.verdicts["quality"] is Verdict.UNKNOWN
    assert one.rates.rests_on_few("quality", one.alpha)
    assert two.verdicts["quality"] is Verdict.FAIL


def test_the_labels_of_a_caller_that_tells_nearly_all_of_them_count() -> None:
    alone = after(begun(), {3: (20, 12), 4: (1, 0)}, 40)
    assert alone.rates.labelling.is_alone
    assert alone.verdicts["quality"] is Verdict.FAIL


def test_a_group_that_labels_as_it_did_before_is_not_told() -> None:
    labelling = Labelling.begin().with_history(told(ALIKE | {3: (100, 60)}))
    same, changed = (
        labelling.after(counted((told(ALIKE | {3: (200, wrong)}), told(ALIKE))))
        for wrong in (120, 20)
    )
    assert same.other() is None
    other = changed.other()
    assert other is not None
    assert (other.group, other.is_candidates) == (3, True)
    assert (other.wrong, other.labels, other.wrong_before, other.labels_before) == (
        20,
        200,
        60,
        100,
    )


def test_too_few_labels_tell_of_nobody() -> None:
    few = Labelling.begin().after(counted((told({1: (5, 5), 2: (5, 0)}), told({}))))
    assert few.other() is None
    assert Labelling.begin().other() is None


def test_what_is_known_of_labelling_survives_being_stored() -> None:
    evidence = after(begun(), ALIKE | {3: (20, 20)}, 4)
    stored = Evidence.of_json(evidence.to_json())
    assert stored.to_json() == evidence.to_json()
    assert stored.rates.labelling.arms.tolist() == evidence.rates.labelling.arms.tolist()
    assert not stored.next_stage(Stage.CANARY).rates.labelling.arms.any()
