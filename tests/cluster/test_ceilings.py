"""A real API server refuses what is above the operator's ceilings, in the controller's words."""

from collections.abc import Iterator
from typing import Any

import pytest
from real_api_server import RealApi, real_api_server
from real_policies import in_force

from contracts.ceilings import CEILINGS, Ceilings
from contracts.endpoint import API_VERSION, KIND, EndpointSpec
from service.cluster import endpoints
from service.cluster.errors import ApiRefusedError

pytestmark = [pytest.mark.cluster, pytest.mark.walk]

MOST = {
    "instances": 4, "maxBatchSize": 64, "maxTokens": 512, "lengthBuckets": 3, "cacheMegabytes": 0,
    "maxTokensInFlight": 65536, "maxTextsPerRequest": 256, "timeoutSeconds": 2.5, "statistics": 2,
    "statisticBuckets": 5, "unkWords": 0, "shadowPercent": 100,
}  # fmt: skip
ABOVE: list[dict[str, Any]] = [
    {"serving": {"instances": 5}},
    {"serving": {"maxBatchSize": 65}},
    {"serving": {"maxTokens": 513}},
    {"serving": {"lengthBuckets": [8, 16, 32, 64]}},
    {"serving": {"cache": {"megabytes": 1}}},
    {"limits": {"maxTokensInFlight": 65537}},
    {"limits": {"maxTextsPerRequest": 257}},
    {"limits": {"timeoutSeconds": 3}},
    {"limits": {"timeoutSeconds": 2.51}},
    {"statistics": [{"name": name, "kind": "counter"} for name in "abc"]},
    {"statistics": [{"name": "a", "kind": "histogram", "edges": [1, 2, 3, 4, 5, 6]}]},
    {"unkWords": {"enabled": True}},
]
WITHIN: list[dict[str, Any]] = [
    {},
    {"serving": {"instances": 4, "lengthBuckets": "auto"}},
    {"limits": {"timeoutSeconds": 2}, "unkWords": {"enabled": False, "top": 50}},
    {"statistics": [{"name": "a", "kind": "category", "values": ["x", "y"]}]},
    {"rollout": {"steps": [{"shadow": 50}, {"weight": 5}]}},
]


def item(asked: dict[str, Any], name: str = "e") -> dict[str, Any]:
    spec = {"model": "m", **asked}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def create(api: RealApi, asked: dict[str, Any]) -> dict[str, Any]:
    """As it would be stored; nothing is."""
    return api.client.create(endpoints.collection(api.namespace), item(asked), dry_run="All")


@pytest.fixture(scope="module")
def api() -> Iterator[RealApi]:
    """A namespace with the chart's policy, and in it an endpoint from before: ``old``."""
    assert MOST.keys() == {each.name for each in CEILINGS}
    with real_api_server() as ours:
        ours.client.create(endpoints.collection(ours.namespace), item(ABOVE[0], "old"))
        most = [f"ceilings.{name}={value}" for name, value in MOST.items()]
        with in_force("ceilings", ours.namespace, lambda: above_is_refused(ours), *most):
            yield ours


def above_is_refused(api: RealApi) -> bool:
    try:
        create(api, ABOVE[0])
    except ApiRefusedError:
        return True
    return False


@pytest.mark.parametrize("asked", ABOVE, ids=str)
def test_what_is_above_a_ceiling_is_refused_in_the_controllers_words(
    api: RealApi, asked: dict[str, Any]
) -> None:
    (sentence,) = Ceilings(MOST).list_excesses(EndpointSpec.model_validate({"model": "m", **asked}))
    with pytest.raises(ApiRefusedError, match="denied request") as refused:
        create(api, asked)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("asked", WITHIN, ids=str)
def test_what_is_within_is_taken(api: RealApi, asked: dict[str, Any]) -> None:
    assert Ceilings(MOST).list_excesses(EndpointSpec.model_validate({"model": "m", **asked})) == ()
    create(api, asked)


def test_commands_reach_an_endpoint_from_before_the_ceiling_and_its_spec_may_only_come_down(
    api: RealApi,
) -> None:
    collection = endpoints.collection(api.namespace)
    stored = api.client.get(collection, "old")
    told = {**stored, "metadata": {**stored["metadata"], "annotations": {"a": "rollback"}}}
    stored = api.client.replace(collection, "old", told)
    with pytest.raises(ApiRefusedError):
        api.client.replace(collection, "old", {**stored, "spec": {**item(ABOVE[7])["spec"]}})
    api.client.replace(collection, "old", {**stored, "spec": item(WITHIN[1])["spec"]})
