"""The process: it serves what its home says, says why it can't, and goes away in order."""

import asyncio
import json
import math
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest
import without_ipv6
from gateway_process import Running, gateway_at, lay_out, on_an_echo, put, start
from gateway_world import endpoint_of, text_of
from network_calls import addresses

from contracts.endpoint import EndpointLimits
from gateway.calls import CallerHashes
from gateway.inference.receipts import Receipts
from service.key_files import make_key_file, read_keys

pytestmark = pytest.mark.real  # starts processes

BODY = {"inputs": text_of(3)}
IN_FLIGHT = re.compile(r'tokens_in_flight\{endpoint="sentiment"\} [1-9]')


def lay_out_endpoint(home: Path) -> None:
    (one,) = lay_out(home, "1")
    put(home, endpoint_of(one, limits=EndpointLimits(timeout_seconds=60)))


async def test_it_serves_what_its_home_says_and_ends_when_told(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    async with gateway_at(tmp_path) as running:
        answer = await running.http.post("/endpoints/sentiment", json=BODY)
        assert answer.status_code == 200
        assert (await running.operations.get("/readyz")).status_code == 200
        metrics = (await running.operations.get("/metrics")).text
        assert 'headrace_gateway_tokens_total{endpoint="sentiment",version="1"} 3.0' in metrics
        assert 'headrace_gateway_tokens_in_flight{endpoint="sentiment"} 0.0' in metrics
        assert 'headrace_gateway_slo_availability_ratio{endpoint="sentiment"} 0.999' in metrics
        running.process.send_signal(signal.SIGTERM)
        await running.line("gateway has stopped")
        assert await running.process.wait() == 0


@pytest.mark.parametrize("has_ipv6", [True, False])
async def test_everywhere_is_both_kinds_of_addresses_or_the_one_that_there_is(
    tmp_path: Path, has_ipv6: bool
) -> None:
    lay_out_endpoint(tmp_path)
    program = on_an_echo() if has_ipv6 else (without_ipv6.__file__, *on_an_echo())
    hosts = ["127.0.0.1", *["[::1]"] * (has_ipv6 and socket.has_dualstack_ipv6())]
    async with gateway_at(tmp_path, "--host", "::", program=program) as running:
        ports = await running.line("gateway listens")
        for host in hosts:
            url = f"http://{host}:{ports['http_port']}/endpoints/sentiment"
            assert (await running.http.post(url, json=BODY)).status_code == 200
            ready = f"http://{host}:{ports['operations_port']}/readyz"
            assert (await running.operations.get(ready)).status_code == 200
            async with grpc.aio.insecure_channel(f"{host}:{ports['grpc_port']}") as channel:
                await asyncio.wait_for(channel.channel_ready(), 60)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
async def test_it_connects_to_nothing_that_it_was_not_told_of(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path / "home")
    record = tmp_path / "calls"
    async with gateway_at(tmp_path / "home", record=record) as running:
        answer = await running.http.post("/endpoints/sentiment", json=BODY)
        assert answer.status_code == 200
        running.process.send_signal(signal.SIGTERM)
        await running.line("gateway has stopped")
        await running.process.wait()
    assert record.exists()
    assert addresses(record) == set()


async def test_gateways_of_one_home_share_the_rate_of_a_key(tmp_path: Path) -> None:
    (one,) = lay_out(tmp_path, "1")
    put(tmp_path, endpoint_of(one, limits=EndpointLimits(requests_per_second_per_key=0.001)))
    message = "gateways share the rates of keys"

    async def ask(running: Running) -> httpx.Response:
        return await running.http.post("/endpoints/sentiment", json=BODY)

    async with gateway_at(tmp_path) as stays:
        async with gateway_at(tmp_path) as leaves:
            for running in (stays, leaves):
                await running.line(message, lambda entry: entry["gateways"] == 2)
            assert (await ask(stays)).status_code == 200
            refused = await ask(stays)
            assert (refused.status_code, refused.headers["connection"]) == (429, "close")
            assert "over 2 gateways" in refused.json()["error"]["message"]
            assert (await ask(leaves)).status_code == 200
            leaves.process.send_signal(signal.SIGTERM)
            assert await leaves.process.wait() == 0
        stays.logged.clear()
        await stays.line(message, lambda entry: entry["gateways"] == 1)
        refused = await ask(stays)
        assert (refused.status_code, refused.headers.get("connection")) == (429, None)


async def test_gateways_hash_callers_alike_and_with_the_installations_secret(
    tmp_path: Path,
) -> None:
    lay_out_endpoint(tmp_path)
    secret = tmp_path / "receipt-keys"
    make_key_file(secret)
    receipts = Receipts(read_keys(secret), most_age_seconds=math.inf)

    async def callers(gateway: Running, *keys: str) -> list[int]:
        found = []
        for key in keys:
            headers = {"x-headrace-key": key}
            answer = await gateway.http.post("/endpoints/sentiment", json=BODY, headers=headers)
            found.append(receipts.read(answer.headers["x-headrace-receipt"], 0.0).caller)
        return found

    flags = ("--receipt-key-file", str(secret))
    async with gateway_at(tmp_path, *flags) as one, gateway_at(tmp_path, *flags) as other:
        ann, bob = await callers(one, "ann", "bob")
        assert await callers(other, "ann", "bob") == [ann, bob]
    assert len({ann, bob, CallerHashes().of("sentiment", "ann")}) == 3


async def test_a_request_on_its_way_is_answered_before_it_ends(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    async with gateway_at(tmp_path, program=on_an_echo(0.1)) as running:
        # Batches of 8 at 0.1 s each, seconds in all: it is seen on its way for sure.
        texts = [text_of(1 + number % 16) for number in range(256)]
        request = asyncio.create_task(
            running.http.post("/endpoints/sentiment", json={"inputs": texts})
        )
        while not IN_FLIGHT.search((await running.operations.get("/metrics")).text):
            assert not request.done()
        running.process.send_signal(signal.SIGTERM)
        assert (await request).status_code == 200
        assert await running.process.wait() == 0


async def test_one_that_is_about_to_end_answers_and_keeps_no_connection(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    async with gateway_at(tmp_path, "--linger-seconds", "300") as running:
        before = await running.http.post("/endpoints/sentiment", json=BODY)
        assert "connection" not in before.headers
        running.process.send_signal(signal.SIGTERM)
        await running.line("gateway stops")
        for _ in range(2):  # on the connection that was kept, and on a new one
            answer = await running.http.post("/endpoints/sentiment", json=BODY)
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close"
        assert (await running.operations.get("/readyz")).status_code == 503


async def sentence_of(home: Path, *flags: str) -> str:
    """The last words of a gateway that can't start."""
    async with asyncio.timeout(120):
        process = await start(home, *flags)
        _, logged = await process.communicate()
    assert process.returncode == 1
    assert b"Traceback" not in logged
    entry = json.loads(logged.splitlines()[-1])
    assert entry["level"] == "error"
    return str(entry["message"])


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port", "--operations-port"])
async def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path, flag: str) -> None:
    lay_out_endpoint(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        sentence = await sentence_of(tmp_path, flag, port)
    assert port in sentence
    assert flag in sentence


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--receipt-key-file=none"], "keys in none can't be read"),
        (["--tls-key-file=k"], "--tls-certificate-file and --tls-key-file go together"),
        (["--endpoints=kubernetes://models"], "kubeconfig"),
    ],
)
async def test_what_an_operator_can_mend_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], words: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    lay_out_endpoint(tmp_path)
    assert words in await sentence_of(tmp_path, *flags)


SWITCHES = """
import sys
usual = sys.getswitchinterval()
from gateway.main import main
assert main(["--tls-key-file=k", "--log-style=json"]) == 1
print(usual / sys.getswitchinterval())
"""


def test_a_thread_gives_the_lock_to_the_event_loop_ten_times_as_soon_as_pythons_default() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SWITCHES], capture_output=True, text=True, timeout=120, check=True
    )
    assert float(done.stdout) >= 10


async def test_an_answers_receipt_brings_feedback_back(tmp_path: Path) -> None:
    lay_out_endpoint(tmp_path)
    keys = tmp_path / "receipt-keys"
    make_key_file(keys)
    async with gateway_at(tmp_path, "--receipt-key-file", str(keys)) as running:
        answer = await running.http.post("/endpoints/sentiment", json=BODY)
        told = {"receipt": answer.headers["x-headrace-receipt"], "label": "positive"}
        assert (await running.http.post("/feedback", json=told)).json()["accepted"] == 1
