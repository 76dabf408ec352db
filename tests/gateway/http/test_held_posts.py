"""A POST whose body comes soon after its headers is taken as one that comes whole."""

import asyncio
from itertools import pairwise

import pytest
from connection_fakes import POST, Connected
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.body import HttpLimits

LIMITS = HttpLimits(
    keep_alive_seconds=10, body_seconds=5, held_seconds=0.5, max_held_bytes=len(POST) + 100
)
HEAD, BODY = POST[:-2], POST[-2:]


def of_length(length: int) -> tuple[bytes, bytes]:
    """Head and body of a request."""
    return HEAD.replace(b": 2", b": %d" % length), b"x" * length


@pytest.fixture
async def connected() -> Connected:
    return Connected(LIMITS)


@given(st.lists(st.tuples(st.integers(1, 60), st.sets(st.integers(0, 60))), min_size=1, max_size=4))
def test_however_a_body_is_cut_the_request_is_the_same(
    asked: list[tuple[int, set[int]]],
) -> None:
    async def ask() -> None:
        connected = Connected(LIMITS)
        for number, (length, cuts) in enumerate(asked):
            head, body = of_length(length)
            places = [0, *sorted(cut for cut in cuts if 0 < cut < length), length]
            pieces = [body[a:b] for a, b in pairwise(places)]
            first = head + pieces.pop(0) if 0 in cuts else head
            for piece in (first, *pieces):
                assert len(connected.answers.plain) == number
                connected.protocol.data_received(piece)
                connected.loop.advance(0.001)
            assert [len(each.body) for each in connected.answers.plain][number:] == [length]
            assert connected.answers.plain[-1].path == "/endpoints/a"
        assert connected.answers.parsed == []
        assert connected.transport.written.count(b"HTTP/1.1 200 OK\r\n") == len(asked)

    asyncio.run(ask())


async def test_a_body_that_does_not_come_soon_goes_to_the_parser(connected: Connected) -> None:
    connected.protocol.data_received(HEAD)
    connected.loop.advance(0.4)
    assert connected.answers.parsed == []
    connected.loop.advance(0.2)
    assert connected.answers.parsed == ["/endpoints/a"]
    assert connected.transport.written.startswith(b"HTTP/1.1 201 ")
    connected.protocol.data_received(BODY)
    connected.ask()
    assert connected.transport.written.startswith(b"HTTP/1.1 200 ")


async def test_a_body_in_drops_is_not_waited_for_longer(connected: Connected) -> None:
    head, body = of_length(50)
    connected.protocol.data_received(head)
    for byte in body[:10]:
        connected.loop.advance(0.06)
        connected.protocol.data_received(bytes([byte]))
    assert connected.answers.plain == []
    assert len(connected.answers.parsed) == 1


async def test_a_later_body_has_its_own_time(connected: Connected) -> None:
    for _ in range(5):
        connected.protocol.data_received(HEAD)
        connected.loop.advance(0.4)
        connected.protocol.data_received(BODY)
    assert len(connected.answers.plain) == 5
    assert len(connected.loop.waiting) == 2  # of keep-alive, and for held requests


async def test_a_large_body_goes_to_the_parser_at_once(connected: Connected) -> None:
    head, _ = of_length(200)
    connected.protocol.data_received(head)
    assert connected.answers.parsed == ["/endpoints/a"]


async def test_a_second_request_behind_the_body_is_answered_too(connected: Connected) -> None:
    connected.protocol.data_received(HEAD)
    connected.protocol.data_received(BODY + POST)
    assert connected.answers.parsed == ["/endpoints/a"] * 2
    assert connected.transport.written.count(b"HTTP/1.1 201 ") == 2


async def test_a_request_that_is_held_keeps_its_connection(connected: Connected) -> None:
    connected.ask()
    connected.loop.advance(9.9)
    connected.protocol.data_received(HEAD)
    connected.loop.advance(0.2)
    connected.protocol.data_received(BODY)
    assert len(connected.answers.plain) == 2
    connected.loop.advance(9)
    assert not connected.transport.closed


async def test_a_server_that_ends_answers_what_is_held(connected: Connected) -> None:
    connected.protocol.data_received(HEAD)
    connected.protocol.shutdown()
    assert connected.transport.written.startswith(b"HTTP/1.1 201 ")
    assert connected.transport.closed


async def test_nothing_is_left_of_a_held_request_whose_caller_is_gone(
    connected: Connected,
) -> None:
    connected.protocol.data_received(HEAD)
    connected.protocol.connection_lost(ConnectionResetError())
    assert connected.loop.waiting == []
    assert connected.answers.parsed == []


async def test_a_body_that_never_comes_has_its_time(connected: Connected) -> None:
    connected.protocol.data_received(HEAD)
    connected.loop.advance(0.6)
    assert min(round(timer.at - connected.loop.now, 1) for timer in connected.loop.waiting) == 4.9
