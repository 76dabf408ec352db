"""How a loader's report lies in a cluster: in an annotation of a Lease of its own. Pure."""

import json

from pydantic import TypeAdapter

from contracts.loading import LoaderReport
from service.cluster.client import Object
from service.cluster.collection import Collection

VERSION = "coordination.k8s.io/v1"
LABEL = "headrace.dev/report"
LABEL_VALUE = "loader"
ANNOTATION = "headrace.dev/report"
# Beside the report, whose readers of earlier releases refuse it with a field that they don't know:
# in an upgrade old gateways and new loaders run together.
INSTANCES = "headrace.dev/instances"
PREFIX = "headrace-loader-"

_INSTANCES: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, int])  # by package


def collection(namespace: str) -> Collection:
    """The Leases of a namespace that hold reports."""
    return Collection(VERSION, "leases", namespace, f"{LABEL}={LABEL_VALUE}")


def written(report: LoaderReport) -> dict[str, str]:
    """The annotations that hold a report."""
    instances = {model.ref.package: model.instances for model in report.loaded}
    return {
        ANNOTATION: report.model_dump_json(exclude={"loaded": {"__all__": {"instances"}}}),
        INSTANCES: json.dumps(instances),
    }


def read(item: Object) -> LoaderReport:
    """The report that a Lease holds.

    Raises:
        ValueError: it holds none.
    """
    annotations = item["metadata"].get("annotations") or {}
    report = LoaderReport.model_validate_json(annotations.get(ANNOTATION, ""))
    instances = _INSTANCES.validate_json(annotations.get(INSTANCES, "{}"))
    loaded = tuple(
        model.model_copy(update={"instances": instances.get(model.ref.package, model.instances)})
        for model in report.loaded
    )
    return report.model_copy(update={"loaded": loaded})
