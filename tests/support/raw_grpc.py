"""A gRPC client that does what no library lets one do: half a message, byte by byte, no key.

It speaks as much of HTTP/2 as that takes: one connection, calls on it, and of what the server says
the windows that it grants and the calls that it ends. One thread, sockets that never block.
"""

import re
import select
import socket
import struct
from collections import defaultdict
from dataclasses import dataclass, field

INFER = "/inference.GRPCInferenceService/ModelInfer"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8
# The server's library sends it without HPACK's compression.
_STATUS = re.compile(rb"grpc-status[\x01\x02]([0-9]+)")
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_CANCEL = 8
_FRAME_BYTES = 16_384
_FIRST_WINDOW = 65_535
_MOST_OUT = 1 << 20


def prefixed(message: bytes, announced: int | None = None) -> bytes:
    """A message as gRPC sends it; ``announced``: the length that is said, where that is a lie."""
    return struct.pack(">BI", 0, len(message) if announced is None else announced) + message


@dataclass
class RawGrpc:
    """One connection.

    Attributes:
        sent_bytes: of messages, that the server's windows let through.
        ended: the calls that the server has ended.
        closed: whether the server has closed the connection.
        most_calls: at once, as the server says; 0 before it has.
        first_window: bytes of an answer that the server may send before it is told of more; of
            those of all calls it may send 65,535.
        answered: the calls whose answer has begun.
    """

    port: int
    host: str = "127.0.0.1"
    sent_bytes: int = 0
    ended: set[int] = field(default_factory=set)
    closed: bool = False
    most_calls: int = 0
    first_window: int = _FIRST_WINDOW
    answered: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._socket = socket.create_connection((self.host, self.port), timeout=60)
        self._socket.setblocking(False)
        settings = struct.pack(">HI", 4, self.first_window)
        self._out = bytearray(_PREFACE + _frame(_SETTINGS, 0, 0, settings))
        self._in = b""
        self._next = 1
        self._room = _FIRST_WINDOW
        self._first_window = _FIRST_WINDOW
        self._spent: dict[int, int] = defaultdict(int)  # by call: bytes sent, less those granted
        self._unsent: dict[int, memoryview] = {}
        self._last: set[int] = set()
        self._told: dict[int, bytes] = defaultdict(bytes)  # by call: its headers as they came

    def status(self, number: int) -> str:
        """The status of a call that has ended; empty where the server named none."""
        found = _STATUS.search(self._told[number])
        return "" if found is None else found[1].decode()

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()

    def call(
        self, message: "bytes | memoryview", *, path: str = INFER, end: bool = True, **metadata: str
    ) -> int:
        """Begins a call that sends these bytes as windows allow; returns its number."""
        number, self._next = self._next, self._next + 2
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "test",
            "content-type": "application/grpc",
            "te": "trailers",
            **{name.replace("_", "-"): value for name, value in metadata.items()},
        }
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
        self._out += _frame(_HEADERS, _END_HEADERS, number, block)
        self._unsent[number] = memoryview(message)
        if end:
            self._last.add(number)
        return number

    def reset(self, number: int) -> None:
        """Takes a call back, as a client does that is no longer interested."""
        self._unsent.pop(number, None)
        self._out += _frame(_RST, 0, number, _CANCEL.to_bytes(4, "big"))

    @property
    def has_sent(self) -> bool:
        """Whether all that windows allow is on its way."""
        return not self._out

    def pump(self, seconds: float = 0.0) -> None:
        """Sends and reads what can be, and waits for so long where that is nothing."""
        self._fill()
        ready = select.poll()
        ready.register(self._socket, select.POLLIN | (select.POLLOUT if self._out else 0))
        found_ready = dict(ready.poll(1000 * seconds)).get(self._socket.fileno(), 0)
        readable = found_ready & ~select.POLLOUT
        try:
            if found_ready & select.POLLOUT:
                del self._out[: self._socket.send(self._out)]
            if readable:
                found = self._socket.recv(1 << 20)
                self.closed = self.closed or not found
                self._in += found
        except (ConnectionError, BlockingIOError) as error:
            self.closed = self.closed or isinstance(error, ConnectionError)
        self._read()

    def _fill(self) -> None:
        for number in list(self._unsent):
            while len(self._out) < _MOST_OUT:
                unsent = self._unsent[number]
                room = min(self._room, self._first_window - self._spent[number], _FRAME_BYTES)
                piece = bytes(unsent[: max(0, room)])
                last = len(piece) == len(unsent)
                if not piece and not (last and number in self._last):
                    break
                self._unsent[number] = unsent[len(piece) :]
                flags = _END_STREAM if last and number in self._last else 0
                self._out += _frame(_DATA, flags, number, piece)
                self._room -= len(piece)
                self._spent[number] += len(piece)
                self.sent_bytes += len(piece)
                if last:
                    del self._unsent[number]
                    break

    def _read(self) -> None:
        while len(self._in) >= 9:
            size = int.from_bytes(self._in[:3], "big")
            if len(self._in) < 9 + size:
                return
            kind, flags = self._in[3], self._in[4]
            number = int.from_bytes(self._in[5:9], "big")
            content = self._in[9 : 9 + size]
            self._in = self._in[9 + size :]
            self._take(kind, flags, number, content)

    def _take(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for name, value in struct.iter_unpack(">HI", content):
                if name == 3:
                    self.most_calls = value
                if name == 4:
                    self._first_window = value
            self._out += _frame(_SETTINGS, _ACK, 0)
        elif kind == _PING and not flags & _ACK:
            self._out += _frame(_PING, _ACK, 0, content)
        elif kind == _WINDOW:
            granted = int.from_bytes(content, "big")
            if number:
                self._spent[number] -= granted
            else:
                self._room += granted
        if kind == _HEADERS:
            self._told[number] += content
            self.answered.add(number)
        if kind == _RST or (kind in (_HEADERS, _DATA) and flags & _END_STREAM):
            self.ended.add(number)
            self._unsent.pop(number, None)


def _frame(kind: int, flags: int, number: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, number) + content


def _text(value: str) -> bytes:
    """A string of HPACK's, without its compression; of fewer than 127 bytes."""
    return bytes([len(value)]) + value.encode()
