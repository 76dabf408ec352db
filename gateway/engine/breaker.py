"""A circuit breaker for one model on one Triton: pure, with the time passed in.

Closed lets batches through; open refuses them at once, so that callers hear of a dead Triton
without a wait. A probe, never a caller's request, closes it again.
"""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What the breaker does with a batch."""

    CLOSED = "closed"  # batches pass
    OPEN = "open"  # nothing passes until the next probe is due
    HALF_OPEN = "half-open"  # one probe is on its way; batches still don't pass


@dataclass(slots=True)
class Breaker:
    """Starts open with a probe due at once: a replica serves once it has said that it is ready.

    The pause between probes doubles from ``first_pause`` to ``longest_pause`` (seconds), which
    bounds how late the return of a Triton is noticed, where a probe can tell.
    """

    first_pause: float = 0.1
    longest_pause: float = 0.5
    state: State = State.OPEN
    probe_at: float = 0.0
    failures: int = 0

    @property
    def closed(self) -> bool:
        """Whether batches may be sent."""
        return self.state is State.CLOSED

    def probe_due(self, now: float) -> bool:
        """Whether to send a probe now; true makes it this caller's duty to report its end."""
        if self.state is not State.OPEN or now < self.probe_at:
            return False
        self.state = State.HALF_OPEN
        return True

    def succeed(self) -> None:
        """A probe or a batch was answered."""
        self.state = State.CLOSED
        self.failures = 0

    def fail(self, now: float, at_least: float = 0.0) -> None:
        """A probe or a batch found nobody: open, and wait longer than the last time.

        Args:
            now: seconds.
            at_least: the least pause, for a fault of which a probe can't tell.
        """
        pause = min(self.longest_pause, self.first_pause * 2 ** min(self.failures, 16))
        pause = max(pause, at_least)
        self.failures += 1
        self.state = State.OPEN
        self.probe_at = now + pause
