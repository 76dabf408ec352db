"""Whether a Triton that says that it lives should be restarted, because it loads nothing.

Counted are its refusals of stable packages, in words that speak of the machine, while it holds
nothing that is wanted: its model processes can't start, for instance. Two rules keep a package that
is at fault itself from restarting Tritons in a loop. Only a stable package counts, which Tritons
loaded before it became stable. And each restart that did not help doubles the time before the next
one is asked for. A Triton that holds anything that is wanted is never ended for what it lacks.
"""

from collections.abc import Callable

from contracts.backoff import Backoff

STALLS = Backoff(120.0, 3600.0)  # of refusals only, before the next restart is asked for
LEAST_REFUSALS = 3


class LoadStall:
    """What one Triton refused since it last answered after an absence, or held what is wanted."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: float | None = None
        self._refusals = 0
        self._restarts = 0
        self._reason = ""

    def note_refusal(self, reason: str) -> None:
        """Notes one more refusal of a stable package."""
        if self._since is None:
            self._since = self._now()
        self._refusals += 1
        self._reason = reason

    def away(self) -> None:
        """Notes that Triton does not answer: what answers next may be another process."""
        if self.fault():
            self._restarts += 1
        self._forget()

    def note_end(self) -> None:
        """Notes that Triton holds something that is wanted, or that nothing stable is."""
        self._restarts = 0
        self._forget()

    def fault(self) -> str:
        """Why Triton should be restarted; empty if it should not."""
        if self._since is None or self._refusals < LEAST_REFUSALS:
            return ""
        seconds = self._now() - self._since
        if seconds < STALLS.after(self._restarts + 1):
            return ""
        return (
            f"Triton answers, holds nothing that is wanted, and has refused every stable package "
            f"for {seconds:.0f} s: {self._reason}"
        )

    def _forget(self) -> None:
        self._since = None
        self._refusals = 0
        self._reason = ""
