"""A rollout whose evidence is lost begins again: nothing is promoted on a part of it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_walk import Walk

from contracts.endpoint import Phase
from contracts.endpoint_record import summary
from contracts.rollout import Outcome, RolloutSpec, Verb

PLANNED = len(RolloutSpec().planned)


def lost(walk: Walk) -> Walk:
    """With the summary in place of the status, as where its record is gone."""
    walk.status = summary(walk.status)
    return walk


def test_it_goes_back_to_its_first_step_and_says_why() -> None:
    walk = Walk().through(2)
    before = walk.state
    assert walk.shares == {"stable 1": 75, "canary 2": 25}
    lost(walk).step()
    assert walk.state.step == 0
    assert (walk.state.id, walk.state.began) == (before.id, before.began)
    assert walk.shares == {"stable 1": 100, "shadow 2": 100}
    line = walk.status.history[-1]
    assert (line.phase, line.reason) == (
        Phase.SHADOW,
        "its evidence is lost, so that it begins again",
    )


def test_its_deadline_goes_on() -> None:
    walk = Walk().through(2)
    lost(walk).step()
    walk.step(RolloutSpec().deadline)
    assert walk.last.outcome is Outcome.EXPIRED


def test_in_the_bake_it_stays_promoted_and_is_watched_for_all_of_it_again() -> None:
    walk = Walk().through(PLANNED)
    walk.traffic("pass", windows=10)
    lost(walk).step()
    assert walk.state.promoted_at == walk.now
    assert walk.shares == {"stable 2": 95, "control 1": 5}
    walk.traffic("pass")
    walk.step(RolloutSpec().bake - 20)
    assert walk.status.rollout is not None
    walk.step(20)
    assert walk.last.outcome is Outcome.SETTLED


def test_a_version_that_is_bad_then_is_taken_back() -> None:
    walk = Walk().through(PLANNED)
    lost(walk).step()
    walk.traffic("fail")
    assert walk.last.outcome is Outcome.REVERTED
    assert walk.shares == {"stable 1": 100}


def test_a_person_ends_it_all_the_same() -> None:
    walk = lost(Walk().through(2)).told(Verb.ABORT)
    assert walk.last.outcome is Outcome.ROLLED_BACK


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_a_promotion_rests_on_every_step_since_the_last_loss(lost_after: list[int]) -> None:
    walk = Walk().before().step()
    for windows in lost_after:
        walk.traffic("pass", windows=min(windows, PLANNED - 1))
        lost(walk).step()
        assert walk.state.promoted_at is None
    for step in range(PLANNED):
        assert walk.state.step == step
        assert walk.state.promoted_at is None
        walk.traffic("pass")
    assert walk.state.promoted_at is not None
