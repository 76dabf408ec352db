"""Queries and documents are read apart, and scored as late interaction scores them."""

from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tiny_models import VOCABULARY, asking_tokenizer

from contracts.manifest import QueryDocumentSpec, TokenizerSpec
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.late_interaction import (
    QueryDocumentEncoder,
    answered_vectors,
    maxsim,
    mean_distance,
    scores_of_pairs,
    vectors_of_texts,
)
from preprocess.tasks import HEADS
from preprocess.tasks.head import Side
from preprocess.tokeniser_process.messages import Rows, encoded_of, rows_of

FILL = VOCABULARY  # behind the last token
_IDS = asking_tokenizer().get_vocab()
THE, GOOD = _IDS["the"], _IDS["good"]
_numbers = st.floats(-4, 4, width=32)


def vectors(most: int = 6, least: int = 0) -> Any:
    return hnp.arrays(
        np.float32, st.tuples(st.integers(least, most), st.just(3)), elements=_numbers
    )


def encoder(max_tokens: int = 16, **sides: Any) -> QueryDocumentEncoder:
    usual = {"query_tokens": 6, "document_tokens": 12, "left_out": (THE,)}
    spec = TokenizerSpec(
        max_tokens=max_tokens, pad_id=0, unk_id=1, vocabulary=VOCABULARY,
        prompts={"query": "good ", "document": "film "}, default_prompt="document",
        sides=QueryDocumentSpec.model_validate(usual | sides),
    )  # fmt: skip
    return QueryDocumentEncoder(asking_tokenizer().to_str().encode(), spec)


def number_tokens(encoded: EncodedTexts) -> NDArray[np.float32]:
    """A vector for each token, by its place among all."""
    return np.arange(sum(encoded.tokens) * 2, dtype=np.float32).reshape(-1, 2)


def test_a_query_is_filled_up_and_a_document_is_not() -> None:
    made = encoder(filled_to=6, fill_id=FILL)
    query = made.encode_prompted(["soup"], prompt_name="query")
    assert query.ids[0][-2:] == [FILL, FILL]
    assert (query.tokens, query.ids[0][1]) == ([6], GOOD)
    document = made.encode_prompted(["soup"])
    assert document.tokens == [4]
    assert FILL not in document.ids[0]
    long = made.encode_prompted(["soup " * 9], prompt_name="query")
    assert (long.tokens, long.truncated, FILL in long.ids[0]) == ([6], [True], False)


def test_each_side_is_cut_to_its_own_length() -> None:
    made = encoder()
    assert made.encode_prompted(["soup " * 20], prompt_name="query").tokens == [6]
    assert made.encode_prompted(["soup " * 20], prompt_name="document").tokens == [12]
    assert made.encode_prompted(["soup " * 20], prompt_name="document").truncated == [True]


def test_vectors_of_some_tokens_are_left_out_of_the_sides_that_say_so() -> None:
    texts = ["the good the film"]
    for of_queries, of_documents in product((False, True), repeat=2):
        made = encoder(left_out_of_queries=of_queries, left_out_of_documents=of_documents)
        for queries, left_out in ((True, of_queries), (False, of_documents)):
            encoded = made.encode_sided(texts, queries=queries)
            (kept,) = answered_vectors(encoded, number_tokens(encoded))
            places = [at for at, token in enumerate(encoded.ids[0]) if token != THE or not left_out]
            np.testing.assert_array_equal(kept, number_tokens(encoded)[places])


def test_only_some_tokens_of_documents_are_answered_if_there_are_such() -> None:
    made = encoder(only=(GOOD,), left_out=())
    encoded = made.encode_sided(["a good film"], queries=False)
    (kept,) = answered_vectors(encoded, number_tokens(encoded))
    np.testing.assert_array_equal(kept, number_tokens(encoded)[[encoded.ids[0].index(GOOD)]])
    query = made.encode_sided(["a good film"], queries=True)
    assert len(answered_vectors(query, number_tokens(query))[0]) == query.tokens[0]


def test_documents_with_one_query_share_its_row_and_each_pair_has_its_statistics() -> None:
    made = encoder(filled_to=6, fill_id=FILL)
    query, documents = "soup", ["the soup", "good film", ""]
    encoded = made.encode_prompted([query] * 3, documents)
    assert encoded.sides is not None
    assert encoded.sides.queries == [True, False, False, False]
    one_by_one = [made.encode_prompted([query], prompt_name="query")] + [
        made.encode_prompted([each]) for each in documents
    ]
    assert encoded.ids == [each.ids[0] for each in one_by_one]
    tokens = [6 + each.tokens[0] for each in one_by_one[1:]]
    assert [each[0] for each in encoded.statistics()] == tokens
    assert encoded.truncated_texts() == [False] * 3
    other = made.encode_prompted(["a", "b"], ["c", "d"])
    assert other.sides is not None
    assert other.sides.queries == [True, False, True, False]


def test_what_a_process_of_its_own_reads_is_the_same() -> None:
    texts, pairs = ["soup", "film"], ["the soup", "good"]
    encoded = encoder().encode_prompted(texts, pairs)
    sent = msgspec.msgpack.encode(rows_of(encoded, None))
    assert encoded_of(msgspec.msgpack.decode(sent, type=Rows), texts, pairs) == encoded


@given(vectors(), vectors(), st.booleans())
def test_a_score_is_the_sum_of_each_tokens_best_product(
    query: NDArray[np.float32], document: NDArray[np.float32], mean: bool
) -> None:
    best = [max(float(one @ other) for other in document) for one in query if len(document)]
    score = sum(best) if len(document) else -1e9
    expected = score / max(1, len(query)) if mean else score
    assert maxsim(query, document, mean=mean) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@given(vectors(least=1))
def test_a_text_is_no_distance_from_itself(found: NDArray[np.float32]) -> None:
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    ones = np.where(lengths > 1e-3, found / np.maximum(lengths, 1e-3), [[1, 0, 0]])
    same = ones.astype(np.float32)
    assert mean_distance(same, same) == pytest.approx(0, abs=1e-5)
    assert mean_distance(same, same[:0]) == 1
    assert mean_distance(same[:0], same[:0]) == 0


def test_pairs_are_scored_by_their_own_query() -> None:
    encoded = encoder().encode_prompted(["soup", "soup film"], ["the good", "the"])
    values = number_tokens(encoded)
    rows = answered_vectors(encoded, values)
    expected = [maxsim(rows[0], rows[1]), maxsim(rows[2], rows[3])]
    np.testing.assert_allclose(scores_of_pairs(encoded, values), expected)
    assert [len(each) for each in vectors_of_texts(encoded, values)] == [len(rows[1]), len(rows[3])]


def test_a_text_is_recorded_once_however_many_rows_it_has() -> None:
    head = HEADS[Task.MULTI_VECTOR_EMBEDDING]
    encoded = encoder().encode_prompted(["soup", "soup"], ["the good film", "a"])
    values = number_tokens(encoded)
    records = head.records(encoded, values, ())
    means = [each.mean(axis=0) for each in vectors_of_texts(encoded, values)]
    assert [each.norm for each in records] == pytest.approx([np.linalg.norm(one) for one in means])
    side = Side(values, (), encoded=encoded)
    assert head.difference(side, side).distance == pytest.approx([0, 0], abs=1e-6)
    wider = Side(np.ones((len(values), 3), np.float32), (), encoded=encoded)
    assert head.difference(side, wider).distance == pytest.approx([1, 1])
