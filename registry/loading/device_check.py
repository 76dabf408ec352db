"""Whether a package answers as its original does, on the device that it was just loaded on.

A package for GPUs was proved where it was converted, which may be another device. So it
carries a few rows with the original's values (``registry.packages.device_proof``), which are run
before the version is reported as loaded. Packages without are taken as they are.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.loading import Device, DeviceKind
from contracts.manifest import Manifest
from preprocess.buckets import bucket_of
from preprocess.padding import RowPadder, Tensor
from registry.errors import TritonRefusedError
from registry.loading.triton_client import Triton
from registry.packages import device_proof
from registry.packages.device_proof import MOST_ROWS, DeviceProof, DeviceProofError, ProofRow


async def check(
    triton: Triton, name: str, package: Path, manifest: Manifest, device: Device | None
) -> None:
    """Runs the proof of a package, if it has one.

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
    for rows in _batches(proof, manifest):
        if manifest.fixed is None:
            output = await triton.outputs(name, proof.tensors(rows))
        else:
            output = _unpad(await triton.outputs(name, _pad(rows, manifest)), rows)
        if why := proof.check(rows, output):
            of = "one row" if len(rows) == 1 else f"{len(rows)} rows together"
            raise TritonRefusedError(
                f"it strays from the original {_where(device)}: of {of}, {why}"
            )


def _batches(proof: DeviceProof, manifest: Manifest) -> Iterator[tuple[ProofRow, ...]]:
    """The proof's batches, in parts of the largest one that an engine of padded rows takes."""
    most = MOST_ROWS if manifest.fixed is None else manifest.max_batch_size
    for rows in proof.batches():
        for begin in range(0, len(rows), most):
            yield rows[begin : begin + most]


def _pad(rows: Sequence[ProofRow], manifest: Manifest) -> Mapping[str, Tensor]:
    """A batch as a gateway sends it to a graph."""
    length = bucket_of(max(len(row.ids) for row in rows), manifest.length_buckets)
    types = [row.type_ids or (0,) * len(row.ids) for row in rows]
    padder = RowPadder(manifest.inputs, manifest.tokenizer)
    return padder.pad([row.ids for row in rows], length, types)


def _unpad(output: NDArray[np.float32], rows: Sequence[ProofRow]) -> NDArray[np.float32]:
    """The answers without those of padding, if there is one for each token."""
    if output.ndim < 3 or len(output) != len(rows):
        return output
    return np.concatenate([of[: len(row.ids)] for of, row in zip(output, rows, strict=True)])


def _where(device: Device | None) -> str:
    if device is None or device.kind is DeviceKind.CPU:
        return "on this Triton's CPU" if device is not None else "on this Triton"
    return f"on this Triton's {device.name or 'GPU'}"
