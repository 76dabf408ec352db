"""What the stack's processes use, from ``/proc``, and whether it is too much.

Reading is at the edge; whether a process spins or grows is a function of samples.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
SPINS_FROM = 0.35  # of a core, with no request under way
GROWTH = 1.6
GROWTH_MIB = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment. ``at``: monotonic seconds."""

    at: float
    pid: int
    cpu_seconds: float
    resident_mib: float


def sample(pid: int, at: float) -> Sample | None:
    """What a process uses with all its threads and without its children; None if it is gone."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        pages = int((PROC / str(pid) / "statm").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    return Sample(at, pid, cpu, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def descendants(pid: int) -> list[int]:
    """The ids of a process's children, and theirs."""
    found: list[int] = []
    left = [pid]
    while left:
        current = left.pop()
        for task in (PROC / str(current) / "task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text(encoding="utf-8").split()]
            except OSError:
                continue
            found += children
            left += children
    return found


def named(pids: Iterable[int], name: str) -> list[int]:
    """Those whose program's name begins so."""
    found = []
    for pid in pids:
        try:
            command = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if Path(command.decode(errors="replace")).name.startswith(name):
            found.append(pid)
    return found


def spinning(
    before: Mapping[str, Sample], after: Mapping[str, Sample], limit: float = SPINS_FROM
) -> dict[str, float]:
    """Service -> share of a core, of those that used more than the limit between two samples."""
    found = {}
    for name, last in after.items():
        first = before.get(name)
        if first is None or first.pid != last.pid or last.at <= first.at:
            continue
        share = (last.cpu_seconds - first.cpu_seconds) / (last.at - first.at)
        if share > limit:
            found[name] = round(share, 2)
    return found


def grown(peaks: Sequence[tuple[float, str, float]], ends: float) -> dict[str, tuple[float, float]]:
    """Services whose largest size of the run's last third exceeds that of its first by far.

    Args:
        peaks: (seconds since the start, service, MiB) in any order.
        ends: the run's length, seconds.

    Returns:
        Service -> (MiB of the first third, MiB of the last third).
    """
    early: dict[str, float] = {}
    late: dict[str, float] = {}
    for at, name, size in peaks:
        if at < ends / 3:
            early[name] = max(early.get(name, 0.0), size)
        elif at > 2 * ends / 3:
            late[name] = max(late.get(name, 0.0), size)
    return {
        name: (early[name], late[name])
        for name in early.keys() & late.keys()
        if late[name] > early[name] * GROWTH + GROWTH_MIB
    }
