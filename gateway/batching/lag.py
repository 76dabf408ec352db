"""Measures the event loop's lag: how late it runs a timer, and so how long an iteration takes.

A batcher uses it twice. An answer may have waited in the socket for a busy loop; then its batch
took less than was seen, by some iterations at most. Learning from all that was seen would make
Triton look slow, and the gateway would refuse requests that it could answer. And when batches are
sent, each instance must get enough work to last until the next iteration of the loop.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

_TICK_SECONDS = 0.01
# Decay of the longest iteration, per tick: it is forgotten within about a tenth of a second.
_DECAY = 0.8


class LoopLag:
    """Measures one event loop from ``start`` to ``close``."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._due = 0.0
        self._last = 0.0
        self._iteration = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to measure."""
        self._due = self._clock() + _TICK_SECONDS
        self._timer = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Ends it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def seconds(self) -> float:
        """How late the last tick was, or the next one is by now: the larger of the two."""
        if self._timer is None:
            return 0.0
        return max(self._last, self._clock() - self._due, 0.0)

    @property
    def iteration_seconds(self) -> float:
        """How long iterations of the loop have recently taken; 0 while nothing is measured."""
        return self._iteration

    def _tick(self) -> None:
        self._last = max(0.0, self._clock() - self._due)
        self._iteration = max(self._last, _DECAY * self._iteration)
        self.start()
