"""Clients that send a POST's head and body apart, or joined, are answered without the parser."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
import httpx
import numpy as np
import pytest
import requests
import urllib3
import uvicorn
from connection_fakes import Answers
from tritonclient import http as triton_http

from gateway.http.body import HttpLimits
from gateway.http.server import uvicorn_options

pytestmark = pytest.mark.slow


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
    with httpx.Client(base_url=url, timeout=60) as client:
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


@pytest.mark.parametrize("ask", CLIENTS)
def test_clients_send_what_is_taken_without_the_parser(ask: Callable[[str], None]) -> None:
    with listening() as served:
        ask(served.url)
    assert len(served.answers.plain) == REQUESTS
    assert served.answers.parsed == []
