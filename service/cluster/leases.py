"""How signs of life lie in a cluster: in annotations of Leases. Pure.

A loader's report has a Lease of its own; the controller's sign of life has one for the namespace.
"""

import json
from datetime import UTC, datetime

from pydantic import TypeAdapter

from contracts.controller import ControllerBeat
from contracts.loading import LoaderReport
from service.cluster.collection import Collection, Object

VERSION = "coordination.k8s.io/v1"

REPORT = "headrace.dev/report"  # a label of the Lease, and the annotation that holds the report
REPORT_LABEL = "loader"
REPORT_PREFIX = "headrace-loader-"
# Beside the report, whose readers of earlier releases refuse it with a field that they don't know:
# in an upgrade old gateways and new loaders run together.
INSTANCES, THREADS = "headrace.dev/instances", "headrace.dev/threads"
_BESIDE = {INSTANCES: "instances", THREADS: "threads"}

BEAT = "headrace.dev/beat"  # a label of the Lease, and the annotation that holds the sign
BEAT_LABEL = "controller"
BEAT_NAME = "headrace-controller"

_NUMBERS: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, int])  # by package


def reports(namespace: str) -> Collection:
    """The Leases of a namespace that hold reports."""
    return Collection(VERSION, "leases", namespace, f"{REPORT}={REPORT_LABEL}")


def beats(namespace: str) -> Collection:
    """The Leases of a namespace that hold the controller's sign of life; there is one at most."""
    return Collection(VERSION, "leases", namespace, f"{BEAT}={BEAT_LABEL}")


def written(
    name: str,
    labels: dict[str, str],
    annotations: dict[str, str],
    *,
    holder: str,
    seconds: int,
    at: float,
) -> Object:
    """A Lease."""
    # A time of Leases has microseconds, all six digits; an API server takes no other.
    renewed = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    return {
        "apiVersion": VERSION,
        "kind": "Lease",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "renewTime": renewed,
        },
    }


def written_report(report: LoaderReport) -> dict[str, str]:
    """The annotations that hold a report."""
    beside = {
        annotation: json.dumps(
            {model.ref.package: getattr(model, field) for model in report.loaded}
        )
        for annotation, field in _BESIDE.items()
    }
    left_out = {"loaded": {"__all__": set(_BESIDE.values())}}
    return {REPORT: report.model_dump_json(exclude=left_out), **beside}


def read_report(item: Object) -> LoaderReport:
    """The report that a Lease holds; raises ``ValueError``."""
    annotations = item["metadata"].get("annotations") or {}
    report = LoaderReport.model_validate_json(annotations.get(REPORT, ""))
    beside = {
        field: _NUMBERS.validate_json(annotations.get(annotation, "{}"))
        for annotation, field in _BESIDE.items()
    }
    loaded = tuple(
        model.model_copy(
            update={
                field: numbers[model.ref.package]
                for field, numbers in beside.items()
                if model.ref.package in numbers
            }
        )
        for model in report.loaded
    )
    return report.model_copy(update={"loaded": loaded})


def read_beat(item: Object) -> ControllerBeat:
    """The controller's sign of life that a Lease holds; raises ``ValueError``."""
    annotations = item["metadata"].get("annotations") or {}
    return ControllerBeat.model_validate_json(annotations.get(BEAT, ""))
