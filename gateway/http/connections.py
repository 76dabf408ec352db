"""Which connections a server keeps when there are as many as it may have.

A new connection is always worth more than one that does nothing: where a bound is reached, those
go that have waited longest for a caller. First come those that have not sent a whole head, then
those that are idle between two requests, then those whose last answer is on its way, then those
whose body is late. A connection whose request is being answered is never closed. Where there is
none of the others, the new one is refused.

Two bounds: of all connections, and of those of one peer address, so that one caller can't take the
room of all others. Behind a proxy all callers have the proxy's address.
"""

import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Protocol

# As many of a bound's connections are closed at once as this part of it, since finding them takes
# a look at all of them; and where that found fewer, nobody looks again for so long.
_PART = 16
_REST_SECONDS = 0.05


class Waits(IntEnum):
    """What a connection waits for; those with the lowest number are closed first."""

    HEAD = 0
    NEXT_REQUEST = 1
    TAKING = 2  # its caller takes the last answer
    BODY = 3


class Connection(Protocol):
    """One connection, as its owner sees it."""

    def waits(self) -> tuple[Waits, float] | None:
        """What it waits for and since when; None while a request is being answered."""

    def make_way(self) -> None:
        """Ends it at once. What the system has of an answer of just now is delivered."""


class Connections:
    """The open connections of one server. For its event loop only.

    Args:
        most: of them at once.
        most_of_peer: of one peer address; 0: as many as of all.
        clock: the event loop's, seconds.
    """

    def __init__(self, most: int, most_of_peer: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._most_of_peer = most_of_peer or most
        self._clock = clock
        self._open: dict[Connection, str] = {}
        self._of_peer: dict[str, dict[Connection, None]] = {}
        self._rest_until = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection, peer: str) -> bool:
        """Whether a new connection may stay; others may be closed for it."""
        of_peer = self._of_peer.get(peer, {})
        if len(of_peer) >= self._most_of_peer and not self._make_room(of_peer, self._most_of_peer):
            return False
        if len(self._open) >= self._most and not self._make_room(self._open, self._most):
            return False
        self._open[connection] = peer
        self._of_peer.setdefault(peer, {})[connection] = None
        return True

    def left(self, connection: Connection) -> None:
        """A connection has ended; one that is not known is ignored."""
        peer = self._open.pop(connection, None)
        if peer is not None:
            of_peer = self._of_peer[peer]
            del of_peer[connection]
            if not of_peer:
                del self._of_peer[peer]

    def _make_room(self, among: Iterable[Connection], bound: int) -> bool:
        """Closes some of those that wait longest; False where none waits."""
        now = self._clock()
        if now < self._rest_until:
            return False
        waiting = [
            (*waits, index, one) for index, one in enumerate(among) if (waits := one.waits())
        ]
        batch = max(1, bound // _PART)
        if len(waiting) < batch:
            self._rest_until = now + _REST_SECONDS
        waiting.sort()
        for *_, one in waiting[:batch]:
            self.left(one)
            one.make_way()
        return bool(waiting)


_AT_ONCE = struct.pack("ii", 1, 0)  # ``struct linger``: on, for no time


def drop_unsent(number: int) -> None:
    """Has the system forget what a socket holds once it is closed, and tell the peer so.

    Otherwise it keeps megabytes for minutes of a connection whose peer takes nothing.

    Raises:
        OSError: the socket is gone.
    """
    with socket.socket(fileno=os.dup(number)) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


def bound_unsent(number: int, seconds: float) -> None:
    """Has the system give up what a socket holds, once closed, if the peer takes none for so long.

    Args:
        number: of the socket's file.
        seconds: above 0.

    Raises:
        OSError: the socket is gone, or none of TCP.
    """
    with socket.socket(fileno=os.dup(number)) as own:
        milliseconds = max(1, round(seconds * 1000))
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def peer_of(address: object) -> str:
    """The peer that a socket's address counts as: the host, and of IPv6 its network of 64 bits.

    >>> peer_of(("192.0.2.7", 4711)), peer_of(("2001:db8::1", 4711, 0, 0))
    ('192.0.2.7', '2001:db8::')
    """
    if not isinstance(address, tuple) or not address:
        return ""
    host = str(address[0])
    if ":" not in host:
        return host
    found = ipaddress.IPv6Address(host.partition("%")[0])
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
