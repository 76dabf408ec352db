"""How signs of life lie in a cluster: in annotations of Leases. Pure.

The controller's sign of life has one Lease for the namespace; what loaders report is in
``reports.py``.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from contracts.controller import ControllerBeat
from service.cluster.collection import Collection, Object

VERSION = "coordination.k8s.io/v1"

BEAT = "headrace.dev/beat"  # a label of the Lease, and the annotation that holds the sign
BEAT_LABEL = "controller"
BEAT_NAME = "headrace-controller"


@dataclass(frozen=True, slots=True)
class Owner:
    """The pod that a process runs in; what it makes is collected with it."""

    pod: str
    uid: str

    def references(self) -> list[Object]:
        """``metadata.ownerReferences`` of what the pod makes."""
        return [{"apiVersion": "v1", "kind": "Pod", "name": self.pod, "uid": self.uid}]


def beats(namespace: str) -> Collection:
    """The Leases of a namespace that hold the controller's sign of life; there is one at most."""
    return Collection(VERSION, "leases", namespace, f"{BEAT}={BEAT_LABEL}")


def build_lease(
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


def read_beat(item: Object) -> ControllerBeat:
    """The controller's sign of life that a Lease holds; raises ``ValueError``."""
    annotations = item["metadata"].get("annotations") or {}
    return ControllerBeat.model_validate_json(annotations.get(BEAT, ""))
