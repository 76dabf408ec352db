"""Endpoints as custom resources: read from a watch, written only against the version that was read.

The ``EndpointStore`` of the controller, the loader and the command line in a cluster. Kubernetes
keeps a resource's status apart from the rest, so that a write that changes both is two: the status
first, for an answered command must be on record before it is taken away. Both carry the
resourceVersion that was read; two controllers at once can't undo one another's writes.

A write begins with the resource as the watch gave it, if that is of the revision that was read,
and with one read from the API server otherwise. Either way the API server compares revisions, and
refuses a write against an old one.
"""

import json
import logging
import time
from collections.abc import Callable

from contracts.endpoint import EndpointStatus, ModelEndpoint
from registry.errors import EndpointConflictError, EndpointUnreadableError
from registry.stores.cluster_events import KubernetesEvents
from registry.stores.cluster_shown import conditions, make_columns, note_refusal
from service.cluster import endpoints
from service.cluster.client import ClusterClient
from service.cluster.collection import Object
from service.cluster.errors import (
    ApiUnavailableError,
    ConflictError,
    KubernetesError,
    MissingError,
)
from service.cluster.mirror import CollectionMirror
from service.cluster.watch import WatchPace

log = logging.getLogger(__name__)

_FIRST_LIST_SECONDS = 5.0


class KubernetesEndpointStore:
    """The endpoints of one namespace. Threads may share it.

    With ``dry_run`` the API server checks what is written, and stores nothing.
    """

    def __init__(
        self,
        client: ClusterClient,
        namespace: str,
        *,
        pace: WatchPace | None = None,
        now: Callable[[], float] = time.time,
        dry_run: bool = False,
    ) -> None:
        self.unreadable: frozenset[str] = frozenset()
        self._client = client
        self._collection = endpoints.collection(namespace)
        self._mirror = CollectionMirror(client, self._collection, endpoints.read, pace)
        self._watching = False
        self._events = KubernetesEvents(client, namespace)
        self._now = now
        self._options: dict[str, object] = {"dry_run": "All"} if dry_run else {}

    def start(self) -> None:
        """Begins to watch; ``close`` ends it. Without, each ``list`` asks the API server."""
        self._watching = True
        self._mirror.start()
        self._events.start()

    def close(self) -> None:
        """Stops watching."""
        self._mirror.close()
        self._events.close()

    def list(self) -> tuple[ModelEndpoint, ...]:
        """Every endpoint as the watch knows it, which goes on through an outage."""
        if not self._watching:
            return self._list_now()
        if not self._mirror.wait(_FIRST_LIST_SECONDS):
            raise ApiUnavailableError("the endpoints could not be listed yet")
        self.unreadable = self._mirror.unreadable
        return self._mirror.values()

    def get(self, name: str) -> ModelEndpoint | None:
        """One endpoint, read now; see the Protocol."""
        try:
            item = self._client.get(self._collection, name)
        except MissingError:
            return None
        try:
            return endpoints.read(item)
        except ValueError as error:
            raise EndpointUnreadableError(f"the ModelEndpoint {name}: {error}") from error

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """Writes against the revision that was read; see the Protocol."""
        try:
            item, before = self._before(endpoint)
            if endpoint.status != before.status:
                item = self._put_status(item, endpoint.status)
                self._learn(item)
                self._events.create(item, before.status, endpoint.status)
            if _differs_beside_status(endpoint, before):
                item = self._put_rest(item, endpoint)
                self._learn(item)
        except (ConflictError, MissingError) as error:
            raise EndpointConflictError(f"endpoint {endpoint.name}: {error}") from error
        return endpoints.read(item)

    def delete(self, name: str) -> None:
        """Removes the endpoint's resource."""
        try:
            self._client.delete(self._collection, name)
        except MissingError:
            return

    def tell_refused(self) -> None:
        """Has each resource that can't be read say why, in its condition ``Accepted``.

        The schema of the definition lets through what the models don't. Nothing else of the
        status changes: the last good state goes on.
        """
        for item, reason in self._mirror.list_refused():
            status, metadata = item.get("status") or {}, item["metadata"]
            before = status.get("conditions") or []
            generation = int(metadata.get("generation", 0))
            refusal = note_refusal(reason, before, generation, self._now())
            if refusal in before:
                continue
            others = [each for each in before if each.get("type") != refusal["type"]]
            changed = {**item, "status": {**status, "conditions": [*others, refusal]}}
            try:
                done = self._client.replace_status(self._collection, metadata["name"], changed)
            except (ConflictError, MissingError):
                continue  # it was changed or deleted meanwhile; the next pass looks again
            except KubernetesError as error:
                log.warning("the ModelEndpoint %s can't say why: %s", metadata["name"], error)
                continue
            self._mirror.learn(done)

    def _list_now(self) -> tuple[ModelEndpoint, ...]:
        items, _ = self._client.list(self._collection)
        found: dict[str, ModelEndpoint | None] = {}
        for item in items:
            name = item["metadata"]["name"]
            try:
                found[name] = endpoints.read(item)
            except ValueError as error:
                log.warning("the ModelEndpoint %s can't be read: %s", name, error)
                found[name] = None
        self.unreadable = frozenset(name for name, value in found.items() if value is None)
        return tuple(value for _, value in sorted(found.items()) if value is not None)

    def _before(self, endpoint: ModelEndpoint) -> tuple[Object, ModelEndpoint]:
        """The resource at the revision that was read, and the endpoint that it holds.

        The watch's is as good as one read now: nothing is written unless it is still the newest.
        If there is nothing to write, only the API server can tell whether it is.
        """
        item = self._mirror.item(endpoint.name, endpoint.metadata.revision)
        if item is not None:
            before = endpoints.read(item)
            if endpoint.status != before.status or _differs_beside_status(endpoint, before):
                return item, before
        item = self._store(endpoint)
        return item, endpoints.read(item)

    def _store(self, endpoint: ModelEndpoint) -> Object:
        """The resource as it is, of just the revision that was read; made if there is none."""
        revision = endpoint.metadata.revision
        if not revision:
            item = self._client.create(self._collection, _new(endpoint), **self._options)
            self._learn(item)
            return item
        item = self._client.get(self._collection, endpoint.name)
        stored = item["metadata"]["resourceVersion"]
        if stored != revision:
            raise ConflictError(f"it is at revision {stored}, not {revision}", 409)
        return item

    def _learn(self, item: Object) -> None:
        # What a dry run answers is not stored, and of a create it has no revision.
        if not self._options:
            self._mirror.learn(item)

    def _put_status(self, item: Object, status: EndpointStatus) -> Object:
        before = (item.get("status") or {}).get("conditions") or ()
        generation = int(item["metadata"].get("generation", 0))
        written = {
            **json.loads(status.model_dump_json(by_alias=True)),  # as files hold it
            "observedGeneration": generation,
            "shown": make_columns(status),
            "conditions": conditions(status, before, generation, self._now()),
        }
        name = item["metadata"]["name"]
        return self._client.replace_status(self._collection, name, {**item, "status": written})

    def _put_rest(self, item: Object, endpoint: ModelEndpoint) -> Object:
        changed = {
            **item,
            "metadata": {**item["metadata"], "annotations": endpoint.metadata.annotations},
        }
        if endpoint.spec != endpoints.read(item).spec:
            changed["spec"] = endpoint.spec.model_dump(mode="json", by_alias=True)
        return self._client.replace(self._collection, endpoint.name, changed, **self._options)


def _differs_beside_status(endpoint: ModelEndpoint, before: ModelEndpoint) -> bool:
    wanted = endpoint.spec, endpoint.metadata.annotations
    return wanted != (before.spec, before.metadata.annotations)


def _new(endpoint: ModelEndpoint) -> Object:
    """The resource of an endpoint that is not stored yet; defaults are the API server's to fill."""
    return {
        "apiVersion": endpoint.api_version,
        "kind": endpoint.kind,
        "metadata": {"name": endpoint.name, "annotations": endpoint.metadata.annotations},
        "spec": endpoint.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }
