"""Work as a count of Python's function calls, which is the same on every machine."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class FunctionCalls:
    """How many functions of Python were called, or resumed."""

    count: int = 0


@contextmanager
def counted_calls() -> Iterator[FunctionCalls]:
    """Counts those of this thread, without the garbage collector's."""
    calls = FunctionCalls()

    def note(_: FrameType, event: str, __: object) -> None:
        calls.count += event == "call"

    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
