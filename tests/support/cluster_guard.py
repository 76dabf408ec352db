"""One run of the cluster's tests at a time on a cluster: they share its definitions and names.

Two runs at once would end one another: each removes the definition of endpoints, and the namespace
of an earlier run. So a run holds a Lease in the namespace ``default`` until it ends, and renews it.
One that was killed renews it no more, and the next run takes it over after a minute.
"""

import atexit
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from service.cluster import access, leases
from service.cluster.client import ClusterClient
from service.cluster.collection import Collection, Object
from service.cluster.errors import ConflictError, KubernetesError, MissingError

NAMESPACE, NAME = "default", "headrace-tests"
LEASES = Collection(leases.VERSION, "leases", NAMESPACE)
RENEW_SECONDS = 10.0
STALE_SECONDS = 60.0


class ClusterTakenError(AssertionError):
    """Another run uses the cluster; the message says whose."""


class Guard:
    """The Lease of one run.

    Args:
        client: of the cluster.
        holder: who runs, as others are told.
        pause: waits for so many seconds, between two looks at another's Lease.
    """

    def __init__(
        self, client: ClusterClient, holder: str, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = client
        self._holder = holder
        self._pause = pause

    def take(self) -> None:
        """Takes the Lease, or that of a run that renews it no more.

        Raises:
            ClusterTakenError: another run goes on.
        """
        found = self._stored()
        if found is not None:
            self._watch(found)
            found = self._stored()
        try:
            if found is None:
                self._client.create(LEASES, self._lease())
            else:
                self._client.replace(LEASES, NAME, self._lease(_revision(found)))
        except ConflictError:
            raise ClusterTakenError(_taken(self._stored())) from None

    def renew(self) -> None:
        """Says that this run goes on; nothing where the Lease is another's by now."""
        found = self._stored()
        if found is not None and _holder(found) == self._holder:
            with suppress(ConflictError):
                self._client.replace(LEASES, NAME, self._lease(_revision(found)))

    def release(self) -> None:
        """Gives the Lease back; nothing where it is another's by now."""
        found = self._stored()
        if found is not None and _holder(found) == self._holder:
            with suppress(MissingError):
                self._client.delete(LEASES, NAME)

    def _watch(self, found: Object) -> None:
        """Returns once nobody has renewed a Lease for long enough."""
        for _ in range(round(STALE_SECONDS / RENEW_SECONDS)):
            self._pause(RENEW_SECONDS)
            now = self._stored()
            if now is None:
                return
            if _revision(now) != _revision(found):
                raise ClusterTakenError(_taken(now))

    def _stored(self) -> Object | None:
        try:
            return self._client.get(LEASES, NAME)
        except MissingError:
            return None

    def _lease(self, revision: str = "") -> Object:
        lease = leases.build_lease(
            NAME, {}, {}, holder=self._holder, seconds=round(STALE_SECONDS), at=time.time()
        )
        return {**lease, "metadata": {**lease["metadata"], "resourceVersion": revision}}


_lock = threading.Lock()
_held: list[Guard] = []


def take_cluster() -> None:
    """Takes the cluster that KUBECONFIG names for this process, until it ends.

    Raises:
        ClusterTakenError: another run of these tests uses it.
    """
    with _lock:
        if _held:
            return
        guard = Guard(access.connect(os.environ), f"{socket.gethostname()} process {os.getpid()}")
        guard.take()
        _held.append(guard)
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(guard, ended), daemon=True, name="guard")
    renewing.start()

    def release() -> None:
        ended.set()
        renewing.join(RENEW_SECONDS)
        with suppress(KubernetesError):
            guard.release()

    atexit.register(release)


def _renew(guard: Guard, ended: threading.Event) -> None:
    while not ended.wait(RENEW_SECONDS):
        with suppress(KubernetesError):  # a cluster that is away for a moment
            guard.renew()


def _revision(lease: Object) -> str:
    return str(lease["metadata"]["resourceVersion"])


def _holder(lease: Object) -> str:
    return str(lease["spec"].get("holderIdentity"))


def _taken(lease: Object | None) -> str:
    holder = "another" if lease is None else _holder(lease)
    return (
        f"These tests run on this cluster already ({holder}), and two runs at once would end one "
        f"another. Wait for it, or name another cluster in KUBECONFIG. Where no run is left: "
        f"kubectl -n {NAMESPACE} delete lease {NAME}"
    )
