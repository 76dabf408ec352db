"""Ends the stack's processes when ``headrace up`` itself is killed and can't.

Runs as a script in a session of its own (``python -I -S watchdog.py PGID...``, groups that run)
with a pipe from ``up`` as its standard input: ``+PGID`` when a process group has been started,
``-PGID`` when it has ended. When the pipe closes, every group that is left gets SIGTERM, and
SIGKILL five seconds later. It imports the standard library alone and touches no process that it was
not told of.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

GRACE_SECONDS = 5.0


def groups_left(first: Iterable[str], lines: Iterable[str]) -> set[int]:
    """The process groups that were started and have not ended, once ``lines`` is exhausted."""
    groups = {int(group) for group in first}
    for line in lines:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def _signal(group: int, how: signal.Signals) -> bool:
    try:
        os.killpg(group, how)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end(groups: set[int]) -> None:
    """Ends the groups, first politely."""
    deadline = time.monotonic() + GRACE_SECONDS
    left = {group for group in groups if _signal(group, signal.SIGTERM)}
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = {group for group in left if _exists(group)}
    for group in left:
        _signal(group, signal.SIGKILL)


def _exists(group: int) -> bool:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, 0)
        return True
    return False


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    end(groups_left(sys.argv[1:], sys.stdin))
