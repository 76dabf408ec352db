"""Where callers wait for something that comes to all of them at once, such as a tokeniser.

Room is bounded by callers and by bytes. A caller waits until its own deadline, and what is waited
for goes on without it: another one may wait for the same. Nobody who has no place waits.
"""

import asyncio
from time import monotonic
from typing import TypeVar

from gateway.errors import RETRY_AFTER_SECONDS, OverloadedError, too_late

T = TypeVar("T")

MOST_CALLERS = 1_024
MOST_BYTES = 32 * 1024 * 1024


class WaitingRoom:
    """The callers of one process that wait for one kind of thing.

    Args:
        what: is waited for, for the sentence of a refusal.
        most_callers: that wait at once.
        most_bytes: that they hold together; a single one may hold more.
    """

    def __init__(
        self, what: str, most_callers: int = MOST_CALLERS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._what = what
        self._most_callers = most_callers
        self._most_bytes = most_bytes
        self.callers = 0
        self.bytes = 0

    async def wait(self, until: "asyncio.Future[T]", size: int, deadline: float) -> T:
        """What a future gives. It is not cancelled, whatever becomes of the caller.

        Args:
            until: the future, which others may wait for too.
            size: bytes that the caller holds meanwhile.
            deadline: of the caller, by the event loop's clock.

        Raises:
            OverloadedError: there is no place.
            DeadlineExceededError: the deadline passed first.
        """
        if until.done():
            return until.result()
        crowded = self.callers and self.bytes + size > self._most_bytes
        if self.callers >= self._most_callers or crowded:
            raise OverloadedError(
                f"Too many requests wait for {self._what}.", retry_after_seconds=RETRY_AFTER_SECONDS
            )
        self.callers += 1
        self.bytes += size
        try:
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                return await asyncio.shield(until)
        except TimeoutError as late:
            raise too_late() from late
        finally:
            self.callers -= 1
            self.bytes -= size
