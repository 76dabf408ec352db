"""What an API server makes of an object by a definition's schema: its defaults, its refusals.

By "Defaulting" in Kubernetes' documentation of custom resources. Whether the schema is one that it
takes at all, ``kubernetes_validate`` says in part, and a real one in ``tests/cluster``.
"""

from collections.abc import Iterator, Mapping
from typing import Any


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
