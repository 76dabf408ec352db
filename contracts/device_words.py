"""Says in words what a Triton computes with, for commands and the page. Pure."""

from contracts.loading import Device, DeviceKind


def in_words(device: Device | None) -> str:
    """For people; empty if it is not known.

    >>> in_words(Device())
    'on the CPU'
    >>> in_words(
    ...     Device(kind=DeviceKind.GPU, name="NVIDIA H200", count=1, memory_bytes=150_000_000_000,
    ...            free_bytes=138_000_000_000, busy=0.35)
    ... )
    'on one NVIDIA H200, 12 of 150 GB in use, busy 35 % of the time'

    ``useful`` follows where it is known, as in "busy 35 % of the time, 90 % of it with texts".
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
