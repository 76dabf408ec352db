"""A loader with everything around it in memory."""

from pathlib import Path

from no_devices import NoDevices
from registry_fakes import (
    COPIES,
    THREADS,
    FakeTriton,
    MemoryEndpoints,
    MemoryReports,
    endpoint,
    manifest,
)

from contracts.endpoint import Arm, Candidate, EndpointStatus, Phase, Route
from contracts.loading import DeviceKind, LoaderReport
from contracts.manifest import (
    DEVICE_PROOF,
    MANIFEST,
    MODEL_ONNX,
    Manifest,
    PackageFile,
    PyfuncSpec,
)
from contracts.model import ModelRef
from registry.errors import SourceUnavailableError
from registry.loading.devices import Devices, Promise
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.loading.placement import Placement
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import Overrides
from registry.packages.device_proof import DeviceProof
from registry.packages.triton_config import BACKEND_PYTHON
from registry.stores.endpoints import EndpointStore


def status(*packages: ModelRef, stable: ModelRef | None = None) -> EndpointStatus:
    """An endpoint that names ``packages``; those that are not stable are on their way."""
    routes = (Route(arm=Arm.STABLE, ref=stable, weight=100),) if stable else ()
    coming = next((item for item in packages if item != stable), None)
    candidate = Candidate(version="3", phase=Phase.LOADING, ref=coming) if coming else None
    return EndpointStatus(routes=routes, packages=packages, candidate=candidate)


class FolderPackages:
    """A ``PackageCache`` whose packages hold a manifest and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.away = False
        self.sizes: dict[str, int] = {}  # of graphs, bytes, by package
        self.fetched: list[ModelRef] = []
        self.forgotten: list[ModelRef] = []
        self.pyfunc: PyfuncSpec | None = None
        self.proofs: dict[str, DeviceProof] = {}  # by package

    def manifest(self, ref: ModelRef) -> Manifest:
        if self.away:
            raise StoreAwayError
        made = manifest(ref.version)
        size = self.sizes.get(ref.package, 0)
        graph = PackageFile(sha256="0" * 64, bytes=size)
        return made.model_copy(update={"files": {**made.files, MODEL_ONNX: graph}})

    def fetch(self, ref: ModelRef) -> Path:
        if self.away:
            raise StoreAwayError
        self.fetched.append(ref)
        folder = self._folder / ref.package
        folder.mkdir(parents=True, exist_ok=True)
        made = manifest(ref.version).model_copy(update={"pyfunc": self.pyfunc})
        (folder / MANIFEST).write_bytes(made.canonical())
        if ref.package in self.proofs:
            text = self.proofs[ref.package].model_dump_json()
            (folder / DEVICE_PROOF).write_text(text, encoding="utf-8")
        return folder

    def forget(self, ref: ModelRef) -> None:
        self.forgotten.append(ref)


class StoreAwayError(SourceUnavailableError):
    """The package store does not answer."""

    def __init__(self) -> None:
        super().__init__("the store is away")


class NoPlacement(Placement):
    """Notes what it is asked for, and tells ``FakeTriton`` how many copies."""

    def __init__(self) -> None:
        super().__init__()
        self.placed: list[tuple[str, str]] = []
        self.resized: list[tuple[str, str, InstanceSplit]] = []
        self.removed: list[str] = []
        self.devices: dict[str, DeviceKind | None] = {}  # by Triton's name

    def place(
        self,
        name: str,
        package: Path,
        backend: str,
        split: InstanceSplit,
        device: DeviceKind | None = None,
    ) -> Overrides:
        del package
        self.placed.append((name, backend))
        self.devices[name] = device
        return {COPIES: str(split.copies), THREADS: str(split.threads)}

    def resize(
        self,
        name: str,
        package: Path,
        backend: str,
        split: InstanceSplit,
        device: DeviceKind | None = None,
    ) -> Overrides:
        del package, device
        self.resized.append((name, backend, split))
        return {COPIES: str(split.copies), THREADS: str(split.threads)}

    def remove(self, name: str) -> None:
        self.removed.append(name)

    def place_probe(self, name: str) -> Overrides:
        self.placed.append((name, BACKEND_PYTHON))
        return {}

    def place_witness(self, name: str, backend: str, device: DeviceKind | None) -> Overrides:
        self.placed.append((name, backend))
        self.devices[name] = device
        return {}

    def _lay(self, name: str, layout: object) -> Overrides:
        raise NotImplementedError

    def _change(self, name: str, layout: object) -> Overrides:
        raise NotImplementedError


class LoaderHarness:
    """A loader with everything around it in memory, and a clock that a test moves."""

    def __init__(self, folder: Path) -> None:
        self.time = 1000.0
        self.triton = FakeTriton()
        self.packages = FolderPackages(folder / "packages")
        self.endpoints = MemoryEndpoints(endpoint())
        self.reports = MemoryReports()
        self.placement = NoPlacement()
        self.options = LoaderOptions("l", "t:1", folder / "ledger.json", warmup_seconds=0.05)
        self.promise: Promise | None = None  # the loader asks what its Triton computes with
        self.loader = self.new_loader()

    def new_loader(self, endpoints: EndpointStore | None = None) -> Loader:
        """As after a restart of the loader."""
        return Loader(
            self.options,
            endpoints=endpoints or self.endpoints,
            packages=self.packages,
            triton=self.triton,
            placement=self.placement,
            reports=self.reports,
            devices=NoDevices() if self.promise is None else self._devices(self.promise),
            now=lambda: self.time,
        )

    def _devices(self, promise: Promise) -> Devices:
        return Devices(self.triton, self.placement.place_probe, promise, clock=lambda: self.time)

    async def settle(self) -> LoaderReport:
        """Passes until there is nothing more to do at once; returns the report."""
        while await self.loader.step():
            pass
        return self.reports.stored["l"]

    async def restart_triton(self) -> LoaderReport:
        """Triton ends and is up again; the loader mends what it can."""
        self.triton.restart()
        return await self.settle()

    async def serve(self, *packages: ModelRef, stable: ModelRef | None = None) -> LoaderReport:
        self.endpoints.show(status(*packages, stable=stable))
        return await self.settle()


def names(report: LoaderReport) -> list[str]:
    """The versions that are loaded."""
    return [model.ref.version for model in report.loaded]
