"""HTTP/2 as a gRPC client needs it: exchanges on one connection, as bytes in and out. No I/O.

A request is one block of headers and one body; an answer is headers, a body and trailers. The
server is told to compress headers without a table of earlier ones (RFC 7541, section 4.2). So each
block can be read by itself, and blocks that come again are read once. Of headers only those are
kept that gRPC's client looks at. What servers may not do ends the connection: ``Http2Error``.
"""

from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_DATA, _HEADERS, _RST_STREAM, _SETTINGS = 0, 1, 3, 4
_PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 5, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_TABLE_SIZE, _PUSH, _MOST_STREAMS, _WINDOW, _LONGEST_FRAME = 1, 2, 3, 4, 5
_FRAME_HEAD = 9
_PADDING_LENGTH, _PRIORITY_LENGTH = 1, 5
_FIRST_WINDOW, _FIRST_FRAME = 65_535, 16_384
_LARGEST_WINDOW = 2**31 - 1
_OUR_LONGEST_FRAME = 1 << 18
_LONGEST_BLOCK = 1 << 16
_MOST_PIECES = 64  # of a block; empty ones would otherwise come without an end
_REPLENISH = 1 << 26  # bytes of answers after which the server may send as many more
_LAST_STREAM = 1 << 30  # a connection that made this many requests takes no more
_KEPT_BLOCKS = 16

NO_ERROR, REFUSED_STREAM, CANCEL = 0, 7, 8

STATUS = b":status"
KEPT = frozenset((STATUS, b"grpc-status", b"grpc-message"))


class Http2Error(Exception):
    """The server broke the protocol; nothing more can be read from the connection."""


class Exchange:
    """One request, and its answer as far as it has come.

    Attributes:
        head: the request's headers, encoded (see ``header``).
        body: the request's body.
        headers: those of ``KEPT`` that the answer and its trailers have.
        parts: the answer's body, in pieces.
        reset: why the exchange ended without a whole answer, an error code of HTTP/2; or None.
    """

    __slots__ = ("at", "body", "head", "headers", "number", "parts", "reset", "window")

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []
        self.reset: int | None = None
        self.number = 0  # of its stream; 0 before it was sent
        self.at = 0  # bytes of the body that were sent
        self.window = 0


class Connection:
    """One connection, from the client's side.

    Its owner writes ``take()`` to the socket after each call, and passes what comes to ``receive``.
    """

    def __init__(self) -> None:
        self.settled = False  # the server's settings have come
        self.leaving = False  # no further request may be sent
        self._open: dict[int, Exchange] = {}
        self._unsent: list[Exchange] = []  # bodies that wait for the server's window
        self._out: list[bytes] = [
            PREFACE,
            _settings(
                (_TABLE_SIZE, 0), (_PUSH, 0), (_WINDOW, _LARGEST_WINDOW),
                (_LONGEST_FRAME, _OUR_LONGEST_FRAME),
            ),
            _window_update(_LARGEST_WINDOW - _FIRST_WINDOW),
        ]  # fmt: skip
        self._number = 1
        self._window = _FIRST_WINDOW
        self._stream_window = _FIRST_WINDOW
        self._frame = _FIRST_FRAME
        self._most_streams = _LARGEST_WINDOW
        # A server may refuse a request before it has counted that others ended: then no more than
        # it had then, and one more for each that ends.
        self._most_now = _LARGEST_WINDOW
        self._buffer = b""
        self._consumed = 0
        self._blocks: dict[bytes, dict[bytes, bytes]] = {}
        self._partial: _Partial | None = None

    @property
    def exchanges(self) -> int:
        """How many have not ended."""
        return len(self._open)

    @property
    def room(self) -> bool:
        """Whether the server takes another exchange at the same time."""
        return len(self._open) < min(self._most_streams, self._most_now)

    def take(self) -> bytes:
        """What is to be written, once."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def send(self, exchange: Exchange) -> None:
        """Sends a request, as much of its body as the server's window takes."""
        number = exchange.number = self._number
        self._number += 2
        if number >= _LAST_STREAM:
            self.leaving = True
        exchange.window = self._stream_window
        self._open[number] = exchange
        self._out.append(_frame(_HEADERS, _END_HEADERS, number, exchange.head))
        self._unsent.append(exchange)
        self._send_bodies()

    def cancel(self, exchange: Exchange) -> None:
        """Ends an exchange, whose answer nobody waits for any more."""
        if self._open.pop(exchange.number, None) is not None:
            if exchange in self._unsent:
                self._unsent.remove(exchange)
            self._out.append(_frame(_RST_STREAM, 0, exchange.number, CANCEL.to_bytes(4, "big")))

    def ping(self) -> None:
        """Asks for a sign of life."""
        self._out.append(_frame(_PING, 0, 0, b"headrace"))

    def receive(self, data: bytes) -> list[Exchange]:
        """Reads bytes of the server.

        Returns:
            The exchanges that have ended: answered, or with ``reset``.

        Raises:
            Http2Error: the connection can't be used any more.
        """
        ended: list[Exchange] = []
        if self._buffer:
            data = self._buffer + data
        at, size = 0, len(data)
        while size - at >= _FRAME_HEAD:
            length = int.from_bytes(data[at : at + 3], "big")
            if length > _OUR_LONGEST_FRAME:
                raise Http2Error(f"a frame of {length} bytes")
            begin = at + _FRAME_HEAD
            if size - begin < length:
                break
            number = int.from_bytes(data[at + 5 : begin], "big") & 0x7FFFFFFF
            self._read(data[at + 3], data[at + 4], number, data[begin : begin + length], ended)
            at = begin + length
        self._buffer = data[at:]
        return ended

    def _read(
        self, kind: int, flags: int, number: int, payload: bytes, ended: list[Exchange]
    ) -> None:
        """Reads one frame."""
        if self._partial is not None and (kind != _CONTINUATION or number != self._partial.number):
            raise Http2Error("a block of headers was not ended")
        if kind == _DATA:
            self._body(number, flags, payload, ended)
        elif kind == _HEADERS:
            block = _unpadded(payload, flags)
            if flags & _PRIORITY:
                block = block[_PRIORITY_LENGTH:]
            self._headers(number, flags, block, ended)
        elif kind == _CONTINUATION:
            self._continue(flags, payload, ended)
        elif kind == _RST_STREAM:
            self._reset(number, int.from_bytes(payload, "big"), ended)
        else:
            self._control(kind, flags, number, payload, ended)

    def _control(
        self, kind: int, flags: int, number: int, payload: bytes, ended: list[Exchange]
    ) -> None:
        """Reads a frame that belongs to no one exchange, or changes its window."""
        if kind == _WINDOW_UPDATE:
            self._widen(number, int.from_bytes(payload, "big") & 0x7FFFFFFF)
        elif kind == _GOAWAY:
            self._leave(int.from_bytes(payload[:4], "big") & 0x7FFFFFFF, ended)
        elif kind == _PUSH_PROMISE:
            raise Http2Error("a push that was forbidden")
        elif not flags & _ACK:
            if kind == _SETTINGS:
                self._settings(payload)
            elif kind == _PING:
                self._out.append(_frame(_PING, _ACK, 0, payload))

    def _body(self, number: int, flags: int, payload: bytes, ended: list[Exchange]) -> None:
        self._count(len(payload))
        exchange = self._open.get(number)
        if exchange is not None:
            exchange.parts.append(_unpadded(payload, flags))
            if flags & _END_STREAM:
                self._end(exchange, ended)

    def _reset(self, number: int, code: int, ended: list[Exchange]) -> None:
        exchange = self._open.get(number)
        if exchange is not None:
            exchange.reset = code
            self._end(exchange, ended)
            if code == REFUSED_STREAM:
                self._most_now = max(1, len(self._open))

    def _headers(self, number: int, flags: int, block: bytes, ended: list[Exchange]) -> None:
        if not flags & _END_HEADERS:
            self._partial = _Partial(number, flags, block)
            return
        exchange = self._open.get(number)
        if exchange is None:
            return
        known = self._blocks.get(block)
        if known is None:
            known = decode(block)
            if len(self._blocks) < _KEPT_BLOCKS:
                self._blocks[block] = known
        exchange.headers.update(known)
        if flags & _END_STREAM:
            self._end(exchange, ended)

    def _continue(self, flags: int, payload: bytes, ended: list[Exchange]) -> None:
        partial = self._partial
        if partial is None:
            raise Http2Error("headers go on that did not begin")
        partial.add(payload)
        if flags & _END_HEADERS:
            self._partial = None
            began = partial.flags | _END_HEADERS
            self._headers(partial.number, began, b"".join(partial.pieces), ended)

    def _end(self, exchange: Exchange, ended: list[Exchange]) -> None:
        del self._open[exchange.number]
        self._most_now += 1
        if exchange.at < len(exchange.body):
            # Answered before all of it was read: the server wants no more.
            if exchange in self._unsent:
                self._unsent.remove(exchange)
            if exchange.reset is None:
                code = CANCEL.to_bytes(4, "big")
                self._out.append(_frame(_RST_STREAM, 0, exchange.number, code))
        ended.append(exchange)

    def _leave(self, last: int, ended: list[Exchange]) -> None:
        """No further request may be sent; those behind ``last`` were not looked at."""
        self.leaving = True
        for exchange in [each for each in self._open.values() if each.number > last]:
            exchange.reset = REFUSED_STREAM
            self._end(exchange, ended)

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            name = int.from_bytes(payload[at : at + 2], "big")
            value = int.from_bytes(payload[at + 2 : at + 6], "big")
            if name == _MOST_STREAMS:
                self._most_streams = value
            elif name == _LONGEST_FRAME:
                self._frame = max(_FIRST_FRAME, value)
            elif name == _WINDOW:
                if value > _LARGEST_WINDOW:
                    raise Http2Error(f"a window of {value} bytes")
                for exchange in self._open.values():
                    exchange.window += value - self._stream_window
                self._stream_window = value
        self.settled = True
        self._out.append(_frame(_SETTINGS, _ACK, 0, b""))
        self._send_bodies()

    def _widen(self, number: int, more: int) -> None:
        if number == 0:
            self._window += more
        else:
            exchange = self._open.get(number)
            if exchange is None:
                return
            exchange.window += more
        self._send_bodies()

    def _send_bodies(self) -> None:
        """Sends of the bodies that wait what the windows take, the oldest first."""
        waiting = self._unsent
        if not waiting:
            return
        self._unsent = []
        for exchange in waiting:
            size = len(exchange.body)
            while True:
                count = min(size - exchange.at, exchange.window, self._window, self._frame)
                if count <= 0 and exchange.at < size:
                    self._unsent.append(exchange)
                    break
                end = exchange.at + count
                flags = _END_STREAM if end == size else 0
                part = exchange.body[exchange.at : end]
                self._out.append(_frame(_DATA, flags, exchange.number, part))
                exchange.at = end
                exchange.window -= count
                self._window -= count
                if end == size:
                    break

    def _count(self, consumed: int) -> None:
        """Lets the server send more once it has sent a lot."""
        self._consumed += consumed
        if self._consumed > _REPLENISH:
            self._out.append(_window_update(self._consumed))
            self._consumed = 0


class _Partial:
    """A block of headers that goes on in the next frame."""

    __slots__ = ("flags", "number", "pieces", "size")

    def __init__(self, number: int, flags: int, piece: bytes) -> None:
        self.number = number
        self.flags = flags
        self.pieces = [piece]
        self.size = len(piece)

    def add(self, piece: bytes) -> None:
        """Raises ``Http2Error`` if the block becomes too long, or has too many pieces."""
        self.pieces.append(piece)
        self.size += len(piece)
        if self.size > _LONGEST_BLOCK or len(self.pieces) > _MOST_PIECES:
            raise Http2Error("a block of headers without an end")


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + number.to_bytes(4, "big")
    return head + payload


def _settings(*values: tuple[int, int]) -> bytes:
    parts = [name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values]
    return _frame(_SETTINGS, 0, 0, b"".join(parts))


def _window_update(more: int) -> bytes:
    return _frame(_WINDOW_UPDATE, 0, 0, more.to_bytes(4, "big"))


def _unpadded(payload: bytes, flags: int) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error("more padding than payload")
    return payload[_PADDING_LENGTH : len(payload) - payload[0]]


# Headers: HPACK, RFC 7541, without its table of earlier headers.

_STATIC = 61  # entries of the static table
# Of the static table: the answer's statuses. The other entries are no headers that are kept.
_STATUSES = {8: b"200", 9: b"204", 10: b"206", 11: b"304", 12: b"400", 13: b"404", 14: b"500"}
_METHOD_POST, _SCHEME_HTTP, _SCHEME_HTTPS = b"\x83", b"\x86", b"\x87"
_AUTHORITY, _PATH, _CONTENT_TYPE = 1, 4, 31


def request_head(authority: bytes, path: bytes, *, over_tls: bool = False) -> bytes:
    """The encoded headers of a gRPC request; ``header`` makes more to be added."""
    scheme = _SCHEME_HTTPS if over_tls else _SCHEME_HTTP
    return b"".join((
        _METHOD_POST, scheme, _named(_PATH, path), _named(_AUTHORITY, authority),
        header(b"te", b"trailers"), _named(_CONTENT_TYPE, b"application/grpc"),
    ))  # fmt: skip


def header(name: bytes, value: bytes) -> bytes:
    """One encoded header, which servers do not keep."""
    return b"\x00" + _string(name) + _string(value)


def _named(index: int, value: bytes) -> bytes:
    return _integer(index, 4, 0) + _string(value)


def _string(value: bytes) -> bytes:
    return _integer(len(value), 7, 0) + value


def _integer(value: int, bits: int, first: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    out = bytearray((first | most,))
    value -= most
    while value >= 0x80:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(block: bytes) -> dict[bytes, bytes]:
    """The headers of ``KEPT`` in a block.

    Raises:
        Http2Error: it is no such block, or refers to headers of earlier ones.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    try:
        while at < len(block):
            first = block[at]
            if first & 0x80:  # a header of the static table
                index, at = _read_integer(block, at, 7)
                name, value = STATUS if index in _STATUSES else b"", _STATUSES.get(index, b"")
            elif first & 0xE0 == 0x20:  # the size of the table that there is not
                index, at = _read_integer(block, at, 5)
                continue
            else:
                index, at = _read_integer(block, at, 6 if first & 0x40 else 4)
                name = STATUS if index in _STATUSES else b""
                if index == 0:
                    name, at = _read_string(block, at)
                value, at = _read_string(block, at)
            if index > _STATIC:
                raise Http2Error("a header of a table that there is not")
            if name in KEPT:
                found[name] = value
    except IndexError:
        raise Http2Error("a block of headers ends too early") from None
    return found


def _read_integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """An integer and where it ends."""
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    shift = 0
    while True:
        octet = block[at]
        at += 1
        value += (octet & 0x7F) << shift
        if not octet & 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise Http2Error("an integer without an end")


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    """A string and where it ends."""
    compressed = block[at] & 0x80
    length, at = _read_integer(block, at, 7)
    end = at + length
    if end > len(block):
        raise IndexError
    value = block[at:end]
    return (_uncompressed(value) if compressed else value), end


# Bits of the Huffman code of each octet, and of the end (RFC 7541, appendix B). The code is
# canonical: octets of one length follow each other.
_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b080606"
    "060505050606060606060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d"
    "0e060f05060506050606060507070606060506070605050607070707070f0b0e0d1c14161414161616171617171717"
    "1718171818161718171717171516171617171816151416161717151716161815161717151516151716171714161616"
    "171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b1418141516151517161619"
    "1918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)


def _codes(lengths: Iterable[int]) -> dict[tuple[int, int], int]:
    """(bits, code) -> octet."""
    codes: dict[tuple[int, int], int] = {}
    code = last = 0
    for length, octet in sorted((length, octet) for octet, length in enumerate(lengths)):
        code = (code + 1) << (length - last) if last else 0
        last = length
        codes[length, code] = octet
    return codes


_CODES = _codes(_LENGTHS)
_LONGEST_CODE = 30


def _uncompressed(value: bytes) -> bytes:
    """A string that was compressed by the Huffman code."""
    out = bytearray()
    code = length = 0
    for octet in value:
        for shift in range(7, -1, -1):
            code = code << 1 | octet >> shift & 1
            length += 1
            found = _CODES.get((length, code))
            if found is not None:
                if found > 0xFF:
                    raise Http2Error("the end of a string within it")
                out.append(found)
                code = length = 0
            elif length > _LONGEST_CODE:
                raise Http2Error("no code of a string")
    # The rest fills the last octet with ones.
    if length > 7 or code != (1 << length) - 1:
        raise Http2Error("a string ends within a code")
    return bytes(out)
