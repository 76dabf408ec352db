"""The least of HTTP/1.1 that a load generator needs: one request at a time on one connection.

It reads the status and skips the body by its Content-Length; it follows no redirect and decodes
nothing, so that the generator costs a tenth of what it measures.
"""

import asyncio
from collections.abc import Callable
from typing import cast

_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Connection(asyncio.Protocol):
    """A kept-alive connection."""

    def __init__(
        self, answered: Callable[["Connection", int], None], lost: Callable[["Connection"], None]
    ) -> None:
        self._answered = answered
        self._lost = lost
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = b""
        self.busy = False
        self.due = 0.0  # when the request on its way should have been sent
        self.index = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def send(self, payload: bytes, due: float, index: int) -> None:
        """Writes one whole request; the connection must be idle."""
        if self._transport is None:
            raise RuntimeError("not connected")
        self.busy, self.due, self.index = True, due, index
        self._transport.write(payload)

    def close(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        data = self._buffer + data if self._buffer else data
        end = data.find(_END)
        if end < 0:
            self._buffer = data
            return
        head = data[:end].lower()
        if len(data) < end + len(_END) + body_length(head):
            self._buffer = data
            return
        self._buffer = b""
        self.busy = False
        if b"connection: close" in head:
            self.close()
        self._answered(self, int(data[9:12]))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the base's
        """See ``asyncio.Protocol``."""
        if self.busy:
            self.busy = False
            self._answered(self, 0)
        self._transport = None
        self._lost(self)

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()


def request(path: str, host: str, body: str) -> bytes:
    """The bytes of a JSON POST."""
    content = body.encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def body_length(head: bytes) -> int:
    """What follows a head, in lower case, by its Content-Length."""
    at = head.find(_LENGTH)
    if at < 0:
        raise ValueError(f"an answer without Content-Length: {head[:80]!r}")
    end = head.find(b"\r\n", at)
    return int(head[at + len(_LENGTH) : end if end >= 0 else len(head)])
