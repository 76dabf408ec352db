"""How late the event loop runs what is due, by a timer that looks at the clock.

Batchers ask when a batch comes back: an answer that lay in its socket while the loop was busy says
nothing of the engine's cost. Learning from it would make a busy gateway take its engine for slow,
and refuse what it could answer. They ask again when they send: an engine must have work for as long
as one turn of the loop may take.
"""

import asyncio
from time import monotonic

_TICK_SECONDS = 0.01
# What stays of the longest turn seen, from one look to the next: it is forgotten in a tenth of a
# second.
_MEMORY = 0.8


class LoopLag:
    """Measures one event loop from ``start`` to ``close``."""

    def __init__(self) -> None:
        self._due = 0.0
        self._last = 0.0
        self._turn = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to measure."""
        self._due = monotonic() + _TICK_SECONDS
        self._timer = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Ends it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def seconds(self) -> float:
        """How late the last look was, or the next one is by now: whichever is more."""
        if self._timer is None:
            return 0.0
        return max(self._last, monotonic() - self._due, 0.0)

    @property
    def turn_seconds(self) -> float:
        """How long turns of the loop have lately been, about; 0 while nothing is measured."""
        return self._turn

    def _tick(self) -> None:
        self._last = max(0.0, monotonic() - self._due)
        self._turn = max(self._last, _MEMORY * self._turn)
        self.start()
