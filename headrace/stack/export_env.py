"""The environment that conversion from PyTorch needs: torch, transformers, sentence-transformers.

Large (about 6 GB on disk, because the torch of PyPI brings CUDA along), so it is installed once, at
the first version that needs it, into the download cache and never into the environment that serves.
Its folder is put first on the ``PYTHONPATH`` of a conversion.
"""

import argparse
import json
import sys
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.stack import install
from headrace.stack.install import Progress

TIMEOUT_SECONDS = 1800.0


def folder(cache: Path) -> Path:
    """Where the environment of this program's lock lies, or will lie."""
    name = f"export-{install.digest(install.lock_file('export'))}"
    return cache / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"


def ensure(cache: Path, progress: Progress, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Path:
    """Installs the environment unless it is there.

    Args:
        cache: the folder of downloads, as of ``HEADRACE_CACHE``.
        progress: is told what happens, a line at a time.
        timeout_seconds: for the whole installation.

    Returns:
        The folder to put on ``PYTHONPATH``.

    Raises:
        DownloadError: with the end of what the installer said.
    """
    lock = install.lock_file("export")
    return install.ensure(folder(cache), lock, progress, timeout_seconds=timeout_seconds)


def main() -> int:
    """Installs it from a process of its own.

    Prints one JSON object a line: ``{"kind": "progress", "message"}`` as it goes, then one
    ``{"kind": "installed", "path"}`` or ``{"kind": "failed", "reason"}``.
    """
    parser = argparse.ArgumentParser(prog="headrace.stack.export_env", description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder of downloads")
    arguments = parser.parse_args()

    def say(kind: str, **values: str) -> None:
        sys.stdout.write(json.dumps({"kind": kind, **values}) + "\n")
        sys.stdout.flush()

    try:
        path = ensure(arguments.cache, lambda line: say("progress", message=line))
    except HeadraceError as error:
        say("failed", reason=error.message)
        return error.exit_status
    say("installed", path=str(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
