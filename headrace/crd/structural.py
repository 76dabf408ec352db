"""Turns pydantic's JSON schema into the structural schema that a CustomResourceDefinition takes.

Kubernetes reads OpenAPI 3.0 of a strict shape: no references, one type at each node, ``nullable``
in place of a null type, and alternatives merged into one object (see "Specifying a structural
schema" in its documentation). Pure; it knows no endpoint.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

_REF = "#/$defs/"
_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_VALIDATIONS = "x-kubernetes-validations"
_KEPT = (
    "description",
    "enum",
    "format",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
)


class UnstructuralError(ValueError):
    """A model holds something that Kubernetes has no schema for; the message says what."""


class Structural:
    """Translates the nodes of one JSON schema.

    ``additions`` are further keywords for the definitions named. Without ``defaults``, the program
    that reads fills them in.
    """

    def __init__(
        self,
        definitions: Mapping[str, Schema],
        additions: Mapping[str, Schema] | None = None,
        *,
        defaults: bool = True,
    ) -> None:
        self._definitions = definitions
        self._additions = additions or {}
        self._defaults = defaults

    def of(self, node: Schema) -> Schema:
        """The structural schema of a node; raises ``UnstructuralError``."""
        node, additions = self._resolve(node)
        if "anyOf" in node:
            made = self._alternatives(node)
        elif node.get("type") == "object":
            made = self._object(node)
        elif node.get("type") == "array":
            made = {"type": "array", "items": self.of(node["items"])}
        else:
            made = _scalar(node)
        for keyword in _KEPT:
            if keyword in node:
                made.setdefault(keyword, node[keyword])
        _default(made, node, keep=self._defaults)
        return {**made, **additions}

    def _resolve(self, node: Schema) -> tuple[Schema, Schema]:
        """Without a reference: what stands beside it wins over what it names."""
        reference = node.get("$ref")
        if reference is None:
            return node, {}
        name = str(reference).removeprefix(_REF)
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return {**self._definitions[name], **beside}, dict(self._additions.get(name, {}))

    def _object(self, node: Schema) -> Schema:
        if "properties" in node:
            made: Schema = {
                "type": "object",
                "properties": {name: self.of(item) for name, item in node["properties"].items()},
            }
            if node.get("required"):
                made["required"] = list(node["required"])
            return made
        below = node.get("additionalProperties", True)
        if isinstance(below, dict):
            return {"type": "object", "additionalProperties": self.of(below)}
        return {"type": "object", _UNKNOWN: True}

    def _alternatives(self, node: Schema) -> Schema:
        choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
        made = self._merge([self.of(choice) for choice in choices])
        # A null that means what leaving the field out means is pruned, for Kubernetes holds even a
        # nullable value to its enum.
        if len(choices) < len(node["anyOf"]) and node.get("default", ...) is not None:
            made["nullable"] = True
        return made

    def _merge(self, choices: Sequence[Schema]) -> Schema:
        """Alternatives as one schema; of objects, one whose fields exclude one another."""
        if len(choices) == 1:
            return choices[0]
        kinds = {choice.get("type") for choice in choices}
        if kinds == {"object"}:
            return _union(choices)
        if "object" in kinds:
            raise UnstructuralError(f"no schema holds an object and another type: {choices}")
        # A scalar or a list: Kubernetes has no type for that, and the reader refuses the rest.
        return {_UNKNOWN: True}


def _union(choices: Sequence[Schema]) -> Schema:
    """Objects of which exactly one is meant, told apart by fields that no two share."""
    properties: Schema = {}
    for choice in choices:
        if shared := properties.keys() & choice["properties"].keys():
            raise UnstructuralError(f"two alternatives share the field {shared}")
        for name, item in choice["properties"].items():
            # A default would add one alternative's field to another's.
            properties[name] = {key: value for key, value in item.items() if key != "default"}
    least = min(len(choice.get("required", ())) for choice in choices)
    present = ", ".join(f"has(self.{name})" for name in properties)
    names = ", ".join(properties)
    return {
        "type": "object",
        "properties": properties,
        _VALIDATIONS: [
            {
                "rule": f"[{present}].filter(there, there).size() {'==' if least else '<='} 1",
                "message": f"takes one of {names}",
            }
        ],
    }


def _scalar(node: Schema) -> Schema:
    """A string, number or boolean, in OpenAPI 3.0's words."""
    made: Schema = {}
    if "const" in node:
        made["enum"] = [node["const"]]
    kind = node.get("type") or ("string" if "const" in node else None)
    if kind not in {"string", "number", "integer", "boolean"}:
        raise UnstructuralError(f"no type in {node}")
    made["type"] = kind
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in node:
            made |= {bound: node[exclusive], exclusive: True}
    return made


def _default(made: Schema, node: Schema, *, keep: bool) -> None:
    """Takes the node's own default, which wins over that of what it refers to."""
    made.pop("default", None)
    if keep and node.get("default") is not None:
        made["default"] = _without_nulls(made, node["default"])


def _without_nulls(schema: Schema, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A default without the nulls that the schema would not take, and that mean nothing."""
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    return {
        name: _without_nulls(properties.get(name, {}), item)
        for name, item in value.items()
        if item is not None or properties.get(name, {}).get("nullable")
    }
