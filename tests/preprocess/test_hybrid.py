"""Kinds of vectors of one run: each is taken from its place in the rows of tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_models import VOCABULARY, WORDS, tokenizer

from contracts.manifest import TokenizerSpec
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts, TextEncoder
from preprocess.tasks import HEADS
from preprocess.tasks.head import Side

Floats = NDArray[np.float32]
HEAD = HEADS[Task.HYBRID_EMBEDDING]
ENCODER = TextEncoder(
    tokenizer().to_str().encode(),
    TokenizerSpec(max_tokens=16, pad_id=0, unk_id=1, vocabulary=VOCABULARY),
)
TEXTS = ["the film was good", "", "soup soup telepathy"]
texts_of_words = st.lists(
    st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join), min_size=1, max_size=4
)


class Answer:
    """What the head is asked to show."""

    def __init__(self, encoded: EncodedTexts, values: Floats, **parameters: object) -> None:
        self.encoded = encoded
        self.values = values
        self.parameters = parameters
        self.labels: tuple[str, ...] = ()
        self.multi_label = False
        self.ranges: Floats | None = None


def rows(encoded: EncodedTexts, *, seed: int = 0, width: int = 4) -> Floats:
    random = np.random.default_rng(seed)
    made: Floats = random.normal(size=(sum(encoded.tokens), width + 1)).astype(np.float32)
    return made


@given(texts=texts_of_words, seed=st.integers(0, 1000))
def test_every_kind_is_a_plain_look_at_the_rows(texts: list[str], seed: int) -> None:
    encoded = ENCODER.encode(texts)
    answer = Answer(encoded, rows(encoded, seed=seed))
    dense, sparse, tokens = HEAD.dense(answer), HEAD.sparse(answer), HEAD.token_vectors(answer)
    at = 0
    for text, ids in enumerate(encoded.ids):
        own = answer.values[at : at + len(ids)]
        at += len(ids)
        np.testing.assert_array_equal(dense[text], own[0, :-1])
        np.testing.assert_array_equal(tokens[text], own[1:, :-1])
        largest = {
            token: float(own[np.array(ids) == token, -1].max()) for token in set(ids) - {0, 1, 2, 3}
        }
        wanted = [
            {"index": token, "value": value}
            for token, value in sorted(largest.items())
            if value > 0
        ]
        assert sparse[text] == wanted
    np.testing.assert_array_equal(HEAD.pooled(encoded, answer.values), dense)
    records = HEAD.records(encoded, answer.values, ())
    assert [each.non_zeros for each in records] == [len(each) for each in sparse]
    assert [each.norm for each in records] == pytest.approx(np.linalg.norm(dense, axis=1).tolist())


@given(texts=texts_of_words, seed=st.integers(0, 1000))
def test_the_distance_is_0_between_equal_answers_and_at_most_1(texts: list[str], seed: int) -> None:
    encoded = ENCODER.encode(texts)
    one, other = rows(encoded, seed=seed), rows(encoded, seed=seed + 1)
    same = HEAD.difference(Side(one, (), False, encoded), Side(one, (), False, encoded)).distance
    np.testing.assert_allclose(same, 0, atol=1e-6)
    apart = HEAD.difference(Side(one, (), False, encoded), Side(other, (), False, encoded)).distance
    assert ((apart >= 0) & (apart <= 1)).all()


def test_each_kind_that_changes_is_seen() -> None:
    encoded = ENCODER.encode(TEXTS)
    values = np.abs(rows(encoded))
    for place in ((0, slice(0, 4)), (1, slice(0, 4)), (1, slice(4, 5))):
        changed = values.copy()
        changed[place] = changed[place] * -1 if place[1].start == 0 else changed[place] + 5
        apart = HEAD.difference(
            Side(values, (), False, encoded), Side(changed, (), False, encoded)
        ).distance
        assert apart[0] > 0.01
        np.testing.assert_allclose(apart[1:], 0, atol=1e-6)


def test_versions_of_other_tokenisers_and_dimensions_can_be_compared() -> None:
    encoded, longer = ENCODER.encode(["good film"]), ENCODER.encode(["a good good film"])
    one, other = rows(encoded), rows(longer)
    apart = HEAD.difference(Side(one, (), False, encoded), Side(other, (), False, longer)).distance
    assert 0 < apart[0] <= 1
    wide = HEAD.difference(
        Side(one, (), False, encoded), Side(rows(encoded, width=5), (), False, encoded)
    )
    assert wide.distance.tolist() == [1.0]


def test_kinds_are_shown_as_they_are_asked_for() -> None:
    encoded = ENCODER.encode(TEXTS)
    answer = Answer(encoded, rows(encoded))
    assert HEAD.pipeline(answer, {}, one=True) == HEAD.dense(answer)[0].tolist()
    found = HEAD.pipeline(answer, {"kinds": ["tokens", "sparse"]}, one=False)
    assert [list(each) for each in found] == [["tokens", "sparse"]] * 3
    assert found[0]["tokens"] == HEAD.token_vectors(answer)[0].tolist()
    short = HEAD.pipeline(answer, {"kinds": ["dense"], "dimensions": 2}, one=True)
    assert np.linalg.norm(short["dense"]) == pytest.approx(1.0)
    padded = HEAD.outputs(answer)["TOKEN_VECTORS"]
    assert np.shape(padded) == (3, max(encoded.tokens) - 1, 4)
