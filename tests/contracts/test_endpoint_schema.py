"""The schema that editors get, and the page that people read, are those of the models."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import yaml

from contracts.endpoint import ModelEndpoint
from contracts.endpoint_schema import SchemaNode, endpoint_schema
from contracts.rollout import Checks
from headrace.endpoints.document import read
from headrace.errors import BadDocumentError

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "endpoints.md").read_text(encoding="utf-8")
# Of a table of three columns: field, default, meaning.
ROW = re.compile(r"^\| `([\w.\[\]]+)` \| (`(.+?)`|needed|see above) \| .+\|$", re.MULTILINE)
HEAD: dict[str, object] = {
    "apiVersion": "headrace.dev/v1alpha1",
    "kind": "ModelEndpoint",
    "metadata": {"name": "tone"},
}
CHECK = "spec.rollout.checks."


def fields_below(node: SchemaNode, path: str = "") -> Iterator[tuple[str, SchemaNode]]:
    for choice in node.choices:
        for name in choice.get("properties", {}):
            below = node.down(name)
            assert below is not None
            yield f"{path}{name}", below
            yield from fields_below(below, f"{path}{name}.")
        if "items" in choice:
            item = node.down(0)
            assert item is not None
            yield from fields_below(item, f"{path.removesuffix('.')}[].")


FIELDS = dict(fields_below(SchemaNode.root()))
TOLD = {path: default for path, _, default in ROW.findall(PAGE)}


def test_the_committed_schema_is_current() -> None:
    committed = json.loads((DOCS / "endpoint.schema.json").read_text(encoding="utf-8"))
    assert committed == endpoint_schema(), "run: headrace schema > docs/endpoint.schema.json"


def test_what_headrace_alone_writes_is_not_in_the_schema() -> None:
    assert "status" not in FIELDS
    assert "metadata.revision" not in FIELDS
    assert "RolloutState" not in endpoint_schema()["$defs"]


def test_every_reference_in_the_schema_is_defined() -> None:
    schema = endpoint_schema()
    named = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert named == set(schema["$defs"])


def test_every_field_is_on_the_page() -> None:
    groups = {"metadata", "spec", "spec.serving", "spec.rollout", "spec.rollout.checks"}
    groups |= {"spec.rollout.embedding"}
    groups |= {"spec.limits", "spec.slo", "spec.statistics", "spec.unkWords"}
    groups |= {"spec.guardrail"}
    plain = {path for path in FIELDS if path not in groups and not is_of_a_check(path)}
    of_checks = {path.split(".")[-1] for path in FIELDS if is_of_a_check(path)}
    assert set(TOLD) == plain | of_checks


def is_of_a_check(path: str) -> bool:
    return path.startswith(CHECK) and "." in path.removeprefix(CHECK)


def test_the_page_tells_the_defaults() -> None:
    for path, told in TOLD.items():
        if path not in FIELDS or (path.startswith(CHECK) and told.startswith("{")):
            continue
        default = FIELDS[path].default
        assert yaml.safe_load(told or "null") == default, path


def test_the_page_tells_the_defaults_of_checks() -> None:
    told = {
        path.removeprefix(CHECK): yaml.safe_load(default)
        for path, default in TOLD.items()
        if path.startswith(CHECK)
    }
    assert Checks.model_validate(told) == Checks()
    # and what is left out there is as the table of a check's fields has it
    assert TOLD["gate"] == TOLD["required"] == "true"


def test_the_pages_example_is_an_endpoint() -> None:
    example = re.findall(r"```yaml\n(apiVersion.*?)```", PAGE, re.DOTALL)[0]
    (endpoint,) = read(example, "docs/endpoints.md")
    assert isinstance(endpoint, ModelEndpoint)


def test_an_editor_agrees_with_apply() -> None:
    editor = jsonschema_rs.validator_for(endpoint_schema())
    cases: list[tuple[dict[str, object], bool]] = [
        ({"model": "m", "rollout": {"deadline": "1h30m", "bake": 90}}, True),
        ({"model": "m", "rollout": {"steps": [{"weight": 5}], "checks": {"quality": {}}}}, True),
        ({"model": "m", "version": {"pin": "7"}, "limits": {"timeoutSeconds": 1}}, True),
        ({"model": "m", "rollout": {"checks": {"latency": None}, "alias": None}}, True),
        ({"model": "m", "rollout": {"deadline": "soon"}}, False),
        ({"model": "m", "rollout": {"steps": [{"weight": 500}]}}, False),
        ({"model": "m", "version": {"pin": 7}}, False),
        ({"model": "m", "modle": "n"}, False),
        ({}, False),
    ]
    for spec, fits in cases:
        document = {**HEAD, "spec": spec}
        assert editor.is_valid(document) is fits, spec
        assert applies(document) is fits, spec


def applies(document: dict[str, object]) -> bool:
    try:
        read(yaml.safe_dump(document), "document")
    except BadDocumentError:
        return False
    return True
