"""How many cores and how much memory this process may use, and what is beside it.

A machine, the affinity of a process and the limits of its control groups, of version 1 or 2, may
each say less than the others: the least counts.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
# Of version 1, memory without a limit is the largest multiple of a page.
_NO_LIMIT = 1 << 60


def cores(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Whole cores, at least one.

    Args:
        groups: where the control groups are mounted.
        own: the file that names the groups of this process, a line each.
    """
    allowed = float(len(os.sched_getaffinity(0)))
    for folder in _folders(groups, own, "cpu"):
        used, _, period = _read(folder / "cpu.max").partition(" ")  # version 2
        if not used:
            used = _read(folder / "cpu.cfs_quota_us")
            period = _read(folder / "cpu.cfs_period_us")
        if used.isdecimal() and period.isdecimal() and int(period):
            allowed = min(allowed, int(used) / int(period))
    return max(1, int(allowed))


def memory_bytes(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Memory, swap not counted; the arguments are those of ``cores``."""
    allowed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _folders(groups, own, "memory"):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        if limit.isdecimal() and int(limit) < _NO_LIMIT:
            allowed = min(allowed, int(limit))
    return allowed


def _folders(groups: Path, own: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's groups and of all groups around them.

    In a container the process may not see the folder that its line names: the root is its own then.
    """
    for line in _read(own).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            root = groups
        elif controller in names.split(","):
            root = groups / names
        else:
            continue
        yield root
        if ".." not in Path(path).parts:
            folder = root / path.lstrip("/")
            yield from (each for each in (folder, *folder.parents) if root in each.parents)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""  # another version of control groups, or none
