"""Two gateways and two real Tritons, one of which answers nothing and says that it is well."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest
from gateway_world import model_of, text_of
from model_processes import model_processes
from own_ports import own_ports
from tiny_models import classifier

from contracts.endpoint import Limits
from contracts.manifest import MODEL_ONNX
from gateway.batching.batcher import Batcher
from gateway.engine.fleet import Fleet
from gateway.engine.triton import TritonEngine
from gateway.telemetry.metrics import Metrics
from headrace.stack.triton import TritonFiles, TritonProcess, TritonServer
from registry.convert import package
from registry.loading.placement import UploadedFiles
from registry.loading.splits import Split
from registry.loading.triton_client import GrpcTriton

pytestmark = pytest.mark.real

TIMEOUT_SECONDS = Limits().timeout_seconds
PAUSE_SECONDS = 0.04


@pytest.fixture
def tritons(triton_files: TritonFiles, tmp_path: Path) -> Iterator[list[TritonProcess]]:
    with ExitStack() as cleanup:
        found = []
        for name in ("one", "other"):
            http, grpc, metrics = own_ports(3)
            server = TritonServer(tmp_path / name, http, grpc, metrics)
            process = TritonProcess(triton_files, server, tmp_path / f"{name}.log")
            process.start()
            cleanup.callback(process.kill9)
            found.append(process)
        yield found


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The gateways' model, as Triton takes it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / MODEL_ONNX).write_bytes(classifier().SerializeToString())
    manifest = model_of().manifest
    package.write_configs(
        folder,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        max_batch_size=manifest.max_batch_size,
        threads=1,
    )
    return folder


async def load(triton: TritonProcess, files: Path) -> None:
    name = model_of().name
    client = GrpcTriton(triton.grpc, call_seconds=30.0, load_seconds=60.0)
    await client.load(name, UploadedFiles().place(name, files, "python", Split(1, 1)))
    await client.close()


@asynccontextmanager
async def gateway(tritons: list[TritonProcess]) -> AsyncIterator[Batcher]:
    """The part of a gateway that sends batches, once both Tritons serve."""
    fleet = Fleet(TritonEngine, ahead=2)
    fleet.set_addresses(triton.grpc for triton in tritons)
    batcher = Batcher(model_of(), fleet, Metrics())
    served = asyncio.Event()

    def look() -> None:
        batcher.wake()
        if all(replica.serves for replica in batcher.replicas):
            served.set()

    batcher.replicas = fleet.replicas(batcher.model.name, 1, look)
    fleet.start()
    async with asyncio.timeout(60):
        await served.wait()
    yield batcher
    await batcher.settle()
    await fleet.close()


async def ask_on(batcher: Batcher, requests: int) -> list[BaseException | object]:
    """Asks at an even pace; returns what came of each request."""
    asked = []
    for number in range(requests):
        encoded = batcher.model.encoder.encode([text_of(3, number % 7)])
        asked.append(batcher.submit(encoded, "e", monotonic() + TIMEOUT_SECONDS).future)
        await asyncio.sleep(PAUSE_SECONDS)  # the pace of callers, not a wait
    return await asyncio.gather(*asked, return_exceptions=True)


async def test_no_caller_notices_that_the_model_of_one_triton_was_killed(
    tritons: list[TritonProcess], files: Path
) -> None:
    for triton in tritons:
        await load(triton, files)
    async with gateway(tritons) as one, gateway(tritons) as other, asyncio.timeout(120):
        before = await asyncio.gather(ask_on(one, 20), ask_on(other, 20))
        asking = [asyncio.create_task(ask_on(batcher, 150)) for batcher in (one, other)]
        for process in model_processes(tritons[0]):
            os.kill(process, signal.SIGKILL)
        after = await asyncio.gather(*asking)
    outcomes = [outcome for each in (*before, *after) for outcome in each]
    assert [outcome for outcome in outcomes if isinstance(outcome, BaseException)] == []
