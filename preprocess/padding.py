"""Rows of one length bucket -> the tensors that the engine's graph declares.

It never truncates and never chooses the length.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.manifest import TokenizerSpec
from contracts.tasks import ATTENTION_MASK, ENGINE_INPUTS, INPUT_IDS
from contracts.tensors import Datatype, TensorSpec

Tensor = NDArray[np.signedinteger[Any]]

# For struct, which turns a list of integers into bytes twice as fast as numpy or array does.
_CODES: dict[Datatype, tuple[str, type[np.signedinteger[Any]]]] = {
    Datatype.INT64: ("q", np.int64),
    Datatype.INT32: ("i", np.int32),
}


class RowPadder:
    """Pads rows for one package. Stateless after construction; safe from any thread."""

    def __init__(self, inputs: Sequence[TensorSpec], tokenizer: TokenizerSpec) -> None:
        """Takes the graph's inputs as the manifest lists them.

        Raises:
            ValueError: an input that is not one of ``contracts.tasks.ENGINE_INPUTS``, or neither
                INT64 nor INT32.
        """
        for spec in inputs:
            if spec.name not in ENGINE_INPUTS:
                raise ValueError(f"input {spec.name} is none of {', '.join(ENGINE_INPUTS)}")
            if spec.datatype not in _CODES:
                raise ValueError(f"input {spec.name} is {spec.datatype}, not INT64 or INT32")
        self._datatypes = {spec.name: spec.datatype for spec in inputs}
        self._pad_id = tokenizer.pad_id
        self._pad_type_id = tokenizer.pad_type_id

    def pad(
        self,
        rows: Sequence[Sequence[int]],
        length: int,
        type_rows: Sequence[Sequence[int]] | None = None,
    ) -> dict[str, Tensor]:
        """One tensor for each input of the graph, in the manifest's order.

        Args:
            rows: token ids, each of at most ``length``.
            length: the bucket's edge.
            type_rows: token type ids of the same lengths; all 0 where None.

        Returns:
            int64 or int32 ``[len(rows), length]`` arrays: ids, then ``pad_id``; 1, then 0 as the
            attention mask; types, then ``pad_type_id``. Some are read-only.

        Raises:
            ValueError: a row is longer than ``length``, or types are not as long as their row.
        """
        lengths = [len(row) for row in rows]
        if lengths and max(lengths) > length:
            raise ValueError(f"a row of {max(lengths)} tokens does not fit in {length}")
        if type_rows is not None and [len(row) for row in type_rows] != lengths:
            raise ValueError("each row of types must be as long as its row of ids")
        tensors: dict[str, Tensor] = {}
        for name, datatype in self._datatypes.items():
            if name == INPUT_IDS:
                tensors[name] = _fill(rows, length, self._pad_id, datatype)
            elif name == ATTENTION_MASK:
                tensors[name] = _mask(lengths, length, datatype)
            elif type_rows is None and self._pad_type_id == 0:
                tensors[name] = np.zeros((len(rows), length), dtype=_CODES[datatype][1])
            else:
                types = type_rows if type_rows is not None else [[0] * n for n in lengths]
                tensors[name] = _fill(types, length, self._pad_type_id, datatype)
        return tensors


def _fill(rows: Sequence[Sequence[int]], length: int, pad: int, datatype: Datatype) -> Tensor:
    code, dtype = _CODES[datatype]
    flat: list[int] = []
    for row in rows:
        flat += row
        flat += [pad] * (length - len(row))
    packed = struct.pack(f"{len(flat)}{code}", *flat)
    return np.frombuffer(packed, dtype=dtype).reshape(len(rows), length)


def _mask(lengths: Sequence[int], length: int, datatype: Datatype) -> Tensor:
    ends = np.asarray(lengths, dtype=np.int64).reshape(-1, 1)
    mask: Tensor = (np.arange(length) < ends).astype(_CODES[datatype][1])
    return mask
