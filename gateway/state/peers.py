"""Knows the gateways, which share the rate limits of API keys, and what bulk requests may take.

In a cluster these are the ready pods of the gateways' Service, from its EndpointSlices. On one
machine they are the files in a folder, one of each gateway, which touches it every two seconds and
writes into it where it hears others' reports (``bulk_reports``). While a source can't be reached,
what it said last is used.
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


Address = tuple[str, int]  # an IP address and a UDP port
LOOPBACK = "127.0.0.1"


class Peers(NamedTuple):
    """The gateways.

    Attributes:
        gateways: how many are ready, this one among them.
        others: where they hear reports, if that is known, and where those do that end and still
            answer their callers; this one may be among them.
    """

    gateways: int = 1
    others: frozenset[Address] = frozenset()


class GatewayPod(NamedTuple):
    """A pod of an EndpointSlice: an id, the same in every slice, and an IP address."""

    uid: str
    address: str
    ready: bool


class PeerSource(Protocol):
    """The gateways, whenever they change."""

    def watch(self, port: int) -> AsyncGenerator[Peers, None]:
        """What is known of them, and whenever it has changed; ``port`` is where this one hears."""


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
        self._peers = Peers()
        self._port: int | None = None
        self._away = False

    async def watch(self, port: int) -> AsyncGenerator[Peers, None]:
        """See ``PeerSource``; touches the file while it is watched, and removes it afterwards."""
        last: Peers | None = None
        try:
            while True:
                peers = await asyncio.to_thread(self.beat, port)
                if peers != last:
                    last = peers
                    yield peers
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            self.leave()

    def beat(self, port: int = 0) -> Peers:
        """Touches this gateway's file and reads the live ones. Blocks on the disk."""
        now = self._clock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._port == port and self._mine.exists():
                self._mine.touch()
            else:
                self._mine.write_text(str(port))
            self._port = port
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
        live, others = 1, set[Address]()
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path == self._mine:
                continue
            with suppress(FileNotFoundError):  # it has just left
                age = now - path.stat().st_mtime
                if age < LIVE_SECONDS:
                    live += 1
                    with suppress(PermissionError, ValueError):
                        port = int(path.read_bytes()[:5])
                        others |= {(LOOPBACK, port)} if 0 < port < 65536 else set()
                if age > _FORGOTTEN_SECONDS:
                    path.unlink()
        return Peers(live, frozenset(others))


class ReadyPods:
    """The ready pods of the gateways' Service."""

    def __init__(self, pods: ClusterSource[frozenset[GatewayPod]]) -> None:
        self._pods = pods

    async def watch(self, port: int) -> AsyncGenerator[Peers, None]:
        """See ``PeerSource``; a gateway that is not ready itself is not counted."""
        last: Peers | None = None
        async with aclosing(self._pods.watch()) as watch:
            async for found in watch:
                pods = frozenset[GatewayPod]().union(*found)
                # Of a pod with addresses of both families that of IPv4, which comes last.
                addresses = {
                    pod.uid: pod.address for pod in sorted(pods, key=lambda pod: ":" not in pod[1])
                }
                others = frozenset((each, port) for each in addresses.values())
                peers = Peers(max(1, len({pod.uid for pod in pods if pod.ready})), others)
                if peers != last:
                    last = peers
                    yield peers


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
        ClusterSource(CollectionMirror(found.reader, slices(found.name, service), serving_pods))
    )


def slices(namespace: str, service: str) -> Collection:
    """The EndpointSlices of one Service: one for each family of addresses, more for many pods."""
    return Collection("discovery.k8s.io/v1", "endpointslices", namespace, f"{SERVICE}={service}")


def serving_pods(item: Object) -> frozenset[GatewayPod]:
    """The pods of an EndpointSlice that are ready, or end and still answer.

    Raises:
        ValueError: the object is no EndpointSlice.
    """
    try:
        return frozenset(
            each for each in map(_pod, item.get("endpoints") or []) if each is not None
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no EndpointSlice: {error!r}") from error


def _pod(endpoint: Object) -> GatewayPod | None:
    address, conditions = endpoint["addresses"][0], endpoint.get("conditions") or {}
    # A missing condition means ready, and one that is ready serves, by the API's specification.
    ready = conditions.get("ready") is not False
    if not ready and conditions.get("serving") is not True:
        return None
    return GatewayPod((endpoint.get("targetRef") or {}).get("uid") or address, address, ready)


async def follow(source: PeerSource, port: int, share: Callable[[Peers], None]) -> None:
    """Calls ``share`` whenever the gateways have changed, until it is cancelled."""
    async with aclosing(source.watch(port)) as watch:
        async for peers in watch:
            log.info("gateways share the rates of keys", extra={"gateways": peers.gateways})
            share(peers)
