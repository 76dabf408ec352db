"""What the stack's processes use, and whether it is too much.

Reading is at the edge; whether a process spins or grows is a function of samples.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

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
        process = psutil.Process(pid)
        times, memory = process.cpu_times(), process.memory_info()
    except psutil.NoSuchProcess:
        return None
    return Sample(at, pid, times.user + times.system, memory.rss / 2**20)


def descendants(pid: int, name: str = "") -> list[int]:
    """Ids of a process's children, and theirs, whose program's name begins so."""
    found: list[int] = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if each.name().startswith(name):
                    found.append(each.pid)
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
