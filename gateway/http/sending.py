"""How much of what was written to a connection waits, and how much its peer has taken.

A transport counts what waits in it, but not one with TLS: whenever there is any room below it, that
passes on all that it has, to where nobody counts. There the system tells what it has taken over:
what the peer has acknowledged, and what waits in the system for that.
"""

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Protocol, cast

# Of ``struct tcp_info`` (linux/tcp.h): the bytes that the peer has acknowledged.
_TCP_INFO = struct.Struct("=120xQ")
_QUEUED = struct.Struct("=i")


class _Socket(Protocol):
    def fileno(self) -> int: ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


class Sending:
    """What one connection was given to send. Bytes that TLS adds count for nothing.

    Args:
        transport: that has just been made.
    """

    __slots__ = ("_added", "_encrypted", "_socket", "_transport", "written")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.written = 0
        self._transport = transport
        self._socket = cast("_Socket | None", transport.get_extra_info("socket"))
        self._encrypted = transport.get_extra_info("sslcontext") is not None
        # Bytes that the system took over beside what was written, as far as is known.
        self._added = 0
        if self._encrypted:
            self._added = self._taken_over() or 0

    def left(self) -> int:
        """Bytes that wait in this process."""
        if self._encrypted and (taken_over := self._taken_over()) is not None:
            self._added = max(self._added, taken_over - self.written)
            return self.written + self._added - taken_over
        return self._transport.get_write_buffer_size()

    def acknowledged(self) -> int:
        """Bytes that the peer's system has taken, from whatever beginning."""
        found = self._acknowledged()
        return self.written - self._transport.get_write_buffer_size() if found is None else found

    def unacknowledged(self) -> int:
        """Bytes that wait for the peer in the system, or in this process if that is not known."""
        found = self._queued()
        return self._transport.get_write_buffer_size() if found is None else found

    def _taken_over(self) -> int | None:
        # In this order: what is acknowledged in between is missed, and not counted twice.
        acknowledged = self._acknowledged()
        queued = self._queued()
        return None if acknowledged is None or queued is None else acknowledged + queued

    def _acknowledged(self) -> int | None:
        if self._socket is None:
            return None
        try:
            found = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            return cast("int", _TCP_INFO.unpack(found)[0])
        except (OSError, struct.error):  # it is closed, or no connection of TCP
            return None

    def _queued(self) -> int | None:
        if self._socket is None:
            return None
        try:
            number = self._socket.fileno()
            found = fcntl.ioctl(number, termios.TIOCOUTQ, bytes(_QUEUED.size))
            return cast("int", _QUEUED.unpack(found)[0])
        except (OSError, ValueError):
            return None
