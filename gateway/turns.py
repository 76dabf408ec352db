"""Turns at the processor: the event loop never works on requests for long without looking up.

``shedding.py`` asks for a turn before a request is begun. While the loop keeps up there is nothing
to wait for. When more arrives than the processor can work through, requests wait here in a queue
for each endpoint, served in rotation, whose length tells how long a newcomer would wait: so it can
be refused at once, for next to nothing, and what was admitted is still answered in time. Without
this all of it would be begun, and none of it ended by its deadline.
"""

import asyncio
from collections import deque
from time import monotonic

# Work on new requests within one turn of the event loop: long enough that its own cost does not
# matter, short enough that answers and refusals pass in between.
_SLICE_SECONDS = 0.005
_LEARNING_RATE = 0.2


class Turns:
    """Rations the processor among requests that are new. Belongs to one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = 0
        self._slice_began = 0.0
        self._slicing = False
        # Seconds that a turn takes, and seconds between two turns while requests wait: the rest
        # goes to answers, refusals and the network. Both as measured.
        self._cost = 0.0005
        self._interval = 0.0005
        self._granted = 0
        self._granted_at = 0.0
        self._work_began = 0.0

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

    def try_now(self) -> bool:
        """Takes a turn at once if the loop keeps up; nobody overtakes those who wait."""
        if self._waiting:
            return False
        if not self._slicing:
            self._begin_slice()
            return True
        return monotonic() - self._slice_began < _SLICE_SECONDS

    async def wait(self, endpoint: str) -> None:
        """Waits for a turn; whoever is cancelled meanwhile leaves the queue."""
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
        """The next turn of the loop: everything that was begun has run, answers have passed."""
        now = monotonic()
        self._slicing = False
        if self._granted:
            cost = (now - self._work_began) / self._granted
            interval = (now - self._granted_at) / self._granted
            self._cost += _LEARNING_RATE * (cost - self._cost)
            self._interval += _LEARNING_RATE * (interval - self._interval)
            self._granted = 0
        if self._waiting:
            # Runs just before the turns that are granted here, which run just before the next end
            # of a slice: what lies between these two is work on turns and nothing else.
            asyncio.get_running_loop().call_soon(self._mark)
            self._granted = self._grant(max(1, int(_SLICE_SECONDS / max(self._cost, 1e-6))))
            self._granted_at = now
            self._begin_slice()

    def _mark(self) -> None:
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
