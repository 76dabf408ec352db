"""The JSON schema of what a user writes of an endpoint, for editors and for our own sentences.

``headrace schema`` prints it and ``docs/endpoint.schema.json`` holds it. It comes from the models
in ``contracts/`` and leaves out what only Headrace writes. Pure.
"""

from typing import Any

from contracts.durations import PATTERN, format_duration
from contracts.endpoint import ModelEndpoint

TITLE = "Headrace ModelEndpoint"
_REF = "#/$defs/"


def endpoint_schema() -> dict[str, Any]:
    """The schema of one YAML document, draft 2020-12."""
    whole = ModelEndpoint.model_json_schema(by_alias=True)
    definitions = whole.pop("$defs")
    del whole["properties"]["status"]
    for stored in ("revision", "uid"):
        del definitions["Metadata"]["properties"][stored]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_tidy(whole),
        "title": TITLE,
        "required": ["apiVersion", "kind", "metadata", "spec"],
    }
    used: dict[str, Any] = {}
    _collect(schema, definitions, used)
    return {**schema, "$defs": {name: used[name] for name in sorted(used)}}


class SchemaNode:
    """One node of the schema: what may stand there."""

    def __init__(self, schema: dict[str, Any], node: dict[str, Any]) -> None:
        self._schema = schema
        self._node = node

    @classmethod
    def root(cls) -> "SchemaNode":
        """The whole document."""
        schema = endpoint_schema()
        return cls(schema, schema)

    @property
    def choices(self) -> list[dict[str, Any]]:
        """The alternatives at this node, references resolved; ``null`` is left out."""
        found = []
        for choice in self._node.get("anyOf", [self._node]):
            resolved = choice
            while "$ref" in resolved:
                resolved = self._schema["$defs"][resolved["$ref"].removeprefix(_REF)]
            if resolved.get("type") != "null":
                found.append(resolved)
        return found

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that may stand here, in their order."""
        return tuple(name for choice in self.choices for name in choice.get("properties", {}))

    @property
    def default(self) -> Any:  # noqa: ANN401 - any JSON value
        """The default, None if there is none."""
        return self._node.get("default")

    def down(self, step: str | int) -> "SchemaNode | None":
        """The node one step below, None if the schema knows none."""
        for choice in self.choices:
            below = (
                choice.get("items")
                if isinstance(step, int)
                else choice.get("properties", {}).get(step)
            )
            if below is not None:
                return SchemaNode(self._schema, below)
        return None


def _tidy(node: Any) -> Any:  # noqa: ANN401 - any part of a schema
    """Without pydantic's titles, and durations as people write them."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        name: _tidy(value)
        for name, value in node.items()
        if not (name == "title" and isinstance(value, str))
    }
    if kept.get("pattern") == PATTERN:
        # The pattern binds only strings, the minimum only numbers.
        kept["type"] = ["string", "number"]
        if isinstance(kept.get("default"), float):
            kept["default"] = format_duration(kept["default"])
    return kept


def _collect(node: Any, definitions: dict[str, Any], used: dict[str, Any]) -> None:  # noqa: ANN401
    if isinstance(node, list):
        for item in node:
            _collect(item, definitions, used)
    elif isinstance(node, dict):
        name = str(node.get("$ref", "")).removeprefix(_REF)
        if name and name not in used:
            used[name] = _tidy(definitions[name])
            _collect(used[name], definitions, used)
        for value in node.values():
            _collect(value, definitions, used)
