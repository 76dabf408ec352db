"""The least of HTTP/1.1 that a replay needs: JSON posts on connections that are kept.

Called by ``headrace.replay.sender``. It costs a fraction of what a full client does, so that a
replay on the machine of the stack takes little from it. It follows no redirect.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_HEAD_BYTES = 64 * 2**10
_BODY_BYTES = 16 * 2**20


class ConnectionFailedError(Exception):
    """No whole answer came: refused, cut off, too late, or no HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; header names are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Connections:
    """Kept connections to one server; as many are open as requests are on their way at once.

    Args:
        url: ``http://host:port`` or ``https://...``; a path in it comes before each request's.
        timeout_seconds: for one request, connecting included.
        headers: sent with every request.
    """

    url: str
    timeout_seconds: float
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._tls = ssl.create_default_context() if secure else None
        self._prefix = parts.path.rstrip("/")
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        common = {"host": parts.netloc, "content-type": "application/json", **self.headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in common.items())

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One request and its whole answer.

        A kept connection that the server has closed meanwhile is replaced, once.

        Raises:
            ConnectionFailedError: no whole answer came in time.
        """
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {self._prefix}{path} HTTP/1.1\r\n{self._head}{more}"
        data = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await self._exchange(data)
        except TimeoutError:
            raise ConnectionFailedError("timeout") from None
        except (OSError, EOFError, ValueError) as error:
            raise ConnectionFailedError(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Closes what is kept."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _exchange(self, data: bytes) -> Answer:
        kept = bool(self._idle)
        reader, writer = self._idle.pop() if kept else await self._connect()
        done = False
        try:
            try:
                answer = await _ask(reader, writer, data)
            except _NothingCameError:
                if not kept:
                    raise
                writer.close()
                reader, writer = await self._connect()
                answer = await _ask(reader, writer, data)
            done = answer.headers.get("connection", "").lower() != "close"
            return answer
        finally:
            if done:
                self._idle.append((reader, writer))
            else:
                writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            self._host, self._port, ssl=self._tls, limit=_HEAD_BYTES
        )


class _NothingCameError(EOFError):
    """The connection ended before a byte of the answer: the server had closed it."""


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> Answer:
    try:
        writer.write(data)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
    except (ConnectionResetError, BrokenPipeError) as error:
        raise _NothingCameError(str(error)) from error
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise _NothingCameError("the server closed the connection") from error
        raise
    except asyncio.LimitOverrunError as error:
        raise ValueError("the answer's head is too long") from error
    status, headers = _parsed(head)
    return Answer(status, headers, await _body(reader, headers))


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if not first.startswith("HTTP/1.") or len(words) < 2:
        raise ValueError(f"no HTTP answer: {first[:80]!r}")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return int(words[1]), headers


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    length = int(headers.get("content-length", "0"))
    if length > _BODY_BYTES:
        raise ValueError(f"an answer of {length} bytes is too long")
    return await reader.readexactly(length)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        if len(body) + size > _BODY_BYTES:
            raise ValueError("the answer is too long")
        chunk = await reader.readexactly(size)
        await reader.readline()
        if not size:
            return body
        body += chunk
