"""Says in words what a Triton computes with and how it is, for commands and the page. Pure."""

from contracts.durations import humanise
from contracts.loading import Device, DeviceKind, LoaderReport

_RECENT_SECONDS = 3600.0  # for so long the page tells that a Triton ended


def report_in_words(report: LoaderReport | None, now: float) -> str:
    """What a Triton computes with, and whether it ended by itself lately; empty if nothing is told.

    >>> report_in_words(
    ...     LoaderReport(loader="l", triton_grpc="t:1", at=9.0, ended_at=60.0, ready=True,
    ...                  device=Device()),
    ...     now=180.0,
    ... )
    'on the CPU; it ended by itself 2m ago and was started again'
    """
    if report is None:
        return ""
    told = [in_words(report.device)]
    since = now - report.ended_at
    if report.ended_at and since < _RECENT_SECONDS:
        told.append(f"it ended by itself {humanise(since)} ago and was started again")
    return "; ".join(filter(None, told))


def in_words(device: Device | None) -> str:
    """For people; empty if it is not known.

    >>> in_words(Device())
    'on the CPU'
    >>> in_words(
    ...     Device(kind=DeviceKind.GPU, name="NVIDIA H200", count=1, memory_bytes=150_000_000_000,
    ...            free_bytes=138_000_000_000, busy=0.35)
    ... )
    'on one NVIDIA H200, 12 of 150 GB in use, busy 35 % of the time'

    ``useful`` follows if it is known, as in "busy 35 % of the time, 90 % of it with texts".
    """
    if device is None:
        return ""
    if device.fault:
        return device.fault
    if device.kind is DeviceKind.CPU:
        return "on the CPU"
    number = "one" if device.count <= 1 else str(device.count)
    used = max(0, device.memory_bytes - device.free_bytes) / 1e9
    each = " of each" if device.count > 1 else ""
    texts = "" if device.useful is None else f", {device.useful:.0%} of it with texts"
    return (
        f"on {number} {device.name}, {used:.0f} of {device.memory_bytes / 1e9:.0f} GB{each} in "
        f"use, busy {device.busy:.0%} of the time{texts}".replace("%", " %")
    )
