"""Shows that a loop turns, for a liveness probe that is answered from another thread.

An event loop's runs beside a service's own work; a loop that does one thing after the other says by
itself when it has turned. It ends nothing by itself.
"""

import asyncio
import time
from collections.abc import Callable

EVERY_SECONDS = 1.0


class Turning:
    """One loop's sign of life.

    Args:
        silence_seconds: a loop that did not turn for so long is stuck: far above the longest piece
            of work that is done on it at once.
        clock: seconds.
    """

    def __init__(
        self, silence_seconds: float = 60.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._silence = silence_seconds
        self._clock = clock
        self._at = clock()

    async def run(self) -> None:
        """Turns with the loop until it is cancelled."""
        while True:
            self.turned()
            await asyncio.sleep(EVERY_SECONDS)

    def turned(self) -> None:
        """The loop has come round. From one thread."""
        self._at = self._clock()

    def fault(self) -> str:
        """Why the process should be started anew; empty where it should not. For any thread."""
        silent = self._clock() - self._at
        return f"nothing has turned for {silent:.0f} s" if silent > self._silence else ""
