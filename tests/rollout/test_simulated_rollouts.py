"""The simulations judge as production does, and their tables and intervals are what they say."""

import math

import numpy as np
import pytest
from verdicts import __main__ as program
from verdicts import backfills, claimed_spaces, whole, worlds
from verdicts.batched_evidence import CHECKS, NAMES, BatchedEvidence
from verdicts.findings import Finding, interval, needed, share, table
from verdicts.traffic import LABELS, Harm, Places, World, harmed, window

from contracts.rollout import Verdict
from rollout.evidence import ComparisonStage, Evidence

pytestmark = pytest.mark.slow

WORLDS = [World(600.0, 0.0, 0.0), World(900.0, 0.5, 0.02), World(2000.0, 0.3, 0.005)]


def test_rollouts_side_by_side_are_judged_as_production_judges_one() -> None:
    rng = np.random.default_rng(2)
    places = Places.of(WORLDS, rng)
    batched = BatchedEvidence.begin(len(WORLDS), 0.05)
    alone = [Evidence.begin(CHECKS, 0.05, LABELS) for _ in WORLDS]
    nobody, rows = np.zeros(len(WORLDS)), range(len(WORLDS))
    for _ in range(15):
        places = places.moved(rng)
        stable = window(places, nobody, nobody, rng)[1]
        batched = batched.with_history(stable)
        alone = [alone[row].with_history(stable.evidence(row)) for row in rows]
    # Different steps at the same time, as it comes in the simulation.
    step, seen = np.array([0, 0, 1]), set()
    alone = [
        alone[r].next_stage(ComparisonStage.SHADOW if step[r] == 0 else ComparisonStage.CANARY)
        for r in rows
    ]
    for at in range(60):
        if at in {20, 40}:
            moving = np.array([True, at == 20, False])
            step = step + moving
            batched = batched.next_stage(moving)
            alone = [
                alone[r].next_stage(ComparisonStage.CANARY) if moving[r] else alone[r] for r in rows
            ]
        if at == 45:
            moving = np.array([False, False, True])
            step = np.where(moving, whole.BAKE, step)
            batched = batched.next_stage(moving)
            alone[2] = alone[2].next_stage(ComparisonStage.BAKE)
        is_last = step == (1 if at < 40 else 2)  # of some, in each part of the way
        places = places.moved(rng)
        arms = window(places, whole.LOW[step], whole.HIGH[step], rng)
        batched = batched.after(*arms, whole.SHARE[step], step == whole.BAKE)
        alone = [
            alone[r]
            .with_share(whole.SHARE[step[r]], is_last_step=is_last[r])
            .after(arms[0].evidence(r), arms[1].evidence(r), 10)
            for r in rows
        ]
        passed, blurred = batched.passed(), batched.blurred(whole.SHARE[step], is_last)
        for row in rows:
            of_one = alone[row].rates
            assert batched.harm.e_value()[row] == pytest.approx(of_one.harm.e_value())
            assert batched.non_inferiority.log_e[row] == pytest.approx(of_one.non_inferiority.log_e)
            beyond_callers = of_one.beyond_callers
            assert batched.beyond_callers[row] == pytest.approx(beyond_callers)
            for result in alone[row].results():
                if result.name in NAMES[2:] and alone[row].stage is ComparisonStage.CANARY:
                    has_passed = {
                        "classShare": "classShare" in of_one.settled,
                        "outputShift": alone[row].outputs.is_settled,
                    }[result.name]
                    is_open = result.verdict is Verdict.UNKNOWN and has_passed
                    is_hidden_by_callers = bool(blurred[row, NAMES.index(result.name)])
                    assert result.required == (not (is_open and is_hidden_by_callers))
            said = alone[row].verdicts
            for index, name in enumerate(NAMES):
                assert bool(batched.failed[row, index]) == (said[name] is Verdict.FAIL)
                assert bool(passed[row, index]) == (said[name] is Verdict.PASS)
                seen.add((name, said[name]))
    assert {(name, Verdict.PASS) for name in NAMES} <= seen


def test_identical_versions_of_an_endpoint_with_like_callers_are_promoted() -> None:
    ended = whole.walk([World(1500.0, 0.0, 0.0)] * 3, (3, 3))
    assert [one.step for one in ended] == ["settled"] * 3
    assert all(200 > one.windows > 0 for one in ended)


def test_an_identical_version_is_not_charged_with_the_load_of_its_promotion() -> None:
    busy = worlds.World("busy", (worlds.Stream(1000.0, callers=0),), load=0.5)
    assert [one.step for one in worlds.walks(busy, 3, (3, 4))] == ["settled"] * 3


def test_a_harmful_version_goes_back_before_a_caller_meets_it() -> None:
    harm = Harm("half of the requests fail", fails=0.5)
    for one in whole.walk([World(1500.0, 0.3, 0.0)] * 3, (4, 4), harm):
        assert (one.step, one.causes, one.met) == ("shadow", ("errorRate",), 0)
        assert one.is_back
        assert not one.is_promoted


def test_a_harm_changes_answers_and_loses_none_and_spares_copies_where_it_is_of_callers_alone() -> (
    None
):
    rng = np.random.default_rng(5)
    places = Places.of(WORLDS, rng)
    arm = window(places, np.zeros(3), np.full(3, 0.5), rng)[0]
    harm = Harm("all", fails=0.5, flips=0.5, slower=2.0, in_shadow=False)
    after = harmed(arm, harm, np.array([True, False, False]), rng)
    assert (after.errors + after.labels.sum(axis=1) == arm.errors + arm.labels.sum(axis=1)).all()
    assert (after.errors > arm.errors).tolist() == [False, True, True]
    assert (after.first > arm.first).all(axis=1).tolist() == [False, True, True]
    assert (after.times[0] == arm.times[0]).all()


def test_a_harm_that_shadow_shows_changes_the_copies_of_pairs() -> None:
    rng = np.random.default_rng(6)
    copies, stable = window(Places.of(WORLDS, rng), np.zeros(3), np.full(3, np.inf), rng)
    assert copies.pairs is not None
    assert (copies.pairs == copies.labels[:, :, None] * np.eye(2)).all()
    assert (stable.pairs is None, copies.labels.tolist()) == (True, stable.labels.tolist())
    after = harmed(copies, Harm("all", fails=0.5, flips=0.5), np.full(3, fill_value=True), rng)
    assert after.pairs is not None
    assert (after.pairs.sum(axis=1) == after.labels).all()  # what the candidate answered
    assert (after.pairs[:, 0, 1] > 0).all()
    assert not after.pairs[:, 1, 0].any()
    spared = harmed(copies, Harm("all", fails=0.5, flips=0.5, in_shadow=False),
                    np.full(3, fill_value=True), rng)  # fmt: skip
    assert spared.pairs is not None
    assert (spared.pairs == copies.pairs).all()


def test_an_interval_holds_its_share() -> None:
    # None of 100: (1 - p)^100 = 0.025. Half of 100: the tables of Clopper and Pearson.
    assert list(interval(0, 100)) == pytest.approx([0.0, 1 - 0.025**0.01])
    assert list(interval(100, 100)) == pytest.approx([0.025**0.01, 1.0])
    assert list(interval(50, 100)) == pytest.approx([0.3983, 0.6017], abs=1e-4)


def test_a_figure_that_is_not_reached_says_so_in_the_table() -> None:
    never = needed("late", "5 %", np.array([10.0, np.inf, 20.0, 30.0]), 25)
    often = share("wrong", "5 %", np.array([True, False]), 0.6)
    assert table([never, often]) == (
        "| | 5 % |\n|---|---|\n"
        "| late | 30 / never; at most 25: **not reached** |\n"
        "| wrong | 50 % (1.3 % to 99 %); at most 60 % |"
    )
    assert (never.reached, often.reached) == (False, True)


def test_harmful_versions_are_told_apart_by_what_they_harm() -> None:
    found = program.simulate("harmful", 5, 1)
    assert {each.what.partition(", callers ")[0] for each in found} == {
        harm.name for harm in whole.HARMS
    }


def test_claims_that_hold_pass_and_others_are_refused() -> None:
    found = program.simulate("claims", 1, 1)
    ended = {(each.what, each.where): each.figure for each in found}
    for claim in claimed_spaces.CLAIMS:
        if claim.lies in {0.0, 1.0}:  # the others may end either way
            end = "passed" if claim.passes is None else "refused"
            assert ended[claim.name, end] == 1.0, claim.name


def test_a_backfill_is_told_with_what_others_waited_for_it() -> None:
    found = {each.where: each for each in backfills.slowed(300, settings=[(0.002, (1.0,), 0.2)])}
    assert {each.what for each in found.values()} == {"2 ms, 1 gateway, load 0.2"}
    assert 1000 < found["p99 without, us"].figure <= found["with, us"].figure
    assert found["texts/s"].figure > 0


def test_every_study_has_a_full_and_a_small_size() -> None:
    assert program.FULL.keys() == program.SMALL.keys()
    assert all(program.SMALL[name] < size for name, size in program.FULL.items())
    assert program.FULL["identical"] >= 2000


def test_a_finding_without_a_target_is_neither_reached_nor_missed() -> None:
    assert Finding("a", "b", math.inf, None, 3, "requests").reached is None
