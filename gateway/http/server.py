"""How uvicorn must run the application, and the bounds on connections that it lacks.

``gateway.main`` passes ``uvicorn_options`` to ``uvicorn.Config``. uvicorn with httptools bounds
neither the size of headers nor the time that a request takes to arrive, and lets an application
work on for a caller that has hung up. ``bounded_protocol`` adds all three, at almost no cost for a
request that arrives in one piece.

Nearly every prediction is a POST that arrives whole in one read. ``plain_post`` recognises it
without the parser, and it is refused at once, or handed to the application without ASGI: body and
headers are there, and its answer leaves in one write. ``plain_post`` accepts only a plain form that
every parser reads alike. Everything else goes to the parser and through ASGI: unusual characters,
repeated headers, transfer codings, connection options, an incomplete body, a second request behind
the first.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gateway.http.body import HttpLimits
from gateway.http.messages import Headers, Reply, head_of, headers_of
from gateway.request_context import new_request_id

log = logging.getLogger(__name__)

_LONGEST_HEAD = 8192
_END = b"\r\n\r\n"
_VISIBLE = rb"[\x21-\x7e]+"
_HEAD = re.compile(
    rb"POST (/[A-Za-z0-9/._:~-]*) HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9-]+: ?" + _VISIBLE + rb"(?: +" + _VISIBLE + rb")*\r\n)+)\Z"
)
_LENGTH = re.compile(rb"[1-9][0-9]{0,8}")
# These headers change how a message or a connection goes on, which only the parser handles.
_LEFT_ALONE = (b"transfer-encoding", b"expect", b"upgrade", b"proxy-connection", b"trailer")


class PlainPost(NamedTuple):
    """A POST. ``headers`` have lower-case names; ``body`` is as it was sent."""

    path: str
    headers: dict[bytes, bytes]
    body: bytes


def plain_post(data: bytes) -> PlainPost | None:
    """The request if ``data`` is one plain POST from its first byte to its last, else None."""
    if not data.startswith(b"POST /") or (end := data.find(_END, 0, _LONGEST_HEAD)) < 0:
        return None
    match = _HEAD.match(data[: end + 2])
    if match is None:
        return None
    path, lines = match.groups()
    headers = _headers(lines)
    if headers is None or len(data) != end + len(_END) + int(headers[b"content-length"]):
        return None
    return PlainPost(path.decode("ascii"), headers, data[end + len(_END) :])


def _headers(lines: bytes) -> dict[bytes, bytes] | None:
    """The headers by their lower-case names; None if one of them is out of the ordinary."""
    headers: dict[bytes, bytes] = {}
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in headers or name in _LEFT_ALONE:
            return None
        headers[name] = value.lstrip()
    if _LENGTH.fullmatch(headers.get(b"content-length", b"")) is None:
        return None
    keep_alive = headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    return headers if keep_alive else None


# The messages with which a request's task is cancelled.
CLIENT_GONE = "client gone"
BODY_TIMEOUT = "body timeout"
_CLOSE = (b"connection", b"close")


class LoadShedder(Protocol):
    """May refuse a request before the application starts to handle it."""

    @property
    def active(self) -> bool:
        """Whether ``refusal`` may refuse anything now."""
        ...

    @property
    def draining(self) -> bool:
        """Whether each answer is the last of its connection."""
        ...

    def refusal(
        self, method: str, path: str, headers: Mapping[bytes, bytes], body: bytes | None = None
    ) -> bytes | None:
        """The complete answer to a refused request; None to pass it to the application."""
        ...


class PostHandler(Protocol):
    """Answers plain POST requests; the application is one."""

    async def answer_post(self, post: PlainPost, send: Callable[[Reply, str], None]) -> None:
        """Calls ``send`` once, with the reply and the request's id; not if the caller is gone."""
        ...


def uvicorn_options(
    limits: HttpLimits, shedder: LoadShedder, handler: PostHandler
) -> dict[str, Any]:
    """Arguments for ``uvicorn.Config``, beside host, port and the application.

    Proxy headers are not read, because nothing depends on a caller's address. There is no access
    log, because a line for each request would cost more than the request itself. There are no
    WebSockets.
    """
    return {
        "loop": "uvloop",
        "http": bounded_protocol(limits, shedder, handler),
        "ws": "none",
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        "proxy_headers": False,
        "server_header": False,
        "date_header": False,
        "backlog": limits.backlog,
        "timeout_keep_alive": limits.keep_alive_seconds,
    }


def bounded_protocol(
    limits: HttpLimits, shedder: LoadShedder, handler: PostHandler
) -> type[asyncio.Protocol]:
    """The class of uvicorn's connections, with these limits."""

    class BoundedProtocol(_BoundedProtocol):
        bounds = limits
        load_shedder = shedder
        post_handler = handler

    return BoundedProtocol


class _Cycle(RequestResponseCycle):
    """One request through ASGI, and its answer, which goes out in a single write.

    uvicorn writes head and body apart; two system calls for an answer of a few hundred bytes are a
    third of what such a request costs here.
    """

    _head = b""
    end: Callable[[], None]  # ends the connection, once the answer is out

    async def send(self, message: ASGISendEvent) -> None:
        """ASGI's ``send``: keeps the head until the body is there; the body comes whole."""
        if message["type"] == "http.response.start":
            self.response_started = True
            self.waiting_for_100_continue = False
            headers = list(message["headers"])
            self.keep_alive = _settled(headers, keep_alive=self.keep_alive)
            self._head = head_of(message["status"], headers)
            return
        if message["type"] != "http.response.body" or self.response_complete:
            raise RuntimeError(f"{message['type']} is not expected here")
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        body = b"" if self.scope["method"] == "HEAD" else message["body"]
        self._finish(self._head + body)

    def refuse(self, answer: bytes) -> None:
        """Sends a complete answer without asking the application; never to a HEAD."""
        self.response_started = True
        if not self.keep_alive:
            answer = answer.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        self._finish(answer)

    def _finish(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.end()
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


class _Exchange:
    """A plain POST and its answer, in the place of a cycle of uvicorn's."""

    __slots__ = ("_connection", "_post", "disconnected", "keep_alive", "response_complete")

    message_event = _UNHEARD  # uvicorn sets a cycle's when the connection is lost

    def __init__(
        self, connection: "_BoundedProtocol", post: PlainPost, *, keep_alive: bool
    ) -> None:
        self._connection = connection
        self._post = post
        self.keep_alive = keep_alive
        self.response_complete = False
        self.disconnected = False

    async def run(self) -> None:
        """Has the application answer. Ends the connection if it fails to."""
        try:
            await self._connection.post_handler.answer_post(self._post, self._send)
        except Exception:
            log.exception("a bug: a reply could not be sent")
            self._connection.transport.close()

    def _send(self, reply: Reply, request_id: str) -> None:
        if self.disconnected:
            return
        headers = headers_of(reply, request_id)
        self.keep_alive = _settled(headers, keep_alive=self.keep_alive)
        self._connection.transport.write(head_of(reply.status, headers) + reply.body)
        self.response_complete = True
        if not self.keep_alive:
            self._connection.end()
        self._connection.on_response_complete()


class _BoundedProtocol(HttpToolsProtocol):
    """A connection with limits on its time and the size of its headers.

    ``_deadline`` runs while a new connection has sent nothing, while headers are read
    (``header_seconds``), and while a body is read (``body_seconds``): then the application is told
    to answer 408. A body that still arrives after the answer ends the connection.
    """

    bounds: HttpLimits
    load_shedder: LoadShedder
    post_handler: PostHandler
    _deadline: asyncio.TimerHandle | None = None
    _running: asyncio.Task[None] | None = None
    _idle_since = 0.0
    _header_bytes = 0
    _in_headers = False
    _reading = False
    _lingering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepts the connection, or refuses it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.max_connections:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "Too many connections.")
        else:
            self._arm(self.bounds.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the work for a caller that has hung up."""
        self._disarm()
        self.pipeline.clear()
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        if self._running is not None and not self._running.done():
            self._running.cancel(CLIENT_GONE)

    def data_received(self, data: bytes) -> None:
        """Feeds the parser, and starts a timer if the request is not complete after that."""
        if self._lingering:
            return
        if self._took_plain_post(data):
            return
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.bounds.max_header_bytes:
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    "headers_too_large",
                    f"The headers are larger than {self.bounds.max_header_bytes} bytes.",
                )
            elif self._deadline is None:
                self._arm(self.bounds.header_seconds)
        elif self._deadline is None:
            if self._reading:
                self._arm(self.bounds.body_seconds)
            elif self._is_idle() and self.timeout_keep_alive_task is None:
                self._arm(self.bounds.header_seconds)  # line breaks and nothing else

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self._in_headers = self._reading = True
        self._header_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps a header. Trailers after the body are ignored."""
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers are complete: the application starts, or waits for the previous answer."""
        self._in_headers = False
        self._disarm()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = url.path
        self.scope["query_string"] = url.query or b""
        before, app = self.cycle, self.app
        self.cycle = _Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=(
                self.parser.get_http_version() != "1.0"
                and self.parser.should_keep_alive()
                and not self.load_shedder.draining
            ),
            on_response=self.on_response_complete,
        )
        self.cycle.end = self.end
        if before is None or before.response_complete:
            # A refusal here needs no task and does not wait for the body.
            refusal = None
            if self.load_shedder.active:
                method, path = self.scope["method"], self.scope["path"]
                refusal = self.load_shedder.refusal(method, path, dict(self.headers))
            if refusal is None:
                self._start_asgi_task(self.cycle, app)
            else:
                self.cycle.refuse(refusal)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    def on_message_complete(self) -> None:
        """A request's last byte."""
        self._reading = False
        self._disarm()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers malformed HTTP with an error in the same form as all others."""
        self._refuse(HTTPStatus.BAD_REQUEST, "bad_request", msg)

    def _took_plain_post(self, data: bytes) -> bool:
        """Answers a request that arrived in one piece without the parser. False to parse it."""
        if self._reading or not self._is_idle() or self.flow.write_paused:
            return False
        if self.transport.is_closing() or (post := plain_post(data)) is None:
            return False
        self._disarm()
        draining = self.load_shedder.draining
        if self.load_shedder.active and not draining:
            answer = self.load_shedder.refusal("POST", post.path, post.headers, post.body)
            if answer is not None:
                self.transport.write(answer)
                self.on_response_complete()
                return True
        exchange = _Exchange(self, post, keep_alive=not draining)
        self.cycle = exchange  # type: ignore[assignment]
        self._start(exchange.run())
        return True

    def on_response_complete(self) -> None:
        """Starts the request behind the one that was answered, or the time of keep-alive."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._idle_since = self.loop.time()
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.timeout_keep_alive_task is None:
            self._keep_alive_for(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for its time.

        The timer is not set anew for each request: it looks how long the connection has been idle.
        """
        self.timeout_keep_alive_task = None
        if self._reading or not self._is_idle():
            return  # the answer sets it again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._keep_alive_for(left)
        else:
            super().timeout_keep_alive_handler()

    def _unset_keepalive_if_required(self) -> None:
        """Leaves the timer as it is when a request begins, unlike uvicorn's."""

    def _keep_alive_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._start(cycle.run_asgi(app))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._running = task

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def end(self) -> None:
        """Ends the connection, in such a way that a caller who still sends hears the answer.

        To close a socket with unread bytes tells the caller's system that the connection is lost,
        and the answer with it. So this side says that it sends no more, and drops what comes.
        """
        if self._reading and self.transport.can_write_eof():
            self._lingering = True
            self.transport.write_eof()
            self._disarm()
            self._arm(self.bounds.body_seconds)
        else:
            self.transport.close()

    def _arm(self, seconds: float) -> None:
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._lingering:
            self.transport.close()
        elif not self._is_idle() and self._in_headers:
            self.cycle.keep_alive = False  # the answer before it goes out, then the connection ends
        elif self._in_headers:
            message = "The headers did not arrive in time."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", message)
        elif self._running is not None and not self._running.done():
            self._running.cancel(BODY_TIMEOUT)
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus, code: str, message: str) -> None:
        """Answers and closes a connection without a request that the application could handle."""
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
        self.transport.write(head.encode() + body)
        self.transport.close()
