"""An environment for each peer, from a lock of its own, in the cache: never in ``.venv``."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.errors import DownloadError
from headrace.stack import install

_TIMEOUT_SECONDS = 1800.0


def ensure(peer: str, cache: Path, say: Callable[[str], None]) -> Path:
    """The environment of ``locks/peers-<peer>.txt``, made unless it is there; its folder."""
    lock = install.lock_file(f"peers-{peer}")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / f"peers-{peer}-{install.digest(lock)}-py{python}"
    if (folder / "whole").exists():
        return folder
    say(f"Installing {peer}, once")
    shutil.rmtree(folder, ignore_errors=True)  # one that was cut short
    uv = install.uv_command()
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
    interpreter = str(folder / "bin" / "python")
    _run([uv, "pip", "install", "--quiet", "--python", interpreter, "--require-hashes",
          "--no-deps", "--no-config", "-r", str(lock)])  # fmt: skip
    (folder / "whole").touch()
    return folder


def importable(folder: Path) -> Path:
    """A folder for ``PYTHONPATH`` that holds ``bench`` and nothing else of the repository.

    The root itself would do harm there: its folder ``triton/`` shadows a package of that name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "bench"
    if not link.exists():
        link.symlink_to(Path(__file__).resolve().parents[1])
    return folder


def _run(command: list[str]) -> None:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        try:
            done = subprocess.run(
                command, stdout=said, stderr=said, timeout=_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise DownloadError(f"{command[0]} took more than {_TIMEOUT_SECONDS:.0f} s.") from error
        if done.returncode != 0:
            said.seek(0)
            raise DownloadError(f"The download failed; uv said:\n{said.read()[-1500:]}")
