"""Downloads what the stack needs beside its own packages: Triton, Kafka, the export environment.

``headrace up`` awaits ``fetch`` for each, side by side. Each runs in a process of its own, so that
a Ctrl-C ends it at once. What was downloaded is kept in the cache folder; a later call finds it and
ends within a second. A download that was cut short is never used.
"""

import argparse
import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path

from headrace.errors import DownloadError, HeadraceError
from headrace.stack import export_env, install, kafka, triton

TIMEOUT_SECONDS = 900.0
PARTS = ("triton", "kafka", "export")


def kafka_files(cache: Path) -> kafka.KafkaFiles:
    """Kafka's jars and its Java runtime, downloaded if need be.

    Raises:
        DownloadError: they can't be had; says what to do.
    """
    try:
        return kafka.prepare(cache, timeout_seconds=TIMEOUT_SECONDS)
    except kafka.KafkaError as error:
        raise DownloadError(f"{error}.") from error


def triton_files(cache: Path, progress: install.Progress) -> triton.TritonFiles:
    """Triton and its backends, downloaded if need be.

    Raises:
        DownloadError, MachineError: they can't be had, or used here; says what to do.
    """
    return triton.prepare(cache, progress, timeout_seconds=TIMEOUT_SECONDS)


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
    sentence goes to standard error.
    """
    parser = argparse.ArgumentParser(prog="headrace.stack.provision")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--cache", type=Path, required=True, help="folder of downloads")
    parser.add_argument("--path", action="store_true", help="say where it lies, on the last line")
    arguments = parser.parse_args()
    try:
        where = _get(arguments.part, arguments.cache)
    except HeadraceError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_status
    if arguments.path:
        _say(str(where))
    return 0


def _get(part: str, cache: Path) -> Path:
    if part == "triton":
        return triton_files(cache, _say).folder
    if part == "export":
        return export_env.ensure(cache, _say)
    return kafka_files(cache).jars[0].parent


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
