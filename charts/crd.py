"""Makes what the chart tells a cluster of endpoints: ``python -P charts/crd.py`` writes both files.

The CustomResourceDefinition of ``ModelEndpoint`` is made from the models of
``contracts/endpoint.py``, so that a cluster takes what the local YAML takes. What no schema can say
is said by validations in CEL; what those can't say, the endpoint's readers refuse. What the
ValidatingAdmissionPolicy asks is made from the table of ``contracts/ceilings.py``, so that a
cluster refuses what the controller refuses. Tests hold both files current.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from contracts.ceilings import CEILINGS, POOL_CEL, POOLS
from contracts.durations import PATTERN, format_duration
from contracts.endpoint import API_VERSION, KIND, EndpointSpec, EndpointStatus

FILES = Path(__file__).parent / "headrace" / "files"
DEFINITION, CEILINGS_FILE = FILES / "modelendpoints.crd.yaml", FILES / "ceilings.yaml"
_HEADER = "# Made by python -P charts/crd.py from {}. Do not edit.\n"

Schema = dict[str, Any]

# From pydantic's JSON schema to the structural one that a definition takes: OpenAPI 3.0 of a strict
# shape, with no references, one type at each node, ``nullable`` in place of a null type, and
# alternatives merged into one object ("Specifying a structural schema" in Kubernetes' pages).

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


# The definition itself.

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "modelendpoints"
_LONGEST_DURATION = 32  # characters


def _rules(*pairs: tuple[str, str]) -> list[Schema]:
    return [{"rule": rule, "message": message} for rule, message in pairs]


_EACH_WEIGHT_ONCE = (
    "self.steps.all(a, !has(a.weight) || "
    "self.steps.exists_one(b, has(b.weight) && b.weight == a.weight))"
)
_EACH_CHECK_DECLARED = (
    "self.rollout.checks.statistics.all(check, "
    "self.statistics.exists(declared, declared.name == check.name))"
)

# What the models' own validators say, if a schema by itself can't. Every list that a rule walks has
# a greatest length in the models: the API server refuses rules whose cost it can't bound.
_ADDITIONS: dict[str, Schema] = {
    "RolloutSpec": {
        "x-kubernetes-validations": _rules(
            (
                "self.steps.map(step, has(step.weight) ? step.weight : 0.0).isSorted()",
                "shadow steps come before weights, and weights must grow from step to step",
            ),
            (
                _EACH_WEIGHT_ONCE,
                "weights must grow from step to step",
            ),
        )
    },
    "CustomStatistic": {
        "x-kubernetes-validations": _rules(
            (
                "(self.kind == 'histogram') == (has(self.edges) && self.edges.size() > 0)",
                "edges belong to a histogram, and a histogram needs them",
            ),
            (
                "(self.kind == 'category') == (has(self.values) && self.values.size() > 0)",
                "values belong to a category, and a category needs them",
            ),
            ("!has(self.edges) || self.edges.isSorted()", "edges must grow"),
        )
    },
}
_SPEC_RULES = _rules(
    (
        _EACH_CHECK_DECLARED,
        "a check names a statistic that statistics does not declare",
    )
)
_NAME_RULES = _rules(
    (
        "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
        "an endpoint's name is part of its URLs: at most 63 characters, and no dot",
    )
)


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


_SHOWN: Schema = {
    "type": "object",
    "description": "the status in a few words, for kubectl get",
    "properties": {
        "stable": _text("the version that answers by default"),
        "candidate": _text("the version that is on its way"),
        "phase": _text("where that one is"),
        "weights": _text("percent of callers of each version"),
    },
}
_CONDITIONS: Schema = {
    "type": "array",
    "description": "Accepted: nothing is asked for above the operator's ceilings. Ready: a version "
    "serves. Progressing: another is on its way",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": _text("Accepted, Ready or Progressing"),
            "status": {
                **_text("whether it is so"),
                "enum": ["True", "False", "Unknown"],
            },
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "metadata.generation of the spec that it is about",
            },
            "lastTransitionTime": {
                **_text("when status changed last"),
                "format": "date-time",
            },
            "reason": _text("why, in one word for programs"),
            "message": _text("why, in a sentence"),
        },
    },
}
_COLUMNS = (
    ("Model", "string", ".spec.model", 0),
    ("Stable", "string", ".status.shown.stable", 0),
    ("Candidate", "string", ".status.shown.candidate", 0),
    ("Phase", "string", ".status.shown.phase", 0),
    ("Weights", "string", ".status.shown.weights", 0),
    ("Pool", "string", ".status.shown.pool", 1),
    ("Reason", "string", ".status.candidate.reason", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def definition() -> Schema:
    """The whole object, as the API server takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            # An uninstall keeps the endpoints, and with them what serves which callers.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": PLURAL.removesuffix("s"),
                "shortNames": ["mep"],
                "categories": ["headrace"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _build_schema()},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "priority": priority}
                        for name, kind, path, priority in _COLUMNS
                    ],
                }
            ],
        },
    }


def as_yaml() -> str:
    """The file of the definition."""
    text: str = yaml.dump(definition(), Dumper=_Plain, sort_keys=False, width=100)
    return _HEADER.format("contracts/endpoint.py") + text


def ceilings_as_yaml() -> str:
    """The file of the admission policy: of each ceiling its name, what it bounds, the wish as CEL.

    The chart puts the operator's numbers in.
    """
    rows = [{"name": each.name, "what": each.what, "wish": each.cel} for each in CEILINGS]
    rows.append({"name": POOLS, "what": "spec.pool", "wish": POOL_CEL})
    text: str = yaml.safe_dump(rows, sort_keys=False, width=100)
    return _HEADER.format("contracts/ceilings.py") + text


def _build_schema() -> Schema:
    return {
        "type": "object",
        "description": "Serves the versions of one model that is registered in MLflow.",
        "required": ["spec"],
        "properties": {
            "apiVersion": _text(API_VERSION),
            "kind": _text(KIND),
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        },
        "x-kubernetes-validations": _NAME_RULES,
    }


def _spec() -> Schema:
    schema = EndpointSpec.model_json_schema(by_alias=True)
    for name, node in schema["$defs"].items():
        schema["$defs"][name] = _with_durations_as_written(node)
    made = Structural(schema.pop("$defs"), _ADDITIONS).of(schema)
    made["properties"]["rollout"]["properties"]["deadline"]["x-kubernetes-validations"] = _rules(
        ("self.matches('[1-9]')", "must be longer than nothing")
    )
    statistics = made["properties"]["statistics"]
    statistics["x-kubernetes-list-type"] = "map"
    statistics["x-kubernetes-list-map-keys"] = ["name"]
    # No two edges are equal, by a rule that costs less than one in CEL.
    statistics["items"]["properties"]["edges"]["x-kubernetes-list-type"] = "set"
    return {**made, "x-kubernetes-validations": _SPEC_RULES}


def _status() -> Schema:
    schema = EndpointStatus.model_json_schema(by_alias=True)
    made = Structural(schema.pop("$defs"), defaults=False).of(schema)
    # Only the controller writes it, and whole. Else Kubernetes' notes on fields name each one that
    # is in it, in every object that gateways watch.
    made["x-kubernetes-map-type"] = "atomic"
    made["properties"] |= {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "metadata.generation of the spec that the status is about",
        },
        "shown": _SHOWN,
        "conditions": _CONDITIONS,
    }
    return made


def _with_durations_as_written(node: Schema) -> Schema:
    """Durations' defaults as people write them, and the greatest length that rules need."""
    made = {}
    for name, item in node.get("properties", {}).items():
        made[name] = item
        if item.get("pattern") == PATTERN:
            default = format_duration(item["default"])
            made[name] = {**item, "default": default, "maxLength": _LONGEST_DURATION}
    return {**node, "properties": made} if made else node


class _Plain(yaml.SafeDumper):  # type: ignore[misc]
    """Without anchors: what is said twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - as in yaml
        """Never an anchor."""
        del data
        return True


def main() -> int:
    """Writes the files; returns the exit status."""
    DEFINITION.write_text(as_yaml(), encoding="utf-8")
    CEILINGS_FILE.write_text(ceilings_as_yaml(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
