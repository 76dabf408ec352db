"""Leaves a CUDA library the code of one architecture alone; the bytes of all others become zeros.

ONNX Runtime's CUDA provider has code for six architectures: without the others it compresses to a
fifth, which is what a bundle needs. A library that was treated so runs on that architecture only.
The format is that of ``fatbinary``, which NVIDIA does not describe: what does not look as expected
is left as it is.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\x50\xed\x55\xba"
_SECTION = b".nv_fatbin"
_CODE = 2  # machine code; 1 is PTX
_ALIGNED = 8


@dataclass(frozen=True)
class _Entry:
    """Code for one architecture, from ``at`` on, head included."""

    at: int
    size: int
    kind: int
    architecture: int


def shrink(library: bytes, architecture: int) -> bytes:
    """The library with code for one architecture only, of the same size.

    Args:
        library: an ELF file.
        architecture: such as 90.
    """
    data = bytearray(library)
    begin, size = _section(data)
    for at, body, end in _containers(data, begin, begin + size):
        entries = list(_entries(data, body, end))
        kept = [each for each in entries if (each.kind, each.architecture) == (_CODE, architecture)]
        if not kept:
            continue  # there would be nothing to run
        code = b"".join(bytes(data[each.at : each.at + each.size]) for each in kept)
        data[body:end] = code + bytes(end - body - len(code))
        struct.pack_into("<Q", data, at + 8, len(code))
    return bytes(data)


def _section(data: bytearray) -> tuple[int, int]:
    """Where the section with CUDA code begins, and its size; (0, 0) without one."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)

    def header(index: int) -> tuple[int, int, int]:
        found = struct.unpack_from("<IIQQQQIIQQ", data, table + index * size)
        return found[0], found[4], found[5]

    names_at = header(names)[1]
    for index in range(count):
        name, at, length = header(index)
        if data[names_at + name : data.index(0, names_at + name)] == _SECTION:
            return at, length
    return 0, 0


def _containers(data: bytearray, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each container of code: where it, its body and what follows begin."""
    while at < end:
        if data[at : at + 4] != _MAGIC:
            at += _ALIGNED - at % _ALIGNED
            continue
        _, _, head, size = struct.unpack_from("<IHHQ", data, at)
        yield at, at + head, at + head + size
        at += head + size


def _entries(data: bytearray, at: int, end: int) -> Iterator[_Entry]:
    while at < end:
        kind, _, head = struct.unpack_from("<HHI", data, at)
        (size,) = struct.unpack_from("<Q", data, at + 8)
        (architecture,) = struct.unpack_from("<I", data, at + 28)
        if kind not in {1, _CODE} or not 0 < head < 4096 or at + head + size > end:
            raise ValueError(f"no code of CUDA as known at {at:#x}")
        yield _Entry(at, head + size, kind, architecture)
        at += head + size
