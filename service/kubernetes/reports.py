"""How a loader's report lies in a cluster: in an annotation of a Lease of its own.

Written by loaders (``registry/kubernetes/reports.py``), read by the controller and gateways. Pure.
"""

from contracts.loading import LoaderReport
from service.kubernetes.client import Object
from service.kubernetes.collection import Collection

VERSION = "coordination.k8s.io/v1"
LABEL = "headrace.dev/report"
LABEL_VALUE = "loader"
ANNOTATION = "headrace.dev/report"
PREFIX = "headrace-loader-"


def collection(namespace: str) -> Collection:
    """The Leases of a namespace that hold reports."""
    return Collection(VERSION, "leases", namespace, f"{LABEL}={LABEL_VALUE}")


def read(item: Object) -> LoaderReport:
    """The report that a Lease holds.

    Raises:
        ValueError: it holds none.
    """
    annotations = item["metadata"].get("annotations") or {}
    return LoaderReport.model_validate_json(annotations.get(ANNOTATION, ""))
