"""Reads the weights of a sentence-transformers Dense module out of a safetensors file.

The format is a header of JSON and plain numbers behind it: a dozen lines read it without torch and
without one more dependency.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from registry.convert.errors import VersionError


def read_dense(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Weight ``[in, out]`` and bias ``[out]`` of a Dense module.

    Raises:
        VersionError: not a safetensors file with ``linear.weight``.
    """
    try:
        tensors = read_safetensors(path)
        weight = tensors["linear.weight"]
    except (OSError, ValueError, KeyError) as error:
        raise VersionError(f"the weights of a Dense module can't be read: {error}") from error
    bias = tensors.get("linear.bias")
    return np.ascontiguousarray(weight.T), bias


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """All tensors of a safetensors file as float32; a Dense layer is small.

    Raises:
        ValueError: another type than F32 or F16, or a damaged file.
    """
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind = {"F32": np.float32, "F16": np.float16}.get(entry["dtype"])
        if kind is None:
            raise ValueError(f"tensor {name} is {entry['dtype']}, not F32 or F16")
        start, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + start : 8 + size + end], dtype=kind)
        found[name] = values.reshape(entry["shape"]).astype(np.float32)
    return found
