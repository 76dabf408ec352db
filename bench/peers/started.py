"""Starts a peer's processes on the core under test and ends every one of them, by its id."""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bench.processes import running

_LEAVE_SECONDS = 2.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@contextmanager
def started(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    cores: Sequence[int],
    ready: str,
    seconds: float = 300.0,
) -> Iterator[int]:
    """A peer in a folder of its own, once ``ready`` answers 200; its process id."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONSAFEPATH": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        **dict.fromkeys(_THREADS, "1"),
        **environment,
    }
    # env(1) becomes the peer: the process id stays.
    words = ["env", "-i", "-C", str(folder), *(f"{name}={value}" for name, value in told.items())]
    family: set[int] = set()
    leader = 0
    try:
        with running(
            [*words, *command], cores, ready, folder / "log.txt", start_seconds=seconds
        ) as leader:
            try:
                yield leader
            finally:
                with suppress(psutil.NoSuchProcess):
                    below = psutil.Process(leader).children(recursive=True)
                    family.update(each.pid for each in below)
    finally:
        _end(family, leader)


def _end(family: set[int], session: int) -> None:
    """Ends what a peer left behind: workers of the session that it began."""
    for pid in _left(family, session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _left(family, session)


def _left(family: set[int], session: int) -> set[int]:
    """Who of the session is still there after a while; empty as soon as nobody is."""
    deadline = time.monotonic() + _LEAVE_SECONDS
    while (left := {pid for pid in family if _of(pid, session)}) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _of(pid: int, session: int) -> bool:
    """Whether a process lives and is of this session: ids are given out again."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return False
    return state[0] != "Z" and int(state[3]) == session
