"""Answers over HTTP that come in time as a whole, or are given up.

A socket's timeout is of one read, so that a server that sends a byte now and then never reaches it.
Here its seconds are for an answer's head and body together. What may be large goes on while enough
of it comes, and so does what is sent while enough of it is taken. The thread that reads and sends
keeps the time itself: none is left behind with a connection.
"""

import io
import socket
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse
from math import inf
from time import monotonic
from typing import Any, TypeVar

# Of package stores: a download of fewer bytes within these seconds is given up. Of what is sent:
# fewer within the time of one read.
LEAST_BYTES = 256 << 10
LEAST_SECONDS = 30.0
_PIECE_BYTES = 16 << 10  # a record of TLS: what has no time of its own
_OVER_SECONDS = 0.001  # clocks of event loops may be a little early

Connection = TypeVar("Connection", bound=HTTPConnection)


class SlowAnswerError(OSError):
    """An answer did not come in time; no ``TimeoutError``: drivers try those again at once."""


class AnswerTime:
    """How long an answer may still take: each time that ``least_bytes`` came, as long again."""

    def __init__(
        self,
        seconds: float,
        least: float = inf,
        clock: Callable[[], float] = monotonic,
        *,
        what: str = "came",
    ) -> None:
        self._clock = clock
        self._what = what
        self.allow(seconds, least)

    def allow(self, seconds: float, least_bytes: float = inf) -> None:
        """Begins again."""
        self.seconds, self._least, self._came = seconds, least_bytes, 0
        self._until = self._clock() + seconds

    def seconds_left(self) -> float:
        """More than 0; raises ``SlowAnswerError``."""
        if (left := self._until - self._clock()) > _OVER_SECONDS:
            return left
        much = "no whole answer" if self._least == inf else f"less than {self._least:,} bytes"
        raise SlowAnswerError(f"{much} {self._what} within {self.seconds:g} s")

    def note(self, count: int) -> None:
        """Takes note of bytes that came."""
        self._came += count
        if self._came >= self._least:
            self.allow(self.seconds, self._least)


class TimedResponse(HTTPResponse):
    """An answer whose ``time`` is at first what its socket gives one read."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - HTTPResponse's
        super().__init__(sock, *arguments, **options)
        self.time = AnswerTime(sock.gettimeout() or inf)
        self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach(), self.time))


class LargeResponse(TimedResponse):
    """One whose body goes on while ``LEAST_BYTES`` of it come in its socket's time."""

    def begin(self) -> None:
        """Reads the head."""
        super().begin()
        self.time.allow(self.time.seconds, LEAST_BYTES)


def time_answers(
    connection: type[Connection], response: type[TimedResponse] = TimedResponse
) -> type[Connection]:
    """A kind of connections whose answers have their time, and so has what is sent."""

    def putrequest(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the connection's
        self.taken = None  # the time begins again
        connection.putrequest(self, *arguments, **options)

    def send(self: Any, data: Any) -> None:  # noqa: ANN401 - the connection's
        sock = self.sock
        if sock is None or not isinstance(data, bytes | bytearray | memoryview):
            connection.send(self, data)  # the head: it opens the connection
            return
        usual, rest = sock.gettimeout(), memoryview(data)
        self.taken = self.taken or AnswerTime(usual or inf, LEAST_BYTES, what="were taken")
        try:
            while rest:
                left = self.taken.seconds_left()
                sock.settimeout(None if left == inf else left)
                connection.send(self, rest[:_PIECE_BYTES])
                self.taken.note(len(rest[:_PIECE_BYTES]))
                rest = rest[_PIECE_BYTES:]
        except TimeoutError:
            self.taken.seconds_left()
            raise
        finally:
            sock.settimeout(usual)

    made = {"response_class": response, "putrequest": putrequest, "send": send}
    return type(connection.__name__, (connection,), {"taken": None, **made})


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, raw: io.RawIOBase, time: AnswerTime) -> None:
        self._sock, self._raw, self._time = sock, raw, time
        self._usual = sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - any buffer
        left, late = self._time.seconds_left(), None
        self._sock.settimeout(None if left == inf else left)
        try:
            count = self._raw.readinto(buffer)
        except TimeoutError as error:
            late = error
        finally:
            self._sock.settimeout(self._usual)  # the connection may be used again
        if late is not None:
            self._time.seconds_left()  # out here, or callers would take the first error's words
            raise late
        self._time.note(count or 0)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
