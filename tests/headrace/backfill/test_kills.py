"""A backfill beside callers, with ``kill -9`` of the command, of gateways and of what computes."""

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from gateway_process import ON_TRITONS, lay_out_packages, put, start
from gateway_world import WORDS, endpoint_of, manifest_of, text_of
from own_ports import own_ports
from soak_record import record
from vector_gateway import SPACE

from contracts.tasks import Task
from headrace.backfill.files import read_vectors

ROOT = Path(__file__).parents[3]
TRITON = ROOT / "tests" / "support" / "simulated_triton.py"
MILLION = int(os.environ.get("HEADRACE_SOAK_TEXTS", "1000000"))
COMMAND = "command"


def text(row: int) -> str:
    """3 to 12 words, of other tokens than the rows beside it."""
    return text_of(3 + row % 10, row * 7)


def vector(row: int) -> list[float]:
    """By arithmetic: the sum of its words' tokens, and 1."""
    words = range(row * 7, row * 7 + 3 + row % 10)
    return [float(sum(each % len(WORDS) + 2 for each in words)), 1.0]


class Kept:
    """A process that is started again whenever it ends."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Process]]) -> None:
        self._begin = begin
        self._process: Process | None = None
        self._runs = asyncio.Event()
        self._task = asyncio.create_task(self._keep())

    async def kill(self) -> None:
        """``kill -9`` of it, once it is there."""
        await self._runs.wait()
        self._runs.clear()
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def close(self) -> None:
        """Ends it for good."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _keep(self) -> None:
        while True:
            self._process = await self._begin()
            self._runs.set()
            if self._process.stderr is not None:
                async for _ in self._process.stderr:  # a pipe that nobody reads fills
                    pass
            await self._process.wait()


@asynccontextmanager
async def parts(home: Path) -> AsyncIterator[tuple[dict[str, Kept], list[str]]]:
    """Two gateways and a Triton by name, and the gateways' addresses."""
    plain = manifest_of(task=Task.TEXT_EMBEDDING, max_batch_size=64, buckets=(8, 16))
    manifest = plain.model_copy(update={"space": SPACE})
    (ref,) = lay_out_packages(home, manifest)
    put(home, endpoint_of(ref, name="minilm"))
    triton, *https = own_ports(3)

    def gateway(port: int) -> Callable[[], Coroutine[Any, Any, Process]]:
        # How much of a busy machine a backfill gets is for other tests.
        flags = ("--http-port", str(port), "--triton-grpc", f"127.0.0.1:{triton}",
                 "--bulk-delay-seconds", "10")  # fmt: skip
        return lambda: start(home, *flags, program=ON_TRITONS)

    path = f"{TRITON.parent}{os.pathsep}{ROOT}"
    env = {**os.environ, "PYTHONPATH": path}
    made = {
        "triton": Kept(
            lambda: asyncio.create_subprocess_exec(
                sys.executable, "-P", TRITON, str(triton), env=env, stderr=DEVNULL
            )
        ),
        **{f"gateway-{port}": Kept(gateway(port)) for port in https},
    }
    try:
        yield made, [f"http://127.0.0.1:{port}" for port in https]
    finally:
        for each in made.values():
            await each.close()


async def ask(urls: list[str], statuses: Counter[str]) -> None:
    """Interactive requests for ever; a gateway that is away refuses connections."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        for url in itertools.cycle(urls):
            body = {"model": "minilm", "input": "w1 w2"}
            try:
                answer = await http.post(f"{url}/v1/embeddings", json=body)
                statuses[str(answer.status_code)] += 1
            except httpx.TransportError:
                statuses["away"] += 1
            await asyncio.sleep(0.2)


@pytest.mark.real
@pytest.mark.parametrize(
    ("rows", "every"),
    [
        pytest.param(14_000, 1, marks=pytest.mark.timeout(900)),  # of 4,096 a part
        pytest.param(MILLION, 8, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
async def test_no_id_is_lost_or_doubled_whatever_is_killed(
    tmp_path: Path, rows: int, every: int
) -> None:
    source, output = tmp_path / "texts.jsonl", tmp_path / "vectors.jsonl"
    with source.open("w") as file:
        file.writelines(json.dumps({"id": row, "text": text(row)}) + "\n" for row in range(rows))
    kills: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    async with parts(tmp_path / "home") as (those, urls):
        callers = asyncio.create_task(ask(urls, statuses))
        order = itertools.cycle([COMMAND, *those])
        folder, killed_at = tmp_path / "vectors.jsonl.parts", 0
        for url in itertools.cycle(urls):  # the command goes on with another gateway
            line = ("backfill", "minilm", "--space", SPACE, "--url", url, "-o", "json")
            files = ("--input", source, "--output", output)
            made = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "headrace", *line, *files,
                stdout=PIPE, stderr=PIPE, cwd=ROOT,
            )  # fmt: skip
            said = asyncio.create_task(made.communicate())
            while not said.done():
                await asyncio.wait([said], timeout=0.05)
                done = len(list(folder.glob("part-*")))
                if said.done() or done < killed_at + every:
                    continue
                killed_at, name = done, next(order)
                kills[name.partition("-")[0]] += 1
                if name == COMMAND:
                    with suppress(ProcessLookupError):
                        made.send_signal(signal.SIGKILL)
                else:
                    await those[name].kill()
            if made.returncode != -signal.SIGKILL:
                break
        callers.cancel()
        await asyncio.gather(callers, return_exceptions=True)
    summary, complaint = said.result()
    assert made.returncode == 0, complaint.decode()
    number = -1
    for number, (key, found) in enumerate(read_vectors(output)):
        assert key == number
        assert list(cast("Any", found)) == vector(number)
    assert number == rows - 1
    assert kills.keys() == {COMMAND, "triton", "gateway"}
    assert statuses["200"] > 0
    assert statuses.keys() <= {"200", "503", "away"}, statuses
    if rows == MILLION:
        figures = {"texts": rows, "kills": dict(kills), "callers_got": dict(statuses)}
        told = json.loads(summary)
        last = {name: told[name] for name in ("rows", "seconds", "retries", "leastCosine")}
        record("backfill-kills", {**figures, "last_command": last})
