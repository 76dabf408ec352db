"""What callers without a key can do to a gateway's process: nothing that others notice."""

import asyncio
import json
import select
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import certificates
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from gateway_process import Running, gateway_at, lay_out, put
from gateway_world import endpoint_of, text_of
from raw_grpc import RawGrpc, prefixed
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.real  # starts processes

BODY = {"inputs": text_of(3)}
LARGEST = 8 * 1024 * 1024
CALLS, CONNECTIONS = 256, 8


def lay_out_endpoint(home: Path) -> None:
    (one,) = lay_out(home, "1")
    put(home, endpoint_of(one))


def peak_megabytes(running: Running) -> float:
    """The most memory that the process has held."""
    text = Path(f"/proc/{running.process.pid}/status").read_text(encoding="utf-8")
    return float(text.split("VmHWM:")[1].split()[0]) / 1024


async def test_idle_connections_keep_neither_probes_nor_callers_out(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    async with gateway_at(tmp_path, "--max-connections", "64") as running:
        where = running.http.base_url.host, running.http.base_url.port
        with ExitStack() as held:
            for _ in range(200):
                connection = socket.create_connection(where, timeout=60)
                held.enter_context(closing(connection))
            for _ in range(3):
                assert (await running.operations.get("/livez")).status_code == 200
                answer = await running.http.post("/endpoints/sentiment", json=BODY)
                assert answer.status_code == 200
        assert (await running.http.get("/livez")).status_code == 404


async def test_idle_connections_over_grpc_keep_nobody_out(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    flags = ("--max-connections=64", "--max-connections-per-peer=32")
    async with gateway_at(tmp_path, *flags) as running:
        port = (await running.line("gateway listens"))["grpc_port"]
        assert isinstance(port, int)
        with ExitStack() as held:
            idle = [held.enter_context(closing(RawGrpc(port))) for _ in range(200)]
            for each in idle:
                while not (each.most_calls or each.closed):
                    each.pump(1.0)  # until the server has taken or refused it
            text = triton.InferInput("TEXT", [1], "BYTES")
            text.set_data_from_numpy(np.array([text_of(3).encode()], dtype=object))
            async with (
                asyncio.timeout(60),
                triton.InferenceServerClient(f"127.0.0.1:{port}") as client,
            ):
                answered = 0
                while answered < 3:
                    with suppress(InferenceServerException):  # no room at this moment
                        await client.infer("sentiment", [text])
                        answered += 1
                while sum(not each.closed for each in idle) > 32:
                    await asyncio.sleep(0)
                    for each in idle:
                        each.pump()
        await running.line("closed connections that were quiet the longest, as there were too many")


MEGABYTE = 1024 * 1024


def large_request(megabytes: int = 4) -> bytes:
    """One whose answer is as large: its id comes back."""
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": [text_of(3)]}
    body = json.dumps({"id": "x" * megabytes * MEGABYTE, "inputs": [tensor]}).encode()
    head = b"POST /v2/models/sentiment/infer HTTP/1.1\r\nhost: x\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


async def test_answers_that_nobody_reads_are_dropped_before_they_fill_the_memory(
    tmp_path: Path,
) -> None:
    lay_out_endpoint(tmp_path)
    request = large_request()
    body = request.partition(b"\r\n\r\n")[2]
    # By its time alone, none would be closed.
    async with gateway_at(tmp_path, "--body-seconds=600") as running:
        where = running.http.base_url.host, running.http.base_url.port
        before = peak_megabytes(running)
        closed = select.poll()
        with ExitStack() as held:
            for _ in range(150):
                connection = held.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(where)
                connection.sendall(request)
                # Its answer is there: requests that wait together would be refused, as they should.
                await asyncio.to_thread(select.select, [connection], [], [], 30)
                closed.register(connection, 0)  # tells that it was closed, and nothing else
            async with asyncio.timeout(60):
                # The system's own buffers take some megabytes of each answer.
                while len(closed.poll(0)) < 30:
                    # A caller who reads is answered, and has the others looked at.
                    answer = await running.http.post("/v2/models/sentiment/infer", content=body)
                    assert answer.status_code == 200
            assert peak_megabytes(running) < before + 550


def take(connection: socket.socket, size: int) -> None:
    while size > 0:
        piece = connection.recv(min(size, 65_536))
        assert piece, "the gateway has ended the connection"
        size -= len(piece)


async def test_over_tls_too_an_answer_goes_that_nobody_reads(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    certificate, key = certificates.write(tmp_path, "gateway")
    tls = ssl.create_default_context(cafile=str(certificate))
    flags = (
        "--body-seconds=5", f"--tls-certificate-file={certificate}", f"--tls-key-file={key}",
    )  # fmt: skip
    async with gateway_at(tmp_path, *flags) as running:
        where = running.http.base_url.host, running.http.base_url.port
        closed = select.poll()
        with ExitStack() as held:
            for number in range(4):
                plain = socket.socket()
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection = held.enter_context(tls.wrap_socket(plain, server_hostname=where[0]))
                connection.connect(where)
                connection.sendall(large_request(7))
                # What waits below TLS is seen after the first is taken, too.
                await asyncio.to_thread(take, connection, number * MEGABYTE)
                closed.register(connection, 0)
            async with asyncio.timeout(60):
                while len(await asyncio.to_thread(closed.poll, 1000)) < 4:
                    pass


async def test_many_short_headers_and_requests_behind_each_other_end_their_connection(
    tmp_path: Path,
) -> None:
    lay_out_endpoint(tmp_path)
    async with gateway_at(tmp_path) as running:
        where = running.http.base_url.host, running.http.base_url.port
        for headers in (b"a:\r\n" * 16_000, b"a:\r\n" * 16_000 + b"\r\n"):
            with socket.create_connection(where, timeout=60) as connection:
                connection.sendall(b"GET /v2 HTTP/1.1\r\n" + headers)
                assert connection.recv(4096).startswith(b"HTTP/1.1 431 ")
        with socket.create_connection(where, timeout=60) as connection:
            with suppress(ConnectionError):
                connection.sendall(b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n" * 12_000)
            with suppress(ConnectionError):
                while connection.recv(1 << 20):
                    pass  # what was answered before
        assert (await running.http.post("/endpoints/sentiment", json=BODY)).status_code == 200


async def test_answers_over_grpc_that_nobody_takes_end_their_connections(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    message = pb.ModelInferRequest(model_name="sentiment", id="x" * MEGABYTE)
    tensor = message.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(text_of(3).encode())
    content = prefixed(message.SerializeToString())
    message.id = ""
    small = message.SerializeToString()
    async with gateway_at(tmp_path) as running:
        before = peak_megabytes(running)
        port = (await running.line("gateway listens"))["grpc_port"]
        assert isinstance(port, int)
        with ExitStack() as held:
            raws = [held.enter_context(closing(RawGrpc(port, first_window=0))) for _ in range(12)]
            for raw in raws:
                calls = [raw.call(content) for _ in range(25)]
                while not (raw.closed or raw.answered.issuperset(calls)):
                    raw.pump(1.0)
            # An answer counts twice; the last ones have just begun.
            while sum(not raw.closed for raw in raws) > 6:
                for raw in raws:
                    raw.pump()
                with closing(RawGrpc(port)) as good:
                    call = good.call(prefixed(small))
                    while call not in good.ended:
                        good.pump(1.0)
                    assert good.status(call) == "0"
        assert peak_megabytes(running) < before + 550


FEW_FILES = """
import resource
from gateway.main import within_files
from gateway.settings import Settings
settings = Settings(max_connections=64, max_connections_per_peer=32)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
assert within_files(settings) == settings
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 552))
few = within_files(settings)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
print(few.max_connections, few.max_connections_per_peer)
"""


def test_a_gateway_takes_the_files_that_its_connections_need_or_says_that_there_are_few() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == [str(2 * 64 + 32 + 512), "552", "16", "8"]
    assert "fewer open files" in done.stderr


async def flood(running: Running) -> list[RawGrpc]:
    """256 calls whose messages of 8 MiB lack their last byte, as far as the gateway takes them."""
    port = (await running.line("gateway listens"))["grpc_port"]
    assert isinstance(port, int)
    message = memoryview(prefixed(bytes(LARGEST - 5))[:-1])
    raws = [RawGrpc(port) for _ in range(CONNECTIONS)]
    for number in range(CALLS):
        raws[number % CONNECTIONS].call(message, end=False)
    return raws


async def test_large_messages_without_a_key_cost_no_memory(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    keys = tmp_path / "keys"
    keys.write_text(json.dumps({"name": "ann", "sha256": "0" * 64}) + "\n")
    async with gateway_at(tmp_path, "--keys-file", str(keys)) as running:
        before = peak_megabytes(running)
        raws = await flood(running)
        while any(len(raw.ended) < CALLS // CONNECTIONS for raw in raws):
            for raw in raws:
                raw.pump(0.01)
                assert not raw.closed
        assert {raw.status(1) for raw in raws} == {"16"}
        assert peak_megabytes(running) - before < 100  # of 2,048
        for raw in raws:
            raw.close()


async def test_large_messages_where_no_key_is_asked_for_cost_the_budget_at_most(
    tmp_path: Path,
) -> None:
    lay_out_endpoint(tmp_path)
    async with gateway_at(tmp_path) as running:
        before = peak_megabytes(running)
        raws = await flood(running)
        while sum(len(raw.ended) for raw in raws) < CALLS // 4:
            for raw in raws:
                raw.pump(0.01)
                assert not raw.closed
        assert peak_megabytes(running) - before < 400  # 256 of messages, and what is behind them
        await asyncio.gather(*(running.operations.get("/livez") for _ in range(3)))
        answer = await running.http.post("/endpoints/sentiment", json=BODY)
        assert answer.status_code == 200
        for raw in raws:
            raw.close()
