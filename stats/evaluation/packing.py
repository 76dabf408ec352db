"""What is known of an endpoint as bytes: dataclasses with arrays, which later fields don't break.

A field that the bytes lack has its default, and one that nobody knows is passed over. Pure.
"""

import struct
import zlib
from collections import deque
from typing import Any, TypeVar, get_args, get_origin

import msgspec
import numpy as np

from measures.rhythm import Rhythm
from stats.evaluation.board import DriftPoint

_T = TypeVar("_T")
_POINT = struct.Struct("<dff")  # of a chart: 1440 of each statistic
SCHEMA_VERSION = 1


def pack(known: object) -> bytes:
    """The bytes."""
    plain = msgspec.msgpack.encode([SCHEMA_VERSION, known], enc_hook=_to_plain)
    return zlib.compress(plain, 1)


def unpack(packed: bytes, kind: type[_T]) -> _T:
    """What ``pack`` was given.

    Raises:
        ValueError: it is nothing of this kind, or of another schema version.
    """
    try:
        version, known = msgspec.msgpack.decode(
            zlib.decompress(packed), type=tuple[int, msgspec.Raw]
        )
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema version {version} is not known")
        return msgspec.msgpack.decode(known, type=kind, dec_hook=_read)
    except (msgspec.MsgspecError, zlib.error, struct.error, TypeError) as error:
        raise ValueError(str(error)) from error


def _to_plain(value: Any) -> object:  # noqa: ANN401 - whatever msgspec does not know
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, deque):
        if value and isinstance(value[0], DriftPoint):
            return value.maxlen, b"".join(_POINT.pack(p.at, p.psi, p.ratio) for p in value)
        return value.maxlen, list(value)
    if isinstance(value, Rhythm):
        # Counts are whole for two weeks, and need not be exact to more than that.
        return value.totals.astype(np.float32), value.days
    raise NotImplementedError(f"{type(value).__name__} can't be packed")


def _read(kind: Any, plain: Any) -> object:  # noqa: ANN401 - an annotation, and what lies there
    origin = get_origin(kind) or kind
    if origin is np.ndarray:
        code, shape, data = plain
        return np.frombuffer(data, code).reshape(shape).copy()
    if origin is deque:
        most, items = plain
        if isinstance(items, bytes):
            return deque((DriftPoint(*point) for point in _POINT.iter_unpack(items)), most)
        (item,) = get_args(kind)
        return deque(msgspec.convert(items, list[item], dec_hook=_read), most)
    if origin is Rhythm:
        totals, days = (_read(np.ndarray, part) for part in plain)
        return Rhythm.of(np.asarray(totals, np.float64), np.asarray(days))
    raise NotImplementedError(f"{kind} can't be read")
