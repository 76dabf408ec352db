"""Packages on their way to being served: when the next try is due, and how long to wait for them.

Kept by ``reconcile.py``. Starts nothing and reads no clock: the time is passed in.
"""

import asyncio
from dataclasses import dataclass

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0

# A gateway that can't open a package is not ready for so long: it may be one that takes the place
# of one that holds the package, and a store that starts anew beside it is back by then. No longer,
# for a package that is gone must not keep other endpoints unserved.
GRACE_SECONDS = 60.0


@dataclass(slots=True)
class Opening:
    """A package that is being opened, or waits for its next try."""

    task: asyncio.Task[None] | None = None
    failures: int = 0
    retry_at: float = 0.0
    failing_since: float | None = None

    def put_off(self, now: float) -> float:
        """Counts a failure; returns the seconds until the next try."""
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0**self.failures)
        self.failures = min(self.failures + 1, 16)
        self.retry_at = now + pause
        if self.failing_since is None:
            self.failing_since = now
        return pause

    def overdue(self, now: float) -> bool:
        """Whether it has failed for so long that nobody should wait for it."""
        return self.failing_since is not None and now - self.failing_since >= GRACE_SECONDS
