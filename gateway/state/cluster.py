"""Objects of one type out of a cluster, as the watch of ``service/cluster/`` tells them.

Nothing is told before the first list: a gateway that has not learnt what to serve is not ready.
From then on an API server that is away changes nothing. Never writes.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Generic, TypeVar

from service.cluster.mirror import Mirror

T = TypeVar("T")


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
