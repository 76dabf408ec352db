"""Does what would hold the event loop for long in a thread of its own.

Reading a large body and rendering a large answer take as long as tokenising a book. They are done
here, and small ones where they are. The thread holds Python's lock for as long as one step of its
work takes, so that work should have small steps, with ``sleep(0)`` between them. Who comes when too
many wait is refused: ``OverloadedError``, 503. So is whose deadline passes before its turn comes:
``DeadlineExceededError``, 504.
"""

import asyncio
import os
import sys
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import thread_time
from typing import Any, TypeVar

from gateway.errors import (
    RETRY_AFTER_SECONDS,
    GatewayError,
    OverloadedError,
    forget_frames,
    too_late,
)
from gateway.request_context import RequestContext

T = TypeVar("T")

# What is no larger is done on the event loop: about a millisecond. A change of threads costs more
# than it saves the other requests then.
INLINE_BYTES = 64 * 1024  # of a body or message
INLINE_NUMBERS = 16 * 1024  # of an answer
# A process has one core as a rule. A second thread would add no speed, and the event loop would
# wait for the steps of both.
_THREADS = 1
# Of the thread: so the event loop, which wants a processor several times a request, has it at once.
_NICENESS = 5
_MOST_WAITING = 256
# As of ``TokenBudget``: one busy key gets 80 % of all places, two 44 % each.
_SHARE_OF_FREE = 4


class _Turn:
    """One piece of work, from when it joins the queue until it is done."""

    __slots__ = ("began", "context", "result", "seconds", "work")

    def __init__(
        self,
        work: Callable[[], Any],
        context: RequestContext | None,
        result: asyncio.Future[Any],
    ) -> None:
        self.work = work
        self.context = context
        self.result = result
        self.began = False
        self.seconds = 0.0

    @property
    def key(self) -> str | None:
        """Whose it is."""
        return None if self.context is None else self.context.caller

    def run(self) -> Any:  # noqa: ANN401 - whatever the work gives
        """Does the work, in a thread."""
        began = thread_time()
        try:
            return _done_here(self.work)
        finally:
            self.seconds = thread_time() - began


class LargeWork:
    """The threads of one process. For its event loop only.

    Keys take turns: who has sent much waits for its own. One key may take most places, not all.

    Args:
        most_waiting: works in the threads or in their queue.

    Attributes:
        waiting: how many there are now.
        spend: charges a request for time of a processor that its task does not charge it for, as
            it is over or its answer is rendered.
    """

    def __init__(self, most_waiting: int = _MOST_WAITING) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, "large-work", _step_back)
        self._idle = _THREADS
        self._most_waiting = most_waiting
        # What has not begun: of each key in the order of coming, the keys in that of their turns.
        self._queues: dict[str | None, deque[_Turn]] = {}
        self._by_key: Counter[str | None] = Counter()
        self.waiting = 0
        self.spend: Callable[[RequestContext, float], None] | None = None

    async def do(self, work: Callable[[], T], context: RequestContext | None = None) -> T:
        """What some work gives, which is done in a thread.

        A caller that is cancelled meanwhile does not wait for it; work that has begun is finished,
        and any other is forgotten at once, with the body that it would have read.

        Raises:
            OverloadedError: too much waits already.
            DeadlineExceededError: the request's deadline passed before the work began.
            Exception: what the work raises.
        """
        loop = asyncio.get_running_loop()
        turn = _Turn(work, context, loop.create_future())
        self._join(turn)
        del work
        ends = None if context is None or turn.began else context.ends
        timer = None if ends is None else loop.call_at(ends, self._expire, turn)
        try:
            result: T = await turn.result
            return result
        finally:
            if timer is not None:
                timer.cancel()
            if not turn.began:
                self._forget(turn)
            del turn  # it refers to what the work raised, and that to this frame

    def _join(self, turn: _Turn) -> None:
        key = turn.key
        free, mine = self._most_waiting - self.waiting, self._by_key[key] + 1
        if free <= 0 or (key is not None and mine > max(1, _SHARE_OF_FREE * free)):
            raise OverloadedError(
                "Too many large requests are being read, or large answers written; try again.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self.waiting += 1
        self._by_key[key] = mine
        self._queues.setdefault(key, deque()).append(turn)
        self._begin()

    def _begin(self) -> None:
        """Has idle threads begin what waits, of one key after the other."""
        while self._idle and self._queues:
            key = next(iter(self._queues))
            queue = self._queues.pop(key)
            turn = queue.popleft()
            if queue:
                self._queues[key] = queue  # behind all others
            turn.began = True
            self._idle -= 1
            done = partial(_on_loop, turn.result.get_loop(), partial(self._done, turn))
            self._executor.submit(turn.run).add_done_callback(done)

    def _done(self, turn: _Turn, future: Future[Any]) -> None:
        self._idle += 1
        self._left(turn)
        self._charge(turn)
        if future.cancelled():
            turn.result.cancel()
        elif not turn.result.done():
            error = future.exception()
            if error is None:
                turn.result.set_result(future.result())
            else:
                turn.result.set_exception(error)
        self._begin()

    def _charge(self, turn: _Turn) -> None:
        context = turn.context
        if context is None or self.spend is None:
            return
        if turn.result.done() or context.handed_over:
            self.spend(context, turn.seconds)
        else:
            # The next step of its task charges it, which may know the endpoint by then.
            context.work_seconds += turn.seconds

    def _expire(self, turn: _Turn) -> None:
        if not turn.began and not turn.result.done():
            self._forget(turn)
            turn.result.set_exception(too_late())

    def _forget(self, turn: _Turn) -> None:
        queue = self._queues.get(turn.key)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[turn.key]
            self._left(turn)

    def _left(self, turn: _Turn) -> None:
        self.waiting -= 1
        key = turn.key
        self._by_key[key] -= 1
        if not self._by_key[key]:
            del self._by_key[key]

    def close(self) -> None:
        """Ends the threads, and cancels what waits for one."""
        for queue in self._queues.values():
            for turn in queue:
                turn.result.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)


def _step_back() -> None:
    if sys.platform == "linux":  # elsewhere it is the whole process's
        os.nice(_NICENESS)


def _done_here(work: Callable[[], T]) -> T:
    """Does work, of which nothing is left to be freed on the event loop if it is refused."""
    try:
        return work()
    except GatewayError as error:
        refusal = error
    refusal.__cause__ = refusal.__context__ = None
    forget_frames(refusal)
    raise refusal from None


def _on_loop(
    loop: asyncio.AbstractEventLoop, call: Callable[[Future[Any]], None], future: Future[Any]
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, future)
