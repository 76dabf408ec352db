"""How uvicorn must run the application, and the bounds on connections that it lacks.

``gateway.main`` passes ``uvicorn_options`` to ``uvicorn.Config``. uvicorn with httptools bounds
neither the size of headers nor the time that a request takes to arrive, and lets an application
work on for a caller that has hung up. ``bounded_protocol`` adds all three, at almost no cost for a
request that arrives in one piece.

Nearly every prediction is a POST that arrives whole in one read, or its headers in one and its body
in the next, as many clients write them. ``gateway.http.plain_post`` recognises it without the
parser. Once the body is there, the request is refused at once, or handed to the application without
ASGI, and its answer leaves in one write. Everything else goes to the parser and through ASGI.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gateway.http.body import HttpLimits
from gateway.http.connections import Connections, Waits, bound_unsent, drop_unsent, peer_of
from gateway.http.exchanges import AsgiExchange, PostExchange, PostHandler, last_answer
from gateway.http.heads import HeadFault, find_fault, too_large, too_many
from gateway.http.pacing import (
    MOST_CALLS,
    MUCH_BYTES,
    PIECE_BYTES,
    WRITTEN_PIECE_BYTES,
    PacedFlow,
    PacedWriter,
    Turns,
)
from gateway.http.plain_post import PlainHead, PlainPost, plain_head
from gateway.http.sending import Sending
from gateway.http.untaken import AnswerBytes, HeldBytes, UntakenAnswers, untaken_of
from gateway.http.upgrades import head_without_offer, new_parser

# The messages with which a request's task is cancelled.
CLIENT_GONE = "client gone"
BODY_TIMEOUT = "body timeout"
# A caller that takes less of a waiting answer than this in ``body_seconds`` takes none.
_LEAST_TAKEN_BYTES = 16 * 1024
# Between two looks at whether the last answer of a connection is out; doubled up to the longest.
_FIRST_LOOK_SECONDS = 0.01
_LONGEST_LOOK_SECONDS = 0.5
# Of one request; each is an object of its own, however short it is.
_MOST_HEADERS = 256
# Requests that wait on a connection for the answer before theirs. The last of this many is the last
# that is answered.
_MOST_PIPELINED = 32


class _RefusedError(Exception):
    """Ends the parser's work on a connection that has been ended."""


class _Held(NamedTuple):
    """The beginning of a plain POST whose body is not all there; ``since`` by the loop's clock."""

    head: PlainHead
    data: bytes
    since: float


class LoadShedder(Protocol):
    """May refuse a request before the application starts to handle it."""

    @property
    def active(self) -> bool:
        """Whether ``refusal`` may refuse anything now."""

    @property
    def draining(self) -> bool:
        """Whether each answer is the last of its connection."""

    def refusal(
        self, method: str, path: str, headers: Mapping[bytes, bytes], body: bytes | None = None
    ) -> bytes | None:
        """The complete answer to a refused request; None to pass it to the application."""


def uvicorn_options(
    limits: HttpLimits,
    shedder: LoadShedder,
    handler: PostHandler,
    held: HeldBytes | None = None,
) -> dict[str, Any]:
    """Arguments for ``uvicorn.Config``, beside host, port and the application.

    Proxy headers are not read, because nothing depends on a caller's address. There is no access
    log, because a line for each request would cost more than the request itself. There are no
    WebSockets.
    """
    return {
        "loop": "uvloop",
        "http": bounded_protocol(limits, shedder, handler, held),
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
    limits: HttpLimits,
    shedder: LoadShedder,
    handler: PostHandler,
    held: HeldBytes | None = None,
) -> type[asyncio.Protocol]:
    """The class of uvicorn's connections, with these limits."""

    class BoundedProtocol(_BoundedProtocol):
        bounds = limits
        load_shedder = shedder
        post_handler = handler
        open_connections = Connections(
            limits.max_connections,
            limits.max_connections_of_peer,
            lambda: asyncio.get_running_loop().time(),
        )
        untaken_answers = untaken_of(limits, held)
        turns = Turns()

    return BoundedProtocol


class _BoundedProtocol(HttpToolsProtocol):
    """A connection with limits on its time and the size of its headers.

    ``_deadline`` runs while a new connection has sent nothing, while headers are read
    (``header_seconds``), and while a body is read (``body_seconds``): then the application is told
    to answer 408. A file of more than ``max_body_bytes`` has that time for each of
    these. A body that still arrives after the answer ends the connection. Time in which the
    application does not read the body, as its model is being loaded, is not the caller's.

    ``_untaken`` runs while the caller has not taken what was written: one that takes nothing for
    ``body_seconds`` loses the connection, which would otherwise stay for ever. It loses it sooner
    where all callers together leave more than ``max_untaken_bytes``.
    """

    bounds: HttpLimits
    load_shedder: LoadShedder
    post_handler: PostHandler
    open_connections: Connections
    untaken_answers: UntakenAnswers
    turns: Turns
    flow: PacedFlow
    _sending: Sending
    _untaken: asyncio.TimerHandle | None = None
    _acknowledged = 0  # when ``_untaken`` was set
    _deadline: asyncio.TimerHandle | None = None
    _running: asyncio.Task[None] | None = None
    # Whose answer is written, or was the last to be: those in ``pipeline`` come behind it.
    _answering: RequestResponseCycle | PostExchange | None = None
    _offered: bytes | None = None  # the head of a request that is read again, without its offer
    _held: _Held | None = None
    _held_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _header_bytes = 0
    _begun = 0  # requests that the parser has seen
    _headers_read = 0
    _in_headers = False
    _reading = False
    _lingering = False
    _calls = 0  # of the parser in this turn, for what it read
    _body_bytes = 0  # that arrived in the time of ``_deadline``

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepts the connection, or refuses it if there are too many."""
        super().connection_made(transport)
        self.flow = PacedFlow(transport)
        self._parts: list[bytes] = []  # of a body, of this turn
        self._writer = PacedWriter(transport, self.flow, self.loop, self.turns)
        self._writer.on_given = self._all_given
        self._sending = Sending(transport, self._writer)
        peer = peer_of(transport.get_extra_info("peername"))
        if self.open_connections.admit(self, peer):
            self._arm(self.bounds.header_seconds)
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "Too many connections.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the work for a caller that has hung up."""
        self.open_connections.left(self)
        self._disarm()
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None
        self.untaken_answers.release(self)
        self._held = None
        self.flow.unparsed = b""
        self._writer.forget()
        if self._held_timer is not None:
            self._held_timer.cancel()
        self.pipeline.clear()
        if self._answering is not None:
            self._answering.disconnected = True  # uvicorn tells the newest request only
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        if self._running is not None and not self._running.done():
            self._running.cancel(CLIENT_GONE)
        # Each refers to this connection, and it to TLS and an answer of megabytes that nobody took:
        # in a circle all would stay until the garbage collector comes by.
        self.cycle = self._answering = self.parser = None  # type: ignore[assignment]

    def waits(self) -> tuple[Waits, float] | None:
        """What it waits for; see ``gateway.http.connections.Connection``."""
        due = None if self._deadline is None else self._deadline.when()
        if self._is_idle():
            if self._held is not None:
                return None
            if due is not None and not self._lingering:
                return Waits.HEAD, due - self.bounds.header_seconds
            # One whose caller takes its answer longer than it may is idle like any other.
            takes = self._answered_just_now() and self._sending.unacknowledged()
            return Waits.TAKING if takes else Waits.NEXT_REQUEST, self._idle_since
        if due is None or self._in_headers or self.pipeline:
            return None
        return Waits.BODY, due - self.bounds.body_seconds

    def _answered_just_now(self) -> bool:
        return self.loop.time() - self._idle_since < self.bounds.body_seconds

    def make_way(self) -> None:
        """Ends it at once, for another connection's sake; see ``Connection``."""
        if not self._answered_just_now():
            self.abort()
            return
        found = self.transport.get_extra_info("socket")
        self._writer.flush()
        if found is not None:
            with suppress(OSError):
                bound_unsent(found.fileno(), self.bounds.body_seconds)
        self.transport.abort()  # the system goes on to deliver what it has

    def abort(self) -> None:
        """Ends it at once, with all that its caller has not taken."""
        found = self.transport.get_extra_info("socket")
        if found is not None:
            with suppress(OSError):
                drop_unsent(found.fileno())
        self.transport.abort()

    def write(self, data: bytes) -> None:
        """Writes, and watches that it is taken if the caller's system does not take it now."""
        if self.transport.is_closing():
            return
        self._sending.wrote(len(data))
        if self._writer.waiting or len(data) > WRITTEN_PIECE_BYTES:
            self._writer.write(data)
        else:
            self.transport.write(data)
        if self._sending.left():
            if self._untaken is None:
                self._watch()
            self.untaken_answers.hold(self)

    def _all_given(self) -> None:
        if not self._sending.left():
            self.untaken_answers.release(self)

    def eof_received(self) -> None:
        """The caller sends no more, and the loop closes its connection behind what was written."""
        self._writer.flush()

    def pause_writing(self) -> None:
        """The transport has no room."""
        self._writer.pause()

    def resume_writing(self) -> None:
        """It has room again."""
        self._writer.resume()

    def write_both(self, head: bytes, body: bytes) -> None:
        """Writes an answer at once, or of a long one no copy."""
        if not head or len(body) <= WRITTEN_PIECE_BYTES:
            self.write(head + body)
        else:
            self.write(head)
            self.write(body)

    def answer_bytes(self) -> AnswerBytes:
        """See ``gateway.http.untaken.Holder``."""
        sending = self._sending
        left = sending.left()
        return AnswerBytes(sending.held(left), sending.written - left, sending.written)

    def _watch(self) -> None:
        self._acknowledged = self._sending.acknowledged()
        self._untaken = self.loop.call_later(self.bounds.body_seconds, self._look_at_untaken)

    def _look_at_untaken(self) -> None:
        """Ends the connection of a caller that takes no answer."""
        self._untaken = None
        if not self._sending.left():
            self.untaken_answers.release(self)
        elif self._sending.acknowledged() < self._acknowledged + _LEAST_TAKEN_BYTES:
            self.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Takes a plain POST, or leaves the bytes to the parser."""
        if len(data) >= MUCH_BYTES and self.flow.rest():
            self.turns.plan(self.loop, self.flow.end_rest)
        if self._lingering:
            return
        if self.flow.unparsed:
            self.flow.keep(data)  # what a transport had read before it paused
            return
        held = self._held
        if held is not None:
            self._held, self._reading = None, False
            head, data = held.head, held.data + data
        elif self._reading or not self._is_idle() or (found := plain_head(data)) is None:
            self._parse(data)
            return
        else:
            head = found
        if self.flow.write_paused or self.transport.is_closing():
            self._parse(data)
        elif len(data) == head.end:
            self._answer_post(head.post(data))
        elif len(data) < head.end <= self.bounds.max_held_bytes:
            self._hold(_Held(head, data, self.loop.time() if held is None else held.since))
        else:
            self._parse(data)

    def shutdown(self) -> None:
        """Ends the connection once what it has begun is answered; see uvicorn's."""
        self._parse_held()
        if self._is_idle() and self._sending.left():
            if not self._lingering:
                self.end()
        else:
            super().shutdown()

    def _hold(self, held: _Held) -> None:
        """Keeps the beginning of a request. One timer serves many requests, one after the other."""
        self._held, self._reading = held, True
        self._disarm()
        if self._held_timer is None:
            self._held_timer = self.loop.call_later(self.bounds.held_seconds, self._held_too_long)

    def _held_too_long(self) -> None:
        self._held_timer = None
        if self._held is None:
            return
        left = self._held.since + self.bounds.held_seconds - self.loop.time()
        if left > 0:
            self._held_timer = self.loop.call_later(left, self._held_too_long)
        else:
            self._parse_held()

    def _parse_held(self) -> None:
        if (held := self._held) is not None:
            self._held, self._reading = None, False
            self._parse(held.data)

    def _parse(self, data: bytes) -> None:
        """Feeds the parser: what costs it much, over turns of the loop."""
        self._calls = 0
        for start in range(0, len(data), PIECE_BYTES):
            if self._calls > MOST_CALLS:
                self.flow.keep(data[start:])
                self.turns.plan(self.loop, self._parse_kept)
                return
            self._parse_piece(data[start : start + PIECE_BYTES])
            if self._lingering or self.transport.is_closing():
                return

    def _parse_kept(self) -> bool:
        data = self.flow.take()
        has_work = not self._lingering and not self.transport.is_closing()
        if has_work:
            self._parse(data)
        self.flow.go_on()
        return has_work

    def _parse_piece(self, data: bytes) -> None:
        """Feeds the parser, and starts a timer if the request is not complete after that."""
        # A head counts what came since it began: not the end of the request before it.
        begun, own = self._begun, 0 if self._reading else 1
        self._feed(data)
        if self._lingering or self.transport.is_closing():
            self._parts.clear()
            return
        if self._parts:
            self._give_body()
        if self._in_headers:
            self._header_bytes += len(data) if self._begun == begun + own else 0
            self._check_headers()
        elif self._deadline is None:
            if self._reading:
                self._arm(self.bounds.body_seconds)
            elif self._is_idle() and self.timeout_keep_alive_task is None:
                self._arm(self.bounds.header_seconds)  # line breaks and nothing else

    def _check_headers(self) -> None:
        """Bounds a head that is not complete, and its time."""
        if self._headers_read > _MOST_HEADERS:
            self._refuse_head(too_many(_MOST_HEADERS))
        elif self._header_bytes > self.bounds.max_header_bytes:
            self._refuse_head(too_large(self.url, self.bounds.max_header_bytes))
        elif self._deadline is None:
            self._arm(self.bounds.header_seconds)

    def _feed(self, data: bytes) -> None:
        """Has the parser read; what is malformed is refused."""
        pieces: list[bytes | memoryview] = [data]
        while pieces:
            piece = pieces.pop()
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserError:
                message = "Invalid HTTP request received."
                self._refuse(HTTPStatus.BAD_REQUEST, "bad_request", message)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self._offered is None:
                    return  # the answer to this one ends the connection
                pieces += (memoryview(piece)[upgrade.args[0] :], self._offered)
                self._offered = None
                self.parser = new_parser(self)

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self._in_headers = self._reading = True
        self._header_bytes = self._headers_read = 0
        self._begun += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps a header. Trailers after the body are ignored."""
        self._calls += 1
        if self._in_headers:
            self._headers_read += 1
            if self._headers_read <= _MOST_HEADERS:
                super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers are complete: the application starts, or waits for the previous answer.

        Raises:
            _RefusedError: the connection was ended instead; the parser goes no further.
        """
        if self._lingering or self.transport.is_closing():
            raise _RefusedError  # nobody would hear the answer
        verb, version = self.parser.get_method(), self.parser.get_http_version()
        fault = find_fault(verb, self.url, version, self.headers, self.bounds.max_header_bytes)
        if self._headers_read > _MOST_HEADERS:
            fault = too_many(_MOST_HEADERS)
        if fault is not None:
            self._refuse_head(fault)
            raise _RefusedError
        if self.parser.should_upgrade() and version == "1.1":
            self._offered = head_without_offer(verb, self.url, self.headers)
            if self._offered is not None:
                return  # see ``_feed``
        self._in_headers = False
        self._disarm()
        if len(self.pipeline) >= _MOST_PIPELINED:
            self._end_after_answers()  # a client that asks more asks again
            raise _RefusedError
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope["method"] = verb.decode("ascii")
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = url.path
        self.scope["query_string"] = url.query or b""
        self.scope["http_version"] = version
        before, app = self.cycle, self.app
        self.cycle = AsgiExchange(
            scope=self.scope,
            transport=cast("asyncio.Transport", self),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=(
                version != "1.0"
                and self.parser.should_keep_alive()
                # The parser would take a body behind it for another request.
                and not self.parser.should_upgrade()
                and not self.load_shedder.draining
            ),
            on_response=self.on_response_complete,
        )
        self.cycle.connection = self
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

    def on_body(self, body: bytes) -> None:
        """A part of a body: those that the parser finds in one turn are one for the application."""
        self._calls += 1
        self._parts.append(body)

    def _give_body(self) -> None:
        parts, self._parts = self._parts, []
        self._body_bytes += sum(map(len, parts))
        super().on_body(parts[0] if len(parts) == 1 else b"".join(parts))

    def on_message_complete(self) -> None:
        """A request's last byte."""
        if self._offered is not None:
            return  # the head's only
        if self._parts:
            self._give_body()
        self._reading = False
        if not self._lingering:
            self._disarm()
        super().on_message_complete()

    def _refuse_head(self, fault: HeadFault) -> None:
        """Refuses a head whose sender may be sending still, and is to hear why."""
        self._refuse(*fault, end=self.end)

    def _answer_post(self, post: PlainPost) -> None:
        """Refuses a plain POST, or has the application answer it."""
        self._disarm()
        draining = self.load_shedder.draining
        if self.load_shedder.active and not draining:
            answer = self.load_shedder.refusal("POST", post.path, post.headers, post.body)
            if answer is not None:
                self.write(answer)
                self.on_response_complete()
                return
        exchange = PostExchange(self, post, keep_alive=not draining)
        self.cycle = self._answering = exchange  # type: ignore[assignment]
        self._start(exchange.run())

    def on_response_complete(self) -> None:
        """Starts the request behind the one that was answered, or the time of keep-alive."""
        self.server_state.total_requests += 1
        self._idle_since = self.loop.time()
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.timeout_keep_alive_task is None:
            self._keep_alive_for(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for its time.

        The timer is not set again for each request: it looks how long the connection has been idle.
        """
        self.timeout_keep_alive_task = None
        if self._reading or not self._is_idle():
            return  # the answer sets it again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._keep_alive_for(left)
        elif self._sending.left():
            self._keep_alive_for(self.bounds.body_seconds)  # ``_untaken`` bounds it
        else:
            super().timeout_keep_alive_handler()

    def _unset_keepalive_if_required(self) -> None:
        """Leaves the timer as it is when a request begins, unlike uvicorn's."""

    def _keep_alive_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
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
        and the answer with it. So this side says that it sends no more, and drops what comes. TLS
        can't say so, and closes for good 30 s after it was told to, whatever waits: so it is told
        once nothing does. ``_untaken`` bounds that.
        """
        self.pipeline.clear()
        self._end_behind(partial(self._end, lingers=self._reading or self._lingering))

    def _end_behind(self, end: Callable[[], None]) -> None:
        """Ends the connection in a way, once all is given to the transport; reads nothing more."""
        if self._writer.waiting:
            self._lingering = True
            self._disarm()
        self._writer.then(end)

    def _end(self, *, lingers: bool) -> None:
        if not self.transport.can_write_eof() and self._sending.left():
            self._lingering = True
            self._disarm()
            self._close_once_out(_FIRST_LOOK_SECONDS)
        elif lingers and self.transport.can_write_eof():
            self._lingering = True
            self.transport.write_eof()
            self._disarm()
            self._arm(self.bounds.body_seconds)
        else:
            self.transport.close()

    def close(self) -> None:
        """Closes it behind what was written. For an exchange, it is the transport."""
        self._end_behind(self.transport.close)

    def is_closing(self) -> bool:
        """Whether its transport is."""
        return self.transport.is_closing()

    def _close_once_out(self, seconds: float) -> None:
        """Closes it if its last answer is out, or looks again after a time."""
        self._deadline = None
        if self._sending.left():
            again = partial(self._close_once_out, min(_LONGEST_LOOK_SECONDS, 2 * seconds))
            self._deadline = self.loop.call_later(seconds, again)
        else:
            self.transport.close()

    def _arm(self, seconds: float) -> None:
        self._body_bytes = 0
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.flow.read_paused and not self._in_headers and not self._is_idle():
            self._arm(self.bounds.body_seconds)  # the body waits for the application
        elif (
            self._reading and self._body_bytes >= self.bounds.max_body_bytes and not self._lingering
        ):
            self._arm(self.bounds.body_seconds)  # a file's, which comes as fast as others may
        elif self._lingering:
            self.close()
        elif self._in_headers or self.pipeline:
            what = "headers" if self._in_headers else "body"
            message = f"The {what} did not arrive in time."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", message)
        elif self._running is not None and not self._running.done():
            self._running.cancel(BODY_TIMEOUT)
        else:
            self.close()

    def _refuse(
        self, status: HTTPStatus, code: str, message: str, end: Callable[[], None] | None = None
    ) -> None:
        """Ends the connection for what came last and is no request, or not a whole one.

        Only here is anything written that no application was asked for. It is written if it is the
        answer to what came last: if nothing of an answer was written to it, and no answer to an
        earlier request is still to come. Otherwise the connection ends after those answers.
        """
        if self._lingering or self.transport.is_closing():
            return
        self._disarm()
        breaks_off = self._reading and not self._in_headers  # the newest request, in its body
        if breaks_off and self.pipeline:
            self.pipeline.popleft()  # it is never handled
            self.cycle = self.pipeline[0][0] if self.pipeline else self._answering  # type: ignore[assignment]
            breaks_off = False
        if not breaks_off and not self._is_idle():
            self._end_after_answers()
            return
        if breaks_off and self.cycle.response_complete:
            self.end()
            return
        if not breaks_off or not self.cycle.response_started:
            self.write(last_answer(status, code, message))
        (end or self.close)()

    def _end_after_answers(self) -> None:
        """Reads no more, and ends the connection with the answer to the newest request."""
        self.cycle.keep_alive = False
        self._lingering = True
