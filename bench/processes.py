"""Starts what is measured, each process on its own cores, and ends it.

A process ends with the block that started it, whatever happens.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


@contextmanager
def started(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process whose words go to a file, until the block ends.

    ``environment``: variables beside those of this process.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def running(
    command: Sequence[str],
    cores: Sequence[int],
    ready_url: str,
    log: Path,
    *,
    start_seconds: float = _START_SECONDS,
) -> Iterator[int]:
    """A process on ``cores``, once ``ready_url`` answers 200.

    Gives its process id.
    """
    with started(command, log) as process:
        os.sched_setaffinity(process.pid, cores)  # before it has threads: they inherit it
        deadline = time.monotonic() + start_seconds
        while not answers(ready_url):
            if process.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{' '.join(command[:4])} did not get ready: {words}")
            time.sleep(0.05)
        yield process.pid


def answers(url: str) -> bool:
    """Whether a GET of ``url`` gives 200 now."""
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules."""
    return [sys.executable, "-P", "-m", module, *arguments]
