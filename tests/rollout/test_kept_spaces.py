"""The vector space that callers have left: answered by name until nobody has asked for long."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import evidence_windows
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_walk import SECONDS, Walk, loaded_candidate, ref

from contracts.endpoint import Arm, EndpointSpec, KeptSpace
from contracts.model import ModelRef
from contracts.rollout import EmbeddingSpec, RolloutSpec, Strategy, Verb
from contracts.windows import EvidenceCounts
from registry.reconcile.plan import ObservedState, plan
from rollout.context import Observation

KEEP = 10_000.0
SPEC = RolloutSpec(strategy=Strategy.CUTOVER, embedding=EmbeddingSpec(keep=KEEP))


def of_space(version: str, space: str) -> ModelRef:
    return ref(version).model_copy(update={"space": space * 12})


OLD, NEW, SAME = of_space("1", "a"), of_space("2", "b"), of_space("2", "a")


def walk(new: ModelRef = NEW) -> Walk:
    observed = Observation(loaded=frozenset({OLD, new}), target="2", windows=())
    return Walk(SPEC, loaded_candidate(new, OLD), observed=observed)


def test_a_cutover_is_of_a_space_that_has_passed_and_of_no_other() -> None:
    """What a person, or the end of a backfill, saw may be over once the controller reads it."""
    refused = (False, f"the space {NEW.space} does not wait for its cutover now")
    made = walk()
    assert made.told(Verb.PROMOTE, space=NEW.space).said == refused
    assert made.before().step().told(Verb.PROMOTE, space=NEW.space).said == refused
    made.traffic("pass", 3)
    assert not made.told(Verb.PROMOTE, space="c" * 12).said[0]
    assert made.state.promoted_at is None
    assert made.told(Verb.PROMOTE, space=NEW.space).said[0]
    assert made.shares == {"stable 2": 100}


def settled(new: ModelRef = NEW) -> Walk:
    made = walk(new).before().step().traffic("pass", 3).told(Verb.PROMOTE)
    made.step(SPEC.bake).traffic("pass").step(SPEC.bake)
    assert made.status.rollout is None
    return made


def asked(made: Walk, of: ModelRef, arm: Arm = Arm.FORCED) -> Walk:
    """One window in which a caller names a space, and a pass after it."""
    start = int(made.now // SECONDS) * SECONDS
    counted = evidence_windows.aggregate(of, arm, start, EvidenceCounts())
    seen = evidence_windows.window(start, counted, seconds=SECONDS)
    made.observed = replace(made.observed, windows=(seen,))
    return made.step(SECONDS)


def kept(made: Walk) -> list[str]:
    needed = plan_packages(made)
    assert {each.ref for each in made.status.kept} <= needed
    return [each.ref.version for each in made.status.kept]


def plan_packages(made: Walk) -> set[ModelRef]:
    """What Tritons must hold after the next pass of the registry."""
    spec = EndpointSpec(model="m", rollout=SPEC)
    decision = plan(spec, made.status, ObservedState(versions=None), made.now + 600)
    return set(decision.status.packages)


def test_after_the_cutover_the_old_space_stays_as_long_as_somebody_asks_for_it() -> None:
    made = settled()
    for _ in range(20):
        asked(made.step(KEEP / 2), OLD)
        assert kept(made) == ["1"]
    made.step(KEEP)
    assert made.status.kept == ()
    assert made.status.history[-1].version == "1"
    assert "nobody asked for it in" in made.status.history[-1].reason
    assert plan_packages(made) == {NEW}


@pytest.mark.parametrize("arm", [Arm.STABLE, Arm.SHADOW, Arm.CONTROL])
def test_requests_that_name_nothing_keep_no_space(arm: Arm) -> None:
    made = settled()
    asked(made.step(KEEP / 2), OLD, arm)
    assert kept(made) == ["1"]
    assert made.step(KEEP / 2).status.kept == ()


def test_while_nobody_knows_what_is_asked_no_space_leaves() -> None:
    assert kept(settled().without_statistics().step(10 * KEEP)) == ["1"]


def test_undo_at_any_time_changes_the_default_and_keeps_what_indexes_are_of_by_now() -> None:
    made = settled()
    for _ in range(5):
        asked(made.step(KEEP / 2), OLD)
    made.told(Verb.UNDO)
    assert made.shares == {"stable 1": 100}
    assert kept(made) == ["2"]
    assert asked(made.step(KEEP / 2), NEW).step(KEEP / 2).status.kept != ()
    assert made.step(KEEP).status.kept == ()


def test_a_version_that_a_triton_refuses_is_not_kept() -> None:
    made = walk().before().step().traffic("pass", 3).told(Verb.PROMOTE)
    made.observed = replace(made.observed, failures={NEW: "its graph is broken"})
    assert made.step().shares == {"stable 1": 100}
    assert made.status.kept == ()


def test_a_version_of_the_same_space_leaves_nothing_behind() -> None:
    assert settled(SAME).status.kept == ()


def keeping(made: Walk, *ages: float) -> Walk:
    """With further spaces that callers have left, last asked for so long ago."""
    kept = tuple(
        KeptSpace(ref=of_space(str(10 + at), "cdefgh"[at]), asked_at=made.now - age)
        for at, age in enumerate(ages)
    )
    packages = (*made.status.packages, *(each.ref for each in kept))
    update = {"kept": (*made.status.kept, *kept), "packages": packages}
    made.status = made.status.model_copy(update=update)
    return made


def test_a_kept_space_whose_package_a_triton_refuses_leaves_with_its_words() -> None:
    made = keeping(settled(), 0.0)
    made.observed = replace(made.observed, failures={OLD: "its graph is broken"})
    made.step()
    assert kept(made) == ["10"]
    assert made.status.history[-1].version == "1"
    assert made.status.history[-1].reason.endswith("is refused: its graph is broken")


def test_of_more_spaces_than_are_kept_the_one_not_asked_for_the_longest_leaves() -> None:
    made = keeping(walk(), 0.11 * KEEP, 0.0, 0.05 * KEEP, 0.0)
    made.before().step().traffic("pass", 3).told(Verb.PROMOTE)
    assert made.said[0], made.said
    made.step(SPEC.bake).traffic("pass").step(SPEC.bake)
    assert kept(made) == ["11", "12", "13", "1"]
    assert made.status.history[-1].version == "10"
    assert "4 are kept" in made.status.history[-1].reason


def test_if_all_kept_spaces_are_in_use_the_cutover_waits() -> None:
    made = keeping(walk(), 0.0, 0.0, 0.0, 0.0)
    made.before().step().traffic("pass", 3).told(Verb.PROMOTE)
    assert not made.said[0]
    assert "as many as may be, and each was asked for in the last" in made.said[1]
    assert made.shares["stable 1"] == 100
    made.step(KEEP / 10).told(Verb.PROMOTE)
    assert made.said[0]


def test_one_that_never_had_callers_is_not_kept() -> None:
    made = walk().before().step().traffic("pass", 3).told(Verb.ABORT)
    assert made.status.kept == ()


@given(st.lists(st.tuples(st.floats(0, KEEP / 2), st.booleans()), max_size=30))
def test_a_space_leaves_no_sooner_than_its_time_after_a_request_and_is_seldom_written(
    passes: Iterable[tuple[float, bool]],
) -> None:
    made = settled()
    last, written = made.status.kept[0].asked_at, [made.status.kept]
    for seconds, is_asked in passes:
        made.now += seconds
        if is_asked and made.status.kept:
            asked(made, OLD)
            last = made.now
        else:
            made.step(SECONDS)
        if not made.status.kept:
            assert made.now - last >= KEEP * 0.99 - SECONDS
        written.append(made.status.kept)
    times = [each[0].asked_at for each in written if each]
    steps = [after - before for before, after in pairwise(times) if after != before]
    assert all(step >= KEEP * 0.01 for step in steps)
