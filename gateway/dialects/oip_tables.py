"""Rows of tables in the Open Inference Protocol, for both HTTP and gRPC.

Either one input for each feature, by its name, of shape ``[N]`` or ``[N, 1]``, or a single input of
numbers of shape ``[N, features]`` in the model's order, under any other name. NaN is a missing
value. Everything here is a function of values.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from contracts.features import Feature, FeatureKind
from gateway.calls import EndpointView, Query
from gateway.dialects.oip import check_count, unpack_texts
from gateway.dialects.reading import check_texts
from gateway.errors import BadRequestError, InvalidInputError

_NUMPY = {
    "BOOL": "?",
    **{f"{sign}INT{bits}": f"<{kind}{bits // 8}" for bits in (8, 16, 32, 64)
       for sign, kind in (("", "i"), ("U", "u"))},
    **{f"FP{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}  # fmt: skip
_TEXT = "BYTES"
_NUMBERS = frozenset(_NUMPY) - {"BOOL"}
_TAKEN = {
    FeatureKind.NUMBER: _NUMBERS,
    FeatureKind.INTEGER: _NUMBERS,
    FeatureKind.BOOLEAN: frozenset(_NUMPY),
    FeatureKind.CATEGORY: frozenset({_TEXT}),
}


@dataclass(frozen=True, slots=True)
class Column:
    """An input whose elements are read, row-major."""

    name: str
    datatype: str
    shape: Sequence[int]
    values: list[Any]


def flat(name: str, data: list[Any]) -> list[Any]:
    """The elements of JSON data, which may be nested once; raises ``InvalidInputError``."""
    if any(isinstance(each, list) for each in data):
        if not all(isinstance(each, list) for each in data):
            raise InvalidInputError(f"{name}.data: some elements are arrays and others are not.")
        return list(chain.from_iterable(data))
    return data


def check_shape(name: str, shape: Sequence[int], view: EndpointView) -> int:
    """How many elements an input must hold by its shape.

    Raises:
        InvalidInputError: other than ``[N]`` and ``[N, M]``.
        TooLargeError: more rows than the endpoint takes, or elements than such rows have.
    """
    if len(shape) not in (1, 2) or min(shape) < 0:
        raise InvalidInputError(f"{name}.shape: expected [N] or [N, M], got {list(shape)[:8]}.")
    check_texts(shape[0], view)
    if len(shape) == 2 and shape[1] > max(1, len(view.features)):
        raise InvalidInputError(
            f"{name}.shape: {shape[1]} elements a row, and {view.name} reads {len(view.features)}."
        )
    return math.prod(shape)


def unpack(name: str, datatype: str, data: bytes, expected: int) -> list[Any]:
    """The elements of a tensor's bytes, as many as its shape says.

    Raises:
        BadRequestError: another datatype than the protocol's.
        InvalidInputError: not a whole number of elements, or another number than expected.
    """
    if datatype == _TEXT:
        return unpack_texts(name, data, expected)
    dtype = np.dtype(_known(name, datatype))
    if len(data) % dtype.itemsize:
        raise InvalidInputError(f"{name}: {len(data)} bytes are no whole number of {datatype}.")
    check_count(name, expected, len(data) // dtype.itemsize)
    elements: list[Any] = np.frombuffer(data, dtype).tolist()
    return elements


def query(tensors: Sequence[Column], features: Sequence[Feature]) -> Query:
    """The rows of a request's inputs, as JSON: what of them a version can read, it says itself.

    Raises:
        BadRequestError: an input that is no feature, or of a datatype that its feature can't have.
        InvalidInputError: an input that is there twice, has another shape or an infinite number.
    """
    by_name = {feature.name: feature for feature in features}
    if len(tensors) == 1 and tensors[0].name not in by_name:
        return _rows(_matrix(tensors[0], features))
    columns: dict[str, list[Any]] = {}
    for tensor in tensors:
        feature = by_name.get(tensor.name)
        if feature is None:
            named = ", ".join(list(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
            raise BadRequestError(
                f"inputs: there is no feature {tensor.name[:80]!r}; the model reads {named}."
            )
        if tensor.name in columns:
            raise InvalidInputError(f"inputs: {tensor.name} is there twice.")
        columns[tensor.name] = _column(tensor, feature)
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        told = ", ".join(f"{name} {len(values)}" for name, values in list(columns.items())[:5])
        raise InvalidInputError(f"inputs: each has one element a row, and they have {told}.")
    rows = zip(*columns.values(), strict=True)
    return _rows(dict(zip(columns, row, strict=True)) for row in rows)


def _column(tensor: Column, feature: Feature) -> list[Any]:
    name, shape = tensor.name, list(tensor.shape)
    if tensor.datatype not in _TAKEN[feature.kind]:
        raise BadRequestError(
            f"{name}.datatype: the feature is of the kind {feature.kind}, expected "
            f"{feature.datatype}, got {tensor.datatype[:40]!r}."
        )
    if len(shape) not in (1, 2) or shape[0] < 0 or (len(shape) == 2 and shape[1] != 1):
        raise InvalidInputError(f"{name}.shape: expected [N] or [N, 1], got {shape[:8]}.")
    check_count(name, shape[0], len(tensor.values))
    return _finite(name, tensor.values)


def _matrix(tensor: Column, features: Sequence[Feature]) -> Iterator[list[Any]]:
    name, shape, width = tensor.name, list(tensor.shape), len(features)
    _known(name, tensor.datatype)
    if len(shape) != 2 or shape[0] < 0 or shape[1] != width:
        raise InvalidInputError(
            f"{name}.shape: it is no feature, so that it must hold all of them: expected "
            f"[N, {width}], got {shape[:8]}."
        )
    check_count(name, shape[0] * width, len(tensor.values))
    values = _finite(name, tensor.values)
    return (values[start : start + width] for start in range(0, len(values), width))


def _known(name: str, datatype: str) -> str:
    found = _NUMPY.get(datatype)
    if found is None:
        raise BadRequestError(
            f"{name}.datatype: expected one of {', '.join(sorted(_NUMPY))}, got {datatype[:40]!r}."
        )
    return found


def _finite(name: str, values: list[Any]) -> list[Any]:
    """The values; NaN and infinity would both be null in JSON, and only one of them is missing."""
    for index, value in enumerate(values):
        if isinstance(value, float) and math.isinf(value):
            raise InvalidInputError(f"{name}[{index}]: expected a finite number, got {value}.")
    return values


def _rows(rows: Iterable[Any]) -> Query:
    """The rows as JSON, of which one at a time is anything else."""
    return Query([msgspec.json.encode(row).decode() for row in rows], are_rows=True)
