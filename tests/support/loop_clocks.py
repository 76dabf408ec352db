"""Event loops whose clock is not the machine's, for tests of what depends on time."""

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

# What one iteration of ``PatientLoop`` counts for beyond the wait that it asked for.
_MOST_SECONDS = 0.002


class ShiftedLoop(asyncio.SelectorEventLoop):
    """Its clock can be put forward."""

    shift_seconds = 0.0

    def time(self) -> float:
        """Seconds by the loop's clock, which its timers follow."""
        return super().time() + self.shift_seconds


class SteppedLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while it works, and goes to the next timer when it would wait.

    For tests without sockets and threads: what they wait for takes no time.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_NoWait(self))

    def time(self) -> float:
        """Seconds by the loop's clock, which its timers follow."""
        return self.now

    def work(self, seconds: float) -> None:
        """Lets the clock go on as if something had kept the processor."""
        self.now += seconds


class _NoWait(selectors.SelectSelector):
    def __init__(self, loop: SteppedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0 if timeout is not None else None)
        if timeout is not None and timeout > 0 and not found:
            self._loop.now += timeout
        return found


class PatientLoop(asyncio.SelectorEventLoop):
    """Its clock leaves out the time in which the machine did not let it run.

    So timers of one loop come in their order, and no later than they are due by this clock.
    """

    def __init__(self) -> None:
        self._clock = _Patient()
        super().__init__(self._clock)

    def time(self) -> float:
        """Seconds by the loop's clock, which its timers follow."""
        return self._clock.now()

    def work(self, seconds: float) -> None:
        """Lets the clock go on as if something had kept the processor."""
        self._clock.work(seconds)


class _Patient(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self._counted = self._seen = time.monotonic()

    def now(self) -> float:
        return self._counted + min(time.monotonic() - self._seen, _MOST_SECONDS)

    def work(self, seconds: float) -> None:
        self._counted += seconds

    def _count(self, most: float) -> None:
        seen = time.monotonic()
        self._counted += min(seen - self._seen, most)
        self._seen = seen

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._count(_MOST_SECONDS)
        found = super().select(timeout)
        self._count(max(0.0, timeout or 0.0) + _MOST_SECONDS)
        return found


def runs_on(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Has a test run on such a loop."""

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            with asyncio.Runner(loop_factory=loop) as runner:
                runner.run(test(*args, **kwargs))

        return run

    return decorate
