"""Installs a locked set of packages into a folder of the download cache, once and whole.

The packages go into a folder beside the final one, which is renamed into place when all is there: a
download that was cut short is never used. Two installers of the same folder wait for each other. It
never changes the environment that this program runs in.
"""

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headrace.errors import DownloadError

Progress = Callable[[str], None]

_LAST_LINES = 5


def lock_file(name: str) -> Path:
    """The lock ``<name>.txt`` that came with this program, from a wheel or a checkout.

    Raises:
        DownloadError: the installation is incomplete.
    """
    package = Path(__file__).parent.parent
    for folder in (package / "locks", package.parent / "locks"):
        if (folder / f"{name}.txt").is_file():
            return folder / f"{name}.txt"
    raise DownloadError(f"The lock file {name}.txt is missing: install headrace again.")


def digest(path: Path) -> str:
    """The start of a file's SHA-256: another lock means another folder."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def uv_command() -> str:
    """The ``uv`` that the extra ``local`` installs, else one on PATH; raises ``DownloadError``."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise DownloadError("uv is missing: install headrace[local], or uv itself.")
    return found


def ensure(target: Path, lock: Path, progress: Progress, *, timeout_seconds: float) -> Path:
    """Installs the packages of ``lock`` into ``target`` unless they are there; returns ``target``.

    Raises:
        DownloadError: with the end of what uv said.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.with_name(f".{target.name}.lock")):
        if target.is_dir():
            return target
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            command = [
                uv_command(), "pip", "install", "--python", sys.executable, "--target", str(aside),
                "--require-hashes", "--no-deps", "--no-config", "--color", "never",
                "-r", str(lock),
            ]  # fmt: skip
            _run(command, progress, timeout_seconds)
            aside.chmod(0o755)
            aside.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target


def _run(command: Sequence[str], progress: Progress, timeout_seconds: float) -> None:
    last: list[str] = []
    late = threading.Event()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout_seconds, give_up)
        timer.start()
        try:
            for line in process.stdout or ():
                if line.strip():
                    progress(line.strip())
                    last = [*last[1 - _LAST_LINES :], line.strip()]
            process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    if late.is_set():
        raise DownloadError(
            f"The download took more than {timeout_seconds:.0f} s. Check the way to the package "
            "index and try again."
        )
    if process.returncode != 0:
        said = "\n".join(last) or f"exit status {process.returncode}"
        raise DownloadError(f"The download failed; uv said:\n{said}")


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
