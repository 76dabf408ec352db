"""The time of day, which a jump of the system's clock moves only once it has lasted.

A clock that is a day ahead for a moment (a node before its time is synchronised, a mistake of an
operator) would end every rollout at its deadline, for good. Slow corrections are followed at once.
A clock that is wrong from a process's start on is seen by an API server's, which counts instead.
Not safe for several threads that must agree to the microsecond; each sees a time within the jump's
bound.
"""

import logging
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

log = logging.getLogger(__name__)

JUMP_SECONDS = 5.0  # between two looks; less is followed at once
LASTS_SECONDS = 600.0  # before a jump is believed
# Between this machine's clock and an API server's: less is what answers take on their way, and what
# their whole seconds leave out.
DIFFER_SECONDS = 30.0

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)  # Linux: goes on while the machine sleeps


def _steady() -> float:
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


class DatedAnswers:
    """What the ``Date`` of a server's answers (RFC 9110, 6.6.1) says about its clock.

    Behind one address there may be several servers, and the clock of one may be wrong: none counts
    if the first answers disagree, and later only what two in a row say.
    """

    def __init__(self, steady: Callable[[], float] = _steady) -> None:
        self._steady = steady
        self.offset: float | None = None  # of its unix time from the steady one; None: not known
        self._last: float | None = None
        self._disagree = False

    def note(self, date: str | None) -> None:
        """Takes the ``Date`` of an answer that came just now; one that is none changes nothing."""
        try:
            offset = parsedate_to_datetime(date or "").timestamp() - self._steady()
        except (OverflowError, TypeError, ValueError):
            return
        last, self._last = self._last, offset
        if last is None:
            return
        agree = abs(offset - last) <= JUMP_SECONDS
        self._disagree |= self.offset is None and not agree
        if agree and not self._disagree:
            self.offset = offset


API_SERVER = DatedAnswers()  # of the server that this process asks


class SteadyClock:
    """Unix time, seconds, by ``wall``; between jumps it follows ``steady``, which never jumps.

    Where ``witness`` differs from ``wall`` it counts instead: at once when it is first known, then
    a change of what it says is a jump as well.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = _steady,
        witness: DatedAnswers | None = None,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._witness = witness or DatedAnswers()
        self._witnessed = False
        self._offset = wall() - steady()
        self._jumped: tuple[float, float] | None = None  # to this offset, seen since

    def __call__(self) -> float:
        """The time now."""
        steady = self._steady()
        offset, witness = self._wall() - steady, self._witness.offset
        is_first = witness is not None and not self._witnessed
        self._witnessed |= is_first
        if witness is not None and abs(witness - offset) > DIFFER_SECONDS:
            if is_first:
                log.warning(
                    "the clock of this machine is %.0f s ahead of the API server's, which counts",
                    offset - witness,
                )
            offset = witness
        if is_first or abs(offset - self._offset) <= JUMP_SECONDS:
            self._offset, self._jumped = offset, None
        elif (jumped := self._jumped) is None or abs(offset - jumped[0]) > JUMP_SECONDS:
            self._jumped = (offset, steady)
            log.warning(
                "the clock jumped by %.0f s: that counts once it has lasted for %.0f s",
                offset - self._offset,
                LASTS_SECONDS,
            )
        elif steady - jumped[1] >= LASTS_SECONDS:
            self._offset, self._jumped = offset, None
        return steady + self._offset
