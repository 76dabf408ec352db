"""What a step runs on: models, packages and cores, of a bundle or of a checkout.

In a bundle all of it lies there, for a machine without a network. In a checkout it is made or
downloaded at the first call.
"""

import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.gpu import device
from bench.gpu.device import Kind, Layout
from bench.gpu.unpacked import Place
from bench.peers import model
from bench.peers.subjects import Site
from contracts.endpoint import Precision
from contracts.loading import DeviceKind
from headrace.stack import install, provision

PACKED_FP16, PADDED_FP16 = "packed-fp16", "padded-fp16"
_PACKED_FP32 = "packed-fp32"  # a CPU has no speed in fp16
_SMALL_SECONDS = 1.0
_INSTALL_SECONDS = 1800.0


class StepMissingError(Exception):
    """A step can't be taken here; says what is missing."""


@dataclass(frozen=True)
class Setting:
    """A step's machine, and how long and how much it measures.

    ``ends`` is by ``time.monotonic``. ``results`` keeps what is found, ``scratch`` goes away.
    """

    kind: Kind
    small: bool
    seconds: float
    rounds: int
    ends: float
    results: Path
    scratch: Path
    cache: Path
    events: bool
    say: Callable[[str], None]

    @property
    def left(self) -> float:
        """Seconds until the step has to end."""
        return self.ends - time.monotonic()

    @property
    def load_seconds(self) -> float:
        """Measured time of a load."""
        return _SMALL_SECONDS if self.small else self.seconds

    def layout(self) -> Layout:
        """Cores for as many gateways as the machine allows."""
        cores = sorted(os.sched_getaffinity(0))
        count = 2 if self.small else device.most_gateways(cores)
        found = device.layout(cores, count, shared=self.small)
        if found is None:
            raise StepMissingError(f"{len(cores)} cores are too few: this needs two")
        return found

    def prepared(self, name: str) -> model.PreparedModel:
        """A model under test, by engine and precision."""
        place = Place.around()
        if place is not None:
            if (found := place.model(name)) is None:
                raise StepMissingError(f"the bundle's piece with the model {name} is not here")
            return found
        engine, precision = name.split("-")
        made_for = DeviceKind.GPU if engine == "packed" else DeviceKind.CPU
        return model.prepare(self.cache, self.say, Precision(precision), made_for)

    def packed(self) -> model.PreparedModel:
        """The packed engine's model for this kind of device."""
        return self.prepared(PACKED_FP16 if self.kind is Kind.GPU else _PACKED_FP32)

    def environment(self) -> Path:
        """Whose Python Triton's models run by: it has torch, and ONNX Runtime if it is here."""
        if Place.around() is not None:
            return Path(sys.prefix)
        return _environment(self.cache, self.kind, self.say)

    def site(
        self, name: str, prepared: model.PreparedModel, layout: Layout, *, together: bool
    ) -> Site:
        """For a server; ``together``: its Triton gets the gateways' cores too."""
        folder = self.scratch / name
        folder.mkdir(parents=True)
        every = {*layout.engine, *(core for cores in layout.gateways for core in cores)}
        return Site(
            folder=folder,
            cache=self.cache,
            model=prepared,
            cores=sorted(every) if together else layout.engine,
            environment=self.environment(),
            path=importable(self.scratch / "path"),
            gateways=layout.gateways,
            gpu=self.kind is Kind.GPU,
            events=self.events,
        )


def importable(folder: Path) -> Path:
    """A folder for ``PYTHONPATH`` that holds ``bench`` and nothing else of the repository.

    The root itself would do harm there: its folder ``triton/`` shadows a package of that name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "bench"
    if not link.exists():
        link.symlink_to(Path(__file__).resolve().parents[1])
    return folder


def _environment(cache: Path, kind: Kind, say: Callable[[str], None]) -> Path:
    """One that sees the export environment's torch, and an ONNX Runtime for the device."""
    own = Path(sysconfig.get_path("purelib"))
    if kind is Kind.GPU:
        lock = install.lock_file("peers-gpu")
        python = f"py{sys.version_info.major}.{sys.version_info.minor}"
        own = cache / f"peers-gpu-packages-{install.digest(lock)}-{python}"
        install.ensure(own, lock, say, timeout_seconds=_INSTALL_SECONDS)
    export = provision.export_environment(cache, say)
    folder = cache / f"gpu-engine-{kind}-{own.name}-{export.name}"
    if not folder.is_dir():
        aside = folder.with_suffix(".aside")
        subprocess.run(
            [install.uv_command(), "venv", "--quiet", "--python", sys.executable, str(aside)],
            check=True,
        )
        packages = next((aside / "lib").glob("python*/site-packages"))
        (packages / "engine.pth").write_text(f"{own}\n{export}\n", encoding="utf-8")
        aside.rename(folder)
    return folder
