"""How the controller's sign of life lies in a cluster: in an annotation of a Lease. Pure."""

from contracts.controller import ControllerBeat
from service.cluster.client import Object
from service.cluster.collection import Collection

VERSION = "coordination.k8s.io/v1"
LABEL = "headrace.dev/beat"
LABEL_VALUE = "controller"
ANNOTATION = "headrace.dev/beat"
NAME = "headrace-controller"


def collection(namespace: str) -> Collection:
    """The Leases of a namespace that hold signs of life; there is one at most."""
    return Collection(VERSION, "leases", namespace, f"{LABEL}={LABEL_VALUE}")


def read(item: Object) -> ControllerBeat:
    """The sign of life that a Lease holds.

    Raises:
        ValueError: it holds none.
    """
    annotations = item["metadata"].get("annotations") or {}
    return ControllerBeat.model_validate_json(annotations.get(ANNOTATION, ""))
