"""Downloads what the stack needs beside its own packages: Triton, Kafka, the export environment.

``headrace up`` awaits ``fetch`` for each, side by side. Each runs in a process of its own, so that
a Ctrl-C ends it at once. What was downloaded is kept in the cache folder; a later call finds it and
ends within a second. A download that was cut short is never used.

The export environment holds what conversion from PyTorch needs: torch, transformers and
sentence-transformers, about 6 GB on disk, because the torch of PyPI brings CUDA along. The
controller has it installed at the first version that needs it, and its folder is put first on the
``PYTHONPATH`` of a conversion. Of what serves only Triton's models find it, after all else: packed
engines run by torch (``triton.python_with``).
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path

from headrace.errors import DownloadError, HeadraceError
from headrace.stack import install, kafka, triton

EXPORT_TIMEOUT_SECONDS = 1800.0
PARTS = ("triton", "kafka", "export")


def export_folder(cache: Path) -> Path:
    """Where the export environment lies, once it is installed."""
    return cache / f"export-{install.digest(install.lock_file('export'))}-py{triton.PYTHON}"


def export_environment(cache: Path, progress: install.Progress) -> Path:
    """The folder of the export environment, installed if need be; raises ``DownloadError``."""
    lock = install.lock_file("export")
    return install.ensure(
        export_folder(cache), lock, progress, timeout_seconds=EXPORT_TIMEOUT_SECONDS
    )


async def fetch(part: str, cache: Path, progress: install.Progress) -> None:
    """Downloads one of ``PARTS`` in a process of its own; ends it when cancelled.

    Raises:
        DownloadError: with the sentence that the process ended with.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "headrace.stack.provision", part, "--cache", str(cache),
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        _, said = await asyncio.gather(_follow(process.stdout, progress), _read(process.stderr))
        await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode != 0:
        raise DownloadError(said.strip() or f"{part} can't be had.")


async def _follow(stream: asyncio.StreamReader | None, progress: install.Progress) -> None:
    while stream is not None and (line := await stream.readline()):
        progress(line.decode(errors="replace").strip())


async def _read(stream: asyncio.StreamReader | None) -> str:
    return "" if stream is None else (await stream.read()).decode(errors="replace")


def main() -> int:
    """Downloads one part.

    Progress goes to standard output, with ``--path`` followed by where the part lies; on failure a
    sentence goes to standard error. With ``--json`` all of it goes to standard output, an object a
    line: ``{"kind": "progress", "message"}`` as it goes, then one ``{"kind": "installed", "path"}``
    or ``{"kind": "failed", "reason"}``.
    """
    parser = argparse.ArgumentParser(prog="headrace.stack.provision")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--cache", type=Path, required=True, help="folder of downloads")
    parser.add_argument("--path", action="store_true", help="say where it lies, on the last line")
    parser.add_argument("--json", action="store_true", help="say everything as JSON")
    arguments = parser.parse_args()
    as_json = arguments.json
    progress = _say if not as_json else lambda line: _say_json("progress", message=line)
    try:
        where = _find_part(arguments.part, arguments.cache, progress)
    except HeadraceError as error:
        if as_json:
            _say_json("failed", reason=error.message)
        else:
            sys.stderr.write(f"{error.message}\n")
        return error.exit_status
    if as_json:
        _say_json("installed", path=str(where))
    elif arguments.path:
        _say(str(where))
    return 0


def _find_part(part: str, cache: Path, progress: install.Progress) -> Path:
    """Where the part lies; raises ``HeadraceError``."""
    try:
        return _get(part, cache, progress)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise DownloadError(
            f"{part} can't be kept in {cache} ({where}{error.strerror or error}). Choose another "
            "folder with --cache."
        ) from error


def _get(part: str, cache: Path, progress: install.Progress) -> Path:
    if part == "triton":
        return triton.prepare(cache, progress).folder
    if part == "export":
        return export_environment(cache, progress)
    return kafka.prepare(cache).jars[0].parent


def _say_json(kind: str, **values: str) -> None:
    _say(json.dumps({"kind": kind, **values}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
