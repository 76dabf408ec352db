"""What a real Triton computes with, and models whose processes end or need torch."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from model_processes import model_processes
from own_ports import own_ports
from own_servers import TritonProcess
from real_triton import published, reached
from registry_fakes import endpoint

from contracts.endpoint import Arm, EndpointStatus, Route
from contracts.loading import DeviceKind, LoaderReport
from contracts.manifest import MANIFEST, Manifest
from contracts.model import ModelRef
from headrace.stack import triton as embedded
from headrace.stack.triton import TritonFiles, TritonServer
from registry.errors import TritonRefusedError
from registry.loading import warmup
from registry.loading.devices import PROBE_MODEL, Devices, Promise
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.loading.placement import Placement, SharedRepository, UploadedFiles
from registry.loading.prober import Prober, ProberPace
from registry.loading.triton_client import GrpcTriton
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(embedded.has_gpu_driver(), reason="this machine has a GPU"),
]

SECONDS = 60.0


class Served:
    """A version on a real Triton, by a loader that asks for its device."""

    def __init__(self, folder: Path, triton: TritonProcess, promise: Promise) -> None:
        self.triton = triton
        self.client = GrpcTriton(triton.grpc, call_seconds=SECONDS, load_seconds=SECONDS)
        placement = SharedRepository(triton.server.model_repository)
        self.store = PackageStore((folder / "store").as_uri())
        self.packages = LocalPackages(self.store, folder / "local")
        self.ref = published(self.store, folder / "source", "1")
        endpoints = FileEndpointStore(folder / "endpoints")
        routes = (Route(arm=Arm.STABLE, ref=self.ref, weight=100),)
        endpoints.put(endpoint(EndpointStatus(routes=routes, packages=(self.ref,))))
        self.reports = FileReports(folder / "reports")
        self.loader = Loader(
            LoaderOptions("l", triton.grpc, folder / "ledger.json", warmup_seconds=0.1),
            endpoints=endpoints,
            packages=self.packages,
            triton=self.client,
            placement=placement,
            reports=self.reports,
            devices=Devices(self.client, placement.place_probe, promise),
        )

    def manifest(self, ref: ModelRef) -> Manifest:
        return Manifest.model_validate_json((self.packages.fetch(ref) / MANIFEST).read_bytes())

    async def infer(self) -> int:
        rows, _ = await self.client.infer(
            self.ref.triton_model, warmup.batch(self.manifest(self.ref), 8, 2)
        )
        return rows

    async def settle(self) -> LoaderReport:
        while await self.loader.step():
            pass
        report = self.reports.get("l")
        assert report is not None
        return report


@pytest.fixture(params=[Promise.AUTO])
async def served(
    request: pytest.FixtureRequest, tmp_path: Path, triton: TritonProcess
) -> AsyncIterator[Served]:
    made = Served(tmp_path, triton, request.param)
    await reached(made.client)
    yield made
    await made.client.close()


async def test_a_machine_without_a_gpu_says_so_and_runs_models_on_its_cpu(served: Served) -> None:
    report = await served.settle()
    assert report.device is not None
    assert (report.device.kind, report.ready) == (DeviceKind.CPU, True)
    assert await served.infer() == 2
    held = await served.client.held([served.ref.triton_model, PROBE_MODEL])
    assert {running.on_gpu for running in held.values()} == {False}
    served.triton.kill9()
    served.triton.start()
    async with asyncio.timeout(SECONDS):
        while not (report := await served.settle()).ready:  # noqa: ASYNC110 - the loader's pace
            await asyncio.sleep(0.05)
    assert report.ended_at > 0
    assert PROBE_MODEL in await served.client.held([PROBE_MODEL])


@pytest.mark.parametrize("served", [Promise.GPU], indirect=True)
async def test_a_gpu_that_was_promised_and_is_not_there_keeps_the_loader_unready(
    served: Served,
) -> None:
    report = await served.settle()
    assert not report.ready
    assert "can't use a GPU: the driver's library libnvidia-ml.so.1 is not here" in (
        served.loader.unready()
    )
    assert [item.by_version for item in report.failed] == [False]


@pytest.mark.parametrize("served", [Promise.AUTO], indirect=True)
@pytest.mark.parametrize("is_stable", [True, False], ids=["stable", "candidate"])
async def test_a_model_whose_process_ended_answers_again_from_another_one(
    served: Served, *, is_stable: bool
) -> None:
    await served.settle()
    before = model_processes(served.triton)
    prober = Prober(
        served.client,
        served.loader.stable if is_stable else tuple,
        served.manifest,
        ProberPace(every_seconds=SECONDS, retry_seconds=0.1),
        gone=served.loader.note_gone,
        refused=served.client.count_refused,
        others=tuple if is_stable else served.loader.stable,
    )
    stop = asyncio.Event()
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        probing = tasks.create_task(prober.run())
        tasks.create_task(served.loader.run(stop))
        for process in before:
            os.kill(process, signal.SIGKILL)
        answered = 0
        while not answered:
            try:
                answered = await served.infer()
            except TritonRefusedError:  # it is gone, or is being loaded
                await asyncio.sleep(0.05)
        assert answered == 2
        assert prober.fault() == ""
        probing.cancel()
        stop.set()
    assert not set(before) & set(model_processes(served.triton))


@pytest.fixture
def extended(triton_files: TritonFiles, tmp_path: Path) -> Iterator[TritonProcess]:
    """A Triton whose models look for packages in a folder that does not exist yet."""
    http, grpc, metrics = own_ports(3)
    server = TritonServer(tmp_path / "repository", http, grpc, metrics)
    python = embedded.python_with(tmp_path / "python", tmp_path / "further")
    process = TritonProcess(triton_files, server, tmp_path / "triton.log", python)
    process.start()
    yield process
    process.stop()


@pytest.mark.parametrize("kind", [SharedRepository, UploadedFiles])
async def test_packages_that_are_installed_later_are_found_by_models_from_then_on(
    extended: TritonProcess, tmp_path: Path, kind: type[Placement]
) -> None:
    client = GrpcTriton(extended.grpc, call_seconds=SECONDS, load_seconds=SECONDS)
    await reached(client)
    shared = SharedRepository(extended.server.model_repository)
    placement = shared if kind is SharedRepository else UploadedFiles()
    await client.load("before", placement.place_probe("before"))
    assert b'"torch": ""' in await client.ask("before")
    torch = tmp_path / "further" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("")
    (torch / "version.py").write_text("cuda: Optional[str] = '13.2'\n")
    await client.load("after", placement.place_probe("after"))
    assert b'"torch": "13.2"' in await client.ask("after")
    assert np.__version__  # this interpreter's own packages are found too: the probe needs numpy
    await client.close()
