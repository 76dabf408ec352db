"""Does what would hold the event loop for long in threads of its own.

Reading a large body and rendering a large answer take as long as tokenising a book. They are done
here, and small ones where they are. Each thread holds Python's lock for as long as one step of its
work takes, so that work should have small steps, with ``sleep(0)`` between them. Who comes when too
many wait is refused: ``OverloadedError``, 503.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gateway.errors import RETRY_AFTER_SECONDS, GatewayError, OverloadedError, forget_frames

T = TypeVar("T")

# What is no larger is done on the event loop: about a millisecond. A change of threads costs more
# than it saves the other requests then.
INLINE_BYTES = 64 * 1024  # of a body or message
INLINE_NUMBERS = 16 * 1024  # of an answer
# A process has one core as a rule: more threads would only wait for each other.
_THREADS = 2
_MOST_WAITING = 256


class LargeWork:
    """The threads of one process. For its event loop only.

    Args:
        most_waiting: works in the threads or in their queue.

    Attributes:
        waiting: how many there are now.
    """

    def __init__(self, most_waiting: int = _MOST_WAITING) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="large-work")
        self._most_waiting = most_waiting
        self.waiting = 0

    async def do(self, work: Callable[[], T]) -> T:
        """What some work gives, which is done in a thread.

        A caller that is cancelled meanwhile does not wait for it; work that has begun is finished.

        Raises:
            OverloadedError: too much waits already.
            Exception: what the work raises.
        """
        if self.waiting >= self._most_waiting:
            raise OverloadedError(
                "Too many large requests are being read, or large answers written; try again.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self.waiting += 1
        loop = asyncio.get_running_loop()
        future = self._executor.submit(_done_here, work)
        future.add_done_callback(lambda _: _on_loop(loop, self._done))
        return await asyncio.wrap_future(future)

    def _done(self) -> None:
        self.waiting -= 1

    def close(self) -> None:
        """Ends the threads, and cancels what is in their queue."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _done_here(work: Callable[[], T]) -> T:
    """Does work, of which nothing is left to be freed on the event loop if it is refused."""
    try:
        return work()
    except GatewayError as error:
        refusal = error
    refusal.__cause__ = refusal.__context__ = None
    forget_frames(refusal)
    raise refusal from None


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
