"""Counts the gateways, which share the rate limits of API keys.

In a cluster these are the ready pods of the gateways' Service, from its EndpointSlices. On one
machine they are the files in a folder, one of each gateway, which touches it every two seconds.
While a source can't be reached, the last number is used. Gateways never ask each other.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Protocol

from gateway.settings import Settings
from gateway.state.sources import ClusterSource, open_namespace
from service.cluster import access
from service.cluster.collection import Collection, Object
from service.cluster.errors import AccessError
from service.cluster.mirror import CollectionMirror

log = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
# A gateway that was killed is counted for so long; one that stops removes its file.
LIVE_SECONDS = 5 * BEAT_SECONDS
_FORGOTTEN_SECONDS = 600.0
_SUFFIX = ".beat"
SERVICE = "kubernetes.io/service-name"  # a label of EndpointSlices


class PeerSource(Protocol):
    """The number of gateways, whenever it changes."""

    def watch(self) -> AsyncGenerator[int, None]:
        """How many there are, this one among them: when known, then whenever it has changed."""


class HeartbeatFolder:
    """Gateways of one machine, by the files that they touch."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._mine = folder / f"{name}{_SUFFIX}"
        self._clock = clock
        self._count = 1
        self._away = False

    async def watch(self) -> AsyncGenerator[int, None]:
        """See ``PeerSource``; touches the file while it is watched, and removes it afterwards."""
        last_count = 0
        try:
            while True:
                count = await asyncio.to_thread(self.beat)
                if count != last_count:
                    last_count = count
                    yield count
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            self.leave()

    def beat(self) -> int:
        """Touches this gateway's file and counts the live ones. Blocks on the disk."""
        now = self._clock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._mine.touch()
            self._count = self._live(now)
        except OSError as error:
            if not self._away:
                log.warning("gateways can't be counted", extra={"reason": str(error)})
            self._away = True
            return self._count
        self._away = False
        return self._count

    def leave(self) -> None:
        """Removes this gateway's file."""
        with suppress(OSError):
            self._mine.unlink(missing_ok=True)

    def _live(self, now: float) -> int:
        live = 1
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path == self._mine:
                continue
            with suppress(FileNotFoundError):  # it has just left
                age = now - path.stat().st_mtime
                live += age < LIVE_SECONDS
                if age > _FORGOTTEN_SECONDS:
                    path.unlink()
        return live


class ReadyPods:
    """The ready pods of the gateways' Service."""

    def __init__(self, pods: ClusterSource[frozenset[str]]) -> None:
        self._pods = pods

    async def watch(self) -> AsyncGenerator[int, None]:
        """See ``PeerSource``; a gateway that is not ready itself is not counted."""
        last_count = 0
        async with aclosing(self._pods.watch()) as watch:
            async for found in watch:
                count = max(1, len(frozenset().union(*found)))
                if count != last_count:
                    last_count = count
                    yield count


def peer_source(settings: Settings, environment: Mapping[str, str], own_name: str) -> PeerSource:
    """Where the number of gateways comes from.

    Raises:
        AccessError: no API server is known, how to sign in, or which Service.
    """
    flag = settings.peers
    if not access.in_cluster(flag):
        return HeartbeatFolder(settings.peers_folder, own_name)
    name, _, service = access.namespace_of(flag).partition("/")
    if not service:
        raise AccessError(f"--peers={flag} names no Service: kubernetes://NAMESPACE/SERVICE")
    found = open_namespace(access.SCHEME + name, environment)
    return ReadyPods(
        ClusterSource(CollectionMirror(found.reader, slices(found.name, service), ready_pods))
    )


def slices(namespace: str, service: str) -> Collection:
    """The EndpointSlices of one Service: one for each family of addresses, more for many pods."""
    return Collection("discovery.k8s.io/v1", "endpointslices", namespace, f"{SERVICE}={service}")


def ready_pods(item: Object) -> frozenset[str]:
    """The ready pods of an EndpointSlice, each by an id that is the same in every slice.

    Raises:
        ValueError: the object is no EndpointSlice.
    """
    try:
        return frozenset(
            (each.get("targetRef") or {}).get("uid") or each["addresses"][0]
            for each in item.get("endpoints") or []
            # A missing condition means ready, by the API's specification.
            if (each.get("conditions") or {}).get("ready") is not False
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no EndpointSlice: {error!r}") from error


async def follow(source: PeerSource, share: Callable[[int], None]) -> None:
    """Calls ``share`` with each new number of gateways, until it is cancelled."""
    async with aclosing(source.watch()) as watch:
        async for count in watch:
            log.info("gateways share the rates of keys", extra={"gateways": count})
            share(count)
