"""What a package carries of its proof is what its engine gives."""

import numpy as np

from contracts.endpoint import Precision
from contracts.manifest import TokenizerSpec
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts, Sides
from preprocess.padding import RowPadder
from registry.convert.parity.carried_proof import make_device_proof
from registry.convert.parity.engine import TokenisedTexts
from registry.convert.parity.proof import Comparison, Proof
from registry.convert.parity.verify import compare
from registry.packages.device_proof import unit


def test_rows_of_late_interaction_have_the_vectors_of_their_own_tokens() -> None:
    ids, left_out = [[1, 2, 3], [4, 5, 6, 7], [8, 9]], [[1], [], [0, 1]]
    ones = [1] * len(ids)
    sides = Sides([False] * 3, left_out, [(1, 1, 0, False)] * 3, mean=False)
    encoded = EncodedTexts(ids, None, [3, 4, 2], ones, ones, [False] * 3, sides=sides)
    given = unit(np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32))
    original = given[[0, 2, 3, 4, 5, 6]]  # without the tokens that are left out
    task = Task.MULTI_VECTOR_EMBEDDING
    parity = compare(
        task, original, original, precision=Precision.FP32, reference="o", batch_difference=0.0
    )
    texts = TokenisedTexts(
        encoded, RowPadder((), TokenizerSpec(max_tokens=8, pad_id=0, vocabulary=10)), (8,)
    )
    comparison = Comparison(task, False, texts, original, "o")
    made = make_device_proof(comparison, Proof(parity, None), type_ids=False)
    assert [row.ids for row in made.rows] == [(1, 2, 3), (4, 5, 6, 7)]
    assert made.check(made.rows, given[:7]) == ""
