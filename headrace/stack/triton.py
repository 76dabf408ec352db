"""A real Triton Inference Server on this machine, out of the wheel nvidia-pytriton.

The wheel is installed without its dependencies into a folder of its own, because it asks for an
older numpy that only its Python front needs. It never loads a model: that is the loader's work.
"""

import ctypes
import os
import platform
import secrets
import shutil
import site
import sys
import sysconfig
import venv
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from contracts import telemetry_off
from contracts.loading import CONTROL_KEY
from headrace.errors import MachineError
from headrace.stack import install
from service import mutual_tls

GLIBC = (2, 35)
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
RESTRICTED = "model-repository,shared-memory,trace,logging"
NVML = "libnvidia-ml.so.1"  # of NVIDIA's driver
_INSTALL_SECONDS, _EXIT_SECONDS = 900.0, 3
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the fixed place of POSIX shared memory


@dataclass(frozen=True)
class TritonFiles:
    """The program, ready to run: ``folder`` holds the unpacked wheel."""

    folder: Path

    @property
    def root(self) -> Path:
        """What the wheel calls ``tritonserver``: the server, its backends, the stubs."""
        return self.folder / "pytriton" / "tritonserver"

    @property
    def binary(self) -> Path:
        """The server itself."""
        return self.root / "bin" / "tritonserver"

    @property
    def libraries(self) -> Path:
        """The shared libraries that the wheel carries."""
        return self.folder / "nvidia_pytriton.libs"


@dataclass(frozen=True)
class TritonServer:
    """One server: its model repository and where it listens."""

    model_repository: Path
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    host: str = "127.0.0.1"
    control_key: str = field(default="", repr=False)  # needed to load models
    tls_folder: Path | None = None  # see ``service/mutual_tls.py``
    gpu_metrics: bool = False  # ``nv_gpu_*``, of a machine with a GPU

    @property
    def grpc(self) -> str:
        """Where gateways and loaders reach it, ``host:port``."""
        return f"{self.host}:{self.grpc_port}"

    @property
    def shared_memory_prefix(self) -> str:
        """What the names of this server's shared memory begin with."""
        return f"headrace_triton_{self.grpc_port}_"


def missing() -> list[str]:
    """What this machine lacks to run the embedded Triton, a sentence each."""
    lacks = []
    if platform.machine() != "x86_64" or sys.platform != "linux":
        lacks.append("The embedded Triton runs on Linux x86_64 only: use your own (--triton-grpc).")
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "unknown 0").partition(" ")
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < GLIBC:
        lacks.append(
            f"Triton needs glibc {GLIBC[0]}.{GLIBC[1]} or newer and this system has {name} "
            f"{version}: use Debian 12, Ubuntu 22.04 or newer, or your own Triton (--triton-grpc)."
        )
    if libpython_folder() is None:
        lacks.append(
            f"Triton's Python backend needs libpython{PYTHON}.so.1.0, which is not here: install "
            f"it (Debian: apt-get install libpython{PYTHON}) or use a Python that brings it."
        )
    if not stub_finds_modules(sys.version_info[:2], sys.builtin_module_names):
        lacks.append(
            f"Triton's Python backend does not start with this Python {PYTHON}, whose module math "
            "is part of the interpreter (Debian 13's is such): use Python 3.11 or 3.12, or your "
            "own Triton (--triton-grpc)."
        )
    return lacks


def stub_finds_modules(version: tuple[int, ...], built_in: Collection[str]) -> bool:
    """Whether Triton's stub, which has an interpreter of its own, imports the standard library.

    Seen on Debian 13: the stub for Python 3.13 has no ``math``, and looks for it in a file that
    Debian does not have. On Debian 12 with Python 3.11 it works all the same.
    """
    return version < (3, 13) or "math" not in built_in


def libpython_folder() -> str | None:
    """Where ``libpython`` lies; empty if the system's own linker finds it, None if nowhere."""
    name = f"libpython{PYTHON}.so.1.0"
    folders = [sysconfig.get_config_var("LIBDIR"), str(Path(sys.base_prefix) / "lib")]
    for folder in folders:
        if folder and (Path(folder) / name).is_file():
            return str(folder)
    with suppress(OSError):
        ctypes.CDLL(name)
        return ""
    return None


def prepare(cache: Path, progress: install.Progress) -> TritonFiles:
    """Finds the program in the download cache, fetching it (about 60 MB) at the first call.

    Raises:
        MachineError: the machine lacks something; says what.
        DownloadError: the download failed.
    """
    if lacks := missing():
        raise MachineError(" ".join(lacks))
    lock = install.lock_file("triton")
    folder = cache / f"triton-{install.digest(lock)}-py{PYTHON}"
    files = TritonFiles(install.ensure(folder, lock, progress, timeout_seconds=_INSTALL_SECONDS))
    _arrange(files)
    return files


def _arrange(files: TritonFiles) -> None:
    """Puts the stub for this Python where the Python backend looks, and makes both executable."""
    stub = files.root / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
    placed = files.root / "backends" / "python" / stub.name
    if placed.is_file():
        return
    if not stub.is_file():
        raise MachineError(
            f"This Triton has no Python backend for Python {PYTHON}: use Python 3.11, 3.12 or 3.13."
        )
    files.binary.chmod(0o755)
    aside = placed.with_name(f".{placed.name}.{os.getpid()}")
    shutil.copyfile(stub, aside)
    aside.chmod(0o755)
    aside.replace(placed)


def command(files: TritonFiles, server: TritonServer) -> list[str]:
    """Runs the server until SIGTERM. Its process is Triton itself, with no shell around it."""
    prefix = server.shared_memory_prefix
    return [
        str(files.binary),
        f"--model-repository={server.model_repository}",
        f"--backend-directory={files.root / 'backends'}",
        "--model-control-mode=explicit",
        "--disable-auto-complete-config",
        "--strict-readiness=false",  # one version that fails does not make the server unready
        f"--http-address={server.host}",
        f"--http-port={server.http_port}",
        f"--grpc-address={server.host}",
        f"--grpc-port={server.grpc_port}",
        # Gateways ping idle connections to see a dead server at once; not an attack.
        "--grpc-http2-min-recv-ping-interval-without-data=1000",
        "--grpc-keepalive-permit-without-calls=true",
        f"--metrics-address={server.host}",
        f"--metrics-port={server.metrics_port}",
        f"--allow-gpu-metrics={str(server.gpu_metrics).lower()}",
        f"--exit-timeout-secs={_EXIT_SECONDS}",
        "--http-thread-count=2",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        *restriction(server.control_key),
        *(() if server.tls_folder is None else mutual_tls.server_flags(server.tls_folder)),
    ]


def control_key(file: Path) -> str:
    """The key in the file, which is made with a new one, for its owner only, if missing."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT, 0o600), "w") as made:
            made.write(secrets.token_hex(32))
        aside.replace(file)
    return file.read_text(encoding="ascii").strip()


def restriction(control_key: str) -> list[str]:
    """The flags by which only who knows the key may load models, or see into the server's memory.

    A client that may load a model may load one of Python code. The words are the same in
    docker/triton/start.
    """
    if not control_key:
        return []
    return [
        f"--grpc-restricted-protocol={RESTRICTED}:{CONTROL_KEY}={control_key}",
        f"--http-restricted-api={RESTRICTED}:{CONTROL_KEY}={control_key}",
    ]


def has_gpu_driver() -> bool:
    """Whether NVIDIA's driver is on this machine, whatever its GPU can do."""
    try:
        ctypes.CDLL(NVML)
    except OSError:
        return False
    return True


def python_with(folder: Path, further: Path) -> Path:
    """Makes a Python for Triton's models: this one's packages, and after them those of a folder.

    The folder need not be there yet: each model's process looks for it when it starts. So torch,
    which packed engines need, is found from the moment on at which it is installed.

    Returns:
        The folder that holds ``python3``.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    own = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    lines = [*dict.fromkeys(own), str(further)]
    (packages / "headrace.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "bin"


def environment(
    files: TritonFiles, base: Mapping[str, str], python: Path | None = None
) -> dict[str, str]:
    """The server's environment: ``base`` with what it needs to find libraries and packages.

    The Python backend's stub takes its packages from the first ``python3`` on PATH.

    Args:
        files: the program.
        base: of the caller.
        python: the folder of that ``python3``; None for this interpreter's own.
    """
    libraries = [str(files.libraries), libpython_folder() or "", base.get("LD_LIBRARY_PATH", "")]
    return {
        **base,
        **telemetry_off.VARIABLES,
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "PATH": os.pathsep.join(
            [str(python or Path(sys.executable).parent), base.get("PATH", os.defpath)]
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }


def remove_leftovers(server: TritonServer) -> None:
    """Removes the shared memory that a killed server left; call before each start."""
    server.model_repository.mkdir(parents=True, exist_ok=True)
    for region in SHARED_MEMORY.glob(f"{server.shared_memory_prefix}*"):
        region.unlink(missing_ok=True)


def readiness_url(server: TritonServer) -> str:
    """Where the server says whether it is ready."""
    return f"http://{server.host}:{server.http_port}/v2/health/ready"
