"""Rations the event loop among new requests, so that it never works on them for long without pause.

While the loop keeps up there is nothing to wait for. When more arrives than the processor can work
through, requests wait here, in one queue for each endpoint, and the queues are served in rotation.
The length of its queue tells how long a new request would wait, so that it can be refused at once,
which costs next to nothing. Without this, all requests would be begun and none would end by its
deadline.
"""

import asyncio
from collections import deque
from time import monotonic

# Work on new requests within one iteration of the event loop: long enough that the scheduler's own
# cost does not matter, short enough that answers and refusals pass in between.
_SLICE_SECONDS = 0.005
_LEARNING_RATE = 0.2
# gRPC hands its calls over one by one, each through a thread and some iterations of the loop. While
# the loop works, the calls behind wait where nobody can count them. So work on such calls pauses
# until none has come for a moment: all that wait are then in a queue here, and it is known how long
# a new one would wait.
_QUIET_SECONDS = 0.001  # the least that the loop's timers can do
_LONGEST_PAUSE_SECONDS = 0.005


class RequestScheduler:
    """Gives each new request its turn. Belongs to one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = 0
        self._slice_began = 0.0
        self._slicing = False
        # Seconds of work on one turn, and seconds between two turns while requests wait; the
        # difference goes to answers, refusals and the network. Both as measured.
        self._cost = 0.0005
        self._interval = 0.0005
        self._granted = 0
        self._granted_at = 0.0
        self._work_began = 0.0
        # Of serial arrivals: when the last came, and since when they have been coming without a gap
        # of ``_QUIET_SECONDS``; None after such a gap.
        self._arrived_at = 0.0
        self._arriving_since: float | None = None
        self._pause_began = 0.0

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._waiting

    def waiting_of(self, endpoint: str) -> int:
        """Requests of one endpoint that wait, those that gave up included."""
        queue = self._queues.get(endpoint)
        return len(queue) if queue is not None else 0

    def wait_seconds(self, endpoint: str) -> float:
        """How long a request that comes now would wait for its turn, as estimated."""
        if self._waiting == 0:
            return 0.0
        mine = self.waiting_of(endpoint)
        ahead = mine + sum(
            min(len(queue), mine + 1) for name, queue in self._queues.items() if name != endpoint
        )
        return ahead * self._interval

    async def take(self, endpoint: str) -> None:
        """A turn, now or once those before have had theirs."""
        if not self.try_now():
            await self.wait(endpoint)

    def try_now(self, *, serial_arrivals: bool = False) -> bool:
        """Takes a turn at once if the loop keeps up and no other request waits.

        Args:
            serial_arrivals: for gRPC, whose requests reach the loop one after the other: only while
                work on them pauses can they be counted.
        """
        others_outside = serial_arrivals and self._keep_arriving()
        if self._waiting or others_outside:
            return False
        if not self._slicing:
            self._begin_slice()
            return True
        return monotonic() - self._slice_began < _SLICE_SECONDS

    async def wait(self, endpoint: str) -> None:
        """Waits for a turn. A request that is cancelled meanwhile leaves the queue."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        queue = self._queues.setdefault(endpoint, deque())
        queue.append(turn)
        self._waiting += 1
        if not self._slicing:
            self._begin_slice()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():  # it stays where it is, and is passed over
                self._waiting -= 1
            raise

    def _begin_slice(self) -> None:
        self._slicing = True
        self._slice_began = monotonic()
        asyncio.get_running_loop().call_soon(self._end_slice)

    def _end_slice(self) -> None:
        """One iteration of the loop later: what was begun has run, and answers have passed."""
        now = monotonic()
        if self._granted:
            cost = (now - self._work_began) / self._granted
            self._cost += _LEARNING_RATE * (cost - self._cost)
        if self._waiting and self._arriving_since is not None:
            self._pause_began = now
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._paused)
        else:
            self._next_slice(now)

    def _paused(self) -> None:
        """Ends a pause once no request has come for a moment, or it has lasted long enough."""
        now = monotonic()
        quiet = now - self._arrived_at >= _QUIET_SECONDS
        if not quiet and now - self._pause_began < _LONGEST_PAUSE_SECONDS:
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._paused)
            return
        self._arriving_since = None if quiet else now
        self._next_slice(now)

    def _next_slice(self, now: float) -> None:
        self._slicing = False
        if self._granted:
            interval = (now - self._granted_at) / self._granted
            self._interval += _LEARNING_RATE * (interval - self._interval)
            self._granted = 0
        if self._waiting:
            # ``_note_work_began`` runs just before the requests whose turns are granted here, and
            # ``_end_slice`` just after them: the time between the two is spent on these requests.
            asyncio.get_running_loop().call_soon(self._note_work_began)
            self._granted = self._grant(max(1, int(_SLICE_SECONDS / max(self._cost, 1e-6))))
            self._granted_at = now
            self._begin_slice()

    def _keep_arriving(self) -> bool:
        """Records such an arrival; whether more may wait outside, where they can't be counted."""
        self._arrived_at = now = monotonic()
        if self._arriving_since is None:
            self._arriving_since = now
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._check_quiet, now)
            return False
        return now - self._arriving_since >= _SLICE_SECONDS

    def _check_quiet(self, asked: float) -> None:
        """Runs a moment after an arrival, and ends the series if no other has come since."""
        now = monotonic()
        if self._arriving_since is None or self._waiting:
            return  # ``_paused`` does this while requests wait
        late = now - asked >= 2 * _QUIET_SECONDS
        if not late and now - self._arrived_at >= _QUIET_SECONDS:
            self._arriving_since = None
        else:
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._check_quiet, now)

    def _note_work_began(self) -> None:
        self._work_began = monotonic()

    def _grant(self, turns: int) -> int:
        """Gives up to so many turns, one to each endpoint in rotation."""
        granted = 0
        while granted < turns and self._queues:
            endpoint, queue = next(iter(self._queues.items()))
            # To the end of the rotation, unless it was the last of its queue.
            del self._queues[endpoint]
            turn = queue.popleft()
            if queue:
                self._queues[endpoint] = queue
            if not turn.cancelled():
                self._waiting -= 1
                turn.set_result(None)
                granted += 1
        return granted
