"""The limits of the HTTP server, and the reader of bodies within them, compressed or not.

The reader never holds more bytes than the limits allow, and decompresses large bodies in a thread.
The time that a body may take is bounded by the connection (``gateway.http.server``), which needs no
timer for a body that arrives in one piece.
"""

import zlib
from dataclasses import dataclass
from functools import partial

from gateway.errors import (
    BadRequestError,
    ClientGoneError,
    TooLargeError,
    UnsupportedEncodingError,
)
from gateway.http.large_work import LargeWork
from gateway.http.messages import Request
from gateway.request_context import UNCOUNTED_BYTES


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one process of the gateway takes from its callers.

    ``max_body_bytes`` bounds a body as it arrives and again after decompression. How much memory
    all callers hold together is bounded by ``gateway.admission.byte_budget``.

    ``body_seconds`` is for a whole body (408 after it), ``header_seconds`` for request line and
    headers of a connection that has begun a request, and for the first request of a new connection
    (closed after it). ``keep_alive_seconds`` should be longer than that of a load balancer in
    front, or it will reuse a connection that closes. A POST of at most ``max_held_bytes``, head
    included, is kept for ``held_seconds`` until its body is there; after that it is handled as its
    bytes come. ``body_seconds`` is also how long a caller may take nothing of an answer.

    ``max_untaken_bytes`` bounds the answers that callers have not taken; see
    ``gateway.http.untaken``.

    ``max_connections`` bounds all connections and ``max_connections_of_peer`` those of one address,
    0 for no bound of its own; see ``gateway.http.connections`` for what happens at a bound.
    """

    max_body_bytes: int = 8 * 1024 * 1024
    max_untaken_bytes: int = 128 * 1024 * 1024
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    max_header_bytes: int = 64 * 1024
    keep_alive_seconds: int = 75
    max_held_bytes: int = 64 * 1024
    held_seconds: float = 0.1
    max_connections: int = 4096
    max_connections_of_peer: int = 0
    backlog: int = 2048


# Up to this much goes into and comes out of a compressed body on the event loop, the rest in a
# thread: of blocks that hold nothing, no byte comes out of megabytes.
_INLINE_BYTES = 128 * 1024
# A character of a body takes this many bytes of a text, if there is any beyond the BMP in it.
_WIDEST = 4
# zlib's window bits; adding 32 makes it find out by the header whether it is zlib or gzip.
_ZLIB_OR_GZIP, _RAW_DEFLATE = zlib.MAX_WBITS + 32, -zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 16 * 1024
# Of a bomb comes out so much a step: zlib joins what a step gives, and no other thread runs then.
_STEP_BYTES = 256 * 1024
# Files that were compressed in blocks have one for each 64 kB; one may be as short as 20 bytes.
_MOST_MEMBERS = 1000


class BodyReader:
    """Reads bodies. What one takes is counted by its request's context."""

    def __init__(self, limits: HttpLimits, large: LargeWork) -> None:
        self._limits = limits
        self._large = large

    @property
    def most_bytes(self) -> int:
        """Of a body, after decompression as well."""
        return self._limits.max_body_bytes

    async def read(self, request: Request, most_bytes: int | None = None) -> bytes:
        """The whole body, decompressed.

        Args:
            request: whose body it is.
            most_bytes: that the route takes, where that is less than the server does.

        Raises:
            TooLargeError: more bytes than the limit, on the wire or decompressed.
            OverloadedError: callers hold too much memory at this moment.
            UnsupportedEncodingError, BadRequestError: compressed by other means, or broken.
            ClientGoneError: the caller hung up.
            RuntimeError: the route does not say that it reads one, so nobody asked for a key.
        """
        if not request.context.recognised:
            raise RuntimeError("the body of a caller whom admission has not recognised")
        request.context.body_read = True
        body = await self._read(request, most_bytes)
        context = request.context
        context.held_bytes = len(body)
        if len(body) * _WIDEST > UNCOUNTED_BYTES or context.holding is not None:
            context.hold(_in_texts(body))
        return body

    async def _read(self, request: Request, most_bytes: int | None) -> bytes:
        body = request.body
        most = self._limits.max_body_bytes
        if most_bytes is not None:
            most = min(most, most_bytes)
        if body is None:
            length = request.headers.get(b"content-length")
            if length is not None and length.isdigit() and int(length) > most:
                raise _too_large(most)
            body = await self._received(request, most)
        if len(body) > most:
            raise _too_large(most)
        encoding = request.headers.get(b"content-encoding")
        if encoding is None:
            return body
        return await self._decompress(request, body, encoding, most)

    async def _received(self, request: Request, most: int) -> bytes:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return body
        return await self._read_rest(request, body, most)

    async def _read_rest(self, request: Request, first: bytes, most: int) -> bytes:
        chunks, size = [first], 0
        piece, more = first, True
        while True:
            size += len(piece)
            if size > most:
                raise _too_large(most)
            request.context.hold(size)
            if not more:
                if size <= _INLINE_BYTES:
                    return b"".join(chunks)
                return await self._large.do(partial(b"".join, chunks), request.context)
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece, more = message.get("body", b""), message.get("more_body", False)
            chunks.append(piece)

    async def _decompress(self, request: Request, body: bytes, encoding: bytes, most: int) -> bytes:
        name = encoding.strip().lower().decode("latin-1")
        if name in ("", "identity"):
            return body
        if name not in ("gzip", "x-gzip", "deflate"):
            raise UnsupportedEncodingError(
                f"content-encoding: {name[:40]!r} is not read here; send gzip, deflate or none."
            )
        inflation = _Inflation(body, name, most)
        try:
            found = inflation.advance(_INLINE_BYTES, _INLINE_BYTES)
            if found is None:
                # It counts as large as it may become: a small body may be a bomb.
                request.context.hold(len(body) + most)
                found = await self._large.do(
                    partial(inflation.advance, most + 1, len(body)), request.context
                )
        except zlib.error as error:
            raise BadRequestError(f"The body is not {name}: {error}.") from None
        if found is None:
            raise _too_large(most)
        return found


def _in_texts(body: bytes) -> int:
    """The bytes that the texts of a body may take of memory."""
    size = len(body)
    # Of a large body this would take long to find out.
    if size <= UNCOUNTED_BYTES and body.isascii() and b"\\u" not in body:
        return size
    return _WIDEST * size


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(
        f"The body is larger than {most} bytes, after decompression included: send fewer texts a "
        "request."
    )


class _Inflation:
    """The decompression of one body, in bounded steps.

    The body is given to zlib in pieces: of what lies behind a member, zlib makes a copy.
    """

    def __init__(self, body: bytes, name: str, limit: int) -> None:
        self._body = body
        self._given = 0  # bytes of the body that were cut into pieces
        self._rest = b""  # of the last piece, what is still to be read
        self._members = 1
        self._limit = limit
        # HTTP's deflate is zlib's format; some clients send the bare stream, so both are read.
        bare = name == "deflate" and not _looks_like_zlib(body)
        self._window = _RAW_DEFLATE if bare else _ZLIB_OR_GZIP
        self._stream = zlib.decompressobj(self._window)
        self._output = bytearray()
        self._done = False

    def advance(self, size: int, given: int) -> bytes | None:
        """Decompresses until there are ``size`` bytes, or one over the limit, or the end.

        Or until about ``given`` bytes of the body have been read. Gives all bytes at the end.
        """
        size = min(size, self._limit + 1)
        while not self._done and len(self._output) < size:
            if self._given >= given and self._has_more() and not self._rest:
                break
            piece = self._rest or self._next_piece()
            step = min(_STEP_BYTES, size - len(self._output))
            made = self._stream.decompress(piece, step)
            self._output += made
            self._rest = self._stream.unconsumed_tail
            if self._stream.eof:
                self._next_member()
            elif not (self._rest or self._has_more()) and len(made) < step:
                raise zlib.error("it ends too early")
        whole = self._done and len(self._output) <= self._limit
        return bytes(self._output) if whole else None

    def _has_more(self) -> bool:
        return self._given < len(self._body)

    def _next_piece(self) -> bytes:
        start = self._given
        self._given = min(len(self._body), start + _PIECE_BYTES)
        return self._body[start : self._given]

    def _next_member(self) -> None:
        rest = self._stream.unused_data
        if len(rest) < len(_GZIP_MAGIC):
            rest += self._next_piece()
        self._rest = rest
        if not rest:
            self._done = True
        elif not rest.startswith(_GZIP_MAGIC) or self._window != _ZLIB_OR_GZIP:
            raise zlib.error("bytes follow its end")
        elif self._members == _MOST_MEMBERS:
            raise zlib.error(f"it has more than {_MOST_MEMBERS} members")
        else:
            self._members += 1
            self._stream = zlib.decompressobj(self._window)


def _looks_like_zlib(body: bytes) -> bool:
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0
