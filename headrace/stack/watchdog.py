"""Finds and ends what a service, or the whole stack, left behind when it was killed.

Every service has a mark in its environment. Its descendants inherit it, so that one that lost its
parent is told from every other process of the machine; no process without it is ever touched.

As a script (``python -I -S watchdog.py MARK``) it waits until its standard input closes, a pipe
from ``headrace up``, and then ends all processes of the stack: SIGTERM, and SIGKILL five seconds
later. It imports only the standard library.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MARK = "HEADRACE_STACK_SERVICE"
GRACE_SECONDS = 5.0
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


def end_orphans(mark: str) -> None:
    """Kills and reaps the descendants of a service that is dead and reaped itself."""
    for pid in find_marked(lambda found: found == mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def end_stack(stack: str) -> None:
    """Ends the process groups of all services whose marks begin with ``stack``, first politely."""
    deadline = time.monotonic() + GRACE_SECONDS
    left = {group for group in _groups(stack) if _signal(group, signal.SIGTERM)}
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        # A group may hold processes that dropped their mark.
        left = {group for group in left if _signal(group, 0)} | _groups(stack)
    for group in left:
        _signal(group, signal.SIGKILL)


def find_marked(is_meant: Callable[[str], bool]) -> Iterator[int]:
    """Ids of the processes whose mark is meant."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            for entry in path.read_bytes().split(b"\0"):
                name, _, mark = entry.decode(errors="replace").partition("=")
                if name == MARK and is_meant(mark):
                    yield int(path.parent.name)


def _groups(stack: str) -> set[int]:
    # A service has a session of its own: no group of a marked process holds a stranger.
    found = set()
    for pid in find_marked(lambda mark: mark.startswith(stack)):
        with contextlib.suppress(ProcessLookupError):
            found.add(os.getpgid(pid))
    return found


def _signal(group: int, how: int) -> bool:
    """Signals a group; False if it has no members left."""
    try:
        os.killpg(group, how)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.read()
    end_stack(sys.argv[1])
