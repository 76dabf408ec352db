"""An event loop that is told how long each of its callbacks keeps its thread's processor.

Processor time of the thread, and not time: what other processes and threads take is not counted.
And it is told in units of work that is measured on the same machine at the same moment, so that a
slow machine finds what a fast one does.
"""

import gc
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Any

from loop_clocks import ShiftedLoop

# A callback may take so many units, each of which is about as long as one may take (5 ms on an
# ordinary core). The rest is for machines whose processors have other clocks from second to second.
_MOST_UNITS = 3
_UNIT = json.dumps({"texts": ["It is work that every machine does alike."] * 60_000})


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

    @contextmanager
    def nothing_longer(self) -> Iterator[None]:
        """Fails what holds the loop for longer than a few units within."""
        gc.collect()
        gc.freeze()
        gc.disable()  # what the collector takes is no callback's
        before = unit_seconds()
        self.longest, self.what, self.watching = 0.0, "", True
        try:
            yield
        finally:
            self.watching = False
            gc.enable()
            gc.unfreeze()
        unit = max(before, unit_seconds())
        if self.longest > _MOST_UNITS * unit:
            raise LoopHeldError(
                f"{self.longest / unit:.1f} units of {unit * 1000:.1f} ms, where {_MOST_UNITS} are "
                f"the most: {self.what}"
            )


def unit_seconds() -> float:
    """Processor time of a piece of work: the longest of some, as the machine is now."""
    return max(_unit_seconds() for _ in range(3))


def _unit_seconds() -> float:
    began = thread_time()
    json.loads(_UNIT)
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
