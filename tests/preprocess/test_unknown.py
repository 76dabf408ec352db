"""What became the unknown token is told as it was written, and as often as it was counted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.manifest import TokenizerSpec
from preprocess.encoder import TextEncoder

_known = st.sampled_from(["the", "film", "Return", "isn't", "good"])
_unknown = st.sampled_from(["中", "🙂", "ﷺ", "a中b", "🙂🙂", "☃."])
texts = st.lists(_known | _unknown, max_size=60).map(" ".join)


@pytest.fixture(scope="module")
def bert_encoder(bert: bytes, specs: dict[str, TokenizerSpec]) -> TextEncoder:
    return TextEncoder(bert, specs["bert"])


@pytest.fixture(scope="module")
def unigram_encoder(unigram: bytes, specs: dict[str, TokenizerSpec]) -> TextEncoder:
    return TextEncoder(unigram, specs["unigram"])


def test_words_are_told_as_they_were_written(bert_encoder: TextEncoder) -> None:
    text = "The film ☃Snow☃ was 🙂\t and Ünïc中de"
    assert bert_encoder.learns_words
    assert bert_encoder.unknown_words(text) == ["☃Snow☃", "🙂", "中"]


def test_a_text_that_does_not_go_word_by_word_tells_the_same(bert_encoder: TextEncoder) -> None:
    text = "The film ☃Snow☃ was 🙂 and 中"
    odd = text + "\u200b"  # an invisible character: left to the tokeniser whole
    assert bert_encoder.unknown_words(odd) == bert_encoder.unknown_words(text) != []


def test_characters_that_a_vocabulary_lacks_are_told(unigram_encoder: TextEncoder) -> None:
    assert unigram_encoder.unknown_words("the film 中文 was good") == ["中文"]


@settings(max_examples=50)
@given(text=texts, pair=st.none() | texts)
def test_as_many_are_told_as_are_counted(
    bert_encoder: TextEncoder, text: str, pair: str | None
) -> None:
    encoded = bert_encoder.encode([text], None if pair is None else [pair])
    assert len(bert_encoder.unknown_words(text, pair)) == encoded.unk[0]


def test_of_what_was_cut_off_nothing_is_told(bert_encoder: TextEncoder) -> None:
    assert bert_encoder.unknown_words("the " * 60 + "中") == []
    assert bert_encoder.unknown_words("the " * 60 + "中", "good 🙂") == ["🙂"]


def test_a_vocabulary_without_an_unknown_token_tells_none(
    roberta: bytes, specs: dict[str, TokenizerSpec]
) -> None:
    assert TextEncoder(roberta, specs["roberta"]).unknown_words("中文 🙂") == []


def test_an_empty_text_has_none(plain: bytes, specs: dict[str, TokenizerSpec]) -> None:
    encoder = TextEncoder(plain, specs["plain"])
    assert encoder.encode([""]).unk == [1]  # a token that stands in: no word of anybody's
    assert encoder.unknown_words("") == []
