"""Bounds the connections of a port whose server takes them by itself: gRPC's.

Its library knows one bound of all connections, at which it takes no more, whatever their callers
are and whether or not they do anything. So the process looks at its own sockets, a few times a
second and only where it has many files open. Where a peer address has more connections than it may,
or all have, those are closed that have been quiet the longest, as the kernel tells. A server should
take ``ROOM`` of the bound more, so that new connections find room between two looks. Beside that, a
connection may be closed by its peer's address.

Requests can't be seen here: a connection whose request is computed in silence for longer than all
others have been idle is closed like them.
"""

import asyncio
import errno
import heapq
import ipaddress
import logging
import os
import socket
import stat
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from gateway.http.connections import drop_unsent, peer_of

log = logging.getLogger(__name__)

ROOM = 0.5
_LOOK_SECONDS = 0.25
# A look at all connections takes some 10 ms where there are thousands. Where no bound can be passed
# since the last one, as so few files were opened, there is none for so long: files of others may
# have been closed meanwhile.
_LONGEST_SECONDS = 2.0
_TOLD_SECONDS = 60.0  # between two lines of the log
_FILES = Path("/proc/self/fd")
# Of ``struct tcp_info`` (linux/tcp.h): the milliseconds since data was sent, and since it came.
_TCP_INFO = struct.Struct("=44xI4xI")


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """One connection: its file, by number and inode, and the peer's address."""

    number: int
    inode: int
    host: str
    port: int

    @property
    def peer(self) -> str:
        """What it counts to; see ``peer_of``."""
        return peer_of((self.host, self.port))


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
        most: of them at once.
        most_of_peer: of one peer address; 0: as many as of all.
    """

    def __init__(self, most: int, most_of_peer: int) -> None:
        self._most = most
        self._most_of_peer = min(most_of_peer or most, most)
        # By file: its inode, and the connection where it is one of the port. Files are looked at
        # once, as there are thousands where this matters.
        self._known: dict[int, tuple[int, OpenSocket | None]] = {}
        # With this many files a bound may be passed, and before this time it can't with fewer.
        self._enough_files = 0
        self._look_at = 0.0
        self._unwanted: set[tuple[str, int]] = set()
        self._asked = asyncio.Event()

    def hang_up(self, host: str, port: int) -> None:
        """Has the connection of this peer closed soon."""
        self._unwanted.add((_plain(host), port))
        self._asked.set()

    async def follow(self, port: int) -> None:
        """Looks at the connections of a port and closes, until it is cancelled."""
        loop = asyncio.get_running_loop()
        told = -_TOLD_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._asked.wait()
            self._asked.clear()
            unwanted, self._unwanted = self._unwanted, set()
            line = "closed connections that were quiet the longest, as there were too many"
            try:
                closed = await self._look(port, unwanted)
            except (OSError, RuntimeError) as error:  # no file or no thread is to be had
                self._unwanted |= unwanted
                line, closed = f"can't look at the process's own connections: {error}", 0
            else:
                if not closed:
                    continue
            if loop.time() - told >= _TOLD_SECONDS:
                told = loop.time()
                log.warning("%s", line, extra={"port": port, "closed": closed})

    async def _look(self, port: int, unwanted: Collection[tuple[str, int]]) -> int:
        if not unwanted:
            files = _open_files()
            if files <= self._most_of_peer:
                return 0  # with so few files no bound can be passed
            if files < self._enough_files and monotonic() < self._look_at:
                return 0
        return await asyncio.to_thread(self.trim, port, unwanted)

    def trim(self, port: int, unwanted: Collection[tuple[str, int]] = ()) -> int:
        """Closes those of a port that are unwanted or too many; returns how many too many were."""
        found = []
        for each in self._open_sockets(port):
            if (each.host, each.port) in unwanted:
                _close(each)
            else:
                found.append(each)
        most_of_one = max(Counter(each.peer for each in found).values(), default=0)
        room = min(self._most - len(found), self._most_of_peer - most_of_one)
        self._enough_files = len(self._known) + room
        self._look_at = monotonic() + _LONGEST_SECONDS
        if room >= 0:
            return 0
        quiet = [
            Quiet(each, seconds) for each in found if (seconds := _quiet_seconds(each)) is not None
        ]
        gone = superfluous(quiet, self._most, self._most_of_peer)
        for each in gone:
            _close(each)
        return len(gone)

    def _open_sockets(self, port: int) -> list[OpenSocket]:
        known: dict[int, tuple[int, OpenSocket | None]] = {}
        for number in _files():
            try:
                found = os.fstat(number)
            except OSError:
                continue  # closed since
            before = self._known.get(number)
            if before is not None and before[0] == found.st_ino:
                known[number] = before
            else:
                one = _connection(number, found.st_ino, port) if _is_socket(found) else None
                known[number] = (found.st_ino, one)
        self._known = known
        return [one for _, one in known.values() if one is not None]


def _files() -> list[int]:
    with os.scandir(_FILES) as files:
        return [int(each.name) for each in files]


def _open_files() -> int:
    """How many there are, within microseconds where the kernel tells: Linux 6.2 and newer."""
    return _FILES.stat().st_size or len(_files())


def _is_socket(found: os.stat_result) -> bool:
    return stat.S_ISSOCK(found.st_mode)


def _connection(number: int, inode: int, port: int) -> OpenSocket | None:
    """A file, where it is a connection of the port."""
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
    return OpenSocket(number, inode, _plain(peer[0]), peer[1]) if own[1] == port else None


def _plain(host: str) -> str:
    """An address as it is compared: without a zone, and IPv4 as such."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _hold(number: int, inode: int) -> socket.socket | None:
    """The socket by a file of its own, so that it stays this one; None if it is gone."""
    try:
        own = os.dup(number)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        return None
    if os.fstat(own).st_ino != inode:
        os.close(own)
        return None
    return socket.socket(fileno=own)


def _close(one: OpenSocket) -> None:
    """Ends a connection in both directions; the server finds that it has ended."""
    held = _hold(one.number, one.inode)
    if held is not None:
        with held, suppress(OSError):
            drop_unsent(held.fileno())
            held.shutdown(socket.SHUT_RDWR)


def _quiet_seconds(one: OpenSocket) -> float | None:
    """For how long nothing has come or gone; None if it is gone."""
    held = _hold(one.number, one.inode)
    if held is None:
        return None
    with held:
        info = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    sent, received = _TCP_INFO.unpack(info)
    return float(min(sent, received)) / 1000
