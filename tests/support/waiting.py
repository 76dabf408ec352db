"""Waiting for what tells nobody when it comes: another process, a file, a server."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    what: str, seconds: float, check: Callable[[], T | None], *, every_seconds: float = 0.05
) -> T:
    """Asks until the answer is truthy; fails the test with ``what`` after ``seconds``.

    A check that is costly is made less often: what it waits for needs the processor too.
    """
    deadline = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        answer = check()
        if answer:
            return answer
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(max(every_seconds, min(1.0, 2 * (now - asked))))
