"""All that strangers can do to one gateway at once, for as long as is wanted.

Schemathesis asks by the OpenAPI document and against it; requests, messages over gRPC and whole
connections are cut, bent and made up; senders are slow, readers never read what is large, and
connections come in floods, over HTTP and gRPC. Beside them a caller asks in earnest, and a probe
asks whether the gateway is alive.

``HEADRACE_SOAK_SECONDS`` says how long: an hour where nothing is said.
"""

import asyncio
import json
import os
import random
import socket
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from gateway_process import Running, gateway_at, lay_out, put
from gateway_world import endpoint_of, text_of
from prometheus_client.parser import text_string_to_metric_families
from raw_grpc import INFER, RawGrpc, prefixed
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from soak_record import record
from tritonclient.grpc import service_pb2 as pb

from contracts.gateway_metrics import REQUESTS
from service.key_files import make_key_file

pytestmark = [pytest.mark.soak, pytest.mark.real, pytest.mark.timeout(7200)]

SECONDS = float(os.environ.get("HEADRACE_SOAK_SECONDS", "3600"))
MOST_CONNECTIONS = 256
PAUSE_SECONDS = 0.01  # between two attacks of a kind, as all kinds share this process
# What the process may grow by between the second fifth of the run and the last. 100 bytes that stay
# of each bent message are more than that in a quarter of an hour.
GROWTH_MEGABYTES = 16
BODY = b'{"inputs": "%s"}' % text_of(3).encode()
POST = b"POST /endpoints/sentiment HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
WHOLE = POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
PATHS = [
    b"/endpoints/sentiment", b"/v1/models/sentiment:predict", b"/v2/models/sentiment/infer",
    b"/v1/embeddings", b"/v1/rerank", b"/feedback", b"/nobody", b"/livez", b"/../etc", b"/%00%ff",
]  # fmt: skip
ERRORS = (OSError, TimeoutError)


class Target:
    """Where the gateway listens, what was done to it, and whether it goes on."""

    def __init__(self, http: int, grpc: int, operations: int) -> None:
        self.http, self.grpc, self.operations = http, grpc, operations
        self.end = time.monotonic() + SECONDS
        self.done: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self.longest = 0.0  # seconds that one who asks in earnest has waited

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    @contextmanager
    def connected(self, source: str) -> Iterator[socket.socket]:
        address = ("127.0.0.1", self.http)
        with closing(socket.create_connection(address, 20, (source, 0))) as connection:
            yield connection


def bent(chance: random.Random, data: bytes) -> bytes:
    """Bytes like these: cut, doubled, or with some of them changed."""
    content = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(content) + 1)
        match chance.randrange(4):
            case 0:
                del content[at:]
            case 1:
                content[at:at] = chance.randbytes(chance.randrange(1, 40))
            case 2:
                content[at : at + 4] = chance.randbytes(4)
            case _:
                content += content[at:]
    return bytes(content)


def by_the_document(target: Target, chance: random.Random) -> None:
    """Schemathesis: what the document allows, and what it does not."""
    document = httpx.get(f"http://127.0.0.1:{target.operations}/openapi.json").json()
    named = {"endpoint": "sentiment", "path.version": "1"}
    config = SchemathesisConfig.from_dict({"parameters": named})
    schema = schemathesis.openapi.from_dict(document, config=config)
    schema.config.update(base_url=f"http://127.0.0.1:{target.http}")
    while target.goes_on:
        mode = chance.choice([GenerationMode.POSITIVE, GenerationMode.NEGATIVE])

        @hypothesis.seed(chance.getrandbits(32))
        @hypothesis.settings(
            max_examples=50, deadline=None, database=None, phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        @hypothesis.given(schema.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case[Any]) -> None:
            if target.goes_on:
                with suppress(Exception):  # a client can't send all of what it makes up
                    target.statuses[case.call(timeout=20).status_code] += 1
                    target.done["asked by the document"] += 1

        ask()


def bent_requests(target: Target, chance: random.Random) -> None:
    """HTTP that is cut and bent, in pieces."""
    while target.goes_on:
        with suppress(*ERRORS), target.connected("127.0.0.2") as connection:
            for _ in range(chance.randrange(1, 4)):
                request = WHOLE.replace(b"/endpoints/sentiment", chance.choice(PATHS))
                if chance.random() < 0.2:
                    request = request.replace(b"content-length", b"transfer-encoding: chunked\r\nx")
                data = bent(chance, request)
                half = chance.randrange(len(data) + 1)
                connection.sendall(data[:half])
                connection.sendall(data[half:])
                target.done["bent requests"] += 1
            if chance.random() < 0.5:
                connection.settimeout(0.2)
                connection.recv(4096)
        time.sleep(PAUSE_SECONDS)


def bent_messages(target: Target, chance: random.Random) -> None:
    """Protobuf that is cut and bent, lengths that lie, paths that are not there."""
    request = pb.ModelInferRequest(model_name="sentiment")
    tensor = request.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(text_of(3).encode())
    good = request.SerializeToString()
    names = ["ModelReady", "ModelConfig", "ModelMetadata", "ServerLive", "ModelStreamInfer", "No"]
    while target.goes_on:
        with suppress(*ERRORS):
            raw = RawGrpc(target.grpc)
            for _ in range(chance.randrange(1, 20)):
                message = bent(chance, good)
                lies = chance.choice([None, None, 0, 1, 1 << 20, (1 << 32) - 1])
                path = INFER
                if chance.random() < 0.3:
                    path = f"/inference.GRPCInferenceService/{chance.choice(names)}"
                raw.call(prefixed(message, lies), path=path, end=chance.random() < 0.9)
                target.done["bent messages"] += 1
            for _ in range(5):
                raw.pump(0.05)
            raw.close()


def no_http2(target: Target, chance: random.Random) -> None:
    """Connections to the gRPC port that are not HTTP/2, or cease to be."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    while target.goes_on:
        with suppress(*ERRORS):
            address = ("127.0.0.1", target.grpc)
            with closing(socket.create_connection(address, 20)) as connection:
                connection.sendall(bent(chance, preface) + chance.randbytes(chance.randrange(200)))
                connection.settimeout(0.1)
                connection.recv(4096)
        target.done["connections that are no HTTP/2"] += 1
        time.sleep(PAUSE_SECONDS)


def slow_senders(target: Target, chance: random.Random) -> None:
    """Headers, bodies and messages that come a byte at a time, and large ones that stop."""
    while target.goes_on:
        with suppress(*ERRORS), closing(RawGrpc(target.grpc)) as raw:
            large = prefixed(bytes(4 << 20))[:-1]
            for _ in range(8):
                raw.call(large, end=False)
            for _ in range(4):
                with target.connected("127.0.0.3") as connection:
                    for byte in chance.choice([WHOLE, WHOLE[: len(POST) + 10], POST]):
                        connection.sendall(bytes([byte]))
                        raw.pump(0.002)
                target.done["slow senders"] += 1


def floods(target: Target, chance: random.Random) -> None:
    """More connections than the gateway may have, which say nothing, or never read."""
    while target.goes_on:
        held: list[socket.socket] = []
        with suppress(*ERRORS):
            for number in range(2 * MOST_CONNECTIONS):
                source = (f"127.0.1.{number % 8 + 1}", 0)
                connection = socket.create_connection(("127.0.0.1", target.http), 20, source)
                held.append(connection)
                if chance.random() < 0.3:
                    connection.sendall(WHOLE * 3)
                target.done["connections of floods"] += 1
        time.sleep(1.0)  # held for a while
        for connection in held:
            connection.close()
        time.sleep(1.0)  # and time for the others


def answers_not_taken(target: Target, chance: random.Random) -> None:
    """Large answers, over HTTP to readers who read nothing, over gRPC to windows of no bytes."""
    del chance
    name = "x" * (2 << 20)
    request = pb.ModelInferRequest(model_name="sentiment", id=name)
    tensor = request.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(text_of(3).encode())
    message = prefixed(request.SerializeToString())
    text = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": [text_of(3)]}
    body = json.dumps({"id": name, "inputs": [text]}).encode()
    post = b"POST /v2/models/sentiment/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    while target.goes_on:
        with ExitStack() as held:
            for _ in range(40):
                with suppress(*ERRORS):
                    connection = held.enter_context(target.connected("127.0.0.4"))
                    connection.sendall(post % len(body) + body)
                    raw = held.enter_context(closing(RawGrpc(target.grpc, first_window=0)))
                    raw.call(message)
                    raw.call(message)
                    for _ in range(100):
                        raw.pump(0.02)
                        if len(raw.answered) == 2 or raw.closed:
                            break
                    target.done["answers not taken"] += 3
        time.sleep(2.0)  # and time for the others


def idle_over_grpc(target: Target, chance: random.Random) -> None:
    """More connections over gRPC than the gateway may have, which do nothing."""
    del chance
    while target.goes_on:
        with ExitStack() as held:
            for _ in range(2 * MOST_CONNECTIONS):
                with suppress(*ERRORS):
                    raw = held.enter_context(closing(RawGrpc(target.grpc)))
                    raw.pump(0.001)
                    target.done["idle connections over gRPC"] += 1
            time.sleep(1.0)  # held for a while
        time.sleep(5.0)  # and time for the others


def in_earnest(target: Target, _: random.Random) -> None:
    """A caller who wants an answer: it may be refused, and never fails otherwise."""
    url = f"http://127.0.0.1:{target.http}/endpoints/sentiment"
    while target.goes_on:
        began = time.monotonic()
        try:
            with httpx.Client(timeout=60, trust_env=False, verify=False) as client:
                status = client.post(url, content=BODY).status_code
        except httpx.TransportError:
            status = 0  # closed for others, as it was idle too long to be worth its place
        target.done[f"in earnest: {status or 'closed'}"] += 1
        target.longest = max(target.longest, time.monotonic() - began)
        if status not in (0, 200, 503):
            target.failures.append(f"a good request was answered {status}")
        time.sleep(0.2)  # between two requests


def probes(target: Target, _: random.Random) -> None:
    """What the kubelet asks."""
    url = f"http://127.0.0.1:{target.operations}/livez"
    with httpx.Client(timeout=60, trust_env=False) as client:
        while target.goes_on:
            try:
                status = client.get(url).status_code
            except httpx.TransportError as error:
                status = 0
                target.failures.append(f"a probe failed: {error!r}")
            target.done[f"probes: {status}"] += 1
            time.sleep(0.5)  # between two probes


ATTACKS: list[Callable[[Target, random.Random], None]] = [
    by_the_document, bent_requests, bent_messages, no_http2, slow_senders, floods,
    answers_not_taken, idle_over_grpc, in_earnest, probes,
]  # fmt: skip


def megabytes(running: Running) -> float:
    text = Path(f"/proc/{running.process.pid}/status").read_text(encoding="utf-8")
    return float(text.split("VmRSS:")[1].split()[0]) / 1024


async def until_ended(target: Target, running: Running) -> list[float]:
    """Memory every few seconds, until the time is over."""
    sizes = []
    while target.goes_on and running.process.returncode is None:
        sizes.append(megabytes(running))
        await asyncio.sleep(min(5.0, SECONDS / 20))
    return sizes


async def test_strangers_break_nothing(tmp_path: Path) -> None:
    (one,) = lay_out(tmp_path, "1")
    put(tmp_path, endpoint_of(one))
    make_key_file(tmp_path / "receipts")
    flags = {
        "receipt-key-file": str(tmp_path / "receipts"),
        "max-connections": str(MOST_CONNECTIONS),
        "max-connections-per-peer": str(MOST_CONNECTIONS // 2),
    }
    async with gateway_at(tmp_path, *(f"--{name}={value}" for name, value in flags.items())) as run:
        ports: Any = await run.line("gateway listens")
        logs = asyncio.create_task(run.drain())
        target = Target(ports["http_port"], ports["grpc_port"], ports["operations_port"])
        seed = random.SystemRandom().getrandbits(32)
        sys.setswitchinterval(0.0005)  # or who asks in earnest waits for the attackers' threads
        threads = [
            threading.Thread(target=each, args=(target, random.Random(f"{seed} {each.__name__}")))
            for each in ATTACKS
        ]
        for thread in threads:
            thread.start()
        sizes = await until_ended(target, run)
        for thread in threads:
            await asyncio.to_thread(thread.join, 120)
        metrics = (await run.operations.get("/metrics", timeout=60)).text
        alive = run.process.returncode is None
        logs.cancel()
    by_status = Counter[str]()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == f"{REQUESTS.name}":
                by_status[sample.labels["status"]] += int(sample.value)
    fifth = max(1, len(sizes) // 5)
    # In the first fifth what may be held is still being filled.
    early, late = (statistics.median(each) for each in (sizes[fifth : 2 * fifth], sizes[-fifth:]))
    figures = {
        "seconds": SECONDS,
        "seed": seed,
        "done": dict(sorted(target.done.items())),
        "answered_to_schemathesis": dict(sorted(target.statuses.items())),
        "requests_by_status": dict(sorted(by_status.items())),
        "longest_seconds_in_earnest": round(target.longest, 1),
        "restarts": int(not alive),
        "gateway_mib_early": round(early, 1),
        "gateway_mib_late": round(late, 1),
        "gateway_mib_most": round(max(sizes), 1),
        "gateway_mib_in_turn": [round(each) for each in sizes[:: max(1, len(sizes) // 20)]],
        "errors_logged": [each for each in run.logged if each["level"] == "error"][:5],
        "failures": target.failures[:5],
    }
    if SECONDS >= 600:
        record("strangers", figures)
    else:
        print(json.dumps(figures, indent=1))
    assert alive
    assert figures["errors_logged"] == figures["failures"] == []
    assert "500" not in by_status
    assert by_status
    assert 500 not in target.statuses
    assert late - early < GROWTH_MEGABYTES
