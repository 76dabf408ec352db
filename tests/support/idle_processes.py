"""Which processes burn processor time though there is nothing to do."""

import time
from contextlib import suppress

import psutil

SHARE = 0.3  # of a core: far above what waiting costs, far below a loop that never waits


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
    least: dict[psutil.Process, float] = {}
    before, began = _seconds_below(root), time.monotonic()
    for _ in range(windows):
        time.sleep(window_seconds)  # what is measured is a stretch of time
        after, now = _seconds_below(root), time.monotonic()
        for process in after.keys() & before.keys():
            taken = (after[process] - before[process]) / (now - began)
            least[process] = min(taken, least.get(process, taken))
        least = {process: taken for process, taken in least.items() if process in after}
        if least and all(taken < share for taken in least.values()):
            return {}
        before, began = after, now
    return {_command(process): taken for process, taken in least.items() if taken >= share}


def _seconds_below(root: int) -> dict[psutil.Process, float]:
    """Processor time, with all threads, of every process of a tree that runs now.

    Processes are equal when their ids and their beginnings are.
    """
    found: dict[psutil.Process, float] = {}
    above = psutil.Process(root)
    for process in (above, *above.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[-200:]
    except psutil.NoSuchProcess:
        return repr(process)
