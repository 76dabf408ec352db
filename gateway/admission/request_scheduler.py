"""Schedules new requests on the event loop, in slices of time with pauses between them.

While the event loop keeps up, no request waits. When requests arrive faster than the processor can
handle them, they wait here: in one queue for each endpoint, and the queues are served in rotation.
Bulk requests wait in a queue that is served while all others are empty, and nobody waits for them.
The length of the queues gives an estimate of how long a new request would wait. A request that
would wait too long is refused at once, which costs little. Without a scheduler, all requests would
be begun at the same time and none would be answered by its deadline.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

# The time for new requests within one iteration of the event loop. It is long enough that the
# scheduler's own cost does not matter, and short enough that answers and refusals are not delayed.
_SLICE_SECONDS = 0.005
_LEARNING_RATE = 0.2
# gRPC passes calls to the event loop one at a time, each through a thread and some iterations of
# the loop. While the loop is busy, further calls wait inside gRPC, where they can't be counted.
# Therefore no turns are granted until no call has arrived for this time: all waiting calls are in
# the queues by then, and the wait of a new one can be estimated.
_QUIET_SECONDS = 0.001  # the shortest time that the loop's timers can measure
_LONGEST_PAUSE_SECONDS = 0.005


class RequestScheduler:
    """Decides when each new request begins. Used from one event loop."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = 0
        self._bulk: deque[asyncio.Future[None]] = deque()
        self._slice_began = 0.0
        self._slicing = False
        # Measured seconds of work for one request, and between the begins of two requests while
        # requests wait. The difference is spent on answers, refusals and the network.
        self._cost = 0.0005
        self._interval = 0.0005
        self._granted = 0
        self._granted_at = 0.0
        self._work_began = 0.0
        # Turns granted in one iteration of the loop begin in the next: true between the two.
        self._to_begin = False
        # The time of the last serial arrival, and since when they have arrived without a gap of
        # ``_QUIET_SECONDS``; None after such a gap.
        self._arrived_at = 0.0
        self._arriving_since: float | None = None
        self._pause_began = 0.0

    @property
    def waiting(self) -> int:
        """Requests that wait; not those of the class bulk."""
        return self._waiting

    @property
    def waiting_bulk(self) -> int:
        """Bulk requests that wait, including those that were cancelled meanwhile."""
        return len(self._bulk)

    def waiting_of(self, endpoint: str) -> int:
        """Requests in one endpoint's queue, including those that were cancelled meanwhile."""
        queue = self._queues.get(endpoint)
        return len(queue) if queue is not None else 0

    def wait_seconds(self, endpoint: str) -> float:
        """Estimated seconds that a request arriving now would wait for its turn."""
        if self._waiting == 0:
            return 0.0
        mine = self.waiting_of(endpoint)
        ahead = mine + sum(
            min(len(queue), mine + 1) for name, queue in self._queues.items() if name != endpoint
        )
        return ahead * self._interval

    async def take(self, endpoint: str) -> None:
        """Returns when the request may begin: at once, or when those before it have begun."""
        if not self.try_now():
            await self.wait(endpoint)

    def try_now(self, *, serial_arrivals: bool = False) -> bool:
        """Whether the request may begin at once: the loop keeps up and no other request waits.

        Args:
            serial_arrivals: true for gRPC, whose requests reach the loop one after the other, so
                that more may wait where they can't be counted.
        """
        others_uncounted = serial_arrivals and self._keep_arriving()
        if self._waiting or self._to_begin or others_uncounted:
            return False
        if not self._slicing:
            self._begin_slice()
            return True
        return self._clock() - self._slice_began < _SLICE_SECONDS

    async def wait(self, endpoint: str, *, bulk: bool = False) -> None:
        """Waits until the request may begin. A cancelled request is skipped."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        queue = self._bulk if bulk else self._queues.setdefault(endpoint, deque())
        queue.append(turn)
        self._waiting += not bulk
        if not self._slicing:
            self._begin_slice()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():  # it stays in the queue until ``_grant`` skips it
                self._waiting -= not bulk
            raise

    def _begin_slice(self) -> None:
        self._slicing = True
        self._slice_began = self._clock()
        asyncio.get_running_loop().call_soon(self._end_slice)

    def _end_slice(self) -> None:
        """Runs one iteration of the loop later, when the requests of the slice have run."""
        now = self._clock()
        if self._granted:
            cost = (now - self._work_began) / self._granted
            self._cost += _LEARNING_RATE * (cost - self._cost)
        if self._waiting and self._arriving_since is not None:
            self._pause_began = now
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._end_pause)
        else:
            self._next_slice(now)

    def _end_pause(self) -> None:
        """Ends a pause if no request has arrived for ``_QUIET_SECONDS`` or it is at its limit."""
        now = self._clock()
        quiet = now - self._arrived_at >= _QUIET_SECONDS
        if not quiet and now - self._pause_began < _LONGEST_PAUSE_SECONDS:
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._end_pause)
            return
        self._arriving_since = None if quiet else now
        self._next_slice(now)

    def _next_slice(self, now: float) -> None:
        self._slicing = False
        if self._granted:
            interval = (now - self._granted_at) / self._granted
            self._interval += _LEARNING_RATE * (interval - self._interval)
            self._granted = 0
        if self._waiting or self._bulk:
            # ``_note_work_began`` runs just before the requests whose turns are granted here, and
            # ``_end_slice`` just after them: the time between the two is spent on these requests.
            self._to_begin = True
            asyncio.get_running_loop().call_soon(self._note_work_began)
            self._granted = self._grant(max(1, int(_SLICE_SECONDS / max(self._cost, 1e-6))))
            self._granted_at = now
            self._begin_slice()

    def _keep_arriving(self) -> bool:
        """Records a serial arrival; true if more may wait where they can't be counted."""
        self._arrived_at = now = self._clock()
        if self._arriving_since is None:
            self._arriving_since = now
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._check_quiet, now)
            return False
        return now - self._arriving_since >= _SLICE_SECONDS

    def _check_quiet(self, asked: float) -> None:
        """Runs after an arrival, and ends the series of arrivals if no other has followed."""
        now = self._clock()
        if self._arriving_since is None or self._waiting:
            return  # while requests wait, ``_end_pause`` ends the series
        late = now - asked >= 2 * _QUIET_SECONDS
        if not late and now - self._arrived_at >= _QUIET_SECONDS:
            self._arriving_since = None
        else:
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._check_quiet, now)

    def _note_work_began(self) -> None:
        self._to_begin = False
        self._work_began = self._clock()

    def _grant(self, turns: int) -> int:
        """Lets up to this many requests begin, one of each endpoint in rotation, bulk ones last."""
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
        while granted < turns and self._bulk:
            turn = self._bulk.popleft()
            if not turn.cancelled():
                turn.set_result(None)
                granted += 1
        return granted
