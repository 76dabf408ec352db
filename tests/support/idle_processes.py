"""Which processes burn processor time though there is nothing to do."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

SHARE = 0.3  # of a core: far above what waiting costs, far below a loop that never waits
_PROC = Path("/proc")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process at one moment; it is told from a later one of its id by when it began."""

    pid: int
    began: str
    parent: int
    seconds: float  # of a processor, in all its threads
    command: str


def spinning(
    root: int, *, share: float = SHARE, window_seconds: float = 5.0, windows: int = 6
) -> dict[str, float]:
    """The processes below ``root``, itself included, that never rest.

    A process rests that takes less than ``share`` of a core in one of the windows at least: work
    that is left from before ends in some of them, and a loop that turns without work in none.

    Args:
        root: id of the process above all.
        share: of one core.
        window_seconds: length of a window.
        windows: so many at most; it returns as soon as all have rested.

    Returns:
        Command -> the least share that the process took, of those that took more in all windows.
    """
    least: dict[tuple[int, str], tuple[str, float]] = {}
    before, began = _below(root), time.monotonic()
    for _ in range(windows):
        time.sleep(window_seconds)  # what is measured is a stretch of time
        after, now = _below(root), time.monotonic()
        for key, process in after.items():
            if key in before:
                taken = (process.seconds - before[key].seconds) / (now - began)
                _, least_yet = least.get(key, ("", taken))
                least[key] = (process.command, min(taken, least_yet))
        least = {key: found for key, found in least.items() if key in after}
        if least and all(taken < share for _, taken in least.values()):
            return {}
        before, began = after, now
    return {command: taken for command, taken in least.values() if taken >= share}


def _below(root: int) -> dict[tuple[int, str], Process]:
    """All processes of a tree that run now."""
    everything = [process for path in _PROC.glob("[0-9]*") if (process := _read(path)) is not None]
    tree = {root}
    while True:
        grown = tree | {each.pid for each in everything if each.parent in tree}
        if grown == tree:
            return {(each.pid, each.began): each for each in everything if each.pid in tree}
        tree = grown


def _read(path: Path) -> Process | None:
    """None for one that has ended meanwhile."""
    try:
        words = (path / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The fields of proc(5) from the third one on: state, ppid, ... utime, stime, ... starttime.
    seconds = (int(words[11]) + int(words[12])) / _TICKS_A_SECOND
    return Process(int(path.name), words[19], int(words[1]), seconds, command[-200:].strip())
