"""Asks the package store with a short timeout, so that a store that hangs holds up no pass.

While a question hangs, and for a while after a failure, every question fails at once and the store
is not asked. An answer that comes late is kept for the next time that its question is asked.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from registry.packages.store import StoreUnavailableError

Answer = TypeVar("Answer")


class StoreTimeoutGuard:
    """Asks in threads, from one loop."""

    def __init__(
        self, now: Callable[[], float], *, seconds: float = 2.0, pause_seconds: float = 15.0
    ) -> None:
        self._now = now
        self._seconds = seconds
        self._pause_seconds = pause_seconds
        self._late: dict[str, asyncio.Task[object]] = {}
        self._fault = ""
        self._paused_until = 0.0

    @property
    def late(self) -> Mapping[str, asyncio.Task[object]]:
        """Questions that hang, and late answers that nobody has taken yet, by their keys."""
        return self._late

    async def ask(self, key: str, question: Callable[[], Answer]) -> Answer:
        """The answer.

        ``key`` is the same for the same question.

        Raises:
            StoreUnavailableError: it failed, or there is no answer yet.
        """
        task = self._late.get(key)
        if task is None or not task.done():
            if self._now() < self._paused_until or any(not it.done() for it in self._late.values()):
                raise StoreUnavailableError(self._fault)
            task = self._late[key] = asyncio.create_task(asyncio.to_thread(question))
            task.add_done_callback(self._note)
            done, _ = await asyncio.wait({task}, timeout=self._seconds)
            if not done:
                self._fault = f"the package store has not answered for {self._seconds:g} s"
                raise StoreUnavailableError(self._fault)
        self._late.pop(key, None)
        return cast("Answer", task.result())

    def _note(self, task: "asyncio.Task[object]") -> None:
        """A failure is remembered for all, and is nobody's late answer."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreUnavailableError):
            self._fault = str(error)
            self._paused_until = self._now() + self._pause_seconds
            self._late = {key: late for key, late in self._late.items() if late is not task}
