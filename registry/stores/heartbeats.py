"""The controller's heartbeat where others find it: one file, or one Lease."""

import logging
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from contracts.controller import BEAT_FOLDER, BEAT_SECONDS, ControllerBeat
from service import durable
from service.cluster import leases
from service.cluster.client import ClusterClient
from service.cluster.errors import MissingError
from service.cluster.leases import Owner

log = logging.getLogger(__name__)

_FILE = "beat.json"


class Heartbeats(Protocol):
    """Where the heartbeat lies."""

    def put(self, beat: ControllerBeat) -> None:
        """Replaces it.

        Raises:
            OSError: it can't be written.
        """

    def get(self) -> ControllerBeat | None:
        """The last one; None if there is none.

        Raises:
            OSError: it can't be read, so that nobody knows whose it is.
        """


def show_beat(store: Heartbeats) -> ControllerBeat | None:
    """The last heartbeat for people: one that can't be read is logged, and is none."""
    try:
        return store.get()
    except OSError as error:
        log.warning("the controller's heartbeat can't be read: %s", error)
        return None


class FileHeartbeats:
    """One file beside the endpoints, ``<endpoints>/.controller/beat.json``."""

    def __init__(self, endpoints: Path) -> None:
        self._path = endpoints / BEAT_FOLDER / _FILE

    def put(self, beat: ControllerBeat) -> None:
        """Replaces it; see the Protocol."""
        # Not the endpoints' folder: one that is away must not come back empty.
        self._path.parent.mkdir(exist_ok=True)
        durable.write(self._path, beat.model_dump_json().encode() + b"\n")

    def get(self) -> ControllerBeat | None:
        """The last one; see the Protocol."""
        try:
            return ControllerBeat.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            log.warning("%s holds no heartbeat: %s", self._path, error)
            return None


class KubernetesHeartbeats:
    """The heartbeat in one namespace; with an ``owner``, it is collected with that pod."""

    def __init__(
        self, client: ClusterClient, namespace: str, *, owner: Owner | None = None
    ) -> None:
        self._client = client
        self._owner = owner
        self._collection = leases.beats(namespace)

    def put(self, beat: ControllerBeat) -> None:
        """Replaces it."""
        lease = leases.build_lease(
            leases.BEAT_NAME,
            {leases.BEAT: leases.BEAT_LABEL},
            {leases.BEAT: beat.model_dump_json()},
            holder=beat.instance,
            seconds=round(3 * BEAT_SECONDS),
            at=beat.at,
        )
        if self._owner is not None:
            lease["metadata"]["ownerReferences"] = self._owner.references()
        self._client.put(self._collection, lease)

    def get(self) -> ControllerBeat | None:
        """The last one; see the Protocol."""
        try:
            return leases.read_beat(self._client.get(self._collection, leases.BEAT_NAME))
        except MissingError:
            return None
        except ValueError as error:
            log.warning("the Lease %s holds no heartbeat: %s", leases.BEAT_NAME, error)
            return None
