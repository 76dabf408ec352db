"""The device that a run is on, and which cores of the machine each part gets."""

import csv
import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.peers.servers.embedder import PACKAGE

NO_GPU = (
    "This machine has no NVIDIA GPU that nvidia-smi can see, so nothing was measured: run this on "
    "one that has, or see the same steps on the CPU with `python -P -m bench gpu --device cpu "
    "--small`."
)
_QUERY = ("name", "driver_version", "memory.total")
_SECONDS = 60.0
_PROBE = """
import json, pathlib, os, sys, onnxruntime
from bench.peers.servers.embedder import PACKAGE, Embedder
embedder = Embedder(pathlib.Path(os.environ[PACKAGE]), gpu=sys.argv[1] == "gpu")
embedder.embed(["one text", "and another"])
print(json.dumps({"ONNX Runtime": onnxruntime.__version__,
                  "providers": ", ".join(embedder.providers)}))
"""


class Kind(StrEnum):
    """What computes."""

    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True)
class Gpu:
    """A GPU, as ``nvidia-smi`` describes it; ``cuda`` is the newest that its driver takes."""

    name: str
    driver: str
    memory: str
    cuda: str


def gpu() -> Gpu | None:
    """The machine's first GPU, if it has one."""
    listed = _said(["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"])
    return None if not listed else read(listed, _said(["nvidia-smi"]))


def read(listed: str, shown: str) -> Gpu | None:
    """The first GPU of what ``nvidia-smi`` lists and shows; None if that is none."""
    fields = next(csv.reader(listed.splitlines(), skipinitialspace=True), [])
    if len(fields) != len(_QUERY):
        return None
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", shown)
    name, driver, memory = fields
    return Gpu(name, driver, memory, "unknown" if cuda is None else cuda[1])


def runtime(interpreter: Path, package: Path, path: Path, kind: Kind) -> dict[str, object]:
    """Version and providers of an environment's ONNX Runtime, once it has run the model."""
    done = subprocess.run(
        [str(interpreter), "-P", "-c", _PROBE, kind],
        env={**os.environ, "PYTHONPATH": str(path), PACKAGE: str(package)},
        capture_output=True, text=True, timeout=_SECONDS * 10, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"ONNX Runtime does not run on this {kind}: {done.stderr[-1500:]}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@dataclass(frozen=True)
class Layout:
    """Which cores each part gets; a gateway may have to share Triton's."""

    engine: Sequence[int]
    gateways: Sequence[Sequence[int]]
    load: Sequence[int]


def layout(cores: Sequence[int], gateways: int, *, shared: bool = False) -> Layout | None:
    """Cores for so many gateways; None where the machine has too few.

    A gateway has one core. Load generators and Kafka have one, and another for each four gateways.
    Triton has the others, two at least. One gateway alone shares Triton's where it must, more of
    them only with ``shared``, to see that it runs.
    """
    load = 1 + gateways // 4
    if len(cores) >= 2 + gateways + load:
        split = len(cores) - load
        own = [[core] for core in cores[split - gateways : split]]
        return Layout(cores[: split - gateways], own, cores[split:])
    if (gateways == 1 or shared) and len(cores) > 1:
        return Layout(cores[:-1], [cores[:-1]] * gateways, cores[-1:])
    return None


def _said(command: Sequence[str]) -> str:
    """What a command prints; nothing if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
