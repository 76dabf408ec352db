"""The worlds' traffic is what their names say."""

from dataclasses import replace

import numpy as np
import pytest
from verdicts import whole, worlds
from verdicts.batched_evidence import CHECKS, BatchedEvidence
from verdicts.traffic import FIRST, LABELS, Arm, given_to_callers, kept
from verdicts.worlds import WORLDS, Stream, Traffic, World

from contracts.rollout import RolloutSpec, WeightStep
from measures.correlation import Floats
from rollout.evidence import ComparisonStage, Evidence

ROLLOUTS = 40
SHADOW, HALF = (
    (np.zeros(ROLLOUTS), np.full(ROLLOUTS, np.inf)),
    (np.zeros(ROLLOUTS), np.full(40, 0.5)),
)


def arms(
    *streams: Stream, stalls: float = 0.0, at: int = 500, split: tuple[Floats, Floats] = HALF
) -> tuple[Arm, Arm]:
    """A window of both arms, late in forty rollouts."""
    rng = np.random.default_rng(1)
    traffic = Traffic.of(World("made up", streams, stalls), ROLLOUTS, rng)
    for _ in range(whole.HISTORY + at):
        traffic = traffic.moved(rng)
    return traffic.window(split[0], split[1], rng)


def share(arm: Arm) -> float:
    """Of the second label."""
    return float(arm.labels[:, 1].sum() / arm.labels.sum())


def test_rollouts_are_simulated_by_the_steps_that_they_have_by_default() -> None:
    shares = [step.weight / 100 for step in RolloutSpec().steps if isinstance(step, WeightStep)]
    assert list(whole.SHARE[1 : whole.BAKE]) == shares, (
        "change them in tests/support/verdicts/whole.py too, run make simulate, and write "
        "docs/simulated.md again"
    )


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name[:20])
def test_every_request_has_an_outcome_and_every_answer_a_time(world: World) -> None:
    texts = world.streams[0].texts
    for split in (SHADOW, HALF):
        for arm in arms(*world.streams, stalls=world.stalls, split=split):
            assert (arm.labels.sum(axis=1) <= texts * arm.requests).all()
            assert (arm.errors <= arm.requests).all()
            if texts == 1:
                answered: Floats = (arm.requests - arm.errors).astype(np.float64)
                if arm.failures is not None and arm.failures.any():
                    # Of a copy the label is told where its original has one as well.
                    answered = arm.failures[:, 0, 0]
                    assert (arm.failures[:, :, 1].sum(axis=1) == arm.errors).all()
                    assert (arm.failures.sum(axis=(1, 2)) == arm.requests).all()
                # A stall takes answers from copies of either kind, and labels from one.
                lost = arm.labels.sum(axis=1) - answered
                assert (lost == 0).all() if not world.stalls else (abs(lost) <= arm.errors).all()


def test_bursts_are_missing_among_copies() -> None:
    copies, stable = arms(*WORLDS[0].streams, split=SHADOW)
    assert share(stable) == pytest.approx(0.46, abs=0.02)
    assert share(copies) == pytest.approx(0.423, abs=0.02)


def failing(copies: Arm) -> Floats:
    """Pairs of all rollouts, by whether the original failed and whether the copy did."""
    assert copies.failures is not None
    assert (copies.failures.sum(axis=(1, 2)) == copies.requests).all()
    assert (copies.failures[:, :, 1].sum(axis=1) == copies.errors).all()
    found: Floats = copies.failures.sum(axis=0)
    return found


def test_what_fails_is_copied_like_all_else_and_fails_again_by_chance_or_for_its_own_sake() -> None:
    copies, stable = arms(Stream(1000.0, errors=0.2, copied=0.5), split=SHADOW)
    (_, gained), (lost, both) = failing(copies)
    assert gained == pytest.approx(lost, rel=0.1)
    assert both == pytest.approx(0.2 * (lost + both), rel=0.2)
    assert copies.requests.sum() == pytest.approx(0.5 * stable.requests.sum(), rel=0.02)
    own = arms(Stream(1000.0, errors=0.2, lasting=1.0), split=SHADOW)[0]
    (_, gained), (lost, both) = failing(own)
    assert (gained, lost) == (0, 0)
    assert both > 0


def test_copies_that_a_stall_meets_fail_where_their_originals_did_not() -> None:
    copies = arms(Stream(1000.0, errors=0.0), stalls=1.0, split=SHADOW)[0]
    (well, gained), (lost, both) = failing(copies)
    assert (lost, both) == (0, 0)
    assert gained == pytest.approx(0.2 * (well + gained), rel=0.05)


def test_a_broken_caller_fails_at_the_candidate_and_at_no_copy() -> None:
    streams = (Stream(100.0, errors=0.0), Stream(50.0, callers=1, cap=50, errors=0.0, broken=0.3))
    candidate, stable = arms(*streams)
    hit = candidate.groups[:, 0].max(axis=1) > 25  # where the caller is in its arm
    assert hit.any()
    assert (candidate.errors[hit] > 0).all()
    assert not candidate.errors[~hit].any()
    assert not stable.errors.any()
    assert not arms(*streams, split=SHADOW)[0].errors.any()


def test_answers_take_longer_with_the_load_of_their_arm_and_with_the_hour() -> None:
    few = np.full(ROLLOUTS, 0.05)

    def firsts(load: float, daily: float) -> tuple[Floats, Floats]:
        rng = np.random.default_rng(1)
        world = World("made up", (Stream(500.0, callers=0),), load=load, daily=daily)
        traffic = replace(Traffic.of(world, ROLLOUTS, rng), at=8640 // 4)  # the busiest hour
        both = traffic.window(np.zeros(ROLLOUTS), few, rng)
        return both[0].first.mean(), both[1].first.mean()

    assert len(set(firsts(0.0, 0.5))) == 1
    small, large = firsts(0.5, 0.0)
    assert large > small
    assert firsts(0.5, 0.5)[1] > large
    day = World("made up", (Stream(500.0, callers=0),), daily=0.5)
    rng = np.random.default_rng(1)
    noon = replace(Traffic.of(day, ROLLOUTS, rng), at=8640 // 4).window(HALF[0], HALF[1], rng)[1]
    dawn = replace(Traffic.of(day, ROLLOUTS, rng), at=0).window(HALF[0], HALF[1], rng)[1]
    assert noon.requests.mean() > 1.3 * dawn.requests.mean()
    assert share(noon) > share(dawn) + 0.1


@pytest.mark.slow
def test_texts_of_one_request_are_alike_in_both_arms() -> None:
    """The variance of an arm's share is 1 + 15 / 2 times that of single texts."""
    wide = [
        arm.labels[:, 1] / arm.labels.sum(axis=1)
        for arm in arms(Stream(100.0, callers=0, texts=16, alike=0.5, errors=0.0))
    ]
    one = [
        arm.labels[:, 1] / arm.labels.sum(axis=1)
        for arm in arms(Stream(1600.0, callers=0, errors=0.0))
    ]
    assert 4 < np.var(np.concatenate(wide)) / np.var(np.concatenate(one)) < 16


def test_callers_get_the_times_of_their_arms_answers() -> None:
    for arm in arms(Stream(1000.0, slow_callers=0.1)):
        assert arm.callers is not None
        told = np.zeros_like(arm.times)
        np.add.at(told, (arm.callers.row, arm.callers.length, arm.callers.time), 1)
        assert (told == arm.times).all()
        of_row = np.bincount(arm.callers.row, minlength=ROLLOUTS)
        assert (of_row == arm.labels.sum(axis=1)).all()


def test_callers_lose_the_times_that_their_arm_loses() -> None:
    rng = np.random.default_rng(3)
    times = rng.poisson(2.0, (4, 2, 5))
    answers = np.stack([times.sum(axis=(1, 2)), np.zeros(4, dtype=np.int64)], axis=1)
    given = given_to_callers(times, answers, np.array([[7, 8]] * 4), rng)
    left = rng.binomial(times, 0.5)
    found = kept(given, left, rng)
    told = np.zeros_like(times)
    np.add.at(told, (found.row, found.length, found.time), 1)
    assert (told == left).all()
    assert (given.bucket == 7).all()


def test_a_job_is_one_callers_and_begins_after_the_rollout() -> None:
    job = Stream(400.0, callers=1, cap=80, positive=0.95, errors=0.0, begins_late=True)
    assert sum(arm.requests.sum() for arm in arms(job, at=39)) == 0
    candidate, stable = arms(job)
    assert (candidate.requests + stable.requests == 80).all()
    assert ((candidate.requests == 0) | (stable.requests == 0)).all()
    assert 0 < (stable.requests == 0).sum() < ROLLOUTS
    assert share(stable) == pytest.approx(0.95, abs=0.02)


def test_a_deploy_changes_what_a_caller_sends_and_not_that_it_sends() -> None:
    caller = Stream(400.0, callers=1, cap=80, positive=0.8, begins_late=True, before=0.2)
    before, after = arms(caller, at=39)[1], arms(caller)[1]
    assert share(before) == pytest.approx(0.2, abs=0.04)
    assert share(after) == pytest.approx(0.8, abs=0.04)


def test_slow_callers_are_slow_in_whichever_arm_they_are() -> None:
    middle = [
        float((arm.times[:, 0].sum(axis=0) * np.arange(arm.times.shape[2])).sum())
        / arm.times[:, 0].sum()
        for slow in (0.0, 1.0)
        for arm in arms(Stream(500.0, slow_callers=slow))
    ]
    assert middle[2] - middle[0] == pytest.approx(8, abs=0.5)  # buckets of 5 %: 1.5 times
    assert middle[3] - middle[1] == pytest.approx(8, abs=0.5)


def test_an_arm_stalls_by_itself_and_loses_a_fifth_of_its_window() -> None:
    for arm in arms(Stream(500.0, callers=0, errors=0.0), stalls=1.0):
        assert arm.errors.sum() / arm.requests.sum() == pytest.approx(0.2, abs=0.01)
    rare = arms(Stream(500.0, callers=0, errors=0.0), stalls=0.5)
    stalled = [arm.errors > 0 for arm in rare]
    assert (stalled[0] != stalled[1]).any()


def test_a_cache_leaves_a_small_arm_more_of_the_texts_that_it_keeps() -> None:
    kept = Stream(500.0, callers=0, positive=0.7, kept=360.0, different=20_000.0)
    few = (np.zeros(ROLLOUTS), np.full(ROLLOUTS, 0.05))
    candidate, stable = arms(kept, split=few)
    assert candidate.requests.sum() / stable.requests.sum() > 0.2  # of 5 % against 95 %


def test_what_fails_was_sent_several_times() -> None:
    for arm in arms(Stream(500.0, callers=0, errors=0.02, tries=4)):
        assert (arm.errors % 4 == 0).all()
        assert arm.errors.sum() > 0


@pytest.mark.slow
def test_bursts_pass_shadow() -> None:
    assert all(each.is_promoted for each in worlds.walks(WORLDS[0], 3, (8, 0)))


@pytest.mark.soak
def test_the_same_seed_gives_the_same_rollouts() -> None:
    one, two = (worlds.walks(WORLDS[0], 3, (8, 0)) for _ in range(2))
    assert one == two


def test_pairs_are_the_copies_of_each_label() -> None:
    for world in (WORLDS[0], WORLDS[1]):
        copies, stable = arms(*world.streams, split=SHADOW)
        assert copies.pairs is not None
        assert stable.pairs is not None
        told = copies.pairs * world.streams[0].texts
        assert np.diagonal(told, axis1=1, axis2=2) == pytest.approx(copies.labels)
        assert told.sum() == pytest.approx(copies.labels.sum())
        assert not stable.pairs.any()
        assert not any(arm.pairs.any() for arm in arms(*world.streams))  # type: ignore[union-attr]


def test_texts_of_a_request_have_its_other_texts_for_neighbours() -> None:
    stream = Stream(100.0, callers=0, texts=16, alike=0.5, errors=0.0)
    for arm in arms(stream):
        assert arm.neighbours is not None
        assert arm.like is not None
        assert (arm.neighbours == 15 * arm.labels).all()
        # Of the second label, in the half of the requests that are alike all are, else 40 %.
        assert arm.like[:, 1].sum() / arm.neighbours[:, 1].sum() == pytest.approx(0.7, abs=0.03)
    for arm in arms(Stream(100.0)):
        assert arm.neighbours is not None
        assert not arm.neighbours.any()


@pytest.mark.slow
def test_requests_of_several_texts_are_judged_as_production_judges_them() -> None:
    rng, rollouts = np.random.default_rng(2), 2
    stream = Stream(40.0, callers=0, texts=8, alike=0.3)
    traffic = Traffic.of(World("made up", (stream,)), rollouts, rng)
    batched = BatchedEvidence.begin(rollouts, 0.05)
    alone = [Evidence.begin(CHECKS, 0.05, LABELS) for _ in range(rollouts)]
    nobody = np.zeros(rollouts)
    for at in range(45):
        is_canary = at >= 30
        if at == 30:
            batched = batched.next_stage(np.full(rollouts, fill_value=True))
            alone = [one.next_stage(ComparisonStage.CANARY).with_share(0.25) for one in alone]
        traffic = traffic.moved(rng)
        high = nobody + (0.25 if is_canary else np.inf)
        both = traffic.window(nobody, high, rng)
        if at < 15:
            batched = batched.with_history(both[1])
            alone = [one.with_history(both[1].evidence(row)) for row, one in enumerate(alone)]
            continue
        batched = batched.after(*both, nobody + 0.25 * is_canary, nobody > 0)
        alone = [
            one.after(both[0].evidence(row), both[1].evidence(row), 10.0)
            for row, one in enumerate(alone)
        ]
        for row, one in enumerate(alone):
            assert batched.harm.e_value()[row] == pytest.approx(one.rates.harm.e_value())
            log_e = one.rates.non_inferiority.log_e
            assert batched.non_inferiority.log_e[row] == pytest.approx(log_e)
            assert one.outputs.test is not None
            assert batched.near.size()[row] == pytest.approx(one.outputs.test.passes.size())
    assert (alone[0].rates.within[-3:] > 2).all()


def test_a_neighbours_load_makes_answers_of_both_arms_take_longer_in_the_same_windows() -> None:
    rng = np.random.default_rng(1)
    of = World("made up", (Stream(100.0, callers=0),), neighbour=0.15)
    traffic = Traffic.of(of, ROLLOUTS, rng)
    quiet = FIRST[0]
    seen = []
    for _ in range(300):
        traffic = traffic.moved(rng)
        one, other = (arm.first[:, 0] for arm in traffic.window(*HALF, rng))
        assert (one == other).all()
        seen.append(one)
    later = np.stack(seen) - quiet
    assert set(np.unique(later)) == {0, 3}  # 15 %, in buckets of a twentieth
    assert 0.1 < (later > 0).mean() < 0.4
