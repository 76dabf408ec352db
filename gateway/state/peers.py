"""Counts the gateways, which share the rate limits of API keys, and says which is the first.

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
from typing import NamedTuple, Protocol

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
_POD = "POD_NAME"  # a variable


class Peers(NamedTuple):
    """How many gateways there are, this one among them, and whether it is the first by name."""

    count: int
    leads: bool


class PeerSource(Protocol):
    """The gateways, whenever they change."""

    def watch(self) -> AsyncGenerator[Peers, None]:
        """What is known of them: when it is known, then whenever it has changed."""


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
        self._peers = Peers(1, leads=True)
        self._away = False

    async def watch(self) -> AsyncGenerator[Peers, None]:
        """See ``PeerSource``; touches the file while it is watched, and removes it afterwards."""
        last: Peers | None = None
        try:
            while True:
                peers = await asyncio.to_thread(self.beat)
                if peers != last:
                    last = peers
                    yield peers
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            self.leave()

    def beat(self) -> Peers:
        """Touches this gateway's file and counts the live ones. Blocks on the disk."""
        now = self._clock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._mine.touch()
            self._peers = self._live(now)
        except OSError as error:
            if not self._away:
                log.warning("gateways can't be counted", extra={"reason": str(error)})
            self._away = True
            return self._peers
        self._away = False
        return self._peers

    def leave(self) -> None:
        """Removes this gateway's file."""
        with suppress(OSError):
            self._mine.unlink(missing_ok=True)

    def _live(self, now: float) -> Peers:
        names = [self._mine.name]
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path == self._mine:
                continue
            with suppress(FileNotFoundError):  # it has just left
                age = now - path.stat().st_mtime
                if age < LIVE_SECONDS:
                    names.append(path.name)
                if age > _FORGOTTEN_SECONDS:
                    path.unlink()
        return Peers(len(names), min(names) == self._mine.name)


class ReadyPods:
    """The ready pods of the gateways' Service; ``own`` is the name of this one."""

    def __init__(self, pods: ClusterSource[frozenset[str]], own: str) -> None:
        self._pods = pods
        self._own = own

    async def watch(self) -> AsyncGenerator[Peers, None]:
        """See ``PeerSource``; a gateway that is not ready itself is not counted, nor the first."""
        last: Peers | None = None
        async with aclosing(self._pods.watch()) as watch:
            async for found in watch:
                names = frozenset[str]().union(*found)
                first = min(names, default=self._own)
                peers = Peers(max(1, len(names)), first == self._own)
                if peers != last:
                    last = peers
                    yield peers


def peer_source(settings: Settings, environment: Mapping[str, str], own_name: str) -> PeerSource:
    """Where the number of gateways comes from.

    Raises:
        AccessError: no API server is known, how to sign in, which Service, or which pod this is.
    """
    flag = settings.peers
    if not access.in_cluster(flag):
        return HeartbeatFolder(settings.peers_folder, own_name)
    name, _, service = access.namespace_of(flag).partition("/")
    if not service:
        raise AccessError(f"--peers={flag} names no Service: kubernetes://NAMESPACE/SERVICE")
    if not environment.get(_POD):
        raise AccessError(f"{_POD} is empty: it has to be this pod's name")
    found = open_namespace(access.SCHEME + name, environment)
    return ReadyPods(
        ClusterSource(CollectionMirror(found.reader, slices(found.name, service), ready_pods)),
        environment[_POD],
    )


def slices(namespace: str, service: str) -> Collection:
    """The EndpointSlices of one Service: one for each family of addresses, more for many pods."""
    return Collection("discovery.k8s.io/v1", "endpointslices", namespace, f"{SERVICE}={service}")


def ready_pods(item: Object) -> frozenset[str]:
    """The ready pods of an EndpointSlice, each by its name, which is the same in every slice.

    Raises:
        ValueError: the object is no EndpointSlice.
    """
    try:
        return frozenset(
            (each.get("targetRef") or {}).get("name") or each["addresses"][0]
            for each in item.get("endpoints") or []
            # A missing condition means ready, by the API's specification.
            if (each.get("conditions") or {}).get("ready") is not False
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no EndpointSlice: {error!r}") from error


async def follow(source: PeerSource, share: Callable[[Peers], None]) -> None:
    """Calls ``share`` whenever the gateways have changed, until it is cancelled."""
    async with aclosing(source.watch()) as watch:
        async for peers in watch:
            log.info(
                "gateways share the rates of keys",
                extra={"gateways": peers.count, "leads": peers.leads},
            )
            share(peers)
