"""One connection of the HTTP server without a socket, by a clock that the test sets."""

import asyncio
from collections.abc import Callable, Coroutine
from copy import copy
from functools import partial
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.http.body import HttpLimits
from gateway.http.messages import Reply
from gateway.http.plain_post import PlainPost
from gateway.http.server import uvicorn_options

POST = b"POST /endpoints/a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


class Timer:
    def __init__(self, at: float, ring: Callable[[], None]) -> None:
        self.at, self.ring, self.cancelled = at, ring, False

    def cancel(self) -> None:
        self.cancelled = True
        self.ring = lambda: None  # a real one lets go of it, too

    def when(self) -> float:
        return self.at


class Loop:
    """A loop whose tasks run at once, up to their first wait."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []
        self.running: list[Coroutine[Any, Any, None]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, ring: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, ring))
        return self.timers[-1]

    def call_soon(self, ring: Callable[[], None]) -> Timer:
        return self.call_later(0, ring)

    def create_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        self.running.append(work)
        self.go_on()
        return asyncio.get_event_loop().create_future()

    def go_on(self) -> None:
        for work in tuple(self.running):
            try:
                work.send(None)
            except StopIteration:
                self.running.remove(work)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            due = [timer for timer in self.timers if timer.at <= end and not timer.cancelled]
            if not due:
                break
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = first.at
            first.ring()
        self.now = end

    @property
    def waiting(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.aborted = False
        self.half_closed = False
        self.reads = True
        self.untaken = 0  # bytes that the caller has not taken
        self.half_closes = True  # which TLS does not

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def abort(self) -> None:
        self.closed = self.aborted = True

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def can_write_eof(self) -> bool:
        return self.half_closes

    def write_eof(self) -> None:
        self.half_closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Answers:
    """Refuses all if ``active``; answers at once, or in the next turn if ``slow``."""

    active = draining = False
    slow = False
    body = b"{}"
    fails = False  # once an answer has begun

    def __init__(self) -> None:
        self.plain: list[PlainPost] = []
        self.parsed: list[str] = []  # paths of requests that came through ASGI

    def refusal(self, *_: object) -> bytes | None:
        return b"HTTP/1.1 503 \r\ncontent-length: 0\r\n\r\n" if self.active else None

    async def answer_post(
        self, post: PlainPost, send: Callable[[Reply, str], None], stream: object
    ) -> None:
        self.plain.append(post)
        if self.slow:
            await asyncio.sleep(0)
        send(Reply(self.body), "id")

    async def answer_asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application for all other requests: answers before it has read a body."""
        del receive
        self.parsed.append(scope["path"])
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        if self.fails:
            raise RuntimeError("it can't go on")
        await send({"type": "http.response.body", "body": b"{}"})


class Connected:
    """A connection of the server, and what is around it."""

    def __init__(self, limits: HttpLimits) -> None:
        self.loop, self.transport, self.answers = Loop(), Transport(), Answers()
        options = uvicorn_options(limits, self.answers, self.answers)
        config = uvicorn.Config(self.answers.answer_asgi, interface="asgi3", **options)
        config.load()
        self._connect = partial(options["http"], config, ServerState(), {}, _loop=self.loop)
        self.protocol = self._connect()
        self.protocol.connection_made(self.transport)

    def another(self) -> "Connected":
        """Another connection of the same server."""
        other = copy(self)
        other.transport, other.protocol = Transport(), self._connect()
        other.protocol.connection_made(other.transport)
        return other

    def ask(self) -> None:
        """Sends one request in one piece."""
        self.transport.written = b""
        self.protocol.data_received(POST)
