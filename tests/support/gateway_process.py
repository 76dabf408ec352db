"""Real gateway processes on an engine that answers at once, over a home laid out by hand."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import echo_engine
import httpx
from gateway_world import manifest_of, tokenizer_json
from network_calls import traced

from contracts.endpoint import ModelEndpoint
from contracts.manifest import MANIFEST, TOKENIZER, Manifest
from contracts.model import ModelRef


@dataclass
class Running:
    """A gateway process and what it logged."""

    process: Process
    logged: list[dict[str, object]]
    http: httpx.AsyncClient
    operations: httpx.AsyncClient

    async def line(
        self, message: str, having: Callable[[dict[str, object]], bool] = lambda _: True
    ) -> dict[str, object]:
        """Waits for a line of its log."""
        assert self.process.stderr is not None
        seen = 0
        while True:
            for entry in self.logged[seen:]:
                if entry["message"] == message and having(entry):
                    return entry
            seen = len(self.logged)
            raw = await self.process.stderr.readline()
            assert raw, f"ended without saying {message!r}: {self.logged}"
            self.logged.append(json.loads(raw))

    async def drain(self) -> None:
        """Reads its log until it ends or this is cancelled: nobody else does, and a pipe fills."""
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            with suppress(ValueError):  # a library's line, which is no JSON
                self.logged.append(json.loads(raw))


def lay_out(home: Path, *versions: str) -> tuple[ModelRef, ...]:
    """A home with these versions' packages and no endpoint."""
    return lay_out_packages(home, *map(manifest_of, versions))


def lay_out_packages(home: Path, *manifests: Manifest) -> tuple[ModelRef, ...]:
    """A home with packages of these manifests and no endpoint."""
    refs = []
    for manifest in manifests:
        package = home / "packages" / manifest.package_id()
        package.mkdir(parents=True)
        (package / MANIFEST).write_bytes(manifest.canonical())
        (package / TOKENIZER).write_bytes(tokenizer_json())
        refs.append(manifest.ref())
    (home / "endpoints").mkdir()
    (home / "reports").mkdir()
    return tuple(refs)


def put(home: Path, endpoint: ModelEndpoint) -> None:
    """Writes the endpoint as the controller does: whole or not at all."""
    path = home / "endpoints" / f"{endpoint.name}.json"
    part = path.with_suffix(".part")
    part.write_text(endpoint.model_dump_json(by_alias=True))
    part.replace(path)


ON_TRITONS = ("-m", "gateway.main")


def on_an_echo(batch_seconds: float = 0.0) -> tuple[str, ...]:
    """A gateway whose engine answers by itself, a batch in this time."""
    return (echo_engine.__file__, str(batch_seconds), "--triton-grpc", "echo")


async def start(
    home: Path, *flags: str, record: Path | None = None, program: Sequence[str] = on_an_echo()
) -> Process:
    """A process that listens on free ports; what it asks of the network is in ``record``."""
    arguments = [
        "--home", str(home), "--http-port", "0", "--grpc-port", "0", "--operations-port", "0",
    ]  # fmt: skip
    command = [sys.executable, "-P", *program, *arguments, *flags]
    return await asyncio.create_subprocess_exec(
        *(traced(command, record) if record else command),
        stderr=PIPE, env={**os.environ, "HEADRACE_LOG_STYLE": "json"},
    )  # fmt: skip


@asynccontextmanager
async def gateway_at(
    home: Path,
    *flags: str,
    begun: str = "replica serves",
    record: Path | None = None,
    program: Sequence[str] = on_an_echo(),
) -> AsyncIterator[Running]:
    """A process that serves what is in the home; ``begun`` is a line of its log, waited for."""
    process = await start(home, *flags, record=record, program=program)
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
        httpx.AsyncClient(trust_env=False, timeout=60) as operations,
    ):
        running = Running(process, [], http, operations)
        try:
            async with asyncio.timeout(120):
                ports = await running.line("gateway listens")
                http.base_url = httpx.URL(f"http://127.0.0.1:{ports['http_port']}")
                operations.base_url = httpx.URL(f"http://127.0.0.1:{ports['operations_port']}")
                await running.line(begun)
            yield running
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
