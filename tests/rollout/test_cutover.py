"""A version whose vectors can't be compared with stable's: it never shares callers with it."""

import pytest
from rollout_walk import ONE, Walk

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


def test_it_has_passed_when_the_status_says_so_and_not_before() -> None:
    walk = Walk(SPEC).step()  # no history, and nobody asks
    assert walk.traffic("pass").state.passed_at is None
    assert "windows" in walk.why
    walk.before()
    while walk.state.passed_at is None:
        assert "passed in shadow" not in walk.traffic("pass").why or walk.state.passed_at
    assert walk.why.startswith("passed in shadow")


def test_evidence_that_wavers_changes_nothing_once_it_has_passed_and_no_deadline_ends_it() -> None:
    walk = passed()
    since = walk.state.passed_at
    assert walk.traffic("unknown", 3).why.startswith("passed in shadow")
    assert walk.sees(ONE).step(10 * SPEC.deadline).state.passed_at == since
    assert "not loaded" in walk.why


def test_what_a_person_says_may_be_compared_waits_for_no_cutover() -> None:
    walk = passed()
    walk.spec = RolloutSpec(strategy=Strategy.SHADOW)
    assert walk.step().state.passed_at is None


@pytest.mark.parametrize("verb", [Verb.PROMOTE, Verb.ABORT])
def test_it_waits_no_longer_after_a_persons_word(verb: Verb) -> None:
    status = passed().told(verb).status
    state = status.rollout or status.last_rollout
    assert state is not None
    assert (state.passed_at is None) is (verb is Verb.PROMOTE)


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


def test_one_that_loses_its_evidence_while_it_waits_has_the_rest_of_its_deadline() -> None:
    walk = passed()
    walk.step(10 * SPEC.deadline)
    state = walk.state.model_copy(update={"evidence": {}})
    walk.status = walk.status.model_copy(update={"rollout": state})
    walk.step(1)
    assert walk.status.rollout is not None
    assert walk.traffic("pass", 3).why.startswith("passed in shadow")


def test_what_a_person_says_may_be_compared_days_later_has_the_rest_of_its_deadline() -> None:
    walk = passed().step(10 * SPEC.deadline)
    walk.spec = RolloutSpec(deadline=SPEC.deadline)
    assert walk.step(1).status.rollout is not None
