"""Lays out what the packed engine loads: the model's own weights and configuration, copied.

Weights of several files become one, byte by byte, in the order of their names, so that the same
files always make the same one. The format is a JSON header and plain numbers behind it: nothing
here needs torch, and no number is changed. Only safetensors are taken.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from contracts.manifest import MODEL_CONFIG, WEIGHTS, PackedDense
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.flavours.config import read_json
from registry.convert.flavours.folders import transformer_folder

_INDEX = f"{WEIGHTS}.index.json"  # of weights in several files
_METADATA = "__metadata__"
_FORMAT = {"format": "pt"}  # transformers reads no others
_MOST_HEADER_BYTES = 100_000_000  # that the format's own library allows
_ALIGNED = 8
_CHUNK = 16 << 20
_WIDENED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ""}  # to float32, without torch


@dataclass(frozen=True)
class _Shard:
    """One file: what its header says, and where the numbers begin."""

    path: Path
    tensors: Mapping[str, Mapping[str, Any]]
    begin: int


def lay_out(original: OriginalTextModel, folder: Path) -> tuple[PackedDense, ...]:
    """Copies weights, configuration and the layers after pooling; returns those layers.

    Raises:
        VersionError: weights that are not safetensors, or can't be read.
    """
    source = transformer_folder(original)
    config = source / MODEL_CONFIG
    if not config.is_file():
        raise VersionError(f"there is no {MODEL_CONFIG} beside the weights")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(config, folder / MODEL_CONFIG)
    files = find_files(source)
    if not files:
        raise VersionError(f"its weights are not {WEIGHTS}")
    _merge([_shard(path) for path in files], folder / WEIGHTS)
    layers = original.pooling.dense if original.pooling is not None else ()
    dense = []
    for place, layer in enumerate(layers):
        name = f"dense-{place}.safetensors"
        shutil.copyfile(layer.weights, folder / name)
        dense.append(PackedDense(file=name, activation=layer.activation))
    return tuple(dense)


def require_one_of_each(original: OriginalTextModel) -> None:
    """Refuses weights in several files two of which hold different numbers by one name.

    transformers takes those of the last file, whatever the index says; others follow the index.

    Raises:
        VersionError: the name and the files, or that the files can't be read.
    """
    files = find_files(transformer_folder(original))
    if len(files) > 1:
        _join([_shard(path) for path in files])


def weights_of(folder: Path) -> int:
    """How many numbers the matrices of a laid out model hold."""
    tensors = _shard(folder / WEIGHTS).tensors.values()
    return sum(int(np.prod(each["shape"])) for each in tensors if len(each["shape"]) == 2)


def digest_numbers(files: Iterable[Path]) -> str:
    """SHA-256 of all tensors by their names, with the values that they have as float32.

    The same for the same numbers in one file or several, in whatever order and width; raises
    ``VersionError``.
    """
    parts = _join([_shard(path) for path in files])
    found = hashlib.sha256()
    for name, (shard, entry) in sorted(parts.items(), key=lambda each: each[0]):
        kind = "F32" if entry["dtype"] in _WIDENED else entry["dtype"]
        found.update(f"{name} {kind} {entry['shape']};".encode())
        with shard.path.open("rb") as file:
            file.seek(shard.begin + entry["data_offsets"][0])
            for chunk in _chunks(file, _bytes(entry)):
                found.update(_widen(chunk, entry["dtype"]))
    return found.hexdigest()


def read_numbers(path: Path) -> dict[str, NDArray[np.float32]]:
    """All tensors of a file as float32; raises ``VersionError``, and ``ValueError`` for others."""
    shard, found = _shard(path), {}
    with path.open("rb") as file:
        for name, entry in shard.tensors.items():
            if entry["dtype"] not in _WIDENED:
                raise ValueError(f"{name} is {entry['dtype']}, not one of {', '.join(_WIDENED)}")
            file.seek(shard.begin + entry["data_offsets"][0])
            numbers = np.frombuffer(_widen(file.read(_bytes(entry)), entry["dtype"]), "<f4")
            found[name] = numbers.reshape(entry["shape"])
    return found


def _widen(data: bytes, dtype: str) -> bytes:
    """Numbers as float32, if they are of a kind that conversion makes such of."""
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).tobytes()
    if dtype in _WIDENED:
        return np.frombuffer(data, _WIDENED[dtype]).astype("<f4").tobytes()
    return data


def find_files(source: Path) -> list[Path]:
    """The safetensors files of a model's weights; none if they are in another format.

    Raises:
        VersionError: an index that names what is not there.
    """
    whole, index = source / WEIGHTS, source / _INDEX
    if whole.is_file():
        return [whole]
    if not index.is_file():
        return []
    said = read_json(index)
    if "metadata" not in said:
        raise VersionError(f"{_INDEX} has no metadata, without which transformers does not read it")
    names = sorted({str(name) for name in (said.get("weight_map") or {}).values()})
    if not names:
        raise VersionError(f"{_INDEX} names no file")
    for name in names:
        if Path(name).name != name or not (source / name).is_file():
            raise VersionError(f"{_INDEX} names {name!r}, which is not there")
    return [source / name for name in names]


def _shard(path: Path) -> _Shard:
    """A file's header; raises ``VersionError``."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(size, _MOST_HEADER_BYTES):
                raise ValueError(f"its header has {length:,} bytes")
            header = json.loads(file.read(length))
        header.pop(_METADATA, None)
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            if not 0 <= first <= last <= size - 8 - length:
                raise ValueError(f"{name} lies outside of it")
            _ = entry["dtype"], [int(each) for each in entry["shape"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VersionError(f"{path.name} can't be read as safetensors: {error}") from error
    return _Shard(path, header, 8 + length)


def _merge(shards: Sequence[_Shard], target: Path) -> None:
    if len(shards) == 1:
        shutil.copyfile(shards[0].path, target)
        return
    parts = _join(shards)
    # Wide numbers first, as the format's own library has it, so that each is aligned to its size.
    order = sorted(parts, key=lambda name: (-_bytes_a_number(parts[name][1]), name))
    header: dict[str, Any] = {_METADATA: _FORMAT}
    end = 0
    for name in order:
        entry = parts[name][1]
        begin, end = end, end + _bytes(entry)
        header[name] = {**entry, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    with target.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            shard, entry = parts[name]
            with shard.path.open("rb") as file:
                file.seek(shard.begin + entry["data_offsets"][0])
                for chunk in _chunks(file, _bytes(entry)):
                    out.write(chunk)


def _join(shards: Sequence[_Shard]) -> dict[str, tuple[_Shard, Mapping[str, Any]]]:
    """Where each tensor of all files is; raises ``VersionError`` for one of different numbers."""
    parts: dict[str, tuple[_Shard, Mapping[str, Any]]] = {}
    for shard in shards:
        for name in sorted(parts.keys() & shard.tensors.keys()):
            known, entry = parts[name]
            if not _are_equal(known, entry, shard, shard.tensors[name]):
                raise VersionError(
                    f"{known.path.name} and {shard.path.name} hold different weights called "
                    f"{name}, and libraries differ in which of them they take: save the model again"
                )
        parts |= {name: (shard, entry) for name, entry in shard.tensors.items()}
    return parts


def _are_equal(
    one: _Shard, entry: Mapping[str, Any], other: _Shard, other_entry: Mapping[str, Any]
) -> bool:
    if any(entry[field] != other_entry[field] for field in ("dtype", "shape")):
        return False
    left = _bytes(entry)
    with one.path.open("rb") as file, other.path.open("rb") as second:
        file.seek(one.begin + entry["data_offsets"][0])
        second.seek(other.begin + other_entry["data_offsets"][0])
        while left > 0:
            size = min(left, _CHUNK)
            if file.read(size) != second.read(size):
                return False
            left -= size
    return True


def _bytes(entry: Mapping[str, Any]) -> int:
    first, last = entry["data_offsets"]
    return int(last - first)


def _bytes_a_number(entry: Mapping[str, Any]) -> int:
    return _bytes(entry) // max(1, int(np.prod(entry["shape"])))


def _chunks(file: BinaryIO, count: int) -> Iterator[bytes]:
    while count > 0:
        data = file.read(min(count, _CHUNK))
        if not data:
            raise VersionError("a file of weights ended early")
        yield data
        count -= len(data)
