"""Two gateways and two real Tritons, one of which answers nothing and says that it is well."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest
from gateway_world import endpoint_of, model_of, text_of
from model_processes import model_processes
from no_devices import NoDevices
from own_servers import TritonProcess
from real_triton import published, reached
from running_stack import TIMEOUT_SECONDS
from tiny_models import classifier

from contracts.controller import ControllerBeat
from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from contracts.manifest import MODEL_ONNX
from contracts.model import ModelRef
from gateway.batching.batcher import Batcher
from gateway.engine.fleet import Fleet
from gateway.engine.triton import TritonEngine
from gateway.errors import ModelUnavailableError
from gateway.inference.serving import Serving
from gateway.packages import StorePackages
from gateway.state.reconcile import Reconciler
from gateway.state.sources import FolderSource, Sources
from gateway.telemetry.metrics import Metrics
from registry.convert import package
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.loading.placement import UploadedFiles
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import GrpcTriton
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports

pytestmark = pytest.mark.real

PAUSE_SECONDS = 0.04


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
    client = await reached(GrpcTriton(triton.grpc, call_seconds=30.0, load_seconds=60.0))
    await client.load(name, UploadedFiles().place(name, files, "python", InstanceSplit(1, 1)))
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


# Each in a pool of its own


POOLS = ("a", "b")


def loader_of(pool: str, triton: TritonProcess, client: GrpcTriton, folder: Path) -> Loader:
    options = LoaderOptions(
        f"loader-{pool}",
        triton.grpc,
        folder / f"ledger-{pool}.json",
        backends=("python",),
        warmup_seconds=0.1,
        pool=pool,
    )
    store = PackageStore((folder / "store").as_uri())
    return Loader(
        options,
        endpoints=FileEndpointStore(folder / "endpoints"),
        packages=LocalPackages(store, folder / f"packages-{pool}"),
        triton=client,
        placement=UploadedFiles(),
        reports=FileReports(folder / "reports"),
        devices=NoDevices(),
    )


async def test_each_pool_holds_and_answers_its_own_endpoints_and_outlives_the_other(
    tritons: list[TritonProcess], tmp_path: Path
) -> None:
    store = PackageStore((tmp_path / "store").as_uri())
    refs = [published(store, tmp_path / version, version) for version in ("1", "2")]
    endpoints = FileEndpointStore(tmp_path / "endpoints")
    for pool, ref in zip(POOLS, refs, strict=True):
        served = endpoint_of(ref, name=f"of-{pool}", packages=[ref])
        status = served.status.model_copy(update={"pool": pool})
        endpoints.put(served.model_copy(update={"status": status}))
    clients = [GrpcTriton(each.grpc, call_seconds=30.0, load_seconds=60.0) for each in tritons]
    for pool, triton, client in zip(POOLS, tritons, clients, strict=True):
        await reached(client)
        loader = loader_of(pool, triton, client, tmp_path)
        while await loader.step():
            pass
    names = {ref.triton_model for ref in refs}
    held = [set(await client.held(names)) for client in clients]
    assert held == [{ref.triton_model} for ref in refs]

    states: list[Serving] = []
    told = asyncio.Event()

    def serve(state: Serving) -> None:
        states.append(state)
        told.set()

    reconciler = Reconciler(
        sources=Sources(
            FolderSource(tmp_path / "endpoints", ModelEndpoint),
            FolderSource(tmp_path / "reports", LoaderReport),
            FolderSource(tmp_path / "beats", ControllerBeat),
            None,
        ),
        packages=StorePackages((tmp_path / "store").as_uri(), tmp_path / "cache"),
        fleet=Fleet(TritonEngine, ahead=2),
        addresses=(),
        meter=Metrics(),
        serve=serve,
    )

    def batcher_of(pool: str, ref: ModelRef) -> Batcher | None:
        return states[-1].batchers.get(pool, {}).get(ref.package) if states else None

    reconciler.start()
    async with asyncio.timeout(120):
        while not all(
            batcher is not None and batcher.serves for batcher in map(batcher_of, POOLS, refs)
        ):
            told.clear()
            await told.wait()
        one, other = (found for found in map(batcher_of, POOLS, refs) if found is not None)
        asked = [{replica.address for replica in each.replicas} for each in (one, other)]
        assert asked == [{triton.grpc} for triton in tritons]
        tritons[0].kill9()
        lost, answered = await asyncio.gather(ask_on(one, 20), ask_on(other, 40))
    assert all(isinstance(outcome, ModelUnavailableError) for outcome in lost)
    assert not any(isinstance(outcome, BaseException) for outcome in answered)
    await reconciler.close()
    for client in clients:
        await client.close()
