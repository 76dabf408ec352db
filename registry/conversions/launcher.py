"""Runs one conversion in a process of its own, and reads the file of its result.

The process gets a scratch folder, a limit of time and of memory, and is killed with everything it
started when it is over a limit or no longer wanted. An end without a result is told with a sentence
that says how it ended, and blames nobody. It never decides whether to convert.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from registry.conversions import process_group
from registry.conversions.messages import (
    MOST_RESULT_BYTES,
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
    progress_of,
    result_of,
)

log = logging.getLogger(__name__)

OnProgress = Callable[[ConversionProgress], None]

_MEMORY_CHECK_SECONDS = 0.25
_STDERR_TAIL_BYTES = 2000
_LINE_LIMIT_BYTES = 1 << 20
_EXIT_SECONDS = 5.0
_SCRATCH = "conversion-"
_PID_FILE = "pid"
_RESULT_FILE = "result.json"


class ConversionLauncher(Protocol):
    """A way to run conversions: a subprocess here, a Job in Kubernetes."""

    async def run(
        self,
        request: ConversionRequest,
        progress: OnProgress,
        *,
        python_path: tuple[Path, ...] = (),
    ) -> PublishedPackage | ConversionFailure:
        """Runs a conversion to its end; being cancelled ends it at once.

        Args:
            request: ``work_dir`` is filled in by the launcher.
            progress: called with each step.
            python_path: folders of packages that this conversion needs besides the usual ones.
        """


@dataclass(frozen=True, slots=True)
class SubprocessOptions:
    """Limits of one conversion. ``environment`` is the whole of the process' environment."""

    work_dir: Path
    environment: Mapping[str, str]
    timeout_seconds: float = 1800.0
    memory_bytes: int = 6 << 30
    command: tuple[str, ...] = field(default=(sys.executable, "-P", "-m", "registry.convert"))


class SubprocessLauncher:
    """Conversions as subprocesses of the controller."""

    def __init__(self, options: SubprocessOptions) -> None:
        self._options = options

    def clean(self) -> None:
        """Ends what an earlier controller that was killed left running, and removes its scratch."""
        self._options.work_dir.mkdir(parents=True, exist_ok=True)
        for scratch in self._options.work_dir.glob(f"{_SCRATCH}*"):
            with contextlib.suppress(OSError, ValueError):
                process_group.kill_recorded((scratch / _PID_FILE).read_text(encoding="utf-8"))
            shutil.rmtree(scratch, ignore_errors=True)

    async def run(
        self,
        request: ConversionRequest,
        progress: OnProgress,
        *,
        python_path: tuple[Path, ...] = (),
    ) -> PublishedPackage | ConversionFailure:
        """Runs a conversion to its end; see the Protocol."""
        options = self._options
        options.work_dir.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=options.work_dir))
        try:
            filled = request.model_copy(update={"work_dir": str(scratch / "work")})
            (scratch / "work").mkdir()
            file = scratch / "request.json"
            file.write_text(filled.model_dump_json(by_alias=True), encoding="utf-8")
            with (scratch / "stderr").open("wb") as errors:
                process = await asyncio.create_subprocess_exec(
                    *options.command,
                    str(file),
                    str(scratch / _RESULT_FILE),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=PIPE,
                    stderr=errors,
                    env=_environment(options.environment, python_path),
                    cwd=scratch,
                    limit=_LINE_LIMIT_BYTES,
                    start_new_session=True,
                )
            try:
                # On this machine versions serve callers too.
                process_group.give_way(process.pid)
                recorded = process_group.record(process.pid)
                (scratch / _PID_FILE).write_text(recorded, encoding="utf-8")
                return await self._watch(process, progress, scratch)
            finally:
                process_group.kill(process.pid)
                await process.wait()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    async def _watch(
        self, process: Process, progress: OnProgress, scratch: Path
    ) -> PublishedPackage | ConversionFailure:
        """The process' result, or the limit that it went over."""
        reading = asyncio.create_task(_read(process, progress))
        memory = asyncio.create_task(self._over_memory(process))
        try:
            await asyncio.wait(
                (reading, memory),
                timeout=self._options.timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if reading.done():
                reading.result()
                status = await _status(process)
                result = _result(scratch / _RESULT_FILE)
                return result if result is not None else _crash(status, scratch / "stderr")
            return self._over_limit(by_memory=memory.done())
        finally:
            for task in (reading, memory):
                task.cancel()

    async def _over_memory(self, process: Process) -> None:
        """Returns once the process and its children hold more memory than they may."""
        limit = self._options.memory_bytes
        while process_group.resident_bytes(process.pid) <= limit:  # noqa: ASYNC110 - /proc has no events
            await asyncio.sleep(_MEMORY_CHECK_SECONDS)

    def _over_limit(self, *, by_memory: bool) -> ConversionFailure:
        if by_memory:
            limit = self._options.memory_bytes >> 20
            reason = f"its conversion needed more than {limit} MB of memory and was ended"
        else:
            reason = f"its conversion took more than {self._options.timeout_seconds:g} s"
        return ConversionFailure(reason=reason, by_version=by_memory, crashed=not by_memory)


async def _read(process: Process, progress: OnProgress) -> None:
    """Hands progress on until the process prints no more."""
    assert process.stdout is not None  # noqa: S101 - it was asked for
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:  # longer than any line of the protocol
            continue
        if not line:
            return
        message = progress_of(line)
        if message is None:
            log.info("a conversion printed: %s", line[:500].decode(errors="replace").rstrip())
        else:
            progress(message)


def _result(file: Path) -> PublishedPackage | ConversionFailure | None:
    """What the process wrote; None if that is no result. No link is followed."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return result_of(os.read(descriptor, MOST_RESULT_BYTES + 1))
    finally:
        os.close(descriptor)


async def _status(process: Process) -> int | None:
    """The exit status of a process whose output has ended; None if it still runs."""
    try:
        return await asyncio.wait_for(process.wait(), _EXIT_SECONDS)
    except TimeoutError:
        return None


def _crash(status: int | None, errors: Path) -> ConversionFailure:
    if status is None:
        how = "closed its output and went on"
    elif status == -signal.SIGKILL:
        how = "was killed, most likely because the machine ran out of memory"
    elif status < 0:
        how = f"crashed with {signal.Signals(-status).name}"
    else:
        how = f"ended with status {status}"
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - _STDERR_TAIL_BYTES))
        log_tail = file.read().decode(errors="replace").strip()
    last = log_tail.splitlines()[-1] if log_tail else "it said nothing"
    log.warning("a conversion %s; the end of its log:\n%s", how, log_tail)
    return ConversionFailure(
        reason=f"its conversion {how}: {last}"[:500], by_version=False, crashed=True
    )


def _environment(base: Mapping[str, str], python_path: tuple[Path, ...]) -> dict[str, str]:
    if not python_path:
        return dict(base)
    paths = [*map(str, python_path), base.get("PYTHONPATH", "")]
    return {**base, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
