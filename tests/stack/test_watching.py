"""What watches real rollouts sees what it must not miss; needs no stack."""

import pytest
from rollout_walk import ONE, TWO, Walk
from rollout_watch import faults, jumps

from contracts.endpoint import Arm, EndpointSpec, EndpointStatus, Metadata, ModelEndpoint, Route


def stored(status: EndpointStatus, revision: int) -> ModelEndpoint:
    return ModelEndpoint(
        metadata=Metadata(name="sentiment", revision=str(revision)),
        spec=EndpointSpec(model="sentiment"),
        status=status,
    )


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
