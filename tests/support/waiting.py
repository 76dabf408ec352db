"""Waiting for what tells nobody when it comes: another process, a file, a server."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    what: str, seconds: float, check: Callable[[], T | None], *, every_seconds: float = 0.05
) -> T:
    """Asks until the answer is truthy; fails the test with ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every_seconds)
