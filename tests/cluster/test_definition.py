"""A real API server takes the definition, fills in defaults, and refuses what is wrong."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from random_specs import is_taken, specs
from real_api_server import RealApi, real_api_server
from real_cluster import ROOT

from contracts.endpoint import API_VERSION, KIND, EndpointSpec
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from service.cluster import endpoints
from service.cluster.errors import ApiRefusedError

pytestmark = [pytest.mark.cluster, pytest.mark.walk]


@pytest.fixture(scope="module")
def api() -> Iterator[RealApi]:
    with real_api_server() as ours:
        yield ours


def create(api: RealApi, spec: dict[str, Any], name: str = "e") -> dict[str, Any]:
    """As it would be stored; nothing is."""
    item = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    collection = endpoints.collection(api.namespace)
    return api.client.create(collection, item, dry_run="All", field_validation="Strict")


def read(item: dict[str, Any]) -> EndpointSpec:
    """As gateways and controller read it; what is not stored has no version of its own yet."""
    return endpoints.read({**item, "metadata": {"resourceVersion": "", **item["metadata"]}}).spec


def test_an_endpoint_needs_a_model_alone_and_reads_as_locally(api: RealApi) -> None:
    assert read(create(api, {"model": "m"})) == EndpointSpec(model="m")


@pytest.mark.parametrize(
    "document", sorted(ROOT.glob("examples/*/endpoint.yaml")), ids=lambda path: path.parent.name
)
def test_the_examples_are_taken_and_read_as_locally(api: RealApi, document: Any) -> None:
    said = yaml.safe_load(document.read_text(encoding="utf-8"))
    assert read(create(api, said["spec"])) == EndpointSpec.model_validate(said["spec"])


@pytest.mark.parametrize(
    "spec",
    [
        {"version": {"alias": "champion"}},
        {"version": {"pin": "7"}},
        {"rollout": {"checks": {"latency": None, "agreement": {}}, "alias": None}},
        {"rollout": {"steps": [{"shadow": 50}, {"shadow": 100}, {"weight": 1}, {"weight": 2.5}]}},
        {"rollout": {"deadline": "1h30m", "bake": "0s"}},
        {"serving": {"lengthBuckets": [16, 32], "precision": "fp16"}},
        {"limits": {"requestsPerSecondPerKey": 2.5}},
        {"limits": {"requestsPerSecondPerKey": None}, "task": None},
        {"slo": {"availability": None, "latency": {"percentile": 99.5, "threshold": "1s500ms"}}},
        {"slo": {"availability": 0.95, "latency": None}},
        {
            "statistics": [
                {"name": "length", "kind": "histogram", "edges": [1, 2.5, 10]},
                {"name": "language", "kind": "category", "values": ["en", "de"]},
            ],
            "rollout": {"checks": {"statistics": [{"name": "length"}]}},
        },
    ],
)
def test_what_the_models_take_is_taken_and_read_as_locally(
    api: RealApi, spec: dict[str, Any]
) -> None:
    whole = {"model": "m", **spec}
    assert read(create(api, whole)) == EndpointSpec.model_validate(whole)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"version": {"alias": "a", "pin": "7"}}, "takes one of follow, alias, pin"),
        ({"rollout": {"steps": [{}]}}, "takes one of shadow, weight"),
        ({"rollout": {"steps": [{"weight": 5}, {"shadow": 100}]}}, "shadow steps come before"),
        ({"rollout": {"steps": [{"weight": 5}, {"weight": 5}]}}, "must grow"),
        ({"rollout": {"deadline": "0s"}}, "longer than nothing"),
        ({"rollout": {"bake": "an hour"}}, "bake"),
        ({"serving": {"instances": 0}}, "instances"),
        ({"serving": {"colour": "red"}}, "colour"),
        ({"limits": {"timeoutSeconds": 0}}, "timeoutSeconds"),
        ({"slo": {"availability": 1}}, "availability"),
        ({"slo": {"latency": {"threshold": "250ms"}}}, "threshold"),
        ({"statistics": [{"name": "a", "kind": "histogram"}]}, "needs them"),
        ({"statistics": [{"name": "a", "kind": "counter", "edges": [1]}]}, "needs them"),
        ({"statistics": [{"name": "a", "kind": "histogram", "edges": [2, 1]}]}, "must grow"),
        ({"statistics": [{"name": "a", "kind": "histogram", "edges": [1, 1]}]}, "Duplicate"),
        (
            {"statistics": [{"name": "a", "kind": "counter"}, {"name": "a", "kind": "counter"}]},
            "Duplicate",
        ),
        ({"rollout": {"checks": {"statistics": [{"name": "a"}]}}}, "does not declare"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(
    api: RealApi, spec: dict[str, Any], why: str
) -> None:
    with pytest.raises(ApiRefusedError, match=why) as refused:
        create(api, {"model": "m", **spec})
    assert refused.value.status in {400, 422}


@pytest.mark.parametrize("name", ["a.b", "a" * 64])
def test_a_name_that_can_be_no_part_of_a_url_is_refused(api: RealApi, name: str) -> None:
    with pytest.raises(ApiRefusedError, match="part of its URLs"):
        create(api, {"model": "m"}, name)


def test_whatever_the_schema_lets_through_is_read_or_has_a_sentence_of_ours(api: RealApi) -> None:
    store = KubernetesEndpointStore(api.client, api.namespace)
    store.start()
    taken: list[bool] = []

    @settings(max_examples=200, deadline=None, phases=[Phase.generate])
    @given(specs())
    def check(spec: dict[str, Any]) -> None:
        taken.append(is_taken(api.client, api.namespace, store, spec))

    try:
        check()
    finally:
        store.close()
    assert sum(taken) > 20
