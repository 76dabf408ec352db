"""Loaders' reports as Leases: light, made for heartbeats, and gone with the pod that owns them.

The ``Reports`` of the loader and the controller in a cluster (``docs/decisions/`` says why not an
annotation of the pod). A loader writes its own Leases alone, so that nothing it writes can
conflict. ``service/cluster/reports.py`` says what lies in which.
"""

import logging
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, field

from contracts.loading import LoaderReport
from registry import metrics
from service.cluster import reports
from service.cluster.client import ClusterClient
from service.cluster.collection import Object
from service.cluster.errors import (
    ApiUnavailableError,
    ConflictError,
    KubernetesError,
    MissingError,
)
from service.cluster.leases import Owner
from service.cluster.watch import WatchPace

log = logging.getLogger(__name__)

_FIRST_LIST_SECONDS = 5.0


@dataclass(slots=True)
class _Parts:
    """Names of a report's parts: those that are stored, and those that a try may have stored."""

    stored: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)


class KubernetesReports:
    """The reports of one namespace.

    Without an ``owner`` it only reads. Without ``costs``, ``list`` need not tell what batches cost.
    """

    def __init__(
        self,
        client: ClusterClient,
        namespace: str,
        *,
        owner: Owner | None = None,
        pace: WatchPace | None = None,
        costs: bool = True,
    ) -> None:
        self._client = client
        self._collection = reports.collection(namespace)
        self._mirror = reports.ReportMirror(client, namespace, pace, heartbeats=True, costs=costs)
        self._owner = owner
        self._instance = uuid.uuid4().hex
        self._parts: dict[str, _Parts] = {}  # by loader
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
        """One loader's last report, read now, without heartbeats; None if it can't be had."""
        try:
            name = f"{reports.REPORT_PREFIX}{loader}"
            found = reports.read_report(self._client.get(self._collection, name))
            parts = {}
            for name in found.parts:
                with suppress(MissingError):
                    parts[name] = reports.read_part(self._client.get(self._collection, name))
            self._parts[loader] = _Parts(set(parts))
        except MissingError:
            return None
        except (KubernetesError, ValueError) as error:
            log.warning("the report of %s can't be read: %s", loader, error)
            return None
        return reports.join_parts(found, parts)

    def put(self, report: LoaderReport) -> None:
        """Replaces the loader's report; the parts that it has already are not written again."""
        written = reports.leases(
            report, self._instance, self._owner.uid if self._owner is not None else ""
        )
        known = self._parts.setdefault(report.loader, _Parts())
        for name in written.parts.keys() - known.stored:
            known.tried.add(name)
            with suppress(ConflictError):  # an earlier try made it
                self._client.create(self._collection, self._set_owner(written.parts[name]))
            known.stored.add(name)
        self._client.put(self._collection, self._set_owner(written.report))
        metrics.REPORT_BYTES.set(written.bytes)
        for name in (known.stored | known.tried) - written.parts.keys():
            self._remove(name)
            known.stored.discard(name)
            known.tried.discard(name)

    def beat(self, report: LoaderReport) -> None:
        """Writes a heartbeat."""
        self._client.put(
            self._collection, self._set_owner(reports.heartbeat(report, self._instance))
        )

    def leave(self, loader: str) -> None:
        """Takes the report away: this loader goes, and the Triton beside it goes as well."""
        self._remove(f"{reports.REPORT_PREFIX}{loader}")
        self._remove(f"{reports.HEARTBEAT_PREFIX}{loader}")
        known = self._parts.pop(loader, _Parts())
        for name in known.stored | known.tried:
            self._remove(name)

    def _set_owner(self, lease: Object) -> Object:
        if self._owner is None:
            return lease
        metadata = {**lease["metadata"], "ownerReferences": self._owner.references()}
        return {**lease, "metadata": metadata}

    def _remove(self, name: str) -> None:
        with suppress(MissingError):
            self._client.delete(self._collection, name)
