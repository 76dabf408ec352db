"""How long a connection that is kept lives, by a clock that the test sets."""

import gc
import weakref

import pytest
from connection_fakes import Connected

from gateway.http.body import HttpLimits

LIMITS = HttpLimits(keep_alive_seconds=10)


@pytest.fixture
async def connected() -> Connected:
    return Connected(LIMITS)


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


async def test_it_waits_for_no_garbage_collector_once_it_is_lost(connected: Connected) -> None:
    """With TLS it has all that its caller did not take."""
    connected.ask()
    connected.protocol.data_received(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
    protocol = weakref.ref(connected.protocol)
    gc.disable()
    try:
        connected.protocol.connection_lost(None)
        connected.loop.timers.clear()
        del connected.protocol
        assert protocol() is None
    finally:
        gc.enable()
