"""How long a connection that is kept lives, by a clock that the test sets."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.http.body import HttpLimits
from gateway.http.messages import Reply
from gateway.http.server import PlainPost, uvicorn_options

POST = b"POST /endpoints/a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
LIMITS = HttpLimits(keep_alive_seconds=10)


class Timer:
    def __init__(self, at: float, ring: Callable[[], None]) -> None:
        self.at, self.ring, self.cancelled = at, ring, False

    def cancel(self) -> None:
        self.cancelled = True


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

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def resume_reading(self) -> None:
        pass


class Answers:
    """Neither refuses nor drains; answers at once, or in the next turn if ``slow``."""

    active = draining = False
    slow = False

    def refusal(self, *_: object) -> bytes | None:
        return None

    async def answer_post(self, post: PlainPost, send: Callable[[Reply, str], None]) -> None:
        if self.slow:
            await asyncio.sleep(0)
        send(Reply(b"{}"), "id")


class Connected:
    def __init__(self) -> None:
        self.loop, self.transport, self.answers = Loop(), Transport(), Answers()
        options = uvicorn_options(LIMITS, self.answers, self.answers)
        config = uvicorn.Config(lambda: None, **options)
        config.load()
        self.protocol = options["http"](config, ServerState(), {}, _loop=self.loop)
        self.protocol.connection_made(self.transport)

    def ask(self) -> None:
        self.transport.written = b""
        self.protocol.data_received(POST)


@pytest.fixture
async def connected() -> Connected:
    return Connected()


async def test_a_connection_that_is_used_lives_on(connected: Connected) -> None:
    for _ in range(5):
        connected.ask()
        assert connected.transport.written.startswith(b"HTTP/1.1 200 OK\r\n")
        connected.loop.advance(9)
        assert not connected.transport.closed


async def test_it_ends_when_it_was_idle_for_its_time(connected: Connected) -> None:
    connected.ask()
    connected.loop.advance(6)
    connected.ask()
    connected.loop.advance(9.9)
    assert not connected.transport.closed
    connected.loop.advance(0.2)
    assert connected.transport.closed


async def test_a_slow_answer_is_not_idle_time(connected: Connected) -> None:
    connected.ask()
    connected.answers.slow = True
    connected.ask()
    connected.loop.advance(50)
    assert not connected.transport.closed
    connected.loop.go_on()
    assert connected.transport.written.startswith(b"HTTP/1.1 200 OK\r\n")
    connected.loop.advance(9.9)
    assert not connected.transport.closed
    connected.loop.advance(0.2)
    assert connected.transport.closed


async def test_one_timer_is_set_however_many_requests_there_are(connected: Connected) -> None:
    for _ in range(20):
        connected.ask()
        connected.loop.advance(0.01)
    assert len(connected.loop.waiting) == 1


async def test_nothing_is_left_of_a_connection_that_is_lost(connected: Connected) -> None:
    connected.ask()
    connected.protocol.connection_lost(ConnectionResetError())
    assert connected.loop.waiting == []
