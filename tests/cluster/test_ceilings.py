"""A real API server refuses what is above the operator's ceilings, in the controller's words."""

import time
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from helm_chart import LIGHT, manifests
from real_api_server import RealApi, real_api_server

from contracts.ceilings import CEILINGS, Ceilings
from contracts.endpoint import API_VERSION, KIND, EndpointSpec
from service.cluster import endpoints
from service.cluster.errors import ApiRefusedError

pytestmark = [pytest.mark.cluster, pytest.mark.walk]

GROUP = ("admissionregistration.k8s.io", "v1")
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
KINDS = [f"{'/'.join(GROUP)}/ValidatingAdmissionPolicy"]
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
        made = manifests(
            "",
            *LIGHT,
            "commands.verifyUser=false",
            *(f"ceilings.{k}={v}" for k, v in MOST.items()),
            apis=KINDS,
        )
        objects = kubernetes.client.CustomObjectsApi(kubernetes.config.new_client_from_config())
        wanted = [in_namespace(each, ours.namespace) for each in made if each["kind"] in PLURALS]
        try:
            for each in wanted:
                objects.create_cluster_custom_object(*GROUP, PLURALS[each["kind"]], each)
            wait_until_held(ours)
            yield ours
        finally:
            for each in wanted:
                name = each["metadata"]["name"]
                objects.delete_cluster_custom_object(*GROUP, PLURALS[each["kind"]], name)


def in_namespace(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The object for the test's own namespace, under a name of its own."""
    spec = manifest["spec"]
    if manifest["kind"].endswith("Binding"):
        chosen = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        spec = {**spec, "policyName": namespace, "matchResources": {"namespaceSelector": chosen}}
    return {**manifest, "metadata": {"name": namespace}, "spec": spec}


def wait_until_held(api: RealApi) -> None:
    """The API server reads new policies after a moment."""
    deadline = time.monotonic() + 60
    while True:
        try:
            create(api, ABOVE[0])
        except ApiRefusedError:
            return
        assert time.monotonic() < deadline, "the policy is not in force in time"
        time.sleep(0.2)


@pytest.mark.parametrize("asked", ABOVE, ids=str)
def test_what_is_above_a_ceiling_is_refused_in_the_controllers_words(
    api: RealApi, asked: dict[str, Any]
) -> None:
    (sentence,) = Ceilings(MOST).over(EndpointSpec.model_validate({"model": "m", **asked}))
    with pytest.raises(ApiRefusedError, match="denied request") as refused:
        create(api, asked)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("asked", WITHIN, ids=str)
def test_what_is_within_is_taken(api: RealApi, asked: dict[str, Any]) -> None:
    assert Ceilings(MOST).over(EndpointSpec.model_validate({"model": "m", **asked})) == ()
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
