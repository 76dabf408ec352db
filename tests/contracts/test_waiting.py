"""Whatever is waited for has its words: for what, since when, and what a person can do."""

from string import Formatter

import pytest
from registry_fakes import endpoint

from contracts.endpoint import Candidate, EndpointStatus, Phase, Wait, WaitsFor
from contracts.waiting import (
    OF_PHASE,
    WORDS,
    describe_wait,
    describe_with_time,
    sentences,
    to_do,
    waits_of,
)

NOW = 7260.0


@pytest.mark.parametrize("cause", WaitsFor)
def test_every_cause_has_words_and_something_that_a_person_can_do(cause: WaitsFor) -> None:
    words = WORDS[cause]
    assert words.what
    assert words.to_do
    names = {name for _, name, _, _ in Formatter().parse(words.to_do) if name}
    assert names <= {"endpoint", "version"}
    one = endpoint(EndpointStatus(waits=(Wait(cause=cause, since=60.0, version="2"),)))
    said = " ".join(sentences(one, NOW))
    if cause is WaitsFor.CALLER:  # readers tell of sleep with how long waking takes
        assert said == ""
    else:
        assert said.startswith(f"version 2 waits 2h: {words.what}; to do: ")
    kept = describe_with_time("e", one.status, one.status.waits[0], 500)
    assert ", since 1970-01-01 00:01:00 UTC; to do: " in kept
    assert "{" not in said + kept


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_says_what_a_version_waits_for_but_where_its_way_is_over(phase: Phase) -> None:
    over = {Phase.SETTLED, Phase.SERVING, Phase.SUPERSEDED}
    assert (OF_PHASE[phase] is None) is (phase in over)


def test_the_candidates_own_reason_is_what_it_waits_for_and_no_other_versions_is() -> None:
    candidate = Candidate(version="2", phase=Phase.BLOCKED, reason="no space left")
    status = EndpointStatus(candidate=candidate)
    assert (
        describe_wait(status, Wait(cause=WaitsFor.RETRY, since=1.0, version="2")) == "no space left"
    )
    other = Wait(cause=WaitsFor.LOST_PACKAGE, since=1.0)
    assert describe_wait(status, other) == WORDS[WaitsFor.LOST_PACKAGE].what


def test_what_is_told_already_is_not_repeated() -> None:
    candidate = Candidate(version="2", phase=Phase.BLOCKED, reason="no space left")
    wait = Wait(cause=WaitsFor.RETRY, since=60.0, version="2")
    one = endpoint(EndpointStatus(candidate=candidate, waits=(wait,)))
    (said,) = sentences(one, NOW, told="version 2 Blocked: no space left")
    assert said == f"version 2 waits 2h; to do: {to_do('e', wait)}"


def test_an_endpoint_that_no_controller_has_seen_says_so() -> None:
    (wait,) = waits_of(endpoint())
    assert wait.cause is WaitsFor.CONTROLLER
    (said,) = sentences(endpoint(), NOW)
    assert said.startswith("waits: the controller has not looked at it yet; to do: ")


def test_words_that_change_often_are_not_kept_elsewhere() -> None:
    reason = "waits for the conversion of m version 1 to end; 3 more waiting before it"
    candidate = Candidate(version="2", phase=Phase.WAITING, reason=reason)
    wait = Wait(cause=WaitsFor.TURN, since=60.0, version="2")
    status = EndpointStatus(candidate=candidate, waits=(wait,))
    assert describe_wait(status, wait) == reason
    assert reason not in describe_with_time("e", status, wait, 500)


def test_of_words_that_are_too_long_what_can_be_done_is_kept() -> None:
    candidate = Candidate(version="2", phase=Phase.BLOCKED, reason="x" * 3000)
    wait = Wait(cause=WaitsFor.RETRY, since=60.0, version="2")
    said = describe_with_time("e", EndpointStatus(candidate=candidate), wait, 500)
    assert len(said) == 500
    assert said.endswith(to_do("e", wait))


@pytest.mark.parametrize("cause", WaitsFor)
def test_what_can_be_done_has_room_in_a_tag_of_mlflow(cause: WaitsFor) -> None:
    wait = Wait(cause=cause, since=1.0, version="1" * 10)
    assert len(to_do("e" * 63, wait)) < 400
