"""Finds and ends what a dead service left behind.

A process whose parent dies is given to the nearest subreaper; ``up`` makes itself one, so that an
orphan of a killed service becomes a child of ``up`` and can be told from every other process of the
machine; a mark in its environment says whose it was. It signals children of this process only.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping
from pathlib import Path

_MARK = "HEADRACE_STACK_SERVICE"
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans(*, adopt: bool) -> None:
    """Makes this process the parent of its descendants' orphans, or leaves them to init again.

    Raises:
        OSError: the kernel refuses (Linux older than 3.4).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def children() -> set[int]:
    """Process ids of this process' children, those that have ended and wait to be reaped too."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(int(pid) for pid in (task / "children").read_text().split())
    return found


def marked(environment: Mapping[str, str], service: str) -> dict[str, str]:
    """The environment for a service: its descendants inherit the mark and are known by it."""
    return {**environment, _MARK: service}


def end_orphans(service: str) -> int:
    """Kills and reaps the descendants of ``service`` that it left to us; says how many.

    To be called once the service itself has been reaped.
    """
    mark = f"{_MARK}={service}".encode()
    orphans = [pid for pid in children() if mark in _environment(pid)]
    for pid in orphans:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return len(orphans)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
