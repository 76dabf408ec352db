"""Packages that a loader brings to a real Triton, and an engine that asks it."""

import asyncio
from pathlib import Path

import numpy as np
from gateway_world import FakeEngine, manifest_of, tokenizer_json
from no_devices import NoDevices
from numpy.typing import NDArray
from own_servers import TritonProcess
from registry_fakes import endpoint
from tiny_models import classifier

from contracts.endpoint import Arm, EndpointStatus, Route
from contracts.loading import LoaderReport
from contracts.manifest import MODEL_ONNX, TOKENIZER
from contracts.model import ModelRef
from gateway.engine.protocol import Prompt, TokenStream, Work
from gateway.engine.triton import TritonEngine
from registry.convert import package
from registry.errors import TritonUnavailableError
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.loading.placement import Placement, SharedRepository
from registry.loading.triton_client import GrpcTriton
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports

LOAD_SECONDS = 300.0


class OverTriton(FakeEngine):
    """What a pipeline's tests ask, as one that asks a real Triton."""

    def __init__(self, triton: TritonEngine) -> None:
        super().__init__()
        self._triton = triton

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        return await self._triton.infer(work, timeout_seconds)

    def generate(self, prompt: Prompt, timeout_seconds: float) -> TokenStream:  # type: ignore[override]
        return self._triton.generate(prompt, timeout_seconds)


async def reached(client: GrpcTriton) -> GrpcTriton:
    """Waits for an answer: on a busy machine an attempt to connect may come to nothing."""
    async with asyncio.timeout(LOAD_SECONDS):
        while True:
            try:
                await client.held([])
            except TritonUnavailableError:
                await asyncio.sleep(0.05)
            else:
                return client


def published(store: PackageStore, folder: Path, version: str) -> ModelRef:
    """A version of the gateways' model, with a graph that Triton runs."""
    manifest = manifest_of(version)
    folder.mkdir()
    (folder / MODEL_ONNX).write_bytes(classifier(seed=int(version)).SerializeToString())
    (folder / TOKENIZER).write_bytes(tokenizer_json())
    package.write_configs(
        folder,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        max_batch_size=manifest.max_batch_size,
        threads=1,
    )
    return store.publish(folder, manifest.model_copy(update={"files": package.proofs(folder)}))


async def brought(
    folder: Path,
    store: PackageStore,
    triton: TritonProcess,
    *refs: ModelRef,
    placement: Placement | None = None,
) -> LoaderReport:
    """Has a loader of its own bring packages to a Triton, each stable on an endpoint of its own.

    Args:
        folder: of the loader's files.
        store: of the packages.
        triton: the server.
        refs: the packages.
        placement: how they get there; None for a folder in common.
    """
    endpoints = FileEndpointStore(folder / "endpoints")
    for number, ref in enumerate(refs):
        routes = (Route(arm=Arm.STABLE, ref=ref, weight=100),)
        status = EndpointStatus(routes=routes, packages=(ref,))
        endpoints.put(endpoint(status, name=f"e{number}"))
    client = GrpcTriton(triton.grpc, call_seconds=60.0, load_seconds=LOAD_SECONDS)
    await reached(client)
    reports = FileReports(folder / "reports")
    loader = Loader(
        LoaderOptions(
            "l", triton.grpc, folder / "ledger.json", warmup_seconds=0.1, cores=1, pyfunc=True
        ),
        endpoints=endpoints,
        packages=LocalPackages(store, folder / "local"),
        triton=client,
        placement=placement or SharedRepository(triton.server.model_repository),
        reports=reports,
        devices=NoDevices(),
    )
    while await loader.step():
        pass
    await client.close()
    report = reports.get("l")
    assert report is not None
    assert report.ready, report.failed
    return report
