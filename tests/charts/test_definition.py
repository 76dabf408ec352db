"""The definition says what the models say, in words that an API server takes."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml
from chart_definition import crd
from registry_fakes import endpoint, ref

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Route,
    Transition,
)
from contracts.rollout import RolloutState

ROOT = Path(__file__).parents[2]
KUBERNETES = "1.34"
CHART_FILE = ROOT / "charts" / "headrace" / "files" / "modelendpoints.crd.yaml"
VERSION = crd.definition()["spec"]["versions"][0]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
SPEC: dict[str, Any] = SCHEMA["properties"]["spec"]
STATUS: dict[str, Any] = SCHEMA["properties"]["status"]
CAMEL = re.compile(r"[a-z][a-zA-Z0-9]*")
MOMENT = re.compile(
    r"at|since|start|asleep|began|looked_?[tT]hrough|lastTransitionTime|.*(At|_at|Began|_began)"
)


def rules(node: dict[str, Any]) -> list[str]:
    return [entry["rule"] for entry in node.get("x-kubernetes-validations", ())]


def test_the_chart_holds_the_definition_as_it_is_made_now() -> None:
    assert CHART_FILE.read_text(encoding="utf-8") == crd.as_yaml(), "run: python -P charts/crd.py"
    assert yaml.safe_load(crd.as_yaml()) == crd.definition()


def test_the_definition_passes_kubernetes_own_schema() -> None:
    kubernetes_validate.validate(crd.definition(), KUBERNETES, strict=True)


def fields(node: dict[str, Any], where: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every field: where it is, its name, and its schema."""
    for name, below in node.get("properties", {}).items():
        yield f"{where}.{name}", name, below
        yield from fields(below, f"{where}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from fields(node[key], f"{where}[]")


def test_kubectl_explains_every_field() -> None:
    silent = [where for where, _, node in fields(SCHEMA) if not node.get("description")]
    assert silent == [".metadata"]  # Kubernetes' own


def test_fields_are_named_as_kubernetes_names_them() -> None:
    assert [where for where, name, _ in fields(SCHEMA) if not CAMEL.fullmatch(name)] == []


def test_moments_are_dates_that_people_can_read() -> None:
    moments = {where: node for where, name, node in fields(STATUS) if MOMENT.fullmatch(name)}
    assert {".history[].at", ".rollout.stepBegan", ".waits[].since"} < moments.keys()
    odd = [where for where, node in moments.items() if node.get("format") != "date-time"]
    assert odd == []


def defaults(node: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if "default" in node:
        yield where, node
    for name, below in node.get("properties", {}).items():
        yield from defaults(below, f"{where}.{name}")
    if isinstance(node.get("items"), dict):
        yield from defaults(node["items"], f"{where}[]")


@pytest.mark.parametrize(("where", "node"), list(defaults(SPEC, "spec")))
def test_a_default_is_what_its_own_schema_takes(where: str, node: dict[str, Any]) -> None:
    assert list(refusals(node, node["default"], where)) == []


def test_an_endpoint_needs_no_more_than_a_model() -> None:
    stored = defaulted(SPEC, {"model": "m"})
    assert list(refusals(SPEC, stored)) == []
    assert EndpointSpec.model_validate(stored) == EndpointSpec(model="m")


@pytest.mark.parametrize("document", sorted(ROOT.glob("examples/*/endpoint.yaml")), ids=str)
def test_what_the_local_yaml_takes_the_cluster_takes_and_reads_alike(document: Path) -> None:
    said = yaml.safe_load(document.read_text(encoding="utf-8"))
    stored = defaulted(SCHEMA, said)
    assert list(refusals(SCHEMA, stored)) == []
    read, written = ModelEndpoint.model_validate(stored), ModelEndpoint.model_validate(said)
    assert read.spec == written.spec


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"model": ""},
        {"model": "m", "task": "cooking"},
        {"model": "m", "serving": {"instances": 0}},
        {"model": "m", "serving": {"instances": "one"}},
        {"model": "m", "limits": {"timeoutSeconds": 0}},
        {"model": "m", "rollout": {"steps": []}},
        {"model": "m", "rollout": {"steps": [{"weight": 100}]}},
        {"model": "m", "rollout": {"deadline": "a day"}},
        {"model": "m", "rollout": {"checks": {"latency": {"fail": {"absolute": 0.1}}}}},
        {"model": "m", "statistics": [{"name": "Large", "kind": "counter"}]},
    ],
)
def test_what_the_models_refuse_the_schema_refuses(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="EndpointSpec"):
        EndpointSpec.model_validate(spec)
    assert list(refusals(SPEC, defaulted(SPEC, spec)))


def test_a_null_where_nothing_is_the_default_is_as_good_as_nothing() -> None:
    said = {"model": "m", "task": None, "limits": {"requestsPerSecondPerKey": None}}
    stored = defaulted(SPEC, said)
    assert list(refusals(SPEC, stored)) == []
    assert EndpointSpec.model_validate(stored) == EndpointSpec(model="m")


def test_a_check_that_was_turned_off_stays_off() -> None:
    said = {"model": "m", "rollout": {"checks": {"latency": None}, "alias": None}}
    read = EndpointSpec.model_validate(defaulted(SPEC, said))
    assert read.rollout.checks.latency is None
    assert read.rollout.alias is None
    assert read.rollout.checks.error_rate is not None


def test_following_an_alias_is_not_given_the_default_of_following_the_latest() -> None:
    said = {"model": "m", "version": {"alias": "champion"}}
    stored = defaulted(SPEC, said)
    assert stored["version"] == {"alias": "champion"}
    assert rules(SPEC["properties"]["version"]) == [
        "[has(self.follow), has(self.alias), has(self.pin)].filter(there, there).size() <= 1"
    ]


def test_what_the_models_own_validators_refuse_a_rule_refuses() -> None:
    rollout = SPEC["properties"]["rollout"]
    assert any("isSorted()" in rule for rule in rules(rollout))
    step = rollout["properties"]["steps"]["items"]
    assert rules(step) == ["[has(self.shadow), has(self.weight)].filter(there, there).size() == 1"]
    assert rules(rollout["properties"]["deadline"]) == ["self.matches('[1-9]')"]
    assert len(rules(SPEC["properties"]["statistics"]["items"])) == 3
    assert len(rules(SPEC)) == len(rules(SCHEMA)) == 1


def lists_without_a_bound(node: dict[str, Any], where: str) -> list[str]:
    found = [where] if node.get("type") == "array" and "maxItems" not in node else []
    for name, below in node.get("properties", {}).items():
        found += lists_without_a_bound(below, f"{where}.{name}")
    if isinstance(node.get("items"), dict):
        found += lists_without_a_bound(node["items"], f"{where}[]")
    return found


def test_every_list_that_a_rule_may_walk_has_a_bound() -> None:
    assert lists_without_a_bound(SPEC, "spec") == []


def test_a_status_with_everything_in_it_is_taken_and_read_alike() -> None:
    state = RolloutState(
        id="r",
        candidate=ref("2"),
        stable=ref(),
        began=1.5,
        step_began=2.0,
        evidence={"deep": [{"er": 1.0}]},
    )
    status = EndpointStatus(
        generation=3,
        routes=(Route(arm=Arm.STABLE, ref=ref(), weight=100),),
        packages=(ref(), ref("2")),
        candidate=Candidate(version="2", phase=Phase.SHADOW, ref=ref("2")),
        rollout=state,
        history=(Transition(at=1.0, version="2", phase=Phase.SHADOW, figures={"a": 0.5}),),
    )
    written = endpoint(status).model_dump(mode="json", by_alias=True)["status"]
    stored = defaulted(STATUS, written)
    assert list(refusals(STATUS, stored)) == []
    assert EndpointStatus.model_validate(stored) == status


def test_a_status_gets_no_defaults_from_the_schema() -> None:
    assert defaulted(STATUS, {}) == {}


def test_people_see_model_versions_phase_and_weights() -> None:
    columns = [column["name"] for column in VERSION["additionalPrinterColumns"]]
    assert columns == ["Model", "Stable", "Candidate", "Phase", "Weights", "Pool", "Reason", "Age"]
    assert crd.definition()["spec"]["names"]["shortNames"] == ["mep"]
    assert VERSION["subresources"] == {"status": {}}


def test_an_uninstall_keeps_the_definition() -> None:
    annotations = crd.definition()["metadata"]["annotations"]
    assert annotations == {"helm.sh/resource-policy": "keep"}


# What an API server makes of an object, by "Defaulting" in Kubernetes' documentation


def defaulted(node: Mapping[str, Any], value: Any) -> Any:
    """The value with defaults filled in and unknown fields pruned, as the API server stores it."""
    if isinstance(value, list) and "items" in node:
        return [defaulted(node["items"], item) for item in value]
    if not isinstance(value, dict) or "properties" not in node:
        return value
    kept = {}
    for name, below in node["properties"].items():
        given = value.get(name, ...)
        if given is None and not below.get("nullable"):
            given = ...
        if given is ...:
            given = below.get("default", ...)
        if given is not ...:
            kept[name] = defaulted(below, given)
    return kept


def refusals(node: Mapping[str, Any], value: Any, where: str = "") -> Iterator[str]:
    """What the schema has against a value, validations in CEL left aside."""
    schema = _draft4(node)
    for error in jsonschema_rs.Draft4Validator(schema).iter_errors(value):
        yield f"{where}{'.'.join(map(str, error.instance_path))}: {error.message}"


def _draft4(node: Any) -> Any:
    """OpenAPI 3.0's words in JSON schema's draft 4, which knows no ``nullable``."""
    if isinstance(node, list):
        return [_draft4(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {
        key: {name: _draft4(item) for name, item in value.items()}
        if key == "properties"
        else _draft4(value)
        for key, value in node.items()
        if not key.startswith("x-") and key not in {"default", "nullable", "description", "format"}
    }
    return {"anyOf": [made, {"type": "null"}]} if node.get("nullable") else made
