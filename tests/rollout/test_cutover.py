"""A version whose vectors can't be compared with stable's: it never shares callers with it."""

import pytest
from rollout_walk import Walk

from contracts.rollout import Outcome, RolloutSpec, Strategy, Verb, WeightStep

SPEC = RolloutSpec(strategy=Strategy.CUTOVER, deadline=1000)
ON_THE_WAY = {"stable 1": 100, "shadow 2": 100}


def passed() -> Walk:
    return Walk(SPEC).before().step().traffic("pass", 3)


def test_it_waits_in_shadow_for_the_cutover_past_every_deadline() -> None:
    walk = passed()
    assert walk.shares == ON_THE_WAY
    assert walk.why == (
        "passed in shadow; its vectors can't be compared with those of version 1, so that it has "
        "no caller before the cutover"
    )
    assert walk.step(10 * SPEC.deadline).shares == ON_THE_WAY
    assert walk.status.rollout is not None


@pytest.mark.parametrize("full", [True, False])
def test_the_cutover_gives_it_all_callers_at_once_and_holds_none_back(full: bool) -> None:
    walk = passed().told(Verb.PROMOTE, full=full)
    assert walk.shares == {"stable 2": 100}
    assert "but the hold-back" not in walk.said[1]


def test_undo_in_the_bake_gives_all_callers_back_at_once() -> None:
    walk = passed().told(Verb.PROMOTE).told(Verb.UNDO)
    assert walk.shares == {"stable 1": 100}


def test_without_its_checks_it_expires() -> None:
    walk = Walk(SPEC).before().step().traffic("unknown", 3).step(SPEC.deadline)
    assert walk.last.outcome is Outcome.EXPIRED


def test_a_check_that_fails_takes_it_back_while_it_waits() -> None:
    assert passed().traffic("fail").last.outcome is Outcome.ROLLED_BACK


def test_a_spec_of_weights_only_has_it_in_shadow_too() -> None:
    spec = SPEC.model_copy(update={"steps": (WeightStep(weight=5),)})
    assert Walk(spec).before().step().shares == ON_THE_WAY


def test_turned_to_cutover_a_candidate_gives_its_callers_back() -> None:
    walk = Walk().through(2)
    walk.spec = SPEC
    assert walk.step().shares == ON_THE_WAY
