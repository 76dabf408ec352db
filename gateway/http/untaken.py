"""Bounds what answers hold that callers do not take.

An answer stays in memory until its caller has taken it, and a caller need not: over HTTP by not
reading, over gRPC by a window of no bytes. Where all such answers hold more than they may together,
or are too many, those are ended, with their connections, that are taken the slowest.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, Protocol

from gateway.http.body import HttpLimits

# For so long an answer is on its way, whatever else is held.
_YOUNG_SECONDS = 0.25
# Finding the slowest takes a look at all, so that nobody looks again for so long.
_REST_SECONDS = 0.05
_REST_SHARE = 20  # times as long as the look took, up to
_LONGEST_REST_SECONDS = 1.0


class AnswerBytes(NamedTuple):
    """Of an answer, or of all of a connection.

    Attributes:
        held: what it holds of memory now; 0: nothing any more.
        taken: what was ever taken.
        given: what was ever given to be taken.
    """

    held: int
    taken: int
    given: int


class Holder(Protocol):
    """An answer that is not taken, or a connection with such answers."""

    def answer_bytes(self) -> AnswerBytes:
        """As it is now."""

    def abort(self) -> None:
        """Ends the connection, at once or soon."""


class HeldBytes(Protocol):
    """What all callers hold; ``gateway.admission.byte_budget`` has it."""

    def add(self, size: int) -> None:
        """They hold this many bytes more, or fewer if below 0."""

    def fits(self, size: int) -> bool:
        """Whether this many more bytes have room."""


_NOTHING = AnswerBytes(held=0, taken=0, given=0)


@dataclass(slots=True)
class _Held:
    since: float
    taken_before: int
    bytes: AnswerBytes = _NOTHING

    def rate(self, now: float) -> float:
        return (self.bytes.taken - self.taken_before) / (now - self.since)


class UntakenAnswers:
    """All of one server. For its event loop only.

    Args:
        most_bytes: that they hold together.
        most: of them.
        clock: seconds.
        held: what all callers hold, in which these are counted. If that is full, they make room.
    """

    def __init__(
        self,
        most_bytes: int,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        held: HeldBytes | None = None,
    ) -> None:
        self._all = held
        self._most_bytes = most_bytes
        self._most = most
        self._clock = clock
        self._held: dict[Holder, _Held] = {}  # in the order in which they began
        self._bytes = 0
        self._rest_until = -1.0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, holder: Holder) -> None:
        """A holder may hold more now; others, or itself, may be ended for it."""
        found = holder.answer_bytes()
        held = self._held.get(holder)
        if held is not None and found.taken >= held.bytes.given:
            self.release(holder)  # all that it held before was taken: this is another answer
            held = None
        if held is None:
            held = self._held[holder] = _Held(self._clock(), found.taken)
        self._see(held, found)
        if self._is_full() and (now := self._clock()) >= self._rest_until:
            self._make_room(now)
            took = self._clock() - now
            rest = min(_LONGEST_REST_SECONDS, _REST_SHARE * took)
            self._rest_until = now + max(_REST_SECONDS, rest)

    def release(self, holder: Holder) -> None:
        """A holder holds nothing any more; one that is not known is ignored."""
        held = self._held.pop(holder, None)
        if held is not None:
            self._count(-held.bytes.held)

    def _is_full(self) -> bool:
        if self._bytes > self._most_bytes or len(self._held) > self._most:
            return True
        return self._all is not None and not self._all.fits(0)

    def _see(self, held: _Held, found: AnswerBytes) -> None:
        self._count(found.held - held.bytes.held)
        held.bytes = found

    def _count(self, size: int) -> None:
        self._bytes += size
        if size and self._all is not None:
            self._all.add(size)

    def _make_room(self, now: float) -> None:
        for holder, held in tuple(self._held.items()):
            if (found := holder.answer_bytes()).held:
                self._see(held, found)
            else:
                self.release(holder)
        # Of equals the one that began first: sorting keeps their order.
        slowest = sorted(
            (
                (held.rate(now), holder)
                for holder, held in self._held.items()
                if now - held.since >= _YOUNG_SECONDS
            ),
            key=itemgetter(0),
        )
        for _, holder in slowest:
            if not self._is_full():
                return
            self.release(holder)
            holder.abort()


def untaken_of(limits: HttpLimits, held: HeldBytes | None = None) -> UntakenAnswers:
    """Within these limits; half of all calls may be ones whose answers are not taken."""
    most = max(1, limits.max_connections // 2)
    return UntakenAnswers(limits.max_untaken_bytes, most, held=held)
