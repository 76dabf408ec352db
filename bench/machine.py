"""What a figure was measured on: the machine, the versions, the commit.

Called once a run; everything in it goes into the JSON beside the figures.
"""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
