"""Tokens are compared before any number, and the first text that differs is named."""

import pytest
from tiny_models import asking_tokenizer, tokenizer
from tokenizers import Tokenizer, normalizers

from contracts.manifest import TokenizerSpec
from preprocess.encoder import TextEncoder
from registry.convert.errors import VersionError
from registry.convert.flavours.original import Reader, TokenisedRow
from registry.convert.parity.same_tokens import (
    hostile_texts,
    of_file,
    require_same_tokens,
    special_texts,
)

LONGEST = 24


def encoder_of(made: Tokenizer) -> TextEncoder:
    size = made.get_vocab_size()
    spec = TokenizerSpec(max_tokens=LONGEST, pad_id=0, unk_id=1, vocabulary=size)
    return TextEncoder(made.to_str().encode(), spec)


def compare(made: Tokenizer, read: Reader, *, pairs: bool = False) -> None:
    require_same_tokens(
        encoder_of(made), read, max_tokens=LONGEST, pairs=pairs, original="The original"
    )


@pytest.mark.parametrize("pairs", [False, True])
def test_a_file_that_its_own_library_reads_passes(pairs: bool) -> None:
    compare(asking_tokenizer(), of_file(asking_tokenizer(), LONGEST), pairs=pairs)


def test_the_first_text_that_differs_is_named_with_both_rows() -> None:
    other = tokenizer()
    other.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace("...", " film ")]
    )
    with pytest.raises(VersionError) as caught:
        compare(tokenizer(), of_file(other, LONGEST))
    film = tokenizer().token_to_id("film")
    assert caught.value.reason.startswith(
        "The original and the tokeniser that would be served make different tokens of '...': "
        f"from token 0 on [2, {film}, 3] against [2, 1, 3]"
    )


def test_a_row_that_is_cut_elsewhere_differs() -> None:
    with pytest.raises(VersionError, match="different tokens of 'ab ab ab"):
        compare(tokenizer(), of_file(tokenizer(), LONGEST - 1))


def test_special_tokens_that_only_the_original_has_are_tried_too() -> None:
    other = tokenizer()
    other.add_special_tokens(["[NEW]"])
    compare(tokenizer(), of_file(other, LONGEST))  # nothing tells of it
    with pytest.raises(VersionError, match=r"different tokens of '\[NEW\]'"):
        require_same_tokens(
            encoder_of(tokenizer()), of_file(other, LONGEST), special=("[SEP]", "[NEW]"),
            max_tokens=LONGEST, pairs=False, original="The original",
        )  # fmt: skip


def test_token_types_of_pairs_are_compared_too() -> None:
    read = of_file(asking_tokenizer(), LONGEST)

    def untyped(text: str, pair: str | None) -> TokenisedRow:
        return TokenisedRow(ids := read(text, pair).ids, [0] * len(ids))

    compare(asking_tokenizer(), untyped)
    with pytest.raises(VersionError, match=r"different token types of '' with ' '"):
        compare(asking_tokenizer(), untyped, pairs=True)


def test_the_vocabularys_special_tokens_are_among_the_texts() -> None:
    made = tokenizer()
    made.add_special_tokens(["[SEP]", "<odd>"])
    texts = hostile_texts(made, LONGEST)
    assert {"a <odd> film", "[SEP][SEP] good"} <= set(special_texts(made)) <= set(texts)
    assert texts == hostile_texts(made, LONGEST)
