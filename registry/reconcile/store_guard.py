"""Asks the package store with a short timeout, so that a store that hangs holds up no endpoint.

Questions of several endpoints are asked at a time, a few of them, in threads that nothing else
uses. While one hangs, and for a while after a failure, every question fails at once and the store
is not asked. An answer that comes late is kept for the next time that its question is asked.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from registry import metrics
from registry.packages.store import StoreUnavailableError

Answer = TypeVar("Answer")

_AT_ONCE = 4


class StoreTimeoutGuard:
    """Asks in threads, from one loop."""

    def __init__(
        self, now: Callable[[], float], *, seconds: float = 2.0, pause_seconds: float = 15.0
    ) -> None:
        self._now = now
        self._seconds = seconds
        self._pause_seconds = pause_seconds
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="package-store")
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._late: dict[str, asyncio.Future[object]] = {}
        self._hanging: set[asyncio.Future[object]] = set()
        self._fault = ""
        self._paused_until = 0.0
        metrics.STORE_UP.set(1)  # nothing is known against it

    @property
    def late(self) -> Mapping[str, asyncio.Future[object]]:
        """Questions that hang, and late answers that nobody has taken yet, by their keys."""
        return self._late

    async def ask(self, key: str, question: Callable[[], Answer]) -> Answer:
        """The answer.

        ``key`` is the same for the same question.

        Raises:
            StoreUnavailableError: it failed, or there is no answer yet.
        """
        asked = self._late.get(key)
        if asked is None:
            async with self._room:
                asked = self._late.get(key) or self._begin(key, question)
                await self._in_time(asked)
        elif not asked.done():
            self._refuse()
            await self._in_time(asked)
        if self._late.get(key) is asked:
            del self._late[key]
        return cast("Answer", asked.result())

    def drop(self, key: str) -> None:
        """Forgets a late answer to a question whose answer has changed since."""
        self._late.pop(key, None)

    def _begin(self, key: str, question: Callable[[], object]) -> "asyncio.Future[object]":
        self._refuse()
        loop = asyncio.get_running_loop()
        asked = self._late[key] = loop.run_in_executor(self._threads, question)
        asked.add_done_callback(self._note)
        return asked

    def _refuse(self) -> None:
        if self._now() < self._paused_until or self._hanging:
            raise StoreUnavailableError(self._fault)

    async def _in_time(self, asked: "asyncio.Future[object]") -> None:
        done, _ = await asyncio.wait({asked}, timeout=self._seconds)
        if not done:
            self._hanging.add(asked)
            metrics.STORE_UP.set(0)
            self._fault = f"the package store has not answered for {self._seconds:g} s"
            raise StoreUnavailableError(self._fault)

    def _note(self, asked: "asyncio.Future[object]") -> None:
        """A failure is remembered for all, and is nobody's late answer."""
        self._hanging.discard(asked)
        error = None if asked.cancelled() else asked.exception()
        metrics.STORE_UP.set(not isinstance(error, StoreUnavailableError))
        if isinstance(error, StoreUnavailableError):
            self._fault = str(error)
            self._paused_until = self._now() + self._pause_seconds
            self._late = {key: late for key, late in self._late.items() if late is not asked}
