"""A POST whose body comes soon after its headers is taken as one that comes whole."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import aiohttp
import httpx
import numpy as np
import pytest
import requests
import urllib3
import uvicorn
from connection_fakes import POST, Answers, Connected
from hypothesis import given
from hypothesis import strategies as st
from tritonclient import http as triton_http

from gateway.http.body import HttpLimits
from gateway.http.server import uvicorn_options

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


@dataclass
class Listening:
    """A server on a socket, and what it was asked."""

    url: str
    answers: Answers


@contextmanager
def listening() -> Iterator[Listening]:
    """The server with an application that says hardly anything."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers = Answers()
    options = uvicorn_options(HttpLimits(held_seconds=60), answers, answers)
    server = uvicorn.Server(uvicorn.Config(answers.answer_asgi, interface="asgi3", **options))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield Listening(f"http://127.0.0.1:{listener.getsockname()[1]}", answers)
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        listener.close()


PATH = "/endpoints/a"
REQUESTS = 5
ASKED = {"inputs": "a good film " * 400}


def by_httpx(url: str) -> None:
    """A client that sends head and body apart."""
    with httpx.Client(base_url=url) as client:
        for _ in range(REQUESTS):
            assert client.post(PATH, json=ASKED).status_code == 200


def by_requests(url: str) -> None:
    """As does this one."""
    with requests.Session() as session:
        for _ in range(REQUESTS):
            assert session.post(url + PATH, json=ASKED, timeout=60).status_code == 200


def by_urllib3(url: str) -> None:
    """And this."""
    with urllib3.PoolManager() as pool:
        for _ in range(REQUESTS):
            assert pool.request("POST", url + PATH, json=ASKED).status == 200


def by_aiohttp(url: str) -> None:
    """A client that joins them."""
    asyncio.run(_by_aiohttp(url))


async def _by_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession(url) as session:
        for _ in range(REQUESTS):
            async with session.post(PATH, json=ASKED) as answer:
                assert answer.status == 200


def by_tritonclient(url: str) -> None:
    """The client of the Open Inference Protocol."""
    tensor = triton_http.InferInput("TEXT", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"a good film"], dtype=np.object_), binary_data=False)
    with triton_http.InferenceServerClient(url.removeprefix("http://")) as client:
        for _ in range(REQUESTS):
            client.infer("a", [tensor])


CLIENTS: list[Callable[[str], Awaitable[None] | None]] = [
    by_httpx, by_requests, by_urllib3, by_aiohttp, by_tritonclient
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("ask", CLIENTS)
def test_clients_send_what_is_taken_without_the_parser(ask: Callable[[str], None]) -> None:
    with listening() as served:
        ask(served.url)
    assert len(served.answers.plain) == REQUESTS
    assert served.answers.parsed == []
