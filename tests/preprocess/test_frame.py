"""Special tokens are found out from the tokeniser; what is no frame is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from preprocess.errors import TokenizerFileError
from preprocess.frame import frame_of, longest_first


def of(tokenizer_json: bytes) -> Tokenizer:
    tokenizer = Tokenizer.from_buffer(tokenizer_json)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def test_a_bert_like_pair_has_tokens_before_between_and_after(bert: bytes) -> None:
    frame = frame_of(of(bert), pair=True)
    assert (frame.before, frame.between, frame.after) == ([2], [3], [3])
    assert frame.type_ids(2, 3) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert frame.typed


def test_a_single_text_has_nothing_between(bert: bytes) -> None:
    frame = frame_of(of(bert), pair=False)
    assert (frame.before, frame.between, frame.after) == ([2], [], [3])
    assert frame.type_ids(2) == [0, 0, 0, 0]
    assert not frame.typed
    assert frame.size == 2


def test_a_tokeniser_without_special_tokens_has_an_empty_frame(plain: bytes) -> None:
    frame = frame_of(of(plain), pair=False)
    assert frame.size == 0


def test_types_of_every_part_are_kept(unigram: bytes) -> None:
    frame = frame_of(of(unigram), pair=True)
    assert frame.type_ids(1, 1) == [0, 0, 1, 1, 2]


def test_a_vocabulary_without_latin_letters_has_its_frame_found_by_its_own() -> None:
    tokenizer = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, "д": 2, "ж": 3, "дж": 4}, [("д", "ж")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    assert frame_of(tokenizer, pair=False).before == [0]
    pair = frame_of(tokenizer, pair=True)
    assert (pair.before, pair.between, pair.after) == ([0], [1], [1])


def test_texts_out_of_order_are_refused() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[SEP]": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair="$B [SEP] $A", special_tokens=[("[SEP]", 1)]
    )
    with pytest.raises(TokenizerFileError, match="once, in order"):
        frame_of(tokenizer, pair=True)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 100))
def test_two_texts_fill_the_room_and_the_shorter_is_cut_last(
    first: int, second: int, room: int
) -> None:
    kept = longest_first(first, second, room)
    assert sum(kept) == min(first + second, room)
    assert kept[0] <= first
    assert kept[1] <= second
    cut = (first - kept[0], second - kept[1])
    if cut[0] and cut[1]:
        assert abs(kept[0] - kept[1]) <= 1
    if first < second:
        assert kept[0] <= kept[1]
