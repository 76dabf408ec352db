"""What a figure was measured on: the machine, the versions, the commit.

Called once a run; everything in it goes into the JSON beside the figures.
"""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_PACKAGES = (
    "headrace", "numpy", "onnxruntime", "tokenizers", "tritonclient", "uvicorn", "uvloop",
    "msgspec", "kafka-python",
)  # fmt: skip


def describe() -> dict[str, object]:
    """Processor, cores, memory, kernel, versions and commit."""
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": sorted(os.sched_getaffinity(0)),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "load_before": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": commit(),
    }


def two_cores() -> tuple[int, int]:
    """A core for what is measured and one for all the rest."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RuntimeError("the benchmarks need two cores: one for what is measured, one for load")
    return cores[0], cores[1]


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, all its threads together."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def resident_megabytes(pid: int) -> float:
    """Memory of a process that is in RAM now."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6


def most_resident_megabytes() -> float:
    """The most memory of this process that was in RAM at a time, since it began.

    What ``getrusage`` says of it begins with the memory of the process that started this one.
    """
    kilobytes, _ = _field("/proc/self/status", "VmHWM").split()
    return float(kilobytes) / 1024


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def commit() -> str:
    """What is checked out, as git names it; unknown outside of a checkout."""
    folder = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=folder, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
