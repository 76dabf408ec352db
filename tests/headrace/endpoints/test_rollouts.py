"""What people are told where nobody could take a candidate back."""

from collections.abc import Iterable

import pytest
from gateway_world import endpoint_of, model_of

from contracts.controller import ControllerBeat
from contracts.endpoint import ModelEndpoint
from headrace.endpoints.rollouts import silence_warning

ONE, TWO = model_of("1").ref, model_of("2").ref
CANARY = endpoint_of(ONE, canary=TWO, weight=5, rollout="r")


def beat(ago: float, *, unattended: Iterable[str] = ()) -> ControllerBeat:
    return ControllerBeat(instance="a", count=1, at=1e9 - ago, unattended=tuple(unattended))


def test_a_controller_that_gives_signs_needs_no_word() -> None:
    assert silence_warning(CANARY, beat(ago=12), 1e9) == ""


def test_silence_is_told_before_and_after_it_has_a_consequence() -> None:
    assert silence_warning(CANARY, beat(ago=100), 1e9) == (
        "The controller gave its last sign 1m40s ago. After 5m of it gateways give version 2's "
        "callers to the stable version."
    )
    assert silence_warning(CANARY, beat(ago=720), 1e9) == (
        "The controller gave its last sign 12m ago. Gateways give version 2's callers to the "
        "stable version."
    )


def test_an_endpoint_that_can_not_be_looked_after_is_told() -> None:
    said = silence_warning(CANARY, beat(ago=3, unattended=("sentiment",)), 1e9)
    assert said.startswith("The controller can't look after this endpoint: its log says why.")
    assert silence_warning(CANARY, beat(ago=3, unattended=("other",)), 1e9) == ""


@pytest.mark.parametrize(
    "endpoint", [endpoint_of(ONE), endpoint_of(TWO, control=ONE, weight=5, rollout="r")]
)
def test_without_a_candidate_nothing_is_told(endpoint: ModelEndpoint) -> None:
    assert silence_warning(endpoint, beat(ago=1e6), 1e9) == ""


def test_a_controller_whose_lease_went_with_its_pod_is_told_without_its_silence() -> None:
    assert silence_warning(CANARY, None, 1e9) == (
        "No sign of the controller can be read. After 5m without one gateways give version 2's "
        "callers to the stable version."
    )
    assert silence_warning(endpoint_of(ONE), None, 1e9) == ""
