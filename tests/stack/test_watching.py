"""What watches real rollouts sees what it must not miss; needs no stack."""

import pytest
from rollout_kills import Outage, unexcused
from rollout_walk import ONE, TWO, Walk
from rollout_watch import faults, jumps
from traffic import Reply

from contracts.endpoint import Arm, EndpointSpec, EndpointStatus, Metadata, ModelEndpoint, Route


def stored(status: EndpointStatus, revision: int) -> ModelEndpoint:
    return ModelEndpoint(
        metadata=Metadata(name="sentiment", revision=str(revision)),
        spec=EndpointSpec(model="sentiment"),
        status=status,
    )


def reply(sent: float, at: float, status: int = 200, gateway: str = "one") -> Reply:
    return Reply(at, at - sent, status, gateway=gateway)


def test_a_rollout_as_it_should_be_has_no_faults() -> None:
    walk = Walk().through(1)
    before = stored(walk.status, 1)
    walk.traffic("pass")
    after = walk.status.model_copy(update={"generation": before.status.generation + 1})
    assert not faults(after)
    assert not jumps(before, stored(after, 2))


@pytest.mark.parametrize(
    ("update", "fault"),
    [
        ({"routes": (Route(arm=Arm.STABLE, ref=ONE, weight=95),)}, "weights sum to 95"),
        ({"packages": (TWO,)}, "a package is routed that no Triton must hold"),
        ({"rollout": None}, "callers are split without a rollout"),
    ],
)
def test_a_wrong_state_is_told(update: dict[str, object], fault: str) -> None:
    assert fault in " ".join(faults(Walk().through(2).status.model_copy(update=update)))


def test_what_was_lost_between_two_states_is_told() -> None:
    walk = Walk().through(1)
    early = stored(walk.status, 1)
    late = stored(walk.through(2).status.model_copy(update={"generation": 9}), 2)
    assert not jumps(early, late)
    told = " ".join(jumps(late, early))
    for fault in ("older revision", "generation went back", "history was lost", "step went back"):
        assert fault in told
    same = late.status.model_copy(update={"generation": early.status.generation})
    assert jumps(early, stored(same, 2)) == ["routes or packages changed within a generation"]


def test_a_failure_is_excused_only_while_what_answers_was_away() -> None:
    outage = Outage(killed=10.0, restarted=12.0, gateway="one")
    good = [reply(9.0, 9.5), reply(12.5, 13.0), reply(14.0, 14.5)]
    in_flight, refused = reply(9.9, 10.1, 0), reply(11.0, 11.1, 503)
    waited = reply(12.6, 13.5, 503)
    early, late = reply(9.0, 9.9, 503), reply(13.1, 13.2, 503)
    assert unexcused([*good, in_flight, refused, waited], [outage]) == []
    assert unexcused([*good, early, late], [outage]) == [early, late]
    assert unexcused([*good, in_flight], []) == [in_flight]


def test_one_gateways_outage_excuses_no_failure_of_another() -> None:
    outage = Outage(killed=10.0, restarted=12.0, gateway="one")
    mine, others = reply(11.0, 11.1, 0), reply(11.0, 11.1, 0, gateway="two")
    # An answer of the other gateway does not end it either.
    back = [reply(12.0, 12.1, gateway="two"), reply(13.0, 13.1)]
    late = reply(12.5, 12.6, 0)
    assert unexcused([mine, others, late, *back], [outage]) == [others]
