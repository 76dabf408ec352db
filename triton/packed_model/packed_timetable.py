"""When the next run's members are chosen: late, so that more join, and before the device idles.

While a run computes, more messages come, and a run costs about the same up to some thousand tokens.
So a run that is fixed early is small. Here it is chosen a short lead before the runs before it are
expected to be over. Their times are learnt by their tokens; the lead is learnt too: it grows when
the device was idle while messages waited for their turn, and shrinks while it never is. Without a
run on its way, and of sizes that were never seen, nothing waits. Pure, with the time passed in, for
one thread at a time.
"""

from collections import deque

FIRST_LEAD_SECONDS = 0.0003
LEAST_LEAD_SECONDS = 0.0001  # timers of a thread ring about so late
MOST_LEAD_SECONDS = 0.02
_LONGER, _SHORTER = 1.2, 0.99
# Of the difference to what was expected, that one run teaches: an estimate that is too long lets
# the device idle, one that is too short only makes a run smaller.
_DOWN, _UP = 0.5, 0.1


class _Run:
    """A run that was chosen and is not over."""

    __slots__ = ("expected", "has_waited", "is_launched", "key")

    def __init__(self, key: int, expected: float, *, has_waited: bool) -> None:
        self.key = key
        self.expected = expected
        self.has_waited = has_waited
        self.is_launched = False


class Timetable:
    """The runs that are on their way, in their order, and when they are expected to be over."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # of the device, by the key of a run's tokens
        self._runs: deque[_Run] = deque()
        self._free_at = 0.0
        self._lead = FIRST_LEAD_SECONDS

    @property
    def lead(self) -> float:
        """Seconds before the end of a run."""
        return self._lead

    def due(self) -> float:
        """When to choose the next run; a time that is over, or negative infinity: at once."""
        return self._free_at - self._lead if self._runs else float("-inf")

    def predict(self, tokens: int) -> float:
        """Seconds of a run of ``tokens`` tokens: of the next smaller size that was seen, or 0."""
        wanted = _key(tokens)
        known = [key for key in self._seconds if key <= wanted]
        return self._seconds[max(known)] if known else 0.0

    def choose(self, tokens: int, now: float, *, has_waited: bool) -> None:
        """The members of a run are chosen; ``has_waited`` if they could have been before."""
        run = _Run(_key(tokens), self.predict(tokens), has_waited=has_waited)
        self._runs.append(run)
        self._free_at = max(self._free_at, now) + run.expected

    def launch(self) -> None:
        """The run that was chosen last is on the device, or will follow there by itself."""
        if self._runs:
            self._runs[-1].is_launched = True

    def give_up(self) -> None:
        """The run that was chosen last does not take place."""
        self._free_at -= self._runs.pop().expected

    def end(
        self, now: float, seconds: float | None, *, was_awaited: bool, waits_since: float | None
    ) -> None:
        """The first run is over.

        Args:
            now: when that was noticed.
            seconds: of the device; None teaches nothing.
            was_awaited: it ended just now; else it may have ended before.
            waits_since: when the first message came that waits for the next run to be chosen.
        """
        had_waited = waits_since is not None and waits_since < self.due()
        run = self._runs.popleft()
        if seconds is not None:
            before = self._seconds.get(run.key, seconds)
            self._seconds[run.key] = before + (_DOWN if seconds < before else _UP) * (
                seconds - before
            )
        rest = now + sum([each.expected for each in self._runs])
        self._free_at = rest if was_awaited else min(self._free_at, rest)
        if not was_awaited:
            return
        if self._runs and self._runs[0].is_launched:
            self._lead = max(LEAST_LEAD_SECONDS, self._lead * _SHORTER)
        elif self._runs[0].has_waited if self._runs else had_waited:
            self._lead = min(MOST_LEAD_SECONDS, self._lead * _LONGER)


def _key(tokens: int) -> int:
    """Two for each doubling of tokens: as fine as the graphs that small runs are filled up to.

    >>> _key(64) < _key(65) == _key(96) < _key(97) == _key(128)
    True
    """
    most = max(tokens - 1, 1)
    bits = most.bit_length()
    return 2 * bits + (most >> (bits - 2) & 1 if bits > 1 else 0)
