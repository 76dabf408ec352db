"""A package's proof lets an engine pass that answers as the original, and no other."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.manifest import DEVICE_PROOF
from contracts.tasks import INPUT_IDS, ROW_STARTS, TOKEN_TYPE_IDS, Task
from preprocess.tasks import HEADS
from registry.packages import device_proof
from registry.packages.device_proof import (
    MOST_BYTES,
    MOST_ROWS,
    MOST_VALUES,
    DeviceProof,
    DeviceProofError,
    ProofRow,
    ReferenceRow,
    packed_batch,
    proof_of,
)

Floats = NDArray[np.float32]
LIMITS = {
    "max_abs_difference": 0.02,
    "mean_abs_difference": 2e-3,
    "min_cosine": 0.999,
    "min_neighbours": 0.98,
    "min_equal_labels": 0.99,
    "batch_max_abs_difference": 1e-3,
}


def vectors(count: int, *, width: int = 8, seed: int = 0) -> Floats:
    made = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    return device_proof.unit(made)


def proof(values: Floats, task: Task = Task.TEXT_EMBEDDING) -> DeviceProof:
    """One row of values each, of 1, 2, 3, ... tokens."""
    references = [
        ReferenceRow([7] * (place + 1), None, values[place : place + 1])
        for place in range(len(values))
    ]
    return proof_of(
        references, task=task, multi_label=False, type_ids=True, scale=1.0, limits=LIMITS
    )


def outputs(made: DeviceProof, rows: Sequence[ProofRow]) -> Floats:
    """What an engine without a fault gives."""
    return np.array([each for row in rows for each in row.values], np.float32)


def test_an_engine_that_answers_as_the_original_passes_alone_and_in_company() -> None:
    made = proof(vectors(40))
    assert [made.check(rows, outputs(made, rows)) for rows in made.batches()] == ["", "", ""]
    shortest, longest, everything = made.batches()
    assert (len(shortest[0].ids), len(longest[0].ids)) == (1, 40)
    assert len(everything) == MOST_ROWS


def test_a_proof_of_one_row_is_run_once() -> None:
    made = proof(vectors(1))
    assert [len(rows) for rows in made.batches()] == [1]


@given(st.integers(0, MOST_ROWS - 1), st.integers(0, 7))
def test_one_wrong_value_in_any_row_is_refused(row: int, column: int) -> None:
    made = proof(vectors(MOST_ROWS))
    *_, rows = made.batches()
    values = outputs(made, rows)
    values[row, column] += 0.03
    assert made.check(rows, values).startswith("max abs difference to the original is 0.03")


def test_answers_that_changed_places_are_refused() -> None:
    made = proof(vectors(MOST_ROWS))
    *_, rows = made.batches()
    assert made.check(rows, np.roll(outputs(made, rows), 1, axis=0))


def test_vectors_of_another_direction_are_refused_by_their_cosine() -> None:
    made = proof(vectors(4)).model_copy(update={"limits": {"min_cosine": 0.999}})
    *_, rows = made.batches()
    values = outputs(made, rows)
    values[2] = -values[2]
    assert made.check(rows, values) == "cosine to the original is -1, and the limit is 0.999"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    made = proof(vectors(3))
    *_, rows = made.batches()
    values = outputs(made, rows)
    values[1, 1] = wrong
    assert made.check(rows, values) == "the engine gave NaN or infinity for 1 texts"


def test_values_of_another_shape_are_refused() -> None:
    made = proof(vectors(3))
    *_, rows = made.batches()
    assert made.check(rows, outputs(made, rows)[:2]) == "it gave [2, 8] values and not [3, 8]"


def test_logits_are_judged_by_the_probabilities_that_callers_see() -> None:
    logits = np.array([[30.0, -30.0], [0.0, 0.0]], np.float32)
    original = HEADS[Task.TEXT_CLASSIFICATION].values(logits, width=2)
    made = proof(original, Task.TEXT_CLASSIFICATION)
    assert made.check(made.rows, logits + np.array([[1.0, 0.0], [0.0, 0.0]], np.float32)) == ""
    far = made.check(made.rows, logits + np.array([[0.0, 0.0], [1.0, 0.0]], np.float32))
    assert far.startswith("max abs difference to the original is 0.231")


def test_values_of_tokens_are_compared_token_by_token() -> None:
    logits = vectors(5, width=3)
    head = HEADS[Task.TOKEN_CLASSIFICATION]
    values = head.values(logits[np.newaxis], width=3)[0]
    references = [ReferenceRow([1, 2], None, values[:2]), ReferenceRow([1, 2, 3], None, values[2:])]
    made = proof_of(
        references,
        task=Task.TOKEN_CLASSIFICATION,
        multi_label=False,
        type_ids=False,
        scale=1.0,
        limits=LIMITS,
    )
    assert made.check(made.rows, logits) == ""
    assert made.check(made.rows, logits[::-1])


def test_a_row_says_words_and_labels_by_its_type_ids_as_gliner_has_it() -> None:
    types = [0, -1, -(1 << 20) - 300, 300]
    made = proof_of(
        [ReferenceRow([1, 2, 3, 4], types, vectors(4))],
        task=Task.ENTITY_RECOGNITION,
        multi_label=False,
        type_ids=True,
        scale=1.0,
        limits={},
    )
    read_again = DeviceProof.model_validate_json(made.model_dump_json())
    assert read_again.rows[0].type_ids == tuple(types)


def test_tokens_that_are_no_part_of_an_answer_are_not_compared() -> None:
    given = vectors(5)
    references = [
        ReferenceRow([1, 2, 3], None, given[[0, 2]], left_out=[1]),
        ReferenceRow([4, 5], None, given[3:]),
    ]
    made = proof_of(
        references,
        task=Task.MULTI_VECTOR_EMBEDDING,
        multi_label=False,
        type_ids=False,
        scale=1.0,
        limits=LIMITS,
    )
    rows = sorted(made.rows, key=lambda row: row.ids)
    assert made.check(rows, given) == ""
    assert made.check(rows, given[[0, 2, 1, 3, 4]])


def test_a_proof_of_wide_values_has_few_rows_and_still_the_longest() -> None:
    wide = np.ones((20, MOST_VALUES // 4), np.float32)
    made = proof(wide, Task.SPARSE_EMBEDDING)
    assert [len(row.ids) for row in made.rows] == [1, 7, 13, 20]


def test_what_needs_many_texts_is_no_limit_of_a_proof() -> None:
    assert proof(vectors(2)).limits.keys() == {
        *("max_abs_difference", "mean_abs_difference", "min_cosine"),
    }


def test_a_proof_is_read_from_its_package_as_it_was_written(tmp_path: Path) -> None:
    assert device_proof.read(tmp_path) is None
    made = proof(vectors(3))
    (tmp_path / DEVICE_PROOF).write_text(made.model_dump_json(), encoding="utf-8")
    assert device_proof.read(tmp_path) == made


def test_a_file_that_is_no_proof_is_told(tmp_path: Path) -> None:
    (tmp_path / DEVICE_PROOF).write_text('{"rows": []}', encoding="utf-8")
    with pytest.raises(DeviceProofError, match=r"^proof.json of the package can't be read: "):
        device_proof.read(tmp_path)


@pytest.mark.parametrize(
    "row",
    [
        '{"ids": [1099511627776], "values": [[1.0]]}',
        '{"ids": [-1], "values": [[1.0]]}',
        '{"ids": [1], "type_ids": [2147483648], "values": [[1.0]]}',
        '{"ids": [1, 2], "type_ids": [0], "values": [[1.0]]}',
    ],
)
def test_a_row_that_no_engine_takes_is_no_proof(tmp_path: Path, row: str) -> None:
    written = json.loads(proof(vectors(1)).model_dump_json())
    written["rows"] = [json.loads(row)]
    (tmp_path / DEVICE_PROOF).write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(DeviceProofError, match="can't be read"):
        device_proof.read(tmp_path)


def test_a_proof_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / DEVICE_PROOF).open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(DeviceProofError, match="bytes"):
        device_proof.read(tmp_path)


ROWS = st.lists(st.lists(st.integers(0, 30000), min_size=1, max_size=9), min_size=1, max_size=9)


@given(ROWS)
def test_rows_follow_one_another_and_each_is_found_again(rows: list[list[int]]) -> None:
    batch = packed_batch(rows, [[each % 2 for each in row] for row in rows])
    starts = batch[ROW_STARTS]
    assert [str(each.dtype) for each in batch.values()] == ["int32", "int32", "uint8"]
    found = [batch[INPUT_IDS][begin:end].tolist() for begin, end in pairwise(starts)]
    assert found == rows
    assert batch[TOKEN_TYPE_IDS].tolist() == [each % 2 for row in rows for each in row]


def test_a_model_without_type_ids_gets_none() -> None:
    assert packed_batch([[1]], None).keys() == {INPUT_IDS, ROW_STARTS}


def test_rows_keep_the_type_ids_that_are_not_all_zero() -> None:
    values = vectors(2)
    made = proof_of(
        [ReferenceRow([1, 2], [0, 1], values[:1]), ReferenceRow([3], [0], values[1:])],
        task=Task.TEXT_EMBEDDING,
        multi_label=False,
        type_ids=True,
        scale=1.0,
        limits=LIMITS,
    )
    assert [row.type_ids for row in made.rows] == [None, (0, 1)]
    assert made.tensors(made.rows)[TOKEN_TYPE_IDS].tolist() == [0, 0, 1]
