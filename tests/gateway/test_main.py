"""The process: it serves what its home says, says why it can't, and goes away in order."""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from gateway_world import endpoint_of, manifest_of, text_of, tokenizer_json

from contracts.manifest import MANIFEST, TOKENIZER

BODY = {"inputs": text_of(3)}


@dataclass
class Running:
    """A gateway process and what it logged."""

    process: Process
    logged: list[dict[str, object]]
    http: httpx.AsyncClient

    async def line(self, message: str) -> dict[str, object]:
        """Waits for a line of its log."""
        assert self.process.stderr is not None
        while True:
            for entry in self.logged:
                if entry["message"] == message:
                    return entry
            raw = await self.process.stderr.readline()
            assert raw, f"ended without saying {message!r}: {self.logged}"
            self.logged.append(json.loads(raw))


def lay_out(home: Path) -> None:
    manifest = manifest_of()
    package = home / "packages" / manifest.package_id()
    package.mkdir(parents=True)
    (package / MANIFEST).write_bytes(manifest.canonical())
    (package / TOKENIZER).write_bytes(tokenizer_json())
    (home / "endpoints").mkdir()
    (home / "reports").mkdir()
    endpoint = endpoint_of(manifest.ref())
    (home / "endpoints" / "sentiment.json").write_text(endpoint.model_dump_json(by_alias=True))


async def start(home: Path, *flags: str) -> Process:
    arguments = ["--home", str(home), "--engine", "echo", "--http-port", "0", "--grpc-port", "0"]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "gateway.main", *arguments, *flags,
        stderr=PIPE, env={**os.environ, "HEADRACE_LOG_STYLE": "json"},
    )  # fmt: skip


@asynccontextmanager
async def gateway_at(home: Path, *flags: str) -> AsyncIterator[Running]:
    process = await start(home, *flags)
    async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as http:
        running = Running(process, [], http)
        try:
            port = (await running.line("gateway listens"))["http_port"]
            http.base_url = httpx.URL(f"http://127.0.0.1:{port}")
            await running.line("replica serves")
            yield running
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_it_serves_what_its_home_says_and_ends_when_told(tmp_path: Path) -> None:
    lay_out(tmp_path)
    async with gateway_at(tmp_path) as running:
        answer = await running.http.post("/endpoints/sentiment", json=BODY)
        assert answer.status_code == 200
        assert (await running.http.get("/readyz")).status_code == 200
        metrics = (await running.http.get("/metrics")).text
        assert 'headrace_gateway_tokens_total{endpoint="sentiment",version="1"} 3.0' in metrics
        running.process.send_signal(signal.SIGTERM)
        await running.line("gateway has stopped")
        assert await running.process.wait() == 0


async def test_a_request_on_its_way_is_answered_before_it_ends(tmp_path: Path) -> None:
    lay_out(tmp_path)
    async with gateway_at(tmp_path, "--engine", "simulated") as running:
        # 256 texts in batches of 8 at a millisecond each: some are on their way for sure.
        texts = [text_of(1 + number % 16) for number in range(256)]
        many = [
            asyncio.create_task(running.http.post("/endpoints/sentiment", json={"inputs": texts}))
            for _ in range(4)
        ]
        while "in_flight{" not in (await running.http.get("/metrics")).text:
            assert not all(request.done() for request in many)
        running.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*many)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert await running.process.wait() == 0


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port"])
async def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path, flag: str) -> None:
    lay_out(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with asyncio.timeout(60):
            process = await start(tmp_path, flag, port)
            _, said = await process.communicate()
    assert process.returncode == 1
    entry = json.loads(said.splitlines()[-1])
    assert entry["level"] == "error"
    assert port in entry["message"]
    assert flag in entry["message"]
    assert "Traceback" not in said.decode()
