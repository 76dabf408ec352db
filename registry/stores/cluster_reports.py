"""Loaders' reports as Leases: light, made for heartbeats, and gone with the pod that owns them.

The ``Reports`` of the loader and the controller in a cluster (``docs/decisions/`` says why not an
annotation of the pod). A loader writes its own Lease alone, so that nothing it writes can conflict.
"""

import logging
import threading
from dataclasses import dataclass

from contracts.loading import LoaderReport
from service.cluster import leases
from service.cluster.client import ClusterClient
from service.cluster.collection import Object
from service.cluster.errors import ApiUnavailableError, KubernetesError, MissingError
from service.cluster.mirror import Mirror
from service.cluster.watch import WatchPace

log = logging.getLogger(__name__)

_FIRST_LIST_SECONDS = 5.0
_LEASE_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Owner:
    """The pod that a process runs in; what it makes is collected with it."""

    pod: str
    uid: str

    def references(self) -> list[Object]:
        """``metadata.ownerReferences`` of what the pod makes."""
        return [{"apiVersion": "v1", "kind": "Pod", "name": self.pod, "uid": self.uid}]


class KubernetesReports:
    """The reports of one namespace.

    Without an ``owner`` it only reads.
    """

    def __init__(
        self,
        client: ClusterClient,
        namespace: str,
        *,
        owner: Owner | None = None,
        pace: WatchPace | None = None,
    ) -> None:
        self._client = client
        self._collection = leases.reports(namespace)
        self._mirror = Mirror(client, self._collection, leases.read_report, pace)
        self._owner = owner
        self._lock = threading.Lock()  # of the next
        self._watching = False

    def close(self) -> None:
        """Stops watching."""
        self._mirror.close()

    def list(self) -> tuple[LoaderReport, ...]:
        """The last report of every loader; the first call begins to watch them."""
        with self._lock:
            if not self._watching:
                self._mirror.start()
                self._watching = True
        if not self._mirror.wait(_FIRST_LIST_SECONDS):
            raise ApiUnavailableError("the loaders' reports could not be listed yet")
        return self._mirror.values()

    @property
    def disconnected(self) -> bool:
        """Whether the API server is away."""
        return self._mirror.disconnected

    def get(self, loader: str) -> LoaderReport | None:
        """One loader's last report, read now; None where it can't be had."""
        try:
            return leases.read_report(self._client.get(self._collection, _name(loader)))
        except MissingError:
            return None
        except (KubernetesError, ValueError) as error:
            log.warning("the report of %s can't be read: %s", loader, error)
            return None

    def put(self, report: LoaderReport) -> None:
        """Replaces the loader's report."""
        lease = leases.written(
            _name(report.loader),
            {leases.REPORT: leases.REPORT_LABEL},
            leases.written_report(report),
            holder=report.loader,
            seconds=_LEASE_SECONDS,
            at=report.at,
        )
        if self._owner is not None:
            lease["metadata"]["ownerReferences"] = self._owner.references()
        self._client.put(self._collection, lease)

    def leave(self, loader: str) -> None:
        """Takes the report away: this loader goes, and the Triton beside it goes as well."""
        try:
            self._client.delete(self._collection, _name(loader))
        except MissingError:
            return


def _name(loader: str) -> str:
    return f"{leases.REPORT_PREFIX}{loader}"
