"""Servers of HTTP/2 in memory, which say only what a test has them say, and the loop to reach them.

A loop connects to no socket: each connection that is asked of it is a ``Peer``. Its clock is
``SteppedLoop``'s, so that an hour takes no time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loop_clocks import SteppedLoop

from gateway.engine.http2.connection import PREFACE, header

DATA, HEADERS, RESET, SETTINGS, PING, AWAY = 0, 1, 3, 4, 6, 7
END_STREAM = ACK = 1
END_HEADERS = 4
MOST_STREAMS = 3  # a setting
REFUSED_STREAM = 7
EVERY_STREAM = 2**31 - 1
_ANSWER = header(b":status", b"200")
_TRAILERS = header(b"grpc-status", b"0")


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + number.to_bytes(4, "big")
    return head + payload


@dataclass(eq=False)
class Stream:
    """A call as its server sees it.

    Attributes:
        message: as far as it has come, five bytes of gRPC before it.
        refused: the server said that it has not looked at it.
        over: answered, refused, reset or given up.
    """

    number: int
    message: bytes = b""
    whole: bool = False
    refused: bool = False
    over: bool = False


class Peer(asyncio.Transport):
    """The server at the other end of a connection, and the client's transport."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._unread = b""
        self._greeted = False
        self.streams: dict[int, Stream] = {}
        self.most_streams = EVERY_STREAM
        self.most_at_once = 0  # calls beyond what it takes, when they came
        self.settled = False
        self.leaves = False
        self.is_open = True
        self._paused = False
        self._unheard: list[bytes] = []  # said while the client reads nothing
        self.pauses = 0  # of the client

    @property
    def running(self) -> list[Stream]:
        """Calls that have not ended, in their order."""
        return [each for each in self.streams.values() if not each.over]

    def settle(self, most_streams: int) -> None:
        """Says how many calls it takes at once."""
        self.settled, self.most_streams = True, most_streams
        value = MOST_STREAMS.to_bytes(2, "big") + most_streams.to_bytes(4, "big")
        self.say(frame(SETTINGS, 0, 0, value))

    def answer(self, stream: Stream, cut: int = 0) -> None:
        """Answers a call with its message, in two pieces."""
        stream.over = True
        data = (
            frame(HEADERS, END_HEADERS, stream.number, _ANSWER)
            + frame(DATA, 0, stream.number, stream.message)
            + frame(HEADERS, END_HEADERS | END_STREAM, stream.number, _TRAILERS)
        )
        self.say(data[:cut])
        self.say(data[cut:])

    def answer_in_pieces(self, stream: Stream, message: bytes, size: int) -> None:
        """Answers a call with a message of the caller's, whose frames hold ``size`` bytes each."""
        stream.over = True
        body = b"\0" + len(message).to_bytes(4, "big") + message
        self.say(frame(HEADERS, END_HEADERS, stream.number, _ANSWER))
        for begin in range(0, len(body), size):
            self.say(frame(DATA, 0, stream.number, body[begin : begin + size]))
        self.say(frame(HEADERS, END_HEADERS | END_STREAM, stream.number, _TRAILERS))

    def reset(self, stream: Stream, code: int) -> None:
        """Ends a call without an answer."""
        stream.over, stream.refused = True, code == REFUSED_STREAM
        self.say(frame(RESET, 0, stream.number, code.to_bytes(4, "big")))

    def leave(self, last: int) -> None:
        """Takes no more calls, and refuses those behind ``last``."""
        self.leaves = True
        for stream in self.running:
            if stream.number > last:
                stream.over = stream.refused = True
        self.say(frame(AWAY, 0, 0, last.to_bytes(4, "big") + bytes(4)))

    def lose(self) -> None:
        """The connection breaks."""
        if self.is_open:
            self._end(ConnectionResetError("lost"))

    def say(self, data: bytes) -> None:
        """Sends bytes to the client, if there is one."""
        if not self.is_open or not data:
            return
        if self._paused:
            self._unheard.append(data)
        else:
            self._protocol.data_received(data)

    def pause_reading(self) -> None:
        """See ``asyncio.Transport``."""
        self._paused = True
        self.pauses += 1

    def resume_reading(self) -> None:
        """See ``asyncio.Transport``."""
        self._paused = False
        waiting, self._unheard = self._unheard, []
        for data in waiting:
            self.say(data)

    def write(self, data: Any) -> None:
        """See ``asyncio.Transport``; reads what the client sends."""
        assert self.is_open
        self._unread += bytes(data)
        if not self._greeted and self._unread.startswith(PREFACE):
            self._greeted = True
            self._unread = self._unread[len(PREFACE) :]
        while len(self._unread) >= 9:
            size = int.from_bytes(self._unread[:3], "big")
            kind, flags = self._unread[3], self._unread[4]
            number = int.from_bytes(self._unread[5:9], "big")
            payload, self._unread = self._unread[9 : 9 + size], self._unread[9 + size :]
            self._read(kind, flags, number, payload)

    def _read(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == HEADERS:
            assert number not in self.streams
            assert not self.leaves
            self.streams[number] = Stream(number)
            self.most_at_once = max(self.most_at_once, len(self.running) - self.most_streams)
        elif kind == DATA:
            stream = self.streams[number]
            stream.message += payload
            stream.whole = bool(flags & END_STREAM)
        elif kind == RESET:
            self.streams[number].over = True
        elif kind == PING and not flags & ACK:
            answer = frame(PING, ACK, 0, payload)
            self._loop.call_soon(self.say, answer)

    def abort(self) -> None:
        """See ``asyncio.Transport``."""
        if self.is_open:
            self._end(None)

    def is_closing(self) -> bool:
        return not self.is_open

    def _end(self, error: Exception | None) -> None:
        self.is_open = False
        for stream in self.running:
            stream.over = True
        self._loop.call_soon(self._protocol.connection_lost, error)


class PeerLoop(SteppedLoop):
    """Whoever connects gets the next peer, while there is a server.

    ``most_streams``: what a new peer says at once that it takes; None: it says nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peers: list[Peer] = []
        self.listens = True
        self.most_streams: int | None = 100

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], *_: Any, **__: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """See ``asyncio.AbstractEventLoop``."""
        await asyncio.sleep(0)
        if not self.listens:
            raise ConnectionRefusedError("nobody listens")
        protocol = protocol_factory()
        peer = Peer(self, protocol)
        self.peers.append(peer)
        protocol.connection_made(peer)
        if self.most_streams is not None:
            self.call_soon(peer.settle, self.most_streams)
        return peer, protocol

    def settle(self) -> None:
        """Does what there is to do now; its clock stands still."""
        self.run_until_complete(_turns(30))

    def pass_time(self, seconds: float) -> None:
        """Lets timers run for so long."""
        self.run_until_complete(asyncio.sleep(seconds))
        self.settle()


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
