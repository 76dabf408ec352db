"""Headrace with its hot modules compiled, as the images hold it, to be measured so."""

import os
import subprocess
import sys
from pathlib import Path

from headrace.stack import install

ROOT = Path(__file__).resolve().parents[1]
_WHERE = "import gateway.batching.batcher as module; print(module.__file__)"


def build(folder: Path, python: Path = Path(sys.executable)) -> Path:
    """Builds this checkout into a new folder for ``PYTHONPATH``; takes a minute of processor time.

    The packages that the gateway runs on are not in it: it goes before the own ones of ``python``.

    Raises:
        RuntimeError: there is no C compiler, or the build failed; with the end of what it said.
    """
    command = [
        install.uv_command(), "pip", "install", "--quiet", "--python", str(python), "--no-deps",
        "--build-constraints", str(ROOT / "locks" / "build.txt"), "--target", str(folder),
        str(ROOT),
    ]  # fmt: skip
    _run(command, {**os.environ, "HEADRACE_COMPILE": "1"})
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    found = _run([str(python), "-P", "-c", _WHERE], environment).strip()
    if not (found.startswith(str(folder)) and found.endswith(".so")):
        raise RuntimeError(f"{found} is not compiled")
    return folder


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"the compiled modules can't be built:\n{done.stdout[-1500:]}")
    return done.stdout
