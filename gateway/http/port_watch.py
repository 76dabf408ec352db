"""Bounds the connections of a port that others accept: gRPC's, and those that shake hands for TLS.

gRPC's library knows one bound of all connections, at which it takes no more, whoever holds them and
whether or not they do anything; what speaks TLS is nobody's connection before its handshake is
done. So the process looks at its own sockets, a few times a second and only where it has many files
open. Where a peer address has more connections than it may, or all have, those are closed that have
been quiet the longest, as the kernel tells. A server should take ``ROOM`` of the bound more, so
that new connections find room between two looks.

Requests can't be seen here: a connection whose request is computed in silence for longer than all
others have been idle is closed like them.
"""

import asyncio
import heapq
import logging
import os
import socket
import stat
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gateway.http.connections import peer_of

log = logging.getLogger(__name__)

ROOM = 0.5
_LOOK_SECONDS = 0.25
_TOLD_SECONDS = 60.0  # between two lines of the log
_FILES = "/proc/self/fd"
# Of ``struct tcp_info`` (linux/tcp.h): the milliseconds since data was sent, and since it came.
_TCP_INFO = struct.Struct("=44xI4xI")


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """One connection: its file, by number and inode, and the peer that it counts to."""

    number: int
    inode: int
    peer: str


@dataclass(frozen=True, slots=True)
class Quiet:
    """A connection, and for how many seconds nothing has come or gone on it."""

    socket: OpenSocket
    seconds: float


def superfluous(quiet: Sequence[Quiet], most: int, most_of_peer: int) -> list[OpenSocket]:
    """Those to close so that no peer has more than its bound, nor all of them theirs."""
    of_peer: dict[str, list[Quiet]] = defaultdict(list)
    for each in quiet:
        of_peer[each.socket.peer].append(each)
    closed = [
        one for each in of_peer.values() for one in _longest_quiet(each, len(each) - most_of_peer)
    ]
    gone = {one.number for one in closed}
    left = [each for each in quiet if each.socket.number not in gone]
    return [*closed, *_longest_quiet(left, len(left) - most)]


def _longest_quiet(quiet: Iterable[Quiet], number: int) -> list[OpenSocket]:
    chosen = heapq.nlargest(max(0, number), quiet, key=lambda each: each.seconds)
    return [each.socket for each in chosen]


class PortWatch:
    """The connections that this process has accepted on one of its ports.

    Args:
        port: of TCP, on any address.
        most: of them at once.
        most_of_peer: of one peer address; 0: as many as of all.
    """

    def __init__(self, port: int, most: int, most_of_peer: int) -> None:
        self._port = port
        self._most = most
        self._most_of_peer = min(most_of_peer or most, most)
        # By file: its inode, and the peer where it is a connection of the port. Files are looked at
        # once, as there are thousands where this matters.
        self._known: dict[int, tuple[int, str | None]] = {}

    async def follow(self) -> None:
        """Looks and closes until it is cancelled."""
        loop = asyncio.get_running_loop()
        told = -_TOLD_SECONDS
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            line = "closed connections that were quiet the longest, as there were too many"
            try:
                closed = await self._look()
            except OSError as error:
                line, closed = f"can't look at the process's own connections: {error}", 0
            else:
                if not closed:
                    continue
            if loop.time() - told >= _TOLD_SECONDS:
                told = loop.time()
                log.warning("%s", line, extra={"port": self._port, "closed": closed})

    async def _look(self) -> int:
        if len(_files()) <= self._most_of_peer:
            return 0  # with so few files no bound can be passed
        return await asyncio.to_thread(self.trim)

    def trim(self) -> int:
        """Closes those that are too many; returns how many that were."""
        found = self._open_sockets()
        of_peers = Counter(each.peer for each in found)
        if len(found) <= self._most and max(of_peers.values(), default=0) <= self._most_of_peer:
            return 0
        quiet = [
            Quiet(each, seconds) for each in found if (seconds := _quiet_seconds(each)) is not None
        ]
        gone = superfluous(quiet, self._most, self._most_of_peer)
        for each in gone:
            held = _hold(each.number, each.inode)
            if held is not None:
                with held, suppress(OSError):
                    held.shutdown(socket.SHUT_RDWR)  # the server finds it ended, and closes it
        return len(gone)

    def _open_sockets(self) -> list[OpenSocket]:
        known: dict[int, tuple[int, str | None]] = {}
        for number in _files():
            try:
                found = os.fstat(number)
            except OSError:
                continue  # closed since
            before = self._known.get(number)
            if before is not None and before[0] == found.st_ino:
                known[number] = before
            else:
                peer = self._peer(number, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None
                known[number] = (found.st_ino, peer)
        self._known = known
        return [
            OpenSocket(number, inode, peer)
            for number, (inode, peer) in known.items()
            if peer is not None
        ]

    def _peer(self, number: int, inode: int) -> str | None:
        """The peer, where it is a connection of the port."""
        held = _hold(number, inode)
        if held is None:
            return None
        with held:
            if held.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            try:
                own, peer = held.getsockname(), held.getpeername()
            except OSError:
                return None  # it listens, or has ended
        return peer_of(peer) if own[1] == self._port else None


def _files() -> list[int]:
    with os.scandir(_FILES) as files:
        return [int(each.name) for each in files]


def _hold(number: int, inode: int) -> socket.socket | None:
    """The socket by a file of its own, so that it stays this one; None where it is gone."""
    try:
        own = os.dup(number)
    except OSError:
        return None
    if os.fstat(own).st_ino != inode:
        os.close(own)
        return None
    return socket.socket(fileno=own)


def _quiet_seconds(one: OpenSocket) -> float | None:
    """For how long nothing has come or gone; None where it is gone."""
    held = _hold(one.number, one.inode)
    if held is None:
        return None
    with held:
        info = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    sent, received = _TCP_INFO.unpack(info)
    return float(min(sent, received)) / 1000
