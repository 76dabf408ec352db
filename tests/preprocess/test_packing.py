"""Packing loses nothing: the starts give every row back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.tasks import packed_inputs
from contracts.tensors import Datatype, TensorSpec
from preprocess.packing import RowPacker

TYPED, PLAIN = RowPacker(packed_inputs(type_ids=True)), RowPacker(packed_inputs(type_ids=False))
rows_of_ids = st.lists(st.lists(st.integers(0, 250_000), min_size=1, max_size=64), max_size=8)


@given(rows_of_ids)
def test_the_starts_give_every_row_back(rows: list[list[int]]) -> None:
    types = [[at % 2 for at in range(len(row))] for row in rows]
    tensors = TYPED.pack(rows, types)
    ids, starts = tensors["input_ids"], tensors["row_starts"]
    assert {ids.dtype, starts.dtype} == {np.dtype(np.int32)}
    assert tensors["token_type_ids"].dtype == np.uint8
    assert [part.tolist() for part in np.split(ids, starts[1:-1])] == (rows or [[]])
    assert [len(part) for part in np.split(tensors["token_type_ids"], starts[1:-1])] == [
        len(row) for row in rows or [[]]
    ]
    assert (starts[0], starts[-1]) == (0, len(ids))
    assert tensors["token_type_ids"].tolist() == [each for row in types for each in row]


def test_types_are_left_out_if_the_model_reads_none_or_all_are_0() -> None:
    assert list(PLAIN.pack([[1, 2]], [[0, 1]])) == ["input_ids", "row_starts"]
    assert list(TYPED.pack([[1, 2]])) == ["input_ids", "row_starts"]


def test_types_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="types"):
        TYPED.pack([[1, 2]], [[0]])


@pytest.mark.parametrize(
    "inputs",
    [
        packed_inputs(type_ids=False)[:1],
        (
            *packed_inputs(type_ids=False),
            TensorSpec(name="attention_mask", datatype=Datatype.INT32, shape=(-1,)),
        ),
        (
            TensorSpec(name="input_ids", datatype=Datatype.INT64, shape=(-1, -1)),
            TensorSpec(name="row_starts", datatype=Datatype.INT32, shape=(-1,)),
        ),
    ],
    ids=["no starts", "a mask", "padded rows"],
)
def test_inputs_that_are_not_a_packed_engines_are_refused(inputs: tuple[TensorSpec, ...]) -> None:
    with pytest.raises(ValueError, match="packed engine"):
        RowPacker(inputs)
