"""Memory of this process."""

from pathlib import Path


def most_resident_megabytes() -> float:
    """The most memory of this process that was in RAM at a time, since it began.

    What ``getrusage`` says of it begins with the memory of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    most = next(line for line in lines if line.startswith("VmHWM:"))
    return float(most.split()[1]) / 1024
