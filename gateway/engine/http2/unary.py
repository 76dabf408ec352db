"""Unary gRPC calls to one address, on the event loop itself.

gRPC's own client for asyncio hands each call to threads of its core and takes it back by a thread
that polls. A batch was handed over seven times so, and where few share a batch that was half of
what a request cost. This client writes a call to the socket in the turn in which it is made.

It keeps one plain connection, made by the first call and again by the first call after it was lost.
While calls wait for a server that says nothing it sends pings, and gives the connection up if they
are not answered.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, cast
from urllib.parse import unquote_to_bytes

import grpc

from gateway.engine.http2.connection import (
    CANCEL,
    REFUSED_STREAM,
    STATUS,
    Connection,
    Exchange,
    Http2Error,
    header,
    request_head,
)

_CONNECT_SECONDS = 2.0
_TURN_BYTES = 1 << 20
_TICK_SECONDS = 5.0
# Finds a host that is gone without closing its connections. Triton closes a connection with more
# frequent pings.
_QUIET_SECONDS = 30.0
_PING_SECONDS = 5.0
_MOST_TRIES = 8  # of a call that the server says it has not looked at
# Before a third try and those that follow: servers refuse what comes before they have counted that
# others ended.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.002, 1.0  # each twice the one before
_LARGE_BYTES = 1 << 20  # of an answer
_PREFIX = 5  # bytes before a message: whether it is compressed, and its length
_MOST_MILLISECONDS = 99_999_999  # of a gRPC timeout, eight digits

_CODES = {code.value[0]: code for code in grpc.StatusCode}
# What a status of HTTP means where a proxy answered in the server's place.
_HTTP_CODES = {
    b"400": grpc.StatusCode.INTERNAL,
    b"401": grpc.StatusCode.UNAUTHENTICATED,
    b"403": grpc.StatusCode.PERMISSION_DENIED,
    b"404": grpc.StatusCode.UNIMPLEMENTED,
    b"429": grpc.StatusCode.UNAVAILABLE,
    b"502": grpc.StatusCode.UNAVAILABLE,
    b"503": grpc.StatusCode.UNAVAILABLE,
    b"504": grpc.StatusCode.UNAVAILABLE,
}


class CallError(Exception):
    """A call that was not answered with a message."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


class ClientTls(Protocol):
    """What TLS needs; ``name`` is that in the server's certificate."""

    @property
    def name(self) -> str:
        """See the class."""

    def context(self) -> ssl.SSLContext:
        """For one connection; raises ``OSError``. It may block."""


class UnaryClient:
    """Calls to ``host:port``, over TLS if told; an IPv6 address stands in brackets.

    Args:
        address: the server's.
        tls: for a connection that is not plain.
        beside: does work in a thread: what a large answer takes.
    """

    def __init__(
        self,
        address: str,
        tls: ClientTls | None = None,
        *,
        beside: Callable[[Callable[[], bytes]], Awaitable[bytes]] | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        # An address without a port is one where nobody listens.
        self._host, self._port = host.strip("[]"), int(port) if port.isdigit() else 0
        self._authority = address.encode()
        self._tls = tls
        self._beside = beside
        self._heads: dict[str, bytes] = {}
        self._link: _Link | None = None
        self._open: set[_Link] = set()  # those of servers that leave among them
        self._connecting: asyncio.Task[_Link] | None = None
        self._closed = False

    async def call(self, method: str, message: bytes, timeout_seconds: float) -> bytes:
        """Sends a message to a method and returns the one that answers it.

        Args:
            method: ``/package.Service/Method``.
            message: as protobuf encodes it.
            timeout_seconds: for all of it, a connection to be made included.

        Raises:
            CallError: there was no answer, or an error.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_seconds
        tries = 0
        while True:
            link = self._link
            if link is None or not link.usable:
                link = await self._connected(ends - loop.time())
            left = ends - loop.time()
            exchange = Exchange(self._head(method, left), _prefixed(message))
            done = loop.create_future()
            link.begin(exchange, done)
            timer = loop.call_later(left, _expire, done)
            try:
                await done
            finally:
                timer.cancel()
                link.leave(exchange)
                # An error's traceback refers to this frame: with ``done`` it would be a circle.
                del done
            if exchange.reset != REFUSED_STREAM:
                beside = self._beside
                if beside is not None and sum(map(len, exchange.parts)) > _LARGE_BYTES:
                    return await beside(partial(_message, exchange))
                return _message(exchange)
            # To wait on a connection that sends others is no try: each such connection ends some.
            tries += bool(exchange.number) or not link.has_sent
            pause = _FIRST_PAUSE_SECONDS * 2.0 ** (tries - 2) if tries > 1 else 0.0
            pause = min(pause, _LONGEST_PAUSE_SECONDS)
            if tries == _MOST_TRIES or loop.time() + pause >= ends:
                return _message(exchange)
            if pause:
                await asyncio.sleep(pause)

    async def close(self) -> None:
        """Closes all connections; calls in flight fail as unavailable."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for link in tuple(self._open):
            link.drop("closed")

    def _head(self, method: str, seconds: float) -> bytes:
        head = self._heads.get(method)
        if head is None:
            over_tls = self._tls is not None
            head = request_head(self._authority, method.encode(), over_tls=over_tls)
            self._heads[method] = head
        milliseconds = max(1, min(_MOST_MILLISECONDS, int(1000 * seconds) + 1))
        return head + header(b"grpc-timeout", b"%dm" % milliseconds)

    async def _connected(self, timeout_seconds: float) -> "_Link":
        """The connection, once it is made; all that wait for it share one try."""
        if self._closed:
            raise CallError(grpc.StatusCode.UNAVAILABLE, "closed")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connect_ended)
        task = self._connecting
        ended, _ = await asyncio.wait((task,), timeout=max(0.0, timeout_seconds))
        if not ended:
            raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "no connection in time")
        if task.cancelled():
            raise CallError(grpc.StatusCode.UNAVAILABLE, "closed")
        return task.result()

    async def _connect(self) -> "_Link":
        loop = asyncio.get_running_loop()
        link: _Link | None = None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                secured = None if self._tls is None else await asyncio.to_thread(self._tls.context)
                name = None if self._tls is None else self._tls.name
                _, link = await loop.create_connection(
                    self._new_link, self._host, self._port, ssl=secured, server_hostname=name
                )
                await link.settled
        except TimeoutError:
            if link is not None:
                link.drop("no settings")
            raise CallError(grpc.StatusCode.UNAVAILABLE, "no connection in time") from None
        except OSError as error:
            raise CallError(grpc.StatusCode.UNAVAILABLE, f"no connection: {error}") from error
        except asyncio.CancelledError:  # by ``close``
            if link is not None:
                link.drop("closed")
            raise
        self._link = link
        return link

    def _new_link(self) -> "_Link":
        return _Link(self._open)

    def _connect_ended(self, task: "asyncio.Task[_Link]") -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # those who waited for it know; nobody may


class _Link(asyncio.Protocol):
    """One connection and the calls on it, all of which end before it does.

    ``_advance`` alone sends calls, gives those back that a leaving server will not get, and ends
    the connection that has nothing left to do. Whatever happens leads there.

    Args:
        all_open: the connections that are open, to which it adds itself until it has ended.
    """

    def __init__(self, all_open: "set[_Link]") -> None:
        self._loop = asyncio.get_running_loop()
        self._all_open = all_open
        self._connection = Connection()
        self._transport: asyncio.Transport | None = None
        self._done: dict[Exchange, asyncio.Future[None]] = {}
        # For the server to take more at once, in the order in which they came.
        self._waiting: dict[Exchange, None] = {}
        self._heard = self._pinged = 0.0
        self._asked = False  # something since the server was heard, answered or given up
        self._timer: asyncio.TimerHandle | None = None
        self._unbroken = 0  # bytes read since others had the loop, or more
        self.has_sent = False  # a call, at any time
        self.settled: asyncio.Future[None] = self._loop.create_future()

    @property
    def usable(self) -> bool:
        """Whether a call can be made."""
        return self._transport is not None and not self._connection.leaving

    def begin(self, exchange: Exchange, done: "asyncio.Future[None]") -> None:
        """Sends a request; ``done`` ends when the exchange does, with or without an answer."""
        if self._transport is None:
            done.set_exception(_lost("connection lost"))
            return
        self._done[exchange] = done
        self._waiting[exchange] = None
        self._asked = True
        self._advance()

    def leave(self, exchange: Exchange) -> None:
        """Tells the server if a request is not waited for any more; nothing if it has ended."""
        if self._done.pop(exchange, None) is None:
            return
        if exchange in self._waiting:
            del self._waiting[exchange]
        else:
            self._connection.cancel(exchange)
        self._advance()

    def drop(self, reason: str) -> None:
        """Gives the connection up, and all calls on it."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._all_open.add(self)
        found = transport.get_extra_info("socket")
        if found is not None:
            with suppress(OSError):
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        self._write()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if self._transport is None:
            return  # it was given up, and what came before that is still handed over
        self._heard, self._pinged, self._asked = self._loop.time(), 0.0, False
        self._take_turns(len(data))
        try:
            ended = self._connection.receive(data)
        except Http2Error as error:
            self.drop(f"not HTTP/2 as it should be: {error}")
            return
        for exchange in ended:
            self._finish(exchange)
        if self._connection.settled and not self.settled.done():
            self.settled.set_result(None)
        self._advance()

    def _take_turns(self, size: int) -> None:
        """Lets others have the loop between two megabytes of a large answer.

        libuv would read on for as long as something is there, 8 MB at a stretch.
        """
        self._unbroken += size
        transport = self._transport
        if self._unbroken < _TURN_BYTES or transport is None or transport.is_closing():
            return
        self._unbroken = 0
        transport.pause_reading()
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        # A transport that is closing meanwhile has yet to say so, and refuses to be read.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._end(f"connection lost: {error}" if error else "connection closed by the server")

    def _advance(self) -> None:
        """Does what can be done now, then writes."""
        connection = self._connection
        while self._waiting and connection.room and not connection.leaving:
            exchange = next(iter(self._waiting))
            del self._waiting[exchange]
            connection.send(exchange)
            self.has_sent = True
        if connection.leaving:
            for exchange in self._waiting:
                exchange.reset = REFUSED_STREAM  # the server has not seen it
                self._finish(exchange)
            self._waiting.clear()
        self._write()
        if connection.leaving and not connection.exchanges:
            self.drop("the server leaves")

    def _finish(self, exchange: Exchange) -> None:
        """Tells the caller, if it still waits, that its exchange has ended."""
        done = self._done.pop(exchange, None)
        if done is not None and not done.done():
            done.set_result(None)

    def _write(self) -> None:
        if self._transport is not None:
            out = self._connection.take()
            if out:
                self._transport.write(out)

    def _tick(self) -> None:
        """Asks for a sign of life where calls have waited for long, and gives up without one.

        Calls that were given up count: of a lost host, probes with short deadlines may be all.
        """
        self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        now = self._loop.time()
        if not self._done and not self._asked:
            self._heard = now
        elif self._pinged and now - self._pinged >= _PING_SECONDS:
            self.drop("no answer to a ping")
        elif not self._pinged and now - self._heard >= _QUIET_SECONDS:
            self._pinged = now
            self._connection.ping()
            self._write()

    def _end(self, reason: str) -> None:
        self._transport = None
        self._all_open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lost, self._done = self._done, {}
        self._waiting.clear()
        for done in lost.values():
            if not done.done():
                done.set_exception(_lost(reason))
        if not self.settled.done():
            self.settled.set_exception(ConnectionError(reason))
            self.settled.exception()  # nobody may wait for it


def _expire(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_exception(CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time"))


def _lost(reason: str) -> CallError:
    return CallError(grpc.StatusCode.UNAVAILABLE, reason)


def _prefixed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def _message(exchange: Exchange) -> bytes:
    """The message of an exchange that has ended; raises ``CallError``."""
    headers = exchange.headers
    status = headers.get(b"grpc-status")
    if status is None:
        raise _without_status(exchange)
    if status != b"0":
        details = unquote_to_bytes(headers.get(b"grpc-message", b"")).decode(errors="replace")
        number = int(status) if status.isdigit() else -1
        raise CallError(_CODES.get(number, grpc.StatusCode.UNKNOWN), details)
    parts = exchange.parts
    while len(parts) > 1 and len(parts[0]) < _PREFIX:
        parts[:2] = [parts[0] + parts[1]]
    prefix = parts[0][:_PREFIX] if parts else b""
    length = sum(map(len, parts)) - _PREFIX
    if len(prefix) < _PREFIX or prefix[0] or int.from_bytes(prefix[1:]) != length:
        parts.clear()
        raise CallError(grpc.StatusCode.INTERNAL, "the answer is no message of its length")
    # The prefix is cut from one part: cutting it from the whole would copy the whole, and hold
    # Python's lock meanwhile, which a join of a megabyte and more does not.
    parts[0] = parts[0][_PREFIX:]
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    parts.clear()  # of a large answer, beside the event loop
    return body


def _without_status(exchange: Exchange) -> CallError:
    """The error of an exchange whose end has no status of gRPC."""
    if exchange.reset is not None:
        code = grpc.StatusCode.CANCELLED if exchange.reset == CANCEL else None
        return CallError(
            code or grpc.StatusCode.UNAVAILABLE, f"the server reset the call: {exchange.reset}"
        )
    http = exchange.headers.get(STATUS, b"")
    if http == b"200":
        return CallError(grpc.StatusCode.INTERNAL, "an answer without a status")
    code = _HTTP_CODES.get(http, grpc.StatusCode.UNKNOWN)
    return CallError(code, f"status {http.decode(errors='replace')} of HTTP")
