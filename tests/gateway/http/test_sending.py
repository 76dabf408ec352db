"""What waits on a connection is counted on real ones, with TLS and without."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import certificates
import pytest
import uvloop
from uvicorn.protocols.http.flow_control import FlowControl

from gateway.http.pacing import PacedWriter, Turns
from gateway.http.sending import Sending

pytestmark = pytest.mark.slow

MEGABYTE = 1_000_000
# The system's own buffers, of both sides.
ROOM = 700_000


class Server(asyncio.Protocol):
    def __init__(self) -> None:
        self.made = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        flow = FlowControl(transport)
        self.writer = PacedWriter(transport, flow, asyncio.get_running_loop(), Turns())
        self.sending = Sending(transport, self.writer)
        self.made.set()

    def write(self, size: int) -> None:
        self.sending.wrote(size)
        self.writer.write(bytes(size))

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()


@asynccontextmanager
async def connection(folder: Path, *, tls: bool) -> AsyncIterator[tuple[Server, socket.socket]]:
    """A server's side of a connection, and the caller's socket, which blocks."""
    context = caller = None
    if tls:
        certificate, key = certificates.write(folder, "gateway")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        caller = ssl.create_default_context(cafile=str(certificate))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    server = Server()
    async with await asyncio.get_running_loop().create_server(
        lambda: server, sock=listener, ssl=context
    ):
        with socket.socket() as plain:
            plain.settimeout(60)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            await asyncio.to_thread(plain.connect, listener.getsockname())
            found = plain
            if caller is not None:
                found = await asyncio.to_thread(
                    caller.wrap_socket, plain, server_hostname="127.0.0.1"
                )
            with found:
                await server.made.wait()
                yield server, found
        server.transport.abort()


async def take(caller: socket.socket, size: int) -> None:
    def read() -> None:
        left = size
        while left:
            left -= len(caller.recv(min(left, 65_536)))

    await asyncio.to_thread(read)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody is told of it
        await asyncio.sleep(0.001)


class Unheard(Sending):
    """Of a caller that has acknowledged nothing yet."""

    def _acknowledged(self) -> int | None:
        return 0


def on_uvloop(steps: Coroutine[Any, Any, None]) -> None:
    """On the gateway's own loop, whose TLS does not count what waits below it."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await steps

    uvloop.run(bounded())


@pytest.mark.parametrize("tls", [False, True])
def test_what_a_caller_leaves_is_counted_also_after_it_has_taken_some(
    tmp_path: Path, *, tls: bool
) -> None:
    async def steps() -> None:
        async with connection(tmp_path, tls=tls) as (server, caller):
            sending = server.sending
            assert sending.left() == 0
            server.write(4 * MEGABYTE)
            assert 4 * MEGABYTE - ROOM < sending.left() <= 4 * MEGABYTE
            before = sending.acknowledged()
            await take(caller, 2 * MEGABYTE)
            await until(lambda: sending.acknowledged() - before > 2 * MEGABYTE - ROOM)
            assert 2 * MEGABYTE - ROOM < sending.left() <= 2 * MEGABYTE
            assert sending.held(sending.left()) == 4 * MEGABYTE
            await take(caller, 2 * MEGABYTE - 100_000)
            if tls:  # in its own bytes the end may be hidden
                assert sending.left() >= 1
                assert sending.held(sending.left()) == 4 * MEGABYTE
            await take(caller, 100_000)
            await until(lambda: sending.unacknowledged() == 0)
            assert (sending.left(), sending.held(0)) == (0, 0)

    on_uvloop(steps())


@pytest.mark.parametrize("tls", [False, True])
def test_what_tls_adds_to_many_short_answers_hides_no_long_one(
    tmp_path: Path, *, tls: bool
) -> None:
    async def steps() -> None:
        async with connection(tmp_path, tls=tls) as (server, caller):
            sending = server.sending
            for _ in range(20):
                for _ in range(2_000):
                    server.write(1)
                    sending.left()
                await take(caller, 2_000)
            await until(lambda: sending.unacknowledged() == 0)
            assert sending.left() == 0
            server.write(2 * MEGABYTE)
            assert 2 * MEGABYTE - ROOM < sending.left() <= 2 * MEGABYTE

    on_uvloop(steps())


@pytest.mark.parametrize("tls", [False, True])
def test_a_short_answer_that_the_system_takes_at_once_does_not_wait(
    tmp_path: Path, *, tls: bool
) -> None:
    async def steps() -> None:
        async with connection(tmp_path, tls=tls) as (server, caller):
            await asyncio.sleep(0)
            for _ in range(100):
                server.write(500)
                assert server.sending.left() == 0
            await take(caller, 50_000)

    on_uvloop(steps())


def test_what_waits_for_its_first_acknowledgement_is_not_taken(tmp_path: Path) -> None:
    async def steps() -> None:
        async with connection(tmp_path, tls=False) as (server, caller):
            server.write(4 * MEGABYTE)
            # A caller's first acknowledgement may come after that, which takes a slow line.
            sending = Unheard(server.transport, server.writer)
            sending.wrote(4 * MEGABYTE)
            assert sending.acknowledged() < ROOM
            await take(caller, 4 * MEGABYTE)

    on_uvloop(steps())


async def test_of_a_connection_that_is_closed_the_transport_tells() -> None:
    class Closed(asyncio.Transport):
        def get_write_buffer_size(self) -> int:
            return 7

    with socket.socket() as gone:
        transport = Closed({"socket": gone, "sslcontext": object()})
    flow, loop = FlowControl(transport), asyncio.get_running_loop()
    sending = Sending(transport, PacedWriter(transport, flow, loop, Turns()))
    sending.wrote(10)
    assert (sending.left(), sending.acknowledged(), sending.unacknowledged()) == (7, 3, 7)
