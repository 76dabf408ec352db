"""Whether a schema is structural, as the API server decides before it takes a definition.

By "Specifying a structural schema" and "Defaulting" in Kubernetes' documentation of custom
resources, for the keywords that ours may use.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_KNOWN = frozenset(
    {
        "type",
        "description",
        "default",
        "enum",
        "format",
        "nullable",
        "properties",
        "additionalProperties",
        "required",
        "items",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "pattern",
        _UNKNOWN,
        "x-kubernetes-validations",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
    }
)
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean"})
_BY_TYPE = {
    "object": {"properties", "additionalProperties", "required", _UNKNOWN},
    "array": {"items", "minItems", "maxItems", "x-kubernetes-list-type"},
    "string": {"minLength", "maxLength", "pattern"},
    "number": {"minimum", "maximum"},
}


def faults(node: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """What the API server would refuse, one sentence each."""
    for fault in (*_of_type(node), *_of_parts(node)):
        yield f"{where}: {fault}"
    for name, below in node.get("properties", {}).items():
        yield from faults(below, f"{where}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(node.get(keyword), dict):
            yield from faults(node[keyword], f"{where}[{keyword}]")


def _of_type(node: Mapping[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    if kind not in _TYPES and not (kind is None and node.get(_UNKNOWN)):
        yield "no type"
    for owner, words in _BY_TYPE.items():
        fits = kind in {None, owner} or (owner == "number" and kind == "integer")
        if not fits and (wrong := words & node.keys()):
            yield f"{sorted(wrong)} at a {kind}"
    for bound in ("exclusiveMinimum", "exclusiveMaximum"):
        if not isinstance(node.get(bound, False), bool):
            yield f"{bound} is not true or false"


def _of_parts(node: Mapping[str, Any]) -> Iterator[str]:
    if unknown := node.keys() - _KNOWN:
        yield f"unknown keywords {sorted(unknown)}"
    if "properties" in node and "additionalProperties" in node:
        yield "properties and additionalProperties"
    if node.get("type") == "array" and "items" not in node:
        yield "no items"
    if missing := set(node.get("required", ())) - node.get("properties", {}).keys():
        yield f"requires unknown {sorted(missing)}"
    if node.get("default", ...) is None:
        yield "a default of null"
    if node.get("nullable") and "enum" in node:
        yield "an enum that no null is in"
    for key in node.get("x-kubernetes-list-map-keys", ()):
        if key not in node["items"].get("required", ()):
            yield f"the list's key {key} is not required"


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
    import jsonschema_rs

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
