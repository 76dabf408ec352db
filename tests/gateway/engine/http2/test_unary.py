"""Unary calls on the event loop: against gRPC's own server, and against servers that misbehave."""

import asyncio
import gc
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from certificates import write
from http2_peer import EVERY_STREAM, REFUSED_STREAM, PeerLoop

from gateway.engine.http2 import connection as http2
from gateway.engine.http2 import unary
from gateway.engine.http2.connection import header
from gateway.engine.http2.unary import CallError, UnaryClient
from service.mutual_tls import AUTHORITY, MutualTls

Code = grpc.StatusCode
METHOD = "/a.Service/Method"
SETTINGS = bytes.fromhex("000000040000000000")

Answer = Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]


@asynccontextmanager
async def server_of(
    answer: Answer, options: list[tuple[str, int]] | None = None, **more: Any
) -> AsyncIterator[tuple[UnaryClient, grpc.aio.Server]]:
    """gRPC's server, whose one method answers so."""
    server = grpc.aio.server(options=options)
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("a.Service", {"Method": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = UnaryClient(f"127.0.0.1:{port}", **more)
    async with asyncio.timeout(60):
        yield client, server
    await client.close()
    await server.stop(None)


async def echo(request: bytes, context: object) -> bytes:
    return request


@asynccontextmanager
async def raw_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[UnaryClient]:
    """A server that is given each connection as it is."""
    over = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve(reader, writer)
        await over.wait()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    client = UnaryClient(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        async with asyncio.timeout(60):
            yield client
    finally:
        await client.close()
        over.set()
        server.close()
        for writer in writers:  # or another test's loop finds them
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def code_of(client: UnaryClient, timeout_seconds: float = 30) -> grpc.StatusCode:
    with pytest.raises(CallError) as caught:
        await client.call(METHOD, b"x", timeout_seconds)
    return caught.value.code


def test_uvloops_transports_will_do() -> None:
    async def call() -> bytes:
        async with server_of(echo) as (client, _):
            return await client.call(METHOD, b"x" * 100_000, 30)

    assert uvloop.run(call()) == b"x" * 100_000


@pytest.mark.parametrize("size", [0, 1, 16_384, 65_536, 3_000_000])
async def test_messages_of_any_size_go_and_come(size: int) -> None:
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    large: list[bytes] = []

    async def beside(work: Callable[[], bytes]) -> bytes:
        large.append(await asyncio.to_thread(work))
        return large[-1]

    async with server_of(echo, options, beside=beside) as (client, _):
        assert await client.call(METHOD, message, 30) == message
    assert large == ([message] if size > 1 << 20 else [])


async def test_many_calls_at_once_get_each_its_own_answer_on_one_connection() -> None:
    peers = set()

    async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        peers.add(context.peer())
        return request * 1000

    async with server_of(answer) as (client, _):
        sent = [b"%04d" % number for number in range(200)]
        found = await asyncio.gather(*(client.call(METHOD, each, 30) for each in sent))
    assert found == [each * 1000 for each in sent]
    assert len(peers) == 1


async def test_a_server_of_few_streams_gets_the_others_in_turn() -> None:
    at_once = most = 0

    async def answer(request: bytes, context: object) -> bytes:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return request

    async with server_of(answer, [("grpc.max_concurrent_streams", 2)]) as (client, _):
        found = await asyncio.gather(*(client.call(METHOD, b"%d" % n, 30) for n in range(20)))
    assert found == [b"%d" % n for n in range(20)]
    assert most <= 2


async def test_a_status_comes_with_its_words() -> None:
    async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(Code.NOT_FOUND, "no völlig 100 % model")
        return request

    async with server_of(answer) as (client, _):
        with pytest.raises(CallError, match="no völlig 100 % model") as caught:
            await client.call(METHOD, b"", 30)
        assert caught.value.code is Code.NOT_FOUND
        with pytest.raises(CallError) as unknown:
            await client.call("/a.Service/Other", b"", 30)
        assert unknown.value.code is Code.UNIMPLEMENTED


async def test_the_server_is_told_the_time_and_that_a_call_was_given_up() -> None:
    left: list[float | None] = []
    came, ended = asyncio.Event(), asyncio.Event()

    async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        left.append(context.time_remaining())
        came.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return request

    async with server_of(answer) as (client, _):
        call = asyncio.create_task(client.call(METHOD, b"", 40))
        await came.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await ended.wait()
        assert left[0] is not None
        assert 30 < left[0] <= 41
        assert await code_of(client, 0.05) is Code.DEADLINE_EXCEEDED


async def test_a_lost_connection_is_made_again_by_the_next_call() -> None:
    first = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        writer.write(SETTINGS)
        if first:
            first = False
            await reader.readuntil(METHOD.encode())
            writer.transport.abort()
            return
        await reader.readuntil(METHOD.encode())
        head = header(b":status", b"200") + header(b"grpc-status", b"5")
        writer.write(len(head).to_bytes(3, "big") + b"\x01\x05\0\0\0\x01" + head)

    async with raw_server(serve) as client:
        assert await code_of(client) is Code.UNAVAILABLE
        assert await code_of(client) is Code.NOT_FOUND


async def test_no_server_a_closed_client_and_no_time_fail_as_what_they_are() -> None:
    async with server_of(echo) as (client, server):
        await server.stop(None)
        assert await code_of(client) is Code.UNAVAILABLE
        await client.close()
        assert await code_of(client) is Code.UNAVAILABLE


async def test_a_client_that_is_closed_fails_calls_in_flight_and_those_that_wait_to_connect() -> (
    None
):
    came = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        came.set()

    async with raw_server(silent) as client:
        call = asyncio.create_task(code_of(client))
        await came.wait()
        await client.close()
        assert await call is Code.UNAVAILABLE
        other = UnaryClient("127.0.0.1:1")
        call = asyncio.create_task(code_of(other))
        await asyncio.sleep(0)  # until it has asked for a connection, which nobody has begun
        await other.close()
        assert await call is Code.UNAVAILABLE


async def test_a_server_without_settings_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unary, "_CONNECT_SECONDS", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with raw_server(silent) as client:
        assert await code_of(client) is Code.UNAVAILABLE
        monkeypatch.setattr(unary, "_CONNECT_SECONDS", 60.0)
        assert await code_of(client, 0.001) is Code.DEADLINE_EXCEEDED


async def test_what_is_not_http2_is_unavailable() -> None:
    async def http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with raw_server(http1) as client:
        assert await code_of(client) is Code.UNAVAILABLE


async def test_a_call_that_a_leaving_server_refused_goes_to_the_next_connection() -> None:
    connections = 0
    away = bytes.fromhex("000008070000000000") + bytes(8)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(SETTINGS)
        await reader.readuntil(METHOD.encode())
        writer.write(away)

    async with raw_server(serve) as client:
        assert await code_of(client) is Code.UNAVAILABLE
        assert connections == 8  # each refused what it had not looked at


def calls_on(loop: PeerLoop, count: int, seconds: float = 60) -> list[asyncio.Task[bytes]]:
    """Calls of one client to a server in memory."""
    client = UnaryClient("server:1")
    calls = [loop.create_task(client.call(METHOD, b"%d" % n, seconds)) for n in range(count)]
    loop.settle()
    return calls


def test_others_have_the_loop_between_two_megabytes_of_an_answer() -> None:
    message = random.Random(1).randbytes(8 << 20)
    with closing(PeerLoop()) as loop:
        (call,) = calls_on(loop, 1)
        (peer,) = loop.peers
        peer.answer_in_pieces(peer.running[0], message, 1 << 16)
        assert loop.run_until_complete(call) == message
        assert peer.pauses == 8
        peer.abort()
        loop.settle()


@pytest.mark.parametrize("size", [1, 3, 5, 6])
def test_an_answer_may_come_in_pieces_shorter_than_its_prefix(size: int) -> None:
    with closing(PeerLoop()) as loop:
        (call,) = calls_on(loop, 1)
        (peer,) = loop.peers
        peer.answer_in_pieces(peer.running[0], b"four", size)
        assert loop.run_until_complete(call) == b"four"
        peer.abort()
        loop.settle()


def test_calls_that_wait_as_the_server_leaves_go_to_its_next_connection() -> None:
    with closing(PeerLoop()) as loop:
        loop.most_streams = 2
        calls = calls_on(loop, 6)
        (first,) = loop.peers
        first.leave(EVERY_STREAM)
        loop.settle()
        second = loop.peers[1]
        while not all(call.done() for call in calls):
            for peer in (first, second):
                for stream in peer.running:
                    peer.answer(stream)
            loop.settle()
        assert [call.result() for call in calls] == [b"%d" % n for n in range(6)]
        assert (len(first.streams), len(second.streams), first.is_open) == (2, 4, False)
        second.abort()
        loop.settle()


def test_a_server_may_leave_as_the_calls_that_wait_run_out_of_time() -> None:
    faults: list[object] = []
    with closing(PeerLoop()) as loop:
        loop.set_exception_handler(lambda _, context: faults.append(context))
        loop.most_streams = 1
        loop.call_at(loop.time() + 5, lambda: loop.peers[0].leave(EVERY_STREAM))
        calls = calls_on(loop, 4, 5)
        loop.pass_time(6)
        errors = [call.exception() for call in calls]
        assert all(isinstance(each, CallError) for each in errors)
        assert not any(peer.is_open for peer in loop.peers)
    assert not faults


def test_a_connection_that_its_server_leaves_ends_with_the_last_call_on_it() -> None:
    with closing(PeerLoop()) as loop:
        calls = calls_on(loop, 2)
        (peer,) = loop.peers
        peer.leave(EVERY_STREAM)
        loop.settle()
        assert peer.is_open
        for call in calls:
            call.cancel()
        loop.settle()
        assert not peer.is_open


def test_a_closed_client_leaves_no_connection_open() -> None:
    with closing(PeerLoop()) as loop:
        client = UnaryClient("server:1")
        first = loop.create_task(client.call(METHOD, b"1", 60))
        loop.settle()
        loop.peers[0].leave(EVERY_STREAM)
        second = loop.create_task(client.call(METHOD, b"2", 60))
        loop.settle()
        assert [peer.is_open for peer in loop.peers] == [True, True]
        loop.run_until_complete(client.close())
        loop.settle()
        assert [peer.is_open for peer in loop.peers] == [False, False]
        for call in (first, second):
            assert "closed" in str(call.exception())


def test_a_server_that_refuses_a_call_gets_no_further_one_before_another_has_ended() -> None:
    with closing(PeerLoop()) as loop:
        calls = calls_on(loop, 4)
        (peer,) = loop.peers
        streams = peer.running
        peer.reset(streams[2], REFUSED_STREAM)
        peer.reset(streams[3], REFUSED_STREAM)
        loop.pass_time(1)
        assert peer.running == streams[:2]
        peer.answer(streams[0])
        loop.pass_time(1)
        assert len(peer.running) == 3  # as many as it took, and one more
        while peer.running:
            peer.answer(peer.running[0])
            loop.pass_time(1)
        assert [call.result() for call in calls] == [b"0", b"1", b"2", b"3"]
        peer.abort()
        loop.settle()


@pytest.mark.parametrize(("over_tls", "scheme"), [(False, 6), (True, 7)])
async def test_a_request_names_the_scheme_of_its_connection(
    over_tls: bool, scheme: int, tmp_path: Path
) -> None:
    read: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SETTINGS)
        read.set_result(await reader.readuntil(METHOD.encode()))
        writer.close()

    certificate, key = write(tmp_path, "localhost")
    (tmp_path / AUTHORITY).write_bytes(certificate.read_bytes())
    secured = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secured.load_cert_chain(certificate, key)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=secured if over_tls else None)
    tls = MutualTls(tmp_path, "localhost") if over_tls else None
    client = UnaryClient(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", tls)
    assert await code_of(client) is Code.UNAVAILABLE
    assert bytes((0x83, 0x80 | scheme)) in await read  # of HPACK's static table, behind POST
    await client.close()
    server.close()


async def test_a_server_that_answers_no_ping_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TICK_SECONDS", "_QUIET_SECONDS", "_PING_SECONDS"):
        monkeypatch.setattr(unary, name, 0.01)
    pings = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SETTINGS)
        await reader.readuntil(b"headrace")
        pings.set()

    async with raw_server(serve) as client:
        assert await code_of(client) is Code.UNAVAILABLE
        await pings.wait()


async def test_a_server_that_says_nothing_to_short_calls_is_given_up_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (("TICK", 0.005), ("QUIET", 0.1), ("PING", 0.01)):
        monkeypatch.setattr(unary, f"_{name}_SECONDS", seconds)
    connections = 0

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(SETTINGS)

    async with raw_server(serve) as client:
        while connections < 2:
            await code_of(client, 0.001)
            await asyncio.sleep(0.03)  # in most of the time no call waits


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({b":status": b"503"}, Code.UNAVAILABLE),
        ({b":status": b"404"}, Code.UNIMPLEMENTED),
        ({b":status": b"418"}, Code.UNKNOWN),
        ({b":status": b"200"}, Code.INTERNAL),
        ({}, Code.UNKNOWN),
        ({b"grpc-status": b"14"}, Code.UNAVAILABLE),
        ({b"grpc-status": b"99"}, Code.UNKNOWN),
        ({b"grpc-status": b"x"}, Code.UNKNOWN),
        ({b"grpc-status": b"0"}, Code.INTERNAL),  # and no message
    ],
)
def test_answers_that_are_none_are_errors_of_their_kind(
    headers: dict[bytes, bytes], code: grpc.StatusCode
) -> None:
    exchange = http2.Exchange(b"", b"")
    exchange.headers = headers
    with pytest.raises(CallError) as caught:
        unary._message(exchange)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("reset", "code"),
    [
        (http2.REFUSED_STREAM, Code.UNAVAILABLE),
        (http2.CANCEL, Code.CANCELLED),
        (2, Code.UNAVAILABLE),
    ],
)
def test_a_reset_is_no_fault_of_the_models(reset: int, code: grpc.StatusCode) -> None:
    exchange = http2.Exchange(b"", b"")
    exchange.reset = reset
    with pytest.raises(CallError) as caught:
        unary._message(exchange)
    assert caught.value.code is code


@pytest.mark.parametrize("body", [b"", b"\0\0\0\0", b"\0\0\0\0\x02x", b"\x01\0\0\0\x01x"])
def test_a_body_that_is_no_message_is_an_error(body: bytes) -> None:
    exchange = http2.Exchange(b"", b"")
    exchange.headers = {b"grpc-status": b"0"}
    exchange.parts = [body]
    with pytest.raises(CallError, match="no message"):
        unary._message(exchange)


async def test_calls_that_fail_leave_nothing_to_the_garbage_collector() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SETTINGS)

    async def ask(client: UnaryClient, times: int) -> None:
        for _ in range(times):
            with suppress(CallError):
                await client.call(METHOD, b"", 0.0)

    async with raw_server(serve) as client:
        await code_of(client, 0.01)  # connects
        await ask(client, 2)
        gc.collect()
        gc.disable()
        found = []
        try:
            for _ in range(3):
                await ask(client, 100)
                found.append(gc.collect())
        finally:
            gc.enable()
    # Other threads of the process leave garbage too, now and then; calls would each time.
    assert min(found) < 100
