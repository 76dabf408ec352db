"""The packed engine in this process gives each text its own rows, alone and in company."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_models import WORDS, tokenizer

from contracts.manifest import TokenizerSpec
from preprocess.encoder import TextEncoder
from registry.convert.errors import EnvironmentFaultError, VersionError
from registry.convert.parity.engine import TokenisedTexts, encode
from registry.convert.parity.packed_engine import PackedTextEngine

Floats = NDArray[np.float32]
SPEC = TokenizerSpec(max_tokens=24, pad_id=0, unk_id=1, vocabulary=20)
ENCODER = TextEncoder(tokenizer().to_str().encode(), SPEC)
TEXTS = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=20).map(" ".join),
    min_size=1,
    max_size=200,
)


class IdRunner:
    """Answers each token with its id, or each row with the sum of its ids; counts its runs."""

    def __init__(self, *, by_token: bool) -> None:
        self.tokens: list[int] = []
        self._by_token = by_token

    def run(
        self,
        ids: NDArray[np.int32],
        starts: NDArray[np.int32],
        types: NDArray[np.uint8] | None = None,
    ) -> Floats:
        assert types is None or types.shape == ids.shape
        self.tokens.append(len(ids))
        if self._by_token:
            return ids.astype(np.float32)[:, np.newaxis]
        return np.add.reduceat(ids, starts[:-1]).astype(np.float32)[:, np.newaxis]


class BrokenRunner:
    def __init__(self, words: str) -> None:
        self._words = words

    def run(self, ids: object, starts: object, types: object = None) -> Floats:
        raise RuntimeError(self._words)


def texts_of(written: Sequence[str]) -> TokenisedTexts:
    return encode(written, ENCODER, (), SPEC, (24,))


@given(TEXTS, st.booleans(), st.booleans())
def test_each_text_gets_its_own_values_in_batches_of_any_company(
    written: list[str], by_token: bool, type_ids: bool
) -> None:
    texts = texts_of(written)
    runner = IdRunner(by_token=by_token)
    found = PackedTextEngine(runner, by_token=by_token, type_ids=type_ids).outputs(texts)
    ids = texts.encoded.ids
    wanted = [each for row in ids for each in row] if by_token else [sum(row) for row in ids]
    assert found[:, 0].tolist() == wanted
    assert max(runner.tokens) <= 2048


@given(TEXTS)
def test_rows_are_those_of_the_texts_in_their_order(written: list[str]) -> None:
    texts = texts_of(written)
    engine = PackedTextEngine(IdRunner(by_token=True), by_token=True, type_ids=False)
    backward = list(range(len(texts)))[::-1]
    rows = engine.rows(texts, backward, 24)
    assert [row[:, 0].tolist() for row in rows] == [list(texts.encoded.ids[at]) for at in backward]


def test_a_gpu_that_is_full_is_not_the_version_s_fault() -> None:
    texts = texts_of(["yes"])
    full = PackedTextEngine(
        BrokenRunner("CUDA out of memory. Tried to allocate 20 MiB"), by_token=False, type_ids=False
    )
    with pytest.raises(EnvironmentFaultError, match="the proof can't run on this machine"):
        full.outputs(texts)
    broken = PackedTextEngine(BrokenRunner("no such layer"), by_token=False, type_ids=False)
    with pytest.raises(VersionError, match="fails on 3 tokens: no such layer"):
        broken.outputs(texts)
