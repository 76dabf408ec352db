"""The walk of one version, step by step: golden cases."""

from dataclasses import replace

import pytest
from msgspec import structs
from rollout_walk import (
    HOUR,
    ONE,
    SECONDS,
    SPEC,
    THREE,
    TWO,
    FakeJudge,
    Walk,
    loaded_candidate,
    window,
)

from contracts.endpoint import Arm, Candidate, EndpointStatus, Phase
from contracts.rollout import (
    CheckResult,
    Outcome,
    RolloutSpec,
    ShadowStep,
    Strategy,
    Verb,
    Verdict,
    WeightStep,
)
from measures.counting import CountingState, CountingStatus
from rollout.steps import HISTORY_WINDOWS

# The way of a good version


def test_a_good_version_walks_every_step_and_settles() -> None:
    walk = Walk().before().step()
    assert walk.shares == {"stable 1": 100, "shadow 2": 100}
    expected = [
        {"canary 2": 5, "stable 1": 95},
        {"canary 2": 25, "stable 1": 75},
        {"canary 2": 50, "stable 1": 50},
        {"stable 2": 95, "control 1": 5},
    ]
    for shares in expected:
        walk.traffic("pass")
        assert walk.shares == shares
    promoted_at = walk.now
    assert walk.state.promoted_at == promoted_at
    walk.traffic("unknown").step(HOUR - SECONDS - 1)
    assert walk.shares == expected[-1]
    walk.step(1)
    assert walk.shares == {"stable 2": 100}
    assert (walk.last.outcome, walk.last.ended_at) == (Outcome.SETTLED, promoted_at + HOUR)
    assert walk.status.candidate is None
    assert walk.status.rejected == ()
    assert walk.status.packages == (TWO, ONE)
    assert walk.status.generation == 7
    assert [(line.phase, line.step) for line in walk.status.history] == [
        (Phase.SHADOW, 0),
        (Phase.CANARY, 1),
        (Phase.CANARY, 2),
        (Phase.CANARY, 3),
        (Phase.PROMOTED, 3),
        (Phase.SETTLED, 3),
    ]
    assert walk.status.history[1].reason == "passed: fake"
    assert walk.status.history[1].figures == {"percent": 5, "fake.windows": 1}


@pytest.mark.parametrize("step", range(4))
def test_a_bad_version_is_rolled_back_in_each_step(step: int) -> None:
    walk = Walk().through(step)
    assert walk.state.step == step
    walk.traffic("fail")
    assert walk.shares == {"stable 1": 100}
    assert (walk.last.outcome, walk.last.step) == (Outcome.ROLLED_BACK, step)
    assert walk.last.reason == "fake: says fail"
    (rejection,) = walk.status.rejected
    assert (rejection.version, rejection.options) == ("2", "o2")
    assert walk.status.history[-1].phase is Phase.ROLLED_BACK
    assert walk.status.history[-1].figures == {"fake.windows": step + 1}
    assert walk.status.candidate is not None
    assert walk.status.candidate.phase is Phase.ROLLED_BACK
    assert walk.status.candidate.ref is None  # it need not stay loaded


def test_a_version_that_turns_bad_in_its_bake_is_reverted_at_once() -> None:
    walk = Walk().through(4).traffic("fail")
    assert walk.shares == {"stable 1": 100}
    assert walk.last.outcome is Outcome.REVERTED
    assert [item.version for item in walk.status.rejected] == ["2"]
    assert walk.status.packages[0] == ONE


def test_one_pass_takes_one_step() -> None:
    walk = Walk().before().step().traffic("pass")
    assert walk.step(1000).state.step == 1


def test_nothing_moves_while_a_check_is_unknown() -> None:
    walk = Walk().before().step().traffic("unknown", 5)
    assert walk.state.step == 0
    assert walk.why == "not yet known: fake"


@pytest.mark.parametrize("verdict", ["fail", "unknown"])
def test_a_check_that_only_reports_neither_fails_nor_holds(verdict: str) -> None:
    walk = Walk(judge=FakeJudge(gate=False)).before().step().traffic(verdict)
    assert walk.state.step == 1
    assert walk.status.history[-1].reason == "no check is required"


def test_a_step_lasts_at_least_its_minimum() -> None:
    walk = Walk(RolloutSpec(minimum_step=60)).before().step().traffic("pass", 5)
    assert walk.state.step == 0
    assert walk.why == "the step lasts at least 1m"
    assert walk.traffic("pass").state.step == 1


# Its beginning


def test_the_first_canary_waits_for_twenty_windows_of_history() -> None:
    walk = Walk(RolloutSpec(steps=(WeightStep(weight=5),))).before(18).step()
    assert walk.shares == {"stable 1": 100}
    assert walk.why.startswith("18 of 20 windows")
    walk.traffic()
    assert walk.shares == {"stable 1": 100}
    walk.traffic()
    assert walk.shares == {"canary 2": 5, "stable 1": 95}


def test_shadow_fills_the_history() -> None:
    walk = Walk().step().traffic("pass", HISTORY_WINDOWS - 1)
    assert walk.state.step == 0
    assert walk.traffic("pass").state.step == 1


def test_a_promotion_out_of_shadow_needs_the_history_too() -> None:
    walk = Walk(RolloutSpec(steps=(ShadowStep(shadow=100),))).before(5).step().traffic("pass")
    assert walk.why.startswith("6 of 20 windows")
    walk.traffic("pass", HISTORY_WINDOWS - 6)
    assert walk.shares == {"stable 2": 95, "control 1": 5}


def test_each_rollout_has_a_salt_of_its_own() -> None:
    first = Walk().before().step()
    second = Walk(now=20_000.0).before().step()
    assert first.state.id != second.state.id


def test_a_version_waits_while_statistics_cannot_be_read() -> None:
    walk = Walk()
    walk.observed = replace(walk.observed, windows=None)
    walk.step()
    assert walk.status.rollout is None
    assert walk.why == "waits for statistics: window records can't be read"


@pytest.mark.parametrize(
    "status",
    [
        loaded_candidate().model_copy(update={"routes": ()}),
        loaded_candidate().model_copy(update={"candidate": None}),
        loaded_candidate(ONE, ONE),
    ],
    ids=["no stable version", "no candidate", "the stable version itself"],
)
def test_nothing_begins_without_two_versions(status: EndpointStatus) -> None:
    assert Walk(status=status).step().status == status


def test_nothing_begins_that_is_not_wanted_or_not_loaded() -> None:
    walk = Walk().sees(ONE)
    assert walk.step().status.rollout is None
    assert walk.sees(ONE, TWO).wants("3").step().status.rollout is None


def test_a_rollout_begins_at_once_after_the_one_before_it() -> None:
    walk = Walk().through(4)
    waiting = Candidate(version="3", phase=Phase.LOADED, ref=THREE, options="o3")
    walk.status = walk.status.model_copy(update={"candidate": waiting})
    walk.sees(ONE, TWO, THREE).wants("3").step(HOUR - 1)
    assert walk.state.candidate == TWO
    walk.step(1)
    assert (walk.state.candidate, walk.state.stable) == (THREE, TWO)
    assert walk.shares == {"stable 2": 100, "shadow 3": 100}


# Deadline


def test_without_traffic_it_holds_and_expires_at_the_deadline() -> None:
    walk = Walk().before().step().step(SPEC.deadline - 1)
    assert walk.state.step == 0
    assert walk.why == "no traffic has reached it in this step"
    walk.step(1)
    assert walk.last.outcome is Outcome.EXPIRED
    assert walk.last.reason == "no verdict within 24h: no traffic has reached it in this step"


def test_one_that_expired_is_shown_so_and_waits_for_a_person() -> None:
    walk = Walk().before().step().step(SPEC.deadline)
    assert walk.shares == {"stable 1": 100}
    assert (walk.status.history[-1].phase, walk.status.rejected[0].phase) == (Phase.EXPIRED,) * 2
    assert walk.status.candidate is not None
    assert (walk.status.candidate.phase, walk.status.candidate.ref) == (Phase.EXPIRED, None)
    assert walk.told(Verb.RETRY).said[0]
    assert walk.status.rejected == ()


def test_without_traffic_no_step_passes_even_where_no_check_is_required() -> None:
    walk = Walk(judge=FakeJudge(silent=True)).before().step().traffic(windows=50, requests=0)
    assert walk.state.step == 0
    assert walk.traffic().state.step == 1


def test_only_the_arm_of_the_step_counts_as_traffic() -> None:
    walk = Walk(judge=FakeJudge(silent=True)).through(1)
    late = window(walk.status.routes, int(walk.now))
    for aggregate in late.aggregates:
        aggregate.arm = Arm.SHADOW if aggregate.arm is Arm.CANARY else aggregate.arm
    walk.observed = replace(walk.observed, windows=(*(walk.observed.windows or ()), late))
    assert walk.step(SECONDS).state.step == 1
    assert walk.why == "no traffic has reached it in this step"


def test_a_clock_behind_the_events_does_not_pass_a_step_twice() -> None:
    walk = Walk(judge=FakeJudge(silent=True)).before().step()
    ahead = window(walk.status.routes, int(walk.now) + 500)
    for aggregate in tuple(ahead.aggregates):
        if aggregate.arm is Arm.SHADOW:
            ahead.aggregates.append(structs.replace(aggregate, arm=Arm.CANARY))
    walk.observed = replace(walk.observed, windows=(*(walk.observed.windows or ()), ahead))
    assert walk.step().state.step == 1
    assert walk.step(1).state.step == 1


def test_what_a_rollout_needs_is_named_again_if_someone_forgot_it() -> None:
    walk = Walk().through(1)
    walk.status = walk.status.model_copy(update={"packages": (ONE,)})
    assert walk.step().status.packages == (ONE, TWO)
    walk = Walk().through(4)
    walk.status = walk.status.model_copy(update={"packages": (TWO,)})
    assert walk.step().status.packages == (TWO, ONE)


def test_a_pause_stops_the_deadline_and_nothing_else() -> None:
    walk = Walk().through(1).step(50_000).told(Verb.PAUSE)
    assert walk.said[0]
    walk.traffic("pass", 3).step(100_000)
    assert walk.shares == {"canary 2": 5, "stable 1": 95}
    assert walk.why == "paused"
    walk.told(Verb.RESUME)
    assert walk.state.paused_seconds == 100_000 + 3 * SECONDS
    left = SPEC.deadline - 50_000 - SECONDS  # one window before the pause
    walk.status = walk.status.model_copy(update={"rollout": walk.state})
    began = walk.state.began
    ends = began + SPEC.deadline + walk.state.paused_seconds
    assert ends - walk.now == left
    walk.traffic("unknown").step(left - SECONDS - 1)
    assert walk.status.rollout is not None
    assert walk.step(1).last.outcome is Outcome.EXPIRED


def test_resumed_it_goes_on_from_what_was_seen_in_the_pause() -> None:
    walk = Walk().through(1).told(Verb.PAUSE).traffic("pass")
    assert walk.state.step == 1
    assert walk.told(Verb.RESUME).state.step == 2


def test_a_check_that_fails_in_a_pause_rolls_back() -> None:
    walk = Walk().through(2).told(Verb.PAUSE).traffic("fail")
    assert walk.last.outcome is Outcome.ROLLED_BACK
    assert walk.last.paused_seconds == SECONDS


def test_a_clock_set_back_puts_the_deadline_off_by_no_more_than_itself() -> None:
    walk = Walk().through(1).step(1000).step(-5000)
    assert walk.state.began == walk.now
    assert walk.step(SPEC.deadline - 1).status.rollout is not None
    assert walk.step(1).last.outcome is Outcome.EXPIRED


# What is away


def test_without_statistics_it_holds() -> None:
    walk = Walk().through(1)
    known = walk.observed.windows
    walk.observed = replace(walk.observed, windows=None)
    assert walk.step(1000).state.step == 1
    assert walk.why == "waits for statistics: window records can't be read"
    walk.observed = replace(walk.observed, windows=known)
    assert walk.traffic("pass").state.step == 2


STALLED = CountingStatus(CountingState.STALLED, 1_000_000.0, 7)
UNCOUNTED = (
    "waits for statistics: traffic since 1970-01-12 13:46:40 UTC is not counted: the fold role"
    " reads nothing"
)


def test_traffic_that_is_not_counted_is_not_taken_for_no_traffic() -> None:
    walk = Walk().through(1)
    walk.observed = replace(walk.observed, counting=STALLED)
    assert walk.traffic("pass", 3).state.step == 1
    assert walk.why == UNCOUNTED
    walk.observed = replace(walk.observed, counting=CountingStatus(CountingState.COUNTED))
    assert walk.traffic("pass").state.step == 2


def test_a_fault_that_was_counted_before_a_standstill_still_ends_the_rollout() -> None:
    walk = Walk().through(1)
    walk.observed = replace(walk.observed, counting=STALLED)
    assert walk.traffic("fail").last.outcome is Outcome.ROLLED_BACK


def test_a_version_waits_for_its_rollout_while_traffic_is_not_counted() -> None:
    walk = Walk()
    walk.observed = replace(walk.observed, counting=STALLED)
    assert walk.step().status.rollout is None
    assert walk.why == UNCOUNTED


def test_an_unloaded_candidate_loses_its_callers_and_keeps_its_step() -> None:
    walk = Walk().through(2).sees(ONE).step().traffic("pass")
    assert walk.shares == {"stable 1": 100}
    assert walk.why == "version 2 is not loaded on every Triton"
    walk.sees(ONE, TWO).step()
    assert walk.shares == {"canary 2": 25, "stable 1": 75}
    assert walk.traffic("pass").state.step == 3


def test_the_history_tells_each_time_that_callers_fell_back_and_came_again() -> None:
    walk = Walk().through(2)
    before = len(walk.status.history)
    for _ in range(2):
        walk.sees(ONE).step(1).step(1).sees(ONE, TWO).step(1).step(1)
    told = walk.status.history[before:]
    fell = "fell back to version 1: version 2 is not loaded on every Triton"
    back = "version 2 is loaded on every Triton again"
    assert [line.reason for line in told] == [fell, back, fell, back]
    assert {(line.version, line.phase, line.step) for line in told} == {("2", Phase.CANARY, 2)}


def test_an_unloaded_stable_version_holds_and_keeps_its_callers() -> None:
    walk = Walk().through(1).sees(TWO).traffic("pass")
    assert walk.shares == {"canary 2": 5, "stable 1": 95}
    assert walk.why == "version 1, the stable one, is not loaded on every Triton"
    assert walk.sees(ONE, TWO).traffic("pass").state.step == 2


def test_a_package_that_triton_refuses_is_rolled_back_and_not_loaded_again() -> None:
    walk = Walk().through(1).sees(ONE)
    walk.observed = replace(walk.observed, failures={TWO: "Triton refused it: out of memory"})
    walk.step()
    assert walk.last.reason == "Triton refused it: out of memory"
    assert walk.status.packages == (ONE,)
    assert [item.version for item in walk.status.rejected] == ["2"]


def test_a_promoted_version_that_is_unloaded_stays_stable() -> None:
    walk = Walk().through(4).sees(ONE).step()
    assert walk.shares == {"stable 2": 95, "control 1": 5}
    walk.sees().step()
    assert walk.shares == {"stable 2": 100}
    walk.step(HOUR)
    assert walk.why == "version 2 is not loaded on every Triton"


def test_a_promoted_version_that_never_loads_again_expires_in_the_end() -> None:
    walk = Walk().through(4).sees(ONE).step(HOUR + SPEC.deadline)
    assert walk.last.outcome is Outcome.EXPIRED
    assert walk.shares == {"stable 1": 100}
    (record,) = walk.status.rejected  # that Tritons lacked something for it is no verdict on it
    assert (record.version, record.expired) == ("2", True)


def test_a_bad_promoted_version_stays_until_the_old_one_can_answer() -> None:
    walk = Walk().through(4).sees(TWO).traffic("fail")
    assert walk.shares == {"stable 2": 100}
    assert walk.step(HOUR).why == "fake: says fail; version 1 is not loaded to go back to"
    assert walk.sees(ONE, TWO).step().last.outcome is Outcome.REVERTED


def test_a_bake_without_statistics_is_longer_and_ends() -> None:
    walk = Walk().through(4)
    walk.observed = replace(walk.observed, windows=None)
    assert walk.step(HOUR).why == "waits for statistics: window records can't be read"
    walk.step(SPEC.deadline - 1)
    assert walk.status.rollout is not None
    assert walk.step(1).last.outcome is Outcome.SETTLED
    assert walk.last.reason == "waits for statistics: window records can't be read"


# What the spec wants


def test_a_newer_version_supersedes_one_that_is_not_promoted() -> None:
    walk = Walk().through(2).wants("3").step()
    assert (walk.last.outcome, walk.shares) == (Outcome.SUPERSEDED, {"stable 1": 100})
    assert walk.status.rejected == ()
    assert walk.status.candidate is None
    assert walk.status.history[-1].phase is Phase.SUPERSEDED


def test_a_verdict_counts_even_where_a_newer_version_takes_the_place() -> None:
    walk = Walk().through(2).wants("3").traffic("fail")
    assert walk.last.outcome is Outcome.ROLLED_BACK
    assert [item.version for item in walk.status.rejected] == ["2"]


def test_a_newer_version_waits_for_the_end_of_a_bake() -> None:
    walk = Walk().through(4).wants("3")
    assert walk.traffic("pass").state.candidate == TWO


def test_a_spec_pinned_to_the_stable_version_ends_the_rollout() -> None:
    walk = Walk().through(2).wants("1")
    assert walk.step().last.outcome is Outcome.SUPERSEDED


def test_a_spec_pinned_to_the_old_version_reverts_a_bake_without_a_verdict() -> None:
    walk = Walk().through(4).wants("1").step()
    assert (walk.last.outcome, walk.shares) == (Outcome.REVERTED, {"stable 1": 100})
    assert walk.status.rejected == ()


def test_a_model_that_is_gone_from_the_registry_holds_nothing_up() -> None:
    walk = Walk().through(1).wants(None)
    assert walk.traffic("pass").state.step == 2


def test_shadow_alone_stays_until_someone_promotes() -> None:
    walk = Walk(RolloutSpec(strategy=Strategy.SHADOW)).before().step().traffic("pass", 3)
    assert walk.shares == {"stable 1": 100, "shadow 2": 100}
    assert walk.why == "stays in shadow until someone promotes or aborts it"
    assert walk.told(Verb.PROMOTE).state.promoted_at == walk.now


def test_shadow_alone_without_a_shadow_step_copies_everything() -> None:
    spec = RolloutSpec(strategy=Strategy.SHADOW, steps=(WeightStep(weight=5),), deadline=100)
    walk = Walk(spec).before().step()
    assert walk.shares == {"stable 1": 100, "shadow 2": 100}
    assert walk.step(100).last.outcome is Outcome.EXPIRED


def test_turned_to_shadow_the_candidate_gives_its_callers_back() -> None:
    walk = Walk().through(2)
    walk.spec = RolloutSpec(strategy=Strategy.SHADOW)
    assert walk.step().shares == {"stable 1": 100, "shadow 2": 100}
    assert walk.status.history[-1].reason == "the spec's steps were edited: now shadow"


def test_turned_to_direct_the_candidate_is_stable_at_once() -> None:
    walk = Walk().through(1)
    walk.spec = RolloutSpec(strategy=Strategy.DIRECT)
    assert walk.step().shares == {"stable 2": 100}
    assert walk.last.outcome is Outcome.SETTLED


@pytest.mark.parametrize(
    ("steps", "shares"),
    [
        ((5, 30, 50), {"canary 2": 30, "stable 1": 70}),  # its own weight was edited
        ((10, 20, 25, 50), {"canary 2": 25, "stable 1": 75}),  # one before it was added
        ((5,), {"canary 2": 5, "stable 1": 95}),  # it and all behind it are gone
        ((25, 50), {"canary 2": 25, "stable 1": 75}),  # the one before it is gone
    ],
)
def test_edited_steps_keep_the_candidate_where_it_is(
    steps: tuple[float, ...], shares: dict[str, float]
) -> None:
    walk = Walk().through(2)
    weights = tuple(WeightStep(weight=weight) for weight in steps)
    walk.spec = RolloutSpec(steps=(ShadowStep(shadow=100), *weights))
    assert walk.step().shares == shares


def test_a_shadow_whose_step_is_gone_meets_the_fewest_callers_next() -> None:
    walk = Walk().before().step()
    walk.spec = RolloutSpec(steps=(WeightStep(weight=5), WeightStep(weight=50)))
    assert walk.step().shares == {"canary 2": 5, "stable 1": 95}
    assert walk.state.checks == ()


def test_a_step_that_was_added_before_a_shadow_is_not_passed_by() -> None:
    walk = Walk().through(1)
    walk.spec = RolloutSpec(
        steps=(ShadowStep(shadow=10), ShadowStep(shadow=100), WeightStep(weight=5))
    )
    assert walk.step().shares == {"canary 2": 5, "stable 1": 95}


def test_a_bake_of_no_time_settles_at_once() -> None:
    walk = Walk(RolloutSpec(bake=0)).through(4)
    assert walk.last.outcome is Outcome.SETTLED
    assert [line.phase for line in walk.status.history[-2:]] == [Phase.PROMOTED, Phase.SETTLED]


def test_the_verdict_in_force_is_what_the_status_shows() -> None:
    walk = Walk().before().step().traffic("unknown")
    (check,) = walk.state.checks
    assert check == CheckResult(
        name="fake", verdict=Verdict.UNKNOWN, reason="says unknown", figures={"windows": 1}
    )
