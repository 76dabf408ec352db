"""Shows that a loop goes round, for a liveness probe that is answered from another thread.

An event loop's heartbeat is a task of its own; a loop that does one thing after the other beats
once a round. It ends nothing by itself.
"""

import asyncio
import time
from collections.abc import Callable

EVERY_SECONDS = 1.0


class LoopHeartbeat:
    """The heartbeat of one loop.

    A loop without a beat for ``silence_seconds`` is stuck: far above the longest piece of work that
    is done on it at once.
    """

    def __init__(
        self, silence_seconds: float = 60.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._silence = silence_seconds
        self._clock = clock
        self._at = clock()

    async def run(self) -> None:
        """Beats with the loop until it is cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(EVERY_SECONDS)

    def beat(self) -> None:
        """Says that the loop has come round. From one thread."""
        self._at = self._clock()

    def fault(self) -> str:
        """Why the process should be started again; empty if it should not. For any thread."""
        silent = self._clock() - self._at
        return f"the loop has not come round for {silent:.0f} s" if silent > self._silence else ""
