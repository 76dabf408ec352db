"""How much of what was written to a connection waits, and how much its peer has taken.

A transport counts what waits in it, but not one with TLS: whenever there is any room below it, that
passes on all that it has, to where nobody counts. There the system tells what it has taken over:
what the peer has acknowledged, and what waits in the system for that. TLS adds bytes of its own, up
to some percent, so that the end of a long answer can't be told by counting: it is out for sure when
nothing waits in the system.
"""

import asyncio
import fcntl
import socket
import struct
import termios
from collections import deque
from typing import Protocol, cast

from gateway.http.pacing import PacedWriter

# Of ``struct tcp_info`` (linux/tcp.h): the bytes that the peer has acknowledged.
_TCP_INFO = struct.Struct("=120xQ")
_QUEUED = struct.Struct("=i")
# What is longer is kept whole by the event loop until its last byte is out.
_LONG_BYTES = 64 * 1024


class _Socket(Protocol):
    def fileno(self) -> int: ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


class Sending:
    """What one connection was given to send."""

    __slots__ = ("_added", "_encrypted", "_long", "_transport", "_writer", "written")

    def __init__(self, transport: asyncio.Transport, writer: PacedWriter) -> None:
        self.written = 0
        self._transport = transport
        self._writer = writer
        # Beginnings and ends, in all that was written, of what is long and not known to be out.
        self._long: deque[tuple[int, int]] = deque()
        # Bytes that the system took over beside what was written, as far as is known. What it took
        # over is more than nothing by now, if it tells: the handshake.
        self._added = 0
        self._encrypted = False
        if transport.get_extra_info("sslcontext") is not None:
            self._added = self._taken_over() or 0
            self._encrypted = self._added > 0

    def wrote(self, size: int) -> None:
        """This many bytes more are given to the transport, of a long answer in turns."""
        if size > _LONG_BYTES:
            self._long.append((self.written, self.written + size))
        self.written += size

    def left(self) -> int:
        """Bytes that wait in this process. With TLS at least 1 while that is not known."""
        left = self._left()
        out = self.written - left
        while self._long and self._long[0][1] <= out:
            self._long.popleft()
        return left

    def held(self, left: int) -> int:
        """Bytes of memory that wait: a long answer is kept whole until its last byte is out."""
        return self.written - self._long[0][0] if left and self._long else left

    def acknowledged(self) -> int:
        """Bytes that the peer's system has taken, from whatever beginning."""
        found = self._acknowledged()
        if found:
            return found
        # Nothing yet, or the system does not tell.
        return self.written - self._unwritten() - (self._queued() or 0)

    def unacknowledged(self) -> int:
        """Bytes that wait for the peer in the system, or in this process if that is not known."""
        found = self._queued()
        return self._unwritten() if found is None else found + self._writer.waiting

    def _left(self) -> int:
        taken_over = self._taken_over() if self._encrypted else None
        if taken_over is None:
            return self._unwritten()
        self._added = max(self._added, taken_over - self.written)
        left = max(self.written + self._added - taken_over, self._writer.waiting)
        return max(left, 1) if self._long and self.unacknowledged() else left

    def _unwritten(self) -> int:
        return self._transport.get_write_buffer_size() + self._writer.waiting

    def _taken_over(self) -> int | None:
        # In this order: what is acknowledged in between is missed, and not counted twice.
        acknowledged = self._acknowledged()
        queued = self._queued()
        return None if acknowledged is None or queued is None else acknowledged + queued

    def _socket(self) -> _Socket | None:
        # Not kept: its number may be another connection's once this one is closed.
        return cast("_Socket | None", self._transport.get_extra_info("socket"))

    def _acknowledged(self) -> int | None:
        found = self._socket()
        if found is None:
            return None
        try:
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            return cast("int", _TCP_INFO.unpack(info)[0])
        except (OSError, struct.error):  # it is closed, or no connection of TCP
            return None

    def _queued(self) -> int | None:
        found = self._socket()
        if found is None:
            return None
        try:
            queued = fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, bytes(_QUEUED.size))
            return cast("int", _QUEUED.unpack(queued)[0])
        except (OSError, ValueError):
            return None
