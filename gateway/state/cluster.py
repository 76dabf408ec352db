"""Objects of one type out of a cluster, and what reads them there.

Nothing is told before the first list: a gateway that has not learnt what to serve is not ready.
From then on an API server that is away changes nothing. Never writes.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from gateway.state import pod_reader
from service.cluster import access
from service.cluster.collection import Reader
from service.cluster.mirror import Mirror

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of a cluster, to be read."""

    reader: Reader
    name: str


def opened(
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
        return Namespace(reader, access.named(flag) or access.own_namespace(account))
    found = access.opened(flag, environment)
    return Namespace(found.client, found.name)


class ClusterSource(Generic[T]):
    """What a mirror holds, for one event loop.

    Args:
        mirror: not started yet; the source starts and closes it.
    """

    def __init__(self, mirror: Mirror[T]) -> None:
        self._mirror = mirror

    async def watch(self) -> AsyncGenerator[tuple[T, ...], None]:
        """See ``EndpointSource.watch``; objects come in the order of their names."""
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
