"""What people ask of a rollout: done, or refused with a reason that they understand."""

import pytest
from rollout_walk import HOUR, ONE, TWO, Walk

from contracts.endpoint import Candidate, EndpointStatus, Phase
from contracts.rollout import COMMANDS_LIMIT, Command, Outcome, RolloutSpec, Verb
from rollout.machine import advance


def command(number: int, verb: Verb, at: float = 0.0, version: str | None = None) -> Command:
    return Command(id=f"n{number}", verb=verb, by="ann", at=at, version=version)


def commanded(walk: Walk, *commands: Command) -> EndpointStatus:
    """One pass in which these commands wait."""
    seen = walk.observed.__class__(
        loaded=walk.observed.loaded, target="2", windows=(), commands=commands
    )
    return advance(walk.spec, walk.status, seen, walk.now, walk.judge)


# Promote


def test_promote_skips_the_steps_that_are_left() -> None:
    walk = Walk().through(1).told(Verb.PROMOTE, reason="looks good")
    assert walk.said[0]
    assert walk.shares == {"stable 2": 95, "control 1": 5}
    line = walk.status.history[-1]
    assert (line.phase, line.by, line.reason) == (
        Phase.PROMOTED,
        "ann",
        "promoted by ann: looks good",
    )


def test_promote_of_one_step_goes_to_the_next_and_ends_a_pause() -> None:
    walk = Walk().through(1)
    step, shares = walk.state.step, walk.shares
    walk.told(Verb.PAUSE).step(100).told(Verb.PROMOTE, full=False, stated="the boss")
    accepted, said = walk.said
    assert accepted
    assert "is in the step" in said
    assert (walk.state.step, walk.state.paused_at) == (step + 1, None)
    assert walk.shares != shares
    line = walk.status.history[-1]
    assert (line.by, line.step) == ("ann", step + 1)
    assert line.reason == "sent to the next step by ann (stated: the boss)"


def test_promote_of_the_last_step_gives_all_callers() -> None:
    walk = Walk().through(1)
    for _ in range(20):
        if walk.state.promoted_at is not None:
            break
        walk.told(Verb.PROMOTE, full=False)
        assert walk.said[0]
    assert walk.shares == {"stable 2": 95, "control 1": 5}


def test_promote_of_one_step_begins_a_rollout_that_waits() -> None:
    walk = Walk().without_statistics().step()
    assert walk.told(Verb.PROMOTE, full=False, reason="it is small").said[0]
    assert (walk.state.step, walk.state.promoted_at) == (0, None)
    line = walk.status.history[-1]
    assert (line.by, line.reason) == ("ann", "begun by ann: it is small")


def test_promote_works_while_statistics_are_away() -> None:
    walk = Walk().without_statistics().step()
    assert walk.status.rollout is None
    assert walk.told(Verb.PROMOTE).shares == {"stable 2": 95, "control 1": 5}


def test_promote_ends_a_pause() -> None:
    walk = Walk().through(1).told(Verb.PAUSE).step(100).told(Verb.PROMOTE)
    assert (walk.state.paused_at, walk.state.paused_seconds) == (None, 100)


def test_promote_is_refused_where_callers_would_get_no_answer() -> None:
    walk = Walk().through(1).sees(ONE).told(Verb.PROMOTE)
    assert walk.said == (
        False,
        "version 2 is not loaded on every Triton: callers would get no answer",
    )
    assert walk.shares == {"stable 1": 100}


@pytest.mark.parametrize("verb", [Verb.PROMOTE, Verb.ABORT])
def test_a_version_that_is_not_loaded_yet_is_neither_promoted_nor_aborted(verb: Verb) -> None:
    walk = Walk()
    converting = Candidate(version="2", phase=Phase.CONVERTING)
    walk.status = walk.status.model_copy(update={"candidate": converting})
    accepted, said = walk.told(verb).said
    assert not accepted
    assert said.startswith("version 2 is Converting, and its rollout begins once every Triton")


@pytest.mark.parametrize("verb", [Verb.PROMOTE, Verb.ABORT])
def test_nothing_on_its_way_is_neither_promoted_nor_aborted(verb: Verb) -> None:
    walk = Walk()
    walk.status = walk.status.model_copy(update={"candidate": None})
    assert walk.told(verb).said == (False, "no version is on its way")
    walk = Walk().through(1).told(Verb.ABORT).told(verb)
    assert walk.said == (False, "no version is on its way")


def test_a_command_about_another_version_is_refused() -> None:
    walk = Walk().through(1).told(Verb.PROMOTE, version="3")
    assert walk.said == (False, "it is version 2 that this is about, not 3")
    assert walk.told(Verb.PROMOTE, version="2").said[0]


# Pause and resume


def test_pause_and_resume_are_noted_and_refused_twice() -> None:
    walk = Walk().through(1).told(Verb.PAUSE, reason="lunch")
    line = walk.status.history[-1]
    assert (line.phase, line.step, line.by) == (Phase.CANARY, 1, "ann")
    assert line.reason == "paused by ann: lunch"
    assert walk.told(Verb.PAUSE).said == (False, "version 2 is paused already")
    assert walk.told(Verb.RESUME).said == (True, "version 2 goes on")
    assert walk.told(Verb.RESUME).said == (False, "version 2 is not paused")


@pytest.mark.parametrize("verb", [Verb.PAUSE, Verb.RESUME])
def test_without_a_rollout_there_is_nothing_to_pause(verb: Verb) -> None:
    walk = Walk()
    walk.status = walk.status.model_copy(update={"candidate": None})
    assert walk.told(verb).said == (False, "no rollout is on")


def test_a_paused_bake_does_not_settle() -> None:
    walk = Walk().through(4).told(Verb.PAUSE).step(2 * HOUR)
    assert walk.shares == {"stable 2": 95, "control 1": 5}
    assert walk.why == "paused"
    assert walk.told(Verb.RESUME).last.outcome is Outcome.SETTLED


# Abort and undo


def test_abort_rolls_back_and_rejects() -> None:
    walk = Walk().through(2).told(Verb.ABORT, reason="wrong labels")
    assert walk.said == (
        True,
        "version 2 is rolled back and not tried again; all callers are on version 1",
    )
    assert walk.last.reason == "aborted by ann: wrong labels"
    assert [item.version for item in walk.status.rejected] == ["2"]
    assert walk.status.history[-1].by == "ann"


def test_abort_gives_up_a_version_that_waits() -> None:
    walk = Walk().without_statistics().step().told(Verb.ABORT)
    assert walk.last.outcome is Outcome.ROLLED_BACK
    assert [item.options for item in walk.status.rejected] == ["o2"]


def test_abort_is_refused_after_the_promotion() -> None:
    walk = Walk().through(4).told(Verb.ABORT)
    assert walk.said == (False, "version 2 is promoted already: undo takes it back")
    assert walk.told(Verb.PROMOTE).said == (False, "version 2 is promoted already")


def test_undo_in_the_bake_goes_back() -> None:
    walk = Walk().through(4).told(Verb.UNDO)
    assert walk.said == (
        True,
        "all callers are on version 1 again; version 2 is not tried again",
    )
    assert walk.shares == {"stable 1": 100}
    assert walk.last.outcome is Outcome.REVERTED
    assert [item.reason for item in walk.status.rejected] == ["undone by ann"]


def test_undo_goes_back_after_the_end_too() -> None:
    walk = Walk(RolloutSpec(bake=0)).through(4)
    assert walk.shares == {"stable 2": 100}
    walk.told(Verb.UNDO)
    assert walk.shares == {"stable 1": 100}
    assert walk.last.outcome is Outcome.REVERTED
    assert [item.version for item in walk.status.rejected] == ["2"]
    assert walk.told(Verb.UNDO).said == (
        False,
        "the last rollout promoted nothing that still serves",
    )


def test_undo_is_refused_once_the_old_version_is_gone() -> None:
    walk = Walk(RolloutSpec(bake=0)).through(4)
    walk.status = walk.status.model_copy(update={"packages": (TWO,)})
    assert walk.told(Verb.UNDO).said == (
        False,
        "version 1 is not loaded any more: pin it to bring it back",
    )


def test_undo_is_refused_before_a_promotion() -> None:
    assert Walk().through(1).told(Verb.UNDO).said == (
        False,
        "version 2 is not promoted yet: abort ends it",
    )
    walk = Walk()
    walk.status = walk.status.model_copy(update={"candidate": None})
    assert walk.told(Verb.UNDO).said == (
        False,
        "no version was promoted by a rollout: pin the version that you want",
    )


# Pin, unpin, retry


def test_pin_and_unpin_are_noted() -> None:
    walk = Walk().through(1)
    assert walk.told(Verb.PIN, version="7").said == (True, "pinned to version 7")
    assert walk.status.history[-1].reason == "pinned to version 7 by ann"
    assert walk.told(Verb.UNPIN).said == (True, "not pinned any more")
    assert walk.told(Verb.PIN).said == (False, "pin needs the number of a version")


def test_a_pin_on_a_version_that_was_rolled_back_says_that_it_needs_a_retry() -> None:
    walk = Walk().through(1).told(Verb.ABORT).told(Verb.PIN, version="2")
    assert walk.said == (
        True,
        (
            "pinned to version 2, which was rejected, rolled back or expired: "
            "it gets callers only after retry"
        ),
    )
    assert walk.status.history[-1].reason == "pinned to version 2 by ann"


def test_retry_clears_a_rejection() -> None:
    walk = Walk().through(1).told(Verb.ABORT).told(Verb.RETRY, version="2")
    assert walk.said == (True, "version 2 may be tried again, as far as the spec wants it")
    assert walk.status.rejected == ()
    assert walk.status.candidate is None
    assert walk.status.history[-1].by == "ann"


def test_retry_without_a_version_means_the_last_one() -> None:
    assert Walk().through(1).told(Verb.ABORT).told(Verb.RETRY).status.rejected == ()


def test_retry_is_refused_where_nothing_is_rejected() -> None:
    walk = Walk().through(1)
    assert walk.told(Verb.RETRY).said == (
        False,
        "version 2 is on its way: retry when it has ended",
    )
    walk.told(Verb.ABORT)
    assert walk.told(Verb.RETRY, version="9").said == (False, "version 9 is not rejected")
    walk.told(Verb.RETRY)
    assert walk.told(Verb.RETRY).said == (False, "no version is rejected")


def test_retry_of_a_version_that_is_passed_over_says_to_pin_it() -> None:
    walk = Walk().through(1).told(Verb.ABORT)
    walk.status = walk.status.model_copy(update={"rejected_through": 7})
    accepted, said = walk.told(Verb.RETRY, version="5").said
    assert not accepted
    assert "pin it" in said


# Many


def test_two_commands_in_one_pass_are_done_in_their_order() -> None:
    walk = Walk().through(1)
    after = commanded(walk, command(2, Verb.RESUME, at=2.0), command(1, Verb.PAUSE, at=1.0))
    assert [(item.verb, item.accepted) for item in after.commands] == [
        (Verb.PAUSE, True),
        (Verb.RESUME, True),
    ]


def test_one_id_is_done_once() -> None:
    walk = Walk().through(1)
    twice = command(1, Verb.PAUSE)
    after = commanded(walk, twice, twice)
    assert len(after.commands) == 1
    walk.status = after
    assert commanded(walk, twice).commands == after.commands


def test_a_flood_is_answered_in_order_and_each_but_once() -> None:
    walk = Walk().through(1)
    verbs = (Verb.PAUSE, Verb.RESUME)
    flood = tuple(command(n, verbs[n % 2], at=float(n)) for n in range(2 * COMMANDS_LIMIT + 5))
    lines = len(walk.status.history)
    walk.status = commanded(walk, *flood)
    assert [item.id for item in walk.status.commands] == [item.id for item in flood[:20]]
    for _ in range(3):  # nobody takes the answered ones away
        walk.status = commanded(walk, *flood)
    assert all(item.accepted for item in walk.status.commands)
    assert [item.id for item in walk.status.commands] == [item.id for item in flood[-20:]]
    noted = walk.status.history[lines:]
    assert len(noted) == len(flood)
