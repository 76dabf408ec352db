"""The time of day, which a jump of the system's clock moves only once it has lasted.

A clock that is a day ahead for a moment (a node before its time is synchronised, a mistake of an
operator) would end every rollout at its deadline, for good. Slow corrections are followed at once.
Not safe for several threads that must agree to the microsecond; each sees a time within the jump's
bound.
"""

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

JUMP_SECONDS = 5.0  # between two looks; less is followed at once
LASTS_SECONDS = 600.0  # before a jump is believed

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)  # Linux: goes on while the machine sleeps


def _steady() -> float:
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


class SteadyClock:
    """Unix time, seconds, by ``wall``; between jumps it follows ``steady``, which never jumps."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _steady
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()
        self._jumped: tuple[float, float] | None = None  # to this offset, seen since

    def __call__(self) -> float:
        """The time now."""
        steady = self._steady()
        offset = self._wall() - steady
        if abs(offset - self._offset) <= JUMP_SECONDS:
            self._offset, self._jumped = offset, None
        elif self._jumped is None or abs(offset - self._jumped[0]) > JUMP_SECONDS:
            self._jumped = (offset, steady)
            log.warning(
                "the clock jumped by %.0f s: that counts once it has lasted for %.0f s",
                offset - self._offset,
                LASTS_SECONDS,
            )
        elif steady - self._jumped[1] >= LASTS_SECONDS:
            self._offset, self._jumped = offset, None
        return steady + self._offset
