"""The controller's sign of life as a Lease: light, made for this, and watched by gateways alone."""

import logging

from contracts.controller import BEAT_SECONDS, ControllerBeat
from registry.cluster_stores.shown import moment
from service.cluster import beats
from service.cluster.client import KubernetesClient, Object
from service.cluster.errors import KubernetesError, MissingError

log = logging.getLogger(__name__)

_MERGE = "application/merge-patch+json"


class KubernetesBeats:
    """The sign of life in one namespace.

    Args:
        client: the API server.
        namespace: of the endpoints that the controller looks after.
    """

    def __init__(self, client: KubernetesClient, namespace: str) -> None:
        self._client = client
        self._collection = beats.collection(namespace)

    def put(self, beat: ControllerBeat) -> None:
        """Replaces it.

        Raises:
            KubernetesError: it can't be written.
        """
        lease = _lease(beat)
        one = self._collection.one(beats.NAME)
        try:
            self._client.call("PATCH", one, lease, content_type=_MERGE)
        except MissingError:
            self._client.call("POST", self._collection.path, lease)

    def get(self) -> ControllerBeat | None:
        """The last one; None where there is none, or it can't be read now."""
        try:
            return beats.read(self._client.call("GET", self._collection.one(beats.NAME)))
        except MissingError:
            return None
        except (KubernetesError, ValueError) as error:
            log.warning("the controller's sign of life can't be read: %s", error)
            return None


def _lease(beat: ControllerBeat) -> Object:
    return {
        "apiVersion": beats.VERSION,
        "kind": "Lease",
        "metadata": {
            "name": beats.NAME,
            "labels": {beats.LABEL: beats.LABEL_VALUE},
            "annotations": {beats.ANNOTATION: beat.model_dump_json()},
        },
        "spec": {
            "holderIdentity": beat.instance,
            "leaseDurationSeconds": round(3 * BEAT_SECONDS),
            "renewTime": f"{moment(beat.at)[:-1]}.000000Z",
        },
    }
