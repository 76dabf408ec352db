"""The CustomResourceDefinition of ``ModelEndpoint``: ``python -P -m headrace.crd.definition FILE``.

Made from the models of ``contracts/endpoint.py``, so that a cluster takes what the local YAML
takes. The chart holds the file, and a test holds it current. What no schema can say is said by
validations in CEL; what those can't say, the endpoint's readers refuse.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from contracts.durations import PATTERN, format_duration
from contracts.endpoint import API_VERSION, KIND, EndpointSpec, EndpointStatus
from headrace.crd.structural import Schema, Structural

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "modelendpoints"
_LONGEST_DURATION = 32  # characters

_HEADER = (
    "# Made by python -P -m headrace.crd.definition from contracts/endpoint.py. Do not edit.\n"
)


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
    """The chart's file."""
    text: str = yaml.dump(definition(), Dumper=_Plain, sort_keys=False, width=100)
    return _HEADER + text


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


class _Plain(yaml.SafeDumper):
    """Without anchors: what is said twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - as in yaml
        """Never an anchor."""
        del data
        return True


def main(arguments: list[str]) -> int:
    """Writes the file that is named, or standard output; returns the exit status."""
    if len(arguments) > 1:
        sys.stderr.write("usage: python -P -m headrace.crd.definition [FILE]\n")
        return 2
    if arguments:
        path = Path(arguments[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_yaml(), encoding="utf-8")
    else:
        sys.stdout.write(as_yaml())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
