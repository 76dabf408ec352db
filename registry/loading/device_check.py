"""Whether a package answers as its original does, on the device that it was just loaded on.

A packed engine was proved where it was converted, which may be another device. So its package
carries a few rows with the original's values (``registry.packages.device_proof``), which are run
before the version is reported as loaded. Packages without are taken as they are.
"""

import asyncio
from pathlib import Path

from contracts.loading import Device, DeviceKind
from registry.errors import TritonRefusedError
from registry.loading.triton_client import Triton
from registry.packages import device_proof
from registry.packages.device_proof import DeviceProofError


async def check(triton: Triton, name: str, package: Path, device: Device | None) -> None:
    """Runs the proof of a package, if it has one.

    Args:
        triton: holds the package.
        name: by which Triton knows it.
        package: folder of its files.
        device: of the Triton, as far as it is known.

    Raises:
        TritonRefusedError: it strays from the original, with figures, or fails.
        TritonUnavailableError: Triton went away.
        ValueError: the proof can't be read.
    """
    try:
        proof = await asyncio.to_thread(device_proof.read, package)
    except DeviceProofError as error:
        raise ValueError(str(error)) from error
    if proof is None:
        return
    for rows in proof.batches():
        output = await triton.outputs(name, proof.tensors(rows))
        if why := proof.check(rows, output):
            of = "one row" if len(rows) == 1 else f"{len(rows)} rows together"
            raise TritonRefusedError(
                f"it strays from the original {_where(device)}: of {of}, {why}"
            )


def _where(device: Device | None) -> str:
    if device is None or device.kind is DeviceKind.CPU:
        return "on this Triton's CPU" if device is not None else "on this Triton"
    return f"on this Triton's {device.name or 'GPU'}"
