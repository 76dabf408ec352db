"""How many copies of a model suit this machine, where nobody names a number.

A copy on CPUs is one busy thread, and holds the weights once more: one for each core, and few.
"""

import os
from pathlib import Path

MOST_COPIES = 4
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def copies() -> int:
    """Copies for the cores that this process may use, and Triton beside it."""
    return fitting(len(os.sched_getaffinity(0)), _read(_QUOTA))


def fitting(cores: int, quota: str) -> int:
    """Copies for so many cores.

    Args:
        cores: that the process may run on.
        quota: what a control group of version 2 allows of them, as its file ``cpu.max`` says it:
            microseconds of use, or ``max``, and those of a period. Empty where there is none.

    >>> fitting(8, "150000 100000"), fitting(2, "max 100000"), fitting(64, "")
    (1, 2, 4)
    """
    used, _, period = quota.strip().partition(" ")
    if used.isdecimal() and period.isdecimal():
        cores = min(cores, int(used) // int(period))
    return max(1, min(cores, MOST_COPIES))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""  # another version of control groups, or none
