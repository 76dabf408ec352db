"""Which version answers: forced, sticky by weight, and never one that can't be served."""

from collections.abc import Iterable

import pytest
from gateway_world import endpoint_of, model_of

from contracts.endpoint import Arm, ModelEndpoint
from contracts.model import ModelRef
from gateway.errors import ModelUnavailableError, UnknownEndpointError, UnknownVersionError
from gateway.packages import ServedModel
from gateway.routing import RoutingTable, build_table

ONE, TWO = model_of("1"), model_of("2")


def table_of(
    *endpoints: ModelEndpoint,
    opened: Iterable[ServedModel] = (ONE, TWO),
    previous: RoutingTable | None = None,
    serving: Iterable[ModelRef] = (ONE.ref, TWO.ref),
) -> RoutingTable:
    by_package = {model.ref.package: model for model in opened}
    served = set(serving)
    return build_table(endpoints, by_package, previous or RoutingTable(), served.__contains__)


def test_stable_answers_everybody() -> None:
    routes = table_of(endpoint_of(ONE.ref))["sentiment"]
    ways = {routes.choose(f"caller-{number}").model.ref for number in range(100)}
    assert ways == {ONE.ref}
    assert routes.choose("anybody").arm is Arm.STABLE


def test_an_unknown_endpoint_is_told_so() -> None:
    with pytest.raises(UnknownEndpointError, match="other"):
        table_of(endpoint_of(ONE.ref))["other"]


def test_a_caller_stays_on_its_arm() -> None:
    endpoint = endpoint_of(ONE.ref, canary=TWO.ref, weight=30)
    routes = table_of(endpoint)["sentiment"]
    again = table_of(endpoint)["sentiment"]
    arms = [routes.choose(f"caller-{number}").arm for number in range(500)]
    assert arms == [again.choose(f"caller-{number}").arm for number in range(500)]
    assert 100 < arms.count(Arm.CANARY) < 200


def test_a_canary_whose_package_is_not_at_hand_gets_nobody() -> None:
    routes = table_of(endpoint_of(ONE.ref, canary=TWO.ref, weight=90), opened=[ONE])["sentiment"]
    assert {routes.choose(str(number)).model.ref for number in range(50)} == {ONE.ref}


def test_a_forced_version_is_one_that_the_endpoint_holds() -> None:
    routes = table_of(endpoint_of(ONE.ref, packages=[ONE.ref, TWO.ref]))["sentiment"]
    way = routes.choose("caller", "2")
    assert (way.arm, way.model.ref) == (Arm.FORCED, TWO.ref)
    with pytest.raises(UnknownVersionError, match="'9'"):
        routes.choose("caller", "9")


def test_an_endpoint_without_a_version_says_come_back() -> None:
    routes = table_of(endpoint_of(None))["sentiment"]
    with pytest.raises(ModelUnavailableError) as refused:
        routes.choose("caller")
    assert refused.value.retry_after_seconds


def test_the_old_version_answers_until_the_new_one_can() -> None:
    before = table_of(endpoint_of(ONE.ref))
    new = endpoint_of(TWO.ref, packages=[ONE.ref, TWO.ref])
    unopened = table_of(new, opened=[ONE], previous=before)
    assert unopened["sentiment"].choose("caller").model is ONE
    unloaded = table_of(new, previous=unopened, serving=[ONE.ref])
    assert unloaded["sentiment"].choose("caller").model is ONE
    ready = table_of(new, previous=unloaded)
    assert ready["sentiment"].choose("caller").model is TWO


def test_an_old_version_that_nobody_holds_any_more_does_not_block_the_new_one() -> None:
    before = table_of(endpoint_of(ONE.ref))
    after = table_of(endpoint_of(TWO.ref), previous=before, serving=[])
    assert after["sentiment"].choose("caller").model is TWO


def test_an_endpoint_that_was_deleted_is_gone() -> None:
    assert "sentiment" not in table_of(previous=table_of(endpoint_of(ONE.ref))).endpoints


def test_a_table_names_every_package_that_it_needs() -> None:
    endpoint = endpoint_of(ONE.ref, packages=[ONE.ref, TWO.ref])
    assert table_of(endpoint).models() == {ONE.ref.package: ONE, TWO.ref.package: TWO}
