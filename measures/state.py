"""States of tests as JSON: structs of arrays, numbers and other states, stored bit by bit.

They lie in an endpoint's status or in a file between two passes, so that a field's name in JSON
never changes.
"""

from collections.abc import Mapping
from typing import Any, Protocol, Self, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray


class SequentialState(msgspec.Struct, frozen=True, dict=True):
    """What a test knows; a change makes a new one (``msgspec.structs.replace``)."""

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists; ``of_json`` gives the same state back, bit by bit."""
        parts = msgspec.to_builtins(self, str_keys=True, order="deterministic", enc_hook=_to_plain)
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(parts))  # no tuples in it
        return plain

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        """The state that ``to_json`` told.

        Raises:
            ValueError: a part is missing, or is of another kind.
        """
        try:
            return msgspec.convert(data, cls, str_keys=True, dec_hook=_read)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error


class OwnForm(Protocol):
    """A part of a state that is stored in a form of its own."""

    def to_json(self) -> object:
        """Plain numbers, lists and dictionaries."""

    @classmethod
    def of_json(cls, data: Any) -> Self:  # noqa: ANN401 - what the part itself wrote
        """The part that ``to_json`` told."""


# JSON has no infinity: minus infinity, the logarithm of no evidence, is written as null.


def _to_plain(value: NDArray[Any] | np.generic | OwnForm) -> object:
    if not isinstance(value, np.ndarray | np.generic):
        return value.to_json()
    array: NDArray[Any] = np.asarray(value)
    return np.where(np.isneginf(array), None, array).tolist()  # type: ignore[call-overload]


def _read(kind: Any, plain: object) -> NDArray[Any] | OwnForm:  # noqa: ANN401 - an annotation
    if hasattr(kind, "of_json"):
        part: OwnForm = kind.of_json(plain)
        return part
    (dtype,) = get_args(get_args(kind)[1])
    found = np.array(plain, dtype=dtype)
    if issubclass(dtype, np.floating):
        found[np.isnan(found)] = -np.inf
    return found
