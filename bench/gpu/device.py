"""The device that a run is on, how busy it is, and which cores of the machine each part gets."""

import csv
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean

NO_GPU = (
    "This machine has no NVIDIA GPU that nvidia-smi can see, so nothing was measured: run this on "
    "one that has, or see the same steps on the CPU with `python -P -m bench.gpu --device cpu "
    "--small`."
)
_QUERY = ("name", "driver_version", "memory.total")
_BUSY = [
    "nvidia-smi",
    "--query-gpu=utilization.gpu",
    "--format=csv,noheader,nounits",
    "--loop-ms=200",
]
_SECONDS = 60.0


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


class Busy:
    """Shares of time in which the GPU computed, one each fifth of a second."""

    def __init__(self) -> None:
        self._shares: list[float] = []

    def read(self, line: str) -> None:
        """Adds what ``nvidia-smi`` said, in percent; what is no number is passed over."""
        if line.strip().isdigit():
            self._shares.append(int(line) / 100)

    @property
    def mark(self) -> int:
        """Where ``since`` may begin."""
        return len(self._shares)

    def since(self, mark: int) -> float | None:
        """The mean since then; None if nothing was said."""
        shares = self._shares[mark:]
        return mean(shares) if shares else None


@contextmanager
def watched(kind: Kind) -> Iterator[Busy]:
    """What the GPU does until the block ends; on a CPU nothing is ever said."""
    busy = Busy()
    if kind is Kind.CPU:
        yield busy
        return
    with subprocess.Popen(_BUSY, stdout=subprocess.PIPE, text=True) as process:

        def follow() -> None:
            for line in process.stdout or ():
                busy.read(line)

        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        try:
            yield busy
        finally:
            process.kill()
            reader.join()


@dataclass(frozen=True)
class Layout:
    """Which cores each part gets; a gateway may have to share Triton's."""

    engine: Sequence[int]
    gateways: Sequence[Sequence[int]]
    load: Sequence[int]


def layout(cores: Sequence[int], gateways: int, *, shared: bool = False) -> Layout | None:
    """Cores for this many gateways; None if the machine has too few.

    A gateway has one core. Load generators and Kafka have five for eight gateways: a generator
    takes nearly as long for a request of one text as a gateway. Triton has the others, two at
    least. One gateway alone shares Triton's where it must, more of them only with ``shared``, to
    see that it runs.
    """
    load = max(1, gateways * 5 // 8)
    if len(cores) >= 2 + gateways + load:
        split = len(cores) - load
        own = [[core] for core in cores[split - gateways : split]]
        return Layout(cores[: split - gateways], own, cores[split:])
    if (gateways == 1 or shared) and len(cores) > 1:
        return Layout(cores[:-1], [cores[:-1]] * gateways, cores[-1:])
    return None


def most_gateways(cores: Sequence[int]) -> int:
    """Of 8, 4, 2 and 1 the most that the cores allow."""
    return next((count for count in (8, 4, 2) if layout(cores, count) is not None), 1)


def _said(command: Sequence[str]) -> str:
    """What a command prints; nothing if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
