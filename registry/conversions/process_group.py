"""A process with everything it started: how much memory it holds, its priority, and its end.

Reads ``/proc``, so that memory is known on Linux only; elsewhere it counts as none and no limit is
held. It touches no process outside the group it is given.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_NICENESS = 5  # more than our own: a third of what others get, if all are busy
_GROUP, _START, _RESIDENT = 2, 19, 21  # fields of /proc/<pid>/stat after the name, from 0


def resident_bytes(group: int) -> int:
    """Memory that the processes of a group hold now; 0 if there are none."""
    pages = 0
    for entry in _PROC.glob("[0-9]*"):
        fields = _fields(entry)
        if fields and int(fields[_GROUP]) == group:
            pages += int(fields[_RESIDENT])
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill(group: int) -> None:
    """Ends every process of a group at once; one that is gone is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def give_way(group: int) -> None:
    """Lets other processes of the machine go first; if the system refuses, nothing changes.

    For a group whose leader began a session. If Linux shares processors between sessions, it is
    the session's niceness that counts (sched(7), "The autogroup feature"), else each process's own.
    """
    niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
    with suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PGRP, group, niceness)
    with suppress(OSError):
        (_PROC / str(group) / "autogroup").write_text(f"{niceness}\n", encoding="utf-8")


def record(pid: int) -> str:
    """A line by which this very process, the leader of its group, is known later."""
    fields = _fields(_PROC / str(pid))
    return f"{pid} {fields[_START] if fields else ''}"


def kill_recorded(line: str) -> None:
    """Ends the group of a recorded leader, unless its number belongs to another process now.

    Raises:
        ValueError: not a line of ``record``.
    """
    number, start = line.split(" ")
    fields = _fields(_PROC / number)
    if fields and start and fields[_START] == start and int(fields[_GROUP]) == int(number):
        kill(int(number))


def _fields(entry: Path) -> list[str]:
    """What ``/proc/<pid>/stat`` says after the process' name, which may hold anything."""
    try:
        text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
