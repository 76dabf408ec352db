"""Padding loses nothing: the mask gives every row back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.manifest import TokenizerSpec
from contracts.tensors import Datatype, TensorSpec
from preprocess.padding import RowPadder

SPEC = TokenizerSpec(max_tokens=32, pad_id=9, pad_type_id=0, unk_id=1, vocabulary=100)
rows_of_ids = st.lists(st.lists(st.integers(0, 30_000), min_size=1, max_size=32), max_size=8)


def inputs(*names: str, datatype: Datatype = Datatype.INT64) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, datatype=datatype, shape=(-1, -1)) for name in names)


@given(rows_of_ids, st.sampled_from([(Datatype.INT64, np.int64), (Datatype.INT32, np.int32)]))
def test_the_mask_gives_every_row_back(
    rows: list[list[int]], kinds: tuple[Datatype, type[np.int64]]
) -> None:
    datatype, dtype = kinds
    padder = RowPadder(inputs("input_ids", "attention_mask", datatype=datatype), SPEC)
    tensors = padder.pad(rows, 32)
    assert list(tensors) == ["input_ids", "attention_mask"]
    for tensor in tensors.values():
        assert tensor.shape == (len(rows), 32)
        assert tensor.dtype == dtype
        assert tensor.flags.c_contiguous
    mask = tensors["attention_mask"]
    for row, ids, real in zip(rows, tensors["input_ids"], mask, strict=True):
        assert ids[real == 1].tolist() == row
        assert set(ids[real == 0].tolist()) <= {9}
        assert real.tolist() == sorted(real.tolist(), reverse=True)


def test_only_declared_inputs_are_made_in_the_graphs_order() -> None:
    padder = RowPadder(inputs("attention_mask", "input_ids"), SPEC)
    assert list(padder.pad([[1]], 2)) == ["attention_mask", "input_ids"]
    with_types = RowPadder(inputs("input_ids", "token_type_ids"), SPEC)
    assert list(with_types.pad([[1]], 2)) == ["input_ids", "token_type_ids"]


def test_types_are_0_unless_given() -> None:
    padder = RowPadder(inputs("token_type_ids", datatype=Datatype.INT32), SPEC)
    assert padder.pad([[5, 6], [7]], 3)["token_type_ids"].tolist() == [[0, 0, 0], [0, 0, 0]]
    given_types = padder.pad([[5, 6], [7]], 3, [[0, 1], [2]])["token_type_ids"]
    assert given_types.tolist() == [[0, 1, 0], [2, 0, 0]]
    assert given_types.dtype == np.int32


def test_types_are_padded_with_their_own_id() -> None:
    spec = SPEC.model_copy(update={"pad_type_id": 4})
    padder = RowPadder(inputs("token_type_ids"), spec)
    assert padder.pad([[5, 6]], 3)["token_type_ids"].tolist() == [[0, 0, 4]]
    assert padder.pad([[5, 6]], 3, [[2, 2]])["token_type_ids"].tolist() == [[2, 2, 4]]


def test_a_row_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 tokens does not fit in 2"):
        RowPadder(inputs("input_ids"), SPEC).pad([[1, 2, 3]], 2)


def test_types_of_another_length_are_an_error() -> None:
    with pytest.raises(ValueError, match="as long as its row"):
        RowPadder(inputs("token_type_ids"), SPEC).pad([[1, 2]], 2, [[0]])


def test_an_input_that_nobody_can_fill_is_refused() -> None:
    with pytest.raises(ValueError, match="position_ids is none of"):
        RowPadder(inputs("position_ids"), SPEC)
    with pytest.raises(ValueError, match="FP32, not INT64"):
        RowPadder(inputs("input_ids", datatype=Datatype.FP32), SPEC)
