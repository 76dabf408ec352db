"""Which processes the stack has and what they hold, and whether that grows."""

from collections.abc import Sequence
from contextlib import suppress

import psutil

GROWTH = 1.6
GROWTH_MIB = 120.0


def resident_mib(pid: int) -> float | None:
    """What a process holds without its children; None if it is gone."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return None


def descendants(pid: int, name: str = "") -> list[int]:
    """Ids of a process's children, and theirs, whose program's name begins so."""
    found: list[int] = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if each.name().startswith(name):
                    found.append(each.pid)
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
