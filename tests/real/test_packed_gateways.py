"""Gateways before a real Triton whose packed engine only pretends: every text gets its answer."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import h200_times
import httpx
import numpy as np
import pytest
from gateway_process import ON_TRITONS, Running, gateway_at, lay_out_packages, put
from gateway_world import WORDS, endpoint_of, manifest_of
from own_servers import TritonProcess
from real_triton import reached

from contracts import gpu_faults
from contracts.endpoint import EndpointLimits
from contracts.loading import CostPoint, LoadedModel, LoaderReport
from contracts.manifest import Manifest
from contracts.tasks import INPUT_IDS, ROW_STARTS, Task
from gateway.engine.protocol import EngineBusyError, EngineModelError, Work
from gateway.engine.triton import TritonEngine
from registry.loading.triton_client import GrpcTriton
from registry.packages.triton_config import as_json, render_packed
from registry.packages.triton_files import triton_file
from registry.stores.reports import FileReports

pytestmark = pytest.mark.real

REQUESTS = 1500  # of each gateway
CALLERS = 24
LONGEST = 128
WIDTH = 2
MODULUS = 1 << 20  # of the simulated accelerator


def embedder() -> Manifest:
    """A package whose vectors have two values."""
    known = manifest_of(packed=True, buckets=(LONGEST,), labels=())
    return known.model_copy(update={"task": Task.TEXT_EMBEDDING, "dimension": WIDTH})


async def load(triton: TritonProcess, name: str) -> None:
    """Has Triton pretend to be the packed engine of an H200."""
    files = {
        "model.py": h200_times.SIMULATED / "model.py",
        "accelerator_times.py": h200_times.SIMULATED / "accelerator_times.py",
        "packed_joining.py": triton_file("packed_model", "packed_joining.py"),
        "gpu_faults.py": Path(gpu_faults.__file__),
        "packed_timetable.py": triton_file("packed_model", "packed_timetable.py"),
        "accelerator.json": h200_times.H200,
    }
    config = render_packed(task=Task.TEXT_EMBEDDING, width=WIDTH, type_ids=False, threads=1)
    config += 'parameters { key: "accelerator" value { string_value: "packed" } }\n'
    overrides: dict[str, str | bytes] = {"config": as_json(config)}
    overrides |= {f"file:1/{each}": path.read_bytes() for each, path in files.items()}
    client = await reached(GrpcTriton(triton.grpc, call_seconds=30.0, load_seconds=60.0))
    await client.load(name, overrides)
    await client.close()


def measured() -> tuple[CostPoint, ...]:
    times = h200_times.times().read(h200_times.H200, "packed")
    return tuple(
        CostPoint(bucket=size, batch=1, milliseconds=0.5 + 1000 * times.seconds(size))
        for size in (64, 1024, 16_384)
    )


@asynccontextmanager
async def serving(home: Path, triton: TritonProcess, count: int) -> AsyncIterator[list[Running]]:
    """So many gateways, of which each serves the package."""
    (ref,) = lay_out_packages(home, embedder())
    await load(triton, ref.triton_model)
    put(
        home,
        endpoint_of(ref, limits=EndpointLimits(timeout_seconds=30, max_tokens_in_flight=1 << 20)),
    )
    loaded = LoadedModel(ref=ref, costs=measured(), instances=1)
    FileReports(home / "reports").put(
        LoaderReport(
            loader="l", triton_grpc=triton.grpc, at=time.time(), ready=True, loaded=(loaded,)
        )
    )
    async with AsyncExitStack() as gateways:
        yield [
            await gateways.enter_async_context(gateway_at(home, program=ON_TRITONS))
            for _ in range(count)
        ]


def vector_of(text: str) -> list[float]:
    """What the simulated accelerator answers for a text of words."""
    ids = [2 + WORDS.index(word) for word in text.split()]
    return [float(ids[0]), float(sum(ids) % MODULUS)]


async def ask(client: httpx.AsyncClient, requests: int, seed: int) -> int:
    """Asks mixed requests; returns the texts that were answered, each by its own vector."""
    chance = random.Random(seed)
    left = requests
    answered = 0

    async def caller() -> None:
        nonlocal left, answered
        while left > 0:
            left -= 1
            texts = [
                " ".join(
                    chance.choices(WORDS, k=1 + min(LONGEST - 1, int(chance.expovariate(0.1))))
                )
                for _ in range(chance.choice((1, 1, 1, 3, 16)))
            ]
            response = await client.post("/endpoints/sentiment", json={"inputs": texts})
            while response.status_code == 503:  # on a machine that is busy: as callers do
                await asyncio.sleep(float(response.headers["retry-after"]))
                response = await client.post("/endpoints/sentiment", json={"inputs": texts})
            assert response.status_code == 200, response.text
            assert response.json() == [vector_of(text) for text in texts]
            answered += len(texts)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(caller())
    return answered


@pytest.mark.parametrize("count", [1, 2], ids=["one gateway", "two gateways"])
async def test_each_text_of_thousands_of_mixed_requests_gets_its_own_vector(
    count: int, triton: TritonProcess, tmp_path: Path
) -> None:
    async with serving(tmp_path / "home", triton, count) as gateways:
        answered = await asyncio.gather(
            *(ask(each.http, REQUESTS, seed) for seed, each in enumerate(gateways))
        )
    assert all(texts >= REQUESTS for texts in answered)
    assert "Traceback" not in triton.log.read_text()


def work(rows: Sequence[Sequence[int]], name: str = "sim") -> Work:
    starts = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    ids = np.concatenate([np.array(row, np.int32) for row in rows])
    return Work(name, "embedding", {INPUT_IDS: ids, ROW_STARTS: starts})


async def test_what_the_packed_engine_refuses_is_the_messages_own_fault_and_it_goes_on(
    triton: TritonProcess,
) -> None:
    await load(triton, "sim")
    engine = TritonEngine(triton.grpc)
    try:
        broken = work([[1, 2, 3]])
        broken.tensors[ROW_STARTS].flags.writeable = True
        broken.tensors[ROW_STARTS][-1] = 9
        with pytest.raises(EngineModelError, match="row_starts"):
            await engine.infer(broken, 30.0)
        found = await engine.infer(work([[5, 6], [7]]), 30.0)
        assert found.tolist() == [[5.0, 11.0], [7.0, 7.0]]
    finally:
        await engine.close()


async def test_more_than_the_packed_engine_holds_is_refused_as_busy_and_the_rest_answered(
    triton: TritonProcess,
) -> None:
    await load(triton, "sim")
    engine = TritonEngine(triton.grpc)
    messages = [work([[number, *[3] * 15_999]]) for number in range(12)]

    async def answered() -> int:
        """Sends all at once; how many were answered, each rightly. The others were refused."""
        ends = await asyncio.gather(
            *(engine.infer(each, 30.0) for each in messages), return_exceptions=True
        )
        refused = [end for end in ends if isinstance(end, EngineBusyError)]
        found = {
            number: end.tolist() for number, end in enumerate(ends) if isinstance(end, np.ndarray)
        }
        assert len(found) + len(refused) == len(messages)
        assert found == {number: [[number, number + 3 * 15_999]] for number in found}
        return len(found)

    try:
        numbers: list[int] = []
        # A busy machine may bring them one by one, each once there is room for it.
        while len(numbers) < 100 and (not numbers or numbers[-1] in {0, len(messages)}):
            numbers.append(await answered())
        assert 0 < numbers[-1] < len(messages), numbers
    finally:
        await engine.close()
