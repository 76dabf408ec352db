"""A candidate gets callers only while somebody is there to take it back."""

from collections.abc import Iterable

import pytest
from gateway_world import endpoint_of, model_of

from contracts.controller import ControllerBeat
from contracts.endpoint import ModelEndpoint
from gateway.state.controller_heartbeat import ControllerHeartbeat, withheld

ONE, TWO = model_of("1").ref, model_of("2").ref
START = 5000.0  # of the monotonic clock
PATIENCE = 300.0


def beat(
    count: int, *, at: float = 1e9, instance: str = "a", unattended: Iterable[str] = ()
) -> ControllerBeat:
    return ControllerBeat(instance=instance, count=count, at=at, unattended=tuple(unattended))


def canary(name: str = "sentiment", *, patience: float = PATIENCE) -> ModelEndpoint:
    endpoint = endpoint_of(ONE, canary=TWO, weight=5, rollout="r", name=name)
    rollout = endpoint.spec.rollout.model_copy(update={"controller_timeout": patience})
    spec = endpoint.spec.model_copy(update={"rollout": rollout})
    return endpoint.model_copy(update={"spec": spec})


def heard_at(*times: float) -> ControllerHeartbeat:
    """Signs seen so many seconds after the start, each within a second of being given."""
    heartbeat = ControllerHeartbeat(START)
    for count, seconds in enumerate(times, start=1):
        heartbeat.take(beat(count, at=1e9 + seconds), START + seconds, 1e9 + seconds + 1)
    return heartbeat


def names(heartbeat: ControllerHeartbeat, seconds: float, *endpoints: ModelEndpoint) -> set[str]:
    return set(withheld(endpoints, heartbeat, START + seconds))


def test_a_controller_that_gives_signs_keeps_every_candidate_where_it_is() -> None:
    heartbeat = heard_at(*range(0, 1000, 10))
    assert names(heartbeat, 1000, canary("a"), canary("b")) == set()


def test_silence_beyond_the_patience_withholds_and_a_sign_gives_back() -> None:
    heartbeat = heard_at(0, 10)
    assert names(heartbeat, 10 + PATIENCE, canary()) == set()
    assert names(heartbeat, 10 + PATIENCE + 1, canary()) == {"sentiment"}
    heartbeat.take(beat(3), START + 400, 1e9 + 400)
    assert names(heartbeat, 400, canary()) == set()


def test_each_endpoint_has_a_patience_of_its_own() -> None:
    heartbeat = heard_at(0)
    endpoints = canary("quick", patience=60), canary("slow", patience=3600)
    assert names(heartbeat, 100, *endpoints) == {"quick"}
    assert names(heartbeat, 4000, *endpoints) == {"quick", "slow"}


def test_a_patience_shorter_than_three_signs_counts_as_three() -> None:
    heartbeat = heard_at(0)
    assert names(heartbeat, 30, canary(patience=1)) == set()
    assert names(heartbeat, 31, canary(patience=1)) == {"sentiment"}


@pytest.mark.parametrize(
    "endpoint",
    [
        endpoint_of(None),
        endpoint_of(ONE),
        endpoint_of(ONE, packages=[ONE, TWO]),
        endpoint_of(TWO, control=ONE, weight=5, rollout="r"),
    ],
    ids=["nothing yet", "stable alone", "a candidate that is only loaded", "bake"],
)
def test_where_no_candidate_has_callers_silence_changes_nothing(endpoint: ModelEndpoint) -> None:
    assert names(heard_at(0), 1e6, endpoint) == set()


def test_a_shadow_is_a_candidate_too() -> None:
    assert names(heard_at(0), 1e4, endpoint_of(ONE, shadow=TWO)) == {"sentiment"}


def test_the_same_sign_told_again_is_no_new_sign() -> None:
    heartbeat = heard_at(0)
    for seconds in range(1, 400):
        heartbeat.take(beat(1, at=1e9), START + seconds, 1e9 + seconds)
    assert names(heartbeat, 400, canary()) == {"sentiment"}


def test_a_controller_that_was_restarted_is_heard_though_it_counts_anew() -> None:
    heartbeat = heard_at(0)
    heartbeat.take(beat(1, instance="b"), START + 200, 1e9)
    assert names(heartbeat, 400, canary()) == set()


@pytest.mark.parametrize("ahead", [-1e6, 1e6])
def test_a_clock_that_is_wrong_or_set_makes_no_controller_silent(ahead: float) -> None:
    heartbeat = heard_at(0)
    for count in range(2, 100):
        heartbeat.take(beat(count, at=1e9 + count), START + 10 * count, 1e9 + count + ahead)
    assert names(heartbeat, 1000, canary()) == set()


def test_without_any_sign_silence_counts_from_the_start_of_the_gateway() -> None:
    heartbeat = ControllerHeartbeat(START)
    assert names(heartbeat, PATIENCE - 1, canary()) == set()
    assert names(heartbeat, PATIENCE + 1, canary()) == {"sentiment"}


def test_the_sign_that_a_controller_left_long_ago_is_none() -> None:
    heartbeat = ControllerHeartbeat(START)
    heartbeat.take(beat(7, at=1e9), START + 1, 1e9 + 7200)
    assert names(heartbeat, 1, canary()) == {"sentiment"}
    heartbeat.take(beat(8, at=1e9 + 10), START + 11, 1e9 + 7210)  # it lives: that clock was wrong
    assert names(heartbeat, 11, canary()) == set()


def test_a_controller_that_ended_a_moment_ago_has_the_rest_of_the_patience() -> None:
    heartbeat = ControllerHeartbeat(START)
    heartbeat.take(beat(7, at=1e9), START, 1e9 + 100)
    assert names(heartbeat, 0, canary()) == set()
    assert names(heartbeat, PATIENCE, canary()) == {"sentiment"}


def test_an_endpoint_that_the_controller_can_not_look_after_is_alone_in_its_silence() -> None:
    heartbeat = ControllerHeartbeat(START)
    for count in range(1, 50):
        unattended = ("lost",) if count > 2 else ()
        sign = beat(count, at=1e9 + 10 * count, unattended=unattended)
        heartbeat.take(sign, START + 10 * count, 1e9 + 10 * count)
    assert names(heartbeat, 490, canary("lost"), canary("kept")) == {"lost"}
    heartbeat.take(beat(50, at=1e9 + 500), START + 500, 1e9 + 500)
    assert names(heartbeat, 500, canary("lost"), canary("kept")) == set()
