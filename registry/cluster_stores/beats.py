"""The controller's sign of life as a Lease: light, made for this, and watched by gateways alone."""

import logging

from contracts.controller import BEAT_SECONDS, ControllerBeat
from service.cluster import leases
from service.cluster.client import ClusterClient
from service.cluster.errors import KubernetesError, MissingError

log = logging.getLogger(__name__)


class KubernetesBeats:
    """The sign of life in one namespace.

    Args:
        client: the API server.
        namespace: of the endpoints that the controller looks after.
    """

    def __init__(self, client: ClusterClient, namespace: str) -> None:
        self._client = client
        self._collection = leases.beats(namespace)

    def put(self, beat: ControllerBeat) -> None:
        """Replaces it.

        Raises:
            KubernetesError: it can't be written.
        """
        lease = leases.written(
            leases.BEAT_NAME,
            {leases.BEAT: leases.BEAT_LABEL},
            {leases.BEAT: beat.model_dump_json()},
            holder=beat.instance,
            seconds=round(3 * BEAT_SECONDS),
            at=beat.at,
        )
        self._client.put(self._collection, lease)

    def get(self) -> ControllerBeat | None:
        """The last one; None where there is none, or it can't be read now."""
        try:
            return leases.read_beat(self._client.get(self._collection, leases.BEAT_NAME))
        except MissingError:
            return None
        except (KubernetesError, ValueError) as error:
            log.warning("the controller's sign of life can't be read: %s", error)
            return None
