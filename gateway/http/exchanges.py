"""One request on a connection of the HTTP server, and how its answer is written.

An answer goes out in a single write if it is whole. The one that is the last of its connection
says so, and ends it.
"""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Protocol

import msgspec
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.http.messages import (
    CHUNKED,
    LAST_CHUNK,
    Headers,
    Reply,
    StreamReply,
    chunk_of,
    head_of,
    headers_of,
    stream_headers_of,
)
from gateway.http.plain_post import PlainPost
from gateway.request_context import new_request_id

log = logging.getLogger(__name__)

_CLOSE = (b"connection", b"close")


class PostHandler(Protocol):
    """Answers plain POST requests; the application is one."""

    async def answer_post(
        self,
        post: PlainPost,
        send: Callable[[Reply, str], None],
        stream: Callable[[StreamReply, str], Awaitable[None]],
    ) -> None:
        """Calls ``send`` or ``stream`` once, with the reply and the request's id.

        Neither if the caller is gone.
        """


class AnsweringConnection(Protocol):
    """The connection that an answer is written to."""

    post_handler: PostHandler

    @property
    def flow(self) -> FlowControl:
        """Whether the caller's system takes more at this moment."""

    def write(self, data: bytes) -> None:
        """Writes bytes, unless the connection is being closed."""

    def write_both(self, head: bytes, body: bytes) -> None:
        """Writes an answer at once, or of a long one no copy."""

    def end(self) -> None:
        """Ends it once what was written is out."""

    def close(self) -> None:
        """Closes it behind what was written."""

    def is_closing(self) -> bool:
        """Whether it is closed, or is being closed."""

    def on_response_complete(self) -> None:
        """The answer is whole."""


class AsgiExchange(RequestResponseCycle):
    """One request through ASGI, and its answer, which goes out in a single write if it is whole.

    uvicorn writes head and body apart; two system calls for an answer of a few hundred bytes are a
    third of what such a request costs here.
    """

    _status = int(HTTPStatus.OK)
    _headers: Headers
    _is_chunked: bool | None = None  # not known yet
    connection: AnsweringConnection  # for uvicorn the transport, too

    async def send(self, message: ASGISendEvent) -> None:
        """ASGI's ``send``: keeps the head until the body, or its first part, is there."""
        if message["type"] == "http.response.start":
            self.response_started = True
            self.waiting_for_100_continue = False
            self._status, self._headers = message["status"], list(message["headers"])
            return
        if message["type"] != "http.response.body" or self.response_complete:
            raise RuntimeError(f"{message['type']} is not expected here")
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        body = b"" if self.scope["method"] == "HEAD" else message["body"]
        self._write(body, is_last=not message.get("more_body", False))

    def _write(self, body: bytes, *, is_last: bool) -> None:
        head = b""
        if self._is_chunked is None:
            # To a caller who speaks HTTP/1.0, the end of the connection is the end of the body.
            self._is_chunked = not is_last and self.scope["http_version"] != "1.0"
            if self._is_chunked:
                self._headers.append(CHUNKED)
            self.keep_alive = _settled(self._headers, keep_alive=self.keep_alive)
            head = head_of(self._status, self._headers)
        if self._is_chunked:
            body = (chunk_of(body) if body else b"") + (LAST_CHUNK if is_last else b"")
        self.connection.write_both(head, body)
        if is_last:
            self._finish()

    def refuse(self, answer: bytes) -> None:
        """Sends a complete answer without asking the application; never to a HEAD."""
        self.response_started = True
        if not self.keep_alive:
            answer = answer.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        self.connection.write(answer)
        self._finish()

    def _finish(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.connection.end()
        self.on_response()


def _settled(headers: Headers, *, keep_alive: bool) -> bool:
    """Whether the connection goes on after an answer; if it does not, the headers say so."""
    if _CLOSE in headers:
        return False
    if not keep_alive:
        headers.append(_CLOSE)
    return keep_alive


class _Unheard:
    """An event that nobody awaits."""

    def set(self) -> None:
        """Does nothing."""


_UNHEARD = _Unheard()


class PostExchange:
    """A plain POST and its answer, in the place of a cycle of uvicorn's."""

    __slots__ = ("_connection", "_post", "disconnected", "keep_alive", "response_complete")

    message_event = _UNHEARD  # uvicorn sets a cycle's when the connection is lost

    def __init__(
        self, connection: AnsweringConnection, post: PlainPost, *, keep_alive: bool
    ) -> None:
        self._connection = connection
        self._post = post
        self.keep_alive = keep_alive
        self.response_complete = False
        self.disconnected = False

    async def run(self) -> None:
        """Has the application answer. Ends the connection if it fails to."""
        try:
            await self._connection.post_handler.answer_post(self._post, self._send, self._stream)
        except Exception:
            log.exception("a bug: a reply could not be sent")
            self._connection.close()

    def _send(self, reply: Reply, request_id: str) -> None:
        if self.disconnected:
            return
        headers = headers_of(reply, request_id)
        self.keep_alive = _settled(headers, keep_alive=self.keep_alive)
        self._connection.write_both(head_of(reply.status, headers), reply.body)
        self._finish()

    async def _stream(self, reply: StreamReply, request_id: str) -> None:
        if self.disconnected:
            return
        connection = self._connection
        headers = [*stream_headers_of(reply, request_id), CHUNKED]
        self.keep_alive = _settled(headers, keep_alive=self.keep_alive)
        connection.write(head_of(HTTPStatus.OK, headers))
        async for part in reply.chunks:
            if connection.flow.write_paused:
                await connection.flow.drain()
            if connection.is_closing():
                return
            connection.write(chunk_of(part))
        connection.write(LAST_CHUNK)
        self._finish()

    def _finish(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self._connection.end()
        self._connection.on_response_complete()


def last_answer(status: HTTPStatus, code: str, message: str) -> bytes:
    """An error's complete answer, the last of its connection."""
    request_id = new_request_id()
    error = {"code": code, "message": message, "request_id": request_id}
    body = msgspec.json.encode({"error": error})
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        f"x-request-id: {request_id}\r\n"
        + ("retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else "")
        + "connection: close\r\n\r\n"
    )
    return head.encode() + body
