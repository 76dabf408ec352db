"""The binary tensor data extension: tensors as bytes, after the JSON of an HTTP body or in gRPC.

A BYTES tensor is each element's length (four bytes, little-endian) and the element; others are the
row-major numbers, little-endian. Pure functions; they never trust a length that the bytes don't
bear out.
"""

import struct

import numpy as np

from gateway.dialects.oip import OutputTensor, utf8
from gateway.errors import BadRequestError, InvalidInputError

_LENGTH = struct.Struct("<I")


def split_header(body: bytes, header_length: bytes | None) -> tuple[bytes, bytes]:
    """The JSON and the binary part of a body, by its ``Inference-Header-Content-Length``.

    Raises:
        BadRequestError: the length is no number or longer than the body.
    """
    if header_length is None:
        return body, b""
    if not header_length.isdigit() or len(header_length) > 12 or int(header_length) > len(body):
        raise BadRequestError(
            f"Inference-Header-Content-Length: expected a number up to the body's {len(body)} "
            f"bytes, got {header_length.decode('latin-1')[:40]!r}."
        )
    end = int(header_length)
    return body[:end], body[end:]


def texts(name: str, data: bytes) -> list[str]:
    """The elements of a BYTES tensor.

    Raises:
        InvalidInputError: a length that runs past the end, or an element that is not UTF-8.
    """
    found: list[str] = []
    position, end = 0, len(data)
    while position < end:
        if end - position < _LENGTH.size:
            raise InvalidInputError(f"{name}: {end - position} bytes are left after the last text.")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if length > end - position:
            raise InvalidInputError(
                f"{name}[{len(found)}]: its length says {length} bytes, {end - position} are left."
            )
        found.append(utf8(name, len(found), data[position : position + length]))
        position += length
    return found


def pack(tensor: OutputTensor) -> bytes:
    """The bytes of an output."""
    if isinstance(tensor.data, list):
        encoded = [label.encode() for label in tensor.data]
        return b"".join(part for label in encoded for part in (_LENGTH.pack(len(label)), label))
    return np.ascontiguousarray(tensor.data, dtype="<f4").tobytes()
