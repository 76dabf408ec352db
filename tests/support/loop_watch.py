"""An event loop that is told how long each of its callbacks keeps its thread's processor.

Processor time of the thread, and not time: what other processes and threads take is not counted.
A busy or slow machine makes the same work longer: so what holds the loop is what does so each time
that it is tried, and longer than a piece of work that is measured at the same moment.
"""

import gc
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Any, TypeVar

from loop_clocks import ShiftedLoop

T = TypeVar("T")

MOST_SECONDS = 0.005  # that a callback may take
_MOST_TRIES = 15  # only what holds the loop is tried so often
# Work that takes about as long on an ordinary core: if either takes longer, so may a callback. Of
# small objects, which a process with a heap in pieces makes more slowly.
_UNITS = (
    json.dumps({"texts": ["It is work that every machine does alike."] * 80_000}),
    json.dumps({"texts": [["a"]] * 80_000}),
)


class LoopHeldError(AssertionError):
    """A callback kept the loop for too long."""


class LoopWatch:
    """The longest callback of a loop, while it is watched."""

    def __init__(self) -> None:
        self.watching = False
        self.longest = 0.0
        self.what = ""

    def note(self, seconds: float, handle: Any) -> None:
        """A callback took so long."""
        if self.watching and seconds > self.longest:
            self.longest, self.what = seconds, repr(handle)[:300]

    def check(self, case: Callable[[], T]) -> T:
        """What a case gives, unless it holds the loop for too long in each of some tries."""
        found: list[str] = []
        for _ in range(_MOST_TRIES):
            with self._watched():
                result = case()
            # The unit takes as long as a case: it is asked only where the bound alone says no.
            if self.longest <= MOST_SECONDS or self.longest <= (most := unit_seconds()):
                return result
            found.append(f"{1000 * self.longest:.1f} of {1000 * most:.1f} ms: {self.what}")
        raise LoopHeldError("\n".join(found))

    @contextmanager
    def only(self) -> Iterator[None]:
        """Within a case, watches what is within this alone."""
        self.longest, self.what, self.watching = 0.0, "", True
        try:
            yield
        finally:
            self.watching = False

    @contextmanager
    def _watched(self) -> Iterator[None]:
        # What the collector takes is no callback's. To freeze and unfreeze here would undo what
        # tests/conftest.py froze, and each collection would look at all tests again.
        gc.collect()
        gc.disable()
        self.longest, self.what, self.watching = 0.0, "", True
        try:
            yield
        finally:
            self.watching = False
            gc.enable()


def unit_seconds() -> float:
    """Processor time of a piece of work: the shortest of some, as the machine is now."""
    return max(min(_seconds_of(unit) for _ in range(3)) for unit in _UNITS)


def _seconds_of(unit: str) -> float:
    began = thread_time()
    json.loads(unit)
    return thread_time() - began


class WatchedLoop(ShiftedLoop):
    """A loop that tells ``watch`` of each callback."""

    def __init__(self, watch: LoopWatch) -> None:
        super().__init__()
        self._ready: deque[Any] = _Ready(watch)


class _Ready(deque[Any]):
    """What the loop is to run, each of which is measured."""

    def __init__(self, watch: LoopWatch) -> None:
        super().__init__()
        self._watch = watch

    def popleft(self) -> "_Measured":
        return _Measured(super().popleft(), self._watch)


class _Measured:
    """A handle, as the loop runs it."""

    def __init__(self, handle: Any, watch: LoopWatch) -> None:
        self._handle = handle
        self._watch = watch

    @property
    def _cancelled(self) -> bool:
        return bool(self._handle._cancelled)

    def _run(self) -> None:
        began = thread_time()
        self._handle._run()
        self._watch.note(thread_time() - began, self._handle)
