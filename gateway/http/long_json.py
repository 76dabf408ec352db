"""JSON of answers, whose numbers may lie in arrays of numpy; of long ones in steps.

msgspec writes an answer of megabytes in one step, in which no other thread of Python runs. Here it
takes steps of some thousands of numbers, or of a quarter of a million of characters.
"""

from collections.abc import Iterator
from itertools import chain
from time import sleep
from typing import Any

import msgspec
import numpy as np

_STEP_NUMBERS = 8192
_STEP_ELEMENTS = 1024
_STEP_CHARACTERS = 256 * 1024
_LONG_PART_BYTES = 4096
_SCALARS = frozenset({float, int, str, bool, type(None)})


def _listable(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON is made of {type(value)}")


_encoder = msgspec.json.Encoder(enc_hook=_listable)


def encode_answer(value: object) -> bytes:
    """Compact JSON, UTF-8."""
    return _encoder.encode(value)


def encode_long(value: object) -> bytes:
    """The same bytes as ``encode_answer``, in steps. For a thread: it pauses between them."""
    parts: list[bytes] = []
    for part in _parts(value):
        parts.append(part)
        if len(part) > _LONG_PART_BYTES:
            sleep(0)
    return b"".join(parts)


def _parts(value: Any) -> Iterator[bytes]:  # noqa: ANN401 - whatever becomes JSON
    kind = type(value)
    if kind is np.ndarray and value.size > _STEP_NUMBERS:
        yield from _join(b"[", map(_parts, value) if value.ndim > 1 else _numbers(value), b"]")
    elif kind is list and len(value) > 0:
        yield from _join(b"[", _elements(value), b"]")
    elif kind is dict and value:
        fields = (_field(name, inner) for name, inner in value.items())
        yield from _join(b"{", fields, b"}")
    elif kind is str and len(value) > _STEP_CHARACTERS:
        starts = range(0, len(value), _STEP_CHARACTERS)
        pieces = (_encoder.encode(value[at : at + _STEP_CHARACTERS])[1:-1] for at in starts)
        yield from chain((b'"',), pieces, (b'"',))
    else:
        yield _encoder.encode(value)


def _join(begin: bytes, items: Iterator[Iterator[bytes]], end: bytes) -> Iterator[bytes]:
    separator = begin
    for item in items:
        yield separator
        yield from item
        separator = b","
    yield end


def _numbers(value: Any) -> Iterator[Iterator[bytes]]:  # noqa: ANN401 - an array of one dimension
    for start in range(0, len(value), _STEP_NUMBERS):
        yield iter((_encoder.encode(value[start : start + _STEP_NUMBERS])[1:-1],))


def _elements(value: list[Any]) -> Iterator[Iterator[bytes]]:
    for start in range(0, len(value), _STEP_ELEMENTS):
        yield from _steps(value[start : start + _STEP_ELEMENTS])


def _steps(values: list[Any]) -> Iterator[Iterator[bytes]]:
    characters = _characters(values)
    if characters is None or (len(values) == 1 and characters > _STEP_CHARACTERS):
        yield from map(_parts, values)
    elif characters <= _STEP_CHARACTERS:
        yield iter((_encoder.encode(values)[1:-1],))
    else:
        half = len(values) // 2
        yield from _steps(values[:half])
        yield from _steps(values[half:])


def _characters(values: list[Any]) -> int | None:
    """Of scalars, or objects of scalars; ``None`` if other values are among them."""
    kinds = set(map(type, values))
    if kinds == {dict}:
        values = list(chain.from_iterable(map(dict.values, values)))
        kinds = set(map(type, values))
    if not kinds <= _SCALARS:
        return None
    return sum(len(each) for each in values if type(each) is str) if str in kinds else 0


def _field(name: str, value: object) -> Iterator[bytes]:
    yield _encoder.encode(name) + b":"
    yield from _parts(value)
