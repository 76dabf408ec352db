"""Where a gateway reads endpoints, loaders' reports and the controller's heartbeat.

They lie in folders of JSON files (the local stack) or in a Kubernetes cluster, as the settings say.
A source yields nothing before it was read completely once, because a gateway that does not know
what to serve is not ready. From then on, a source that can't be reached changes nothing: the last
objects stay, and so does the last good object of a file that can't be read. Sources never write.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from contracts.controller import BEAT_FOLDER, ControllerBeat
from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from gateway.settings import Settings
from gateway.state import pod_reader
from gateway.state.kept import Keeper
from service import json_files
from service.cluster import access, endpoints, leases
from service.cluster.collection import Reader
from service.cluster.mirror import CollectionMirror
from service.cluster.reports import ReportMirror
from service.json_files import Stamp

log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)

POLL_SECONDS = 0.25
_BEAT_POLL_SECONDS = 1.0
_KEPT_FILE = "last-told.json"


@dataclass(frozen=True, slots=True)
class _FileState(Generic[M]):
    stamp: Stamp
    value: M | None  # None: never read whole


class FolderSource(Generic[M]):
    """Objects of one type, from the ``*.json`` files of one folder.

    ``folder`` need not exist yet.
    """

    def __init__(self, folder: Path, kind: type[M], poll_seconds: float = POLL_SECONDS) -> None:
        self._folder = folder
        self._kind = kind
        self._poll_seconds = poll_seconds
        self._seen: dict[str, _FileState[M]] = {}
        self._away = False
        self._listed = False  # at least once

    async def watch(self) -> AsyncGenerator[tuple[M, ...], None]:
        """See ``Source.watch``; objects come in the order of their file names."""
        yielded = False
        while True:
            changed = await asyncio.to_thread(self.look)
            if changed or (self._listed and not yielded):
                yielded = True
                yield self.objects()
            await asyncio.sleep(self._poll_seconds)

    def objects(self) -> tuple[M, ...]:
        """The last good object of every file."""
        seen = sorted(self._seen.items())
        return tuple(entry.value for _, entry in seen if entry.value is not None)

    def look(self) -> bool:
        """Reads changed files. True if any object changed, came or went. Blocks on the disk."""
        try:
            stamps = json_files.stamps(self._folder)
        except OSError as error:
            if not self._away:
                log.warning("folder is not there", extra={"reason": str(error)})
            self._away = True
            return False
        self._away, self._listed = False, True
        gone = self._seen.keys() - stamps.keys()
        for name in gone:
            del self._seen[name]
        changed = bool(gone)
        for name, stamp in stamps.items():
            old = self._seen.get(name)
            if old is None or old.stamp != stamp:
                changed |= self._read(name, stamp, old)
        return changed

    def _read(self, name: str, stamp: Stamp, old: _FileState[M] | None) -> bool:
        last = old.value if old is not None else None
        try:
            value = self._kind.model_validate_json((self._folder / name).read_bytes())
        except (OSError, ValidationError) as error:
            log.warning(
                "file can't be read; its last good object stays",
                extra={"file": name, "reason": str(error)},
            )
            self._seen[name] = _FileState(stamp, last)
            return False
        self._seen[name] = _FileState(stamp, value)
        return value != last


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of a cluster, to be read."""

    reader: Reader
    name: str


def open_namespace(
    flag: str, environment: Mapping[str, str], *, account: Path = access.ACCOUNT
) -> Namespace:
    """The namespace that a flag names; without a name, this process's own.

    In a pod a reader of our own spares the official client's memory and start
    (docs/decisions/0017-kubernetes-edges.md has the figures). A kubeconfig needs the official one.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if access.in_pod(environment):
        reader = pod_reader.connected(environment, account=account)
        return Namespace(reader, access.namespace_of(flag) or access.own_namespace(account))
    found = access.open_namespace(flag, environment)
    return Namespace(found.client, found.name)


class ObjectMirror(Protocol[T_co]):
    """A mirror of objects in a cluster; ``service.cluster.mirror.CollectionMirror`` is one."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Has a function called after each change, from a thread."""

    def values(self) -> tuple[T_co, ...]:
        """The last good objects."""

    def start(self) -> None:
        """Begins to watch; ``close`` ends it."""

    def close(self) -> None:
        """Stops; what was known stays."""


class ClusterSource(Generic[T]):
    """The objects of a cluster, as a mirror holds them, for one event loop."""

    def __init__(self, mirror: ObjectMirror[T]) -> None:
        self._mirror = mirror

    async def watch(self) -> AsyncGenerator[tuple[T, ...], None]:
        """See ``Source.watch``; objects come in the order of their names."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(changed.set)

        self._mirror.listen(tell)
        self._mirror.start()
        try:
            while True:
                await changed.wait()
                changed.clear()
                yield self._mirror.values()
        finally:
            await asyncio.to_thread(self._mirror.close)


class Source(Protocol[T_co]):
    """All objects of one type, whenever they change."""

    def watch(self) -> AsyncIterator[tuple[T_co, ...]]:
        """The whole set: at once, then whenever it has changed. Never ends, never raises."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a gateway, and the file that keeps their last objects.

    ``keeper``: None if the endpoints are on this machine's disk.
    """

    endpoints: Source[ModelEndpoint]
    reports: Source[LoaderReport]
    beats: Source[ControllerBeat]
    keeper: Keeper | None = None


def open_sources(settings: Settings, environment: Mapping[str, str]) -> Sources:
    """Opens all sources of a gateway; raises ``AccessError``."""
    keeper = None
    if access.in_cluster(settings.endpoints):
        keeper = Keeper(settings.cache_folder / _KEPT_FILE, settings.endpoints)
    return Sources(
        endpoints=endpoint_source(settings, environment),
        reports=report_source(settings, environment),
        beats=beat_source(settings, environment),
        keeper=keeper,
    )


def endpoint_source(settings: Settings, environment: Mapping[str, str]) -> Source[ModelEndpoint]:
    """Where endpoints come from; raises ``AccessError``."""
    if not access.in_cluster(settings.endpoints):
        return FolderSource(settings.endpoints_folder, ModelEndpoint)
    found = open_namespace(settings.endpoints, environment)
    return ClusterSource(
        CollectionMirror(found.reader, endpoints.collection(found.name), endpoints.read)
    )


def report_source(settings: Settings, environment: Mapping[str, str]) -> Source[LoaderReport]:
    """Where loaders' reports come from; in a cluster, the namespace of the endpoints.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    flag = settings.reports
    if not flag and access.in_cluster(settings.endpoints):
        flag = settings.endpoints
    if not access.in_cluster(flag):
        return FolderSource(settings.reports_folder, LoaderReport)
    found = open_namespace(flag, environment)
    return ClusterSource(ReportMirror(found.reader, found.name))


def beat_source(settings: Settings, environment: Mapping[str, str]) -> Source[ControllerBeat]:
    """Where the controller's heartbeat comes from: the same place as the endpoints.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(settings.endpoints):
        folder = settings.endpoints_folder / BEAT_FOLDER
        return FolderSource(folder, ControllerBeat, poll_seconds=_BEAT_POLL_SECONDS)
    found = open_namespace(settings.endpoints, environment)
    return ClusterSource(CollectionMirror(found.reader, leases.beats(found.name), leases.read_beat))
