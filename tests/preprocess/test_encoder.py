"""Every way through the encoder gives what the Rust library alone gives, and costs less."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from contracts.manifest import TokenizerSpec
from preprocess.encoder import TextEncoder
from preprocess.errors import InvalidTextError, TokenizerFileError
from preprocess.words import WordTable

pytestmark = pytest.mark.slow

FAMILIES = ("bert", "roberta", "unigram", "plain")

_words = st.sampled_from(
    [
        "the",
        "film",
        "good,",
        "Return",
        "isn't",
        "naïve",
        "中文字",
        "[MASK]",
        "a[SEP]b",
        "<unk>",
        "🙂",
    ]
)
_spaces = st.sampled_from(
    [" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2028", "\x0b", "\x1c", "\x00"]
)
_odd = st.text(st.characters(codec="utf-8"), max_size=8)
texts_of_all_kinds = st.lists(st.one_of(_words, _spaces, _odd), max_size=80).map("".join)


class Plain:
    """The Rust library with its own truncation, padding off: what the encoder must equal."""

    def __init__(self, tokenizer_json: bytes, max_tokens: int) -> None:
        self._tokenizer: Any = Tokenizer.from_buffer(tokenizer_json)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens, strategy="longest_first")

    def __call__(self, text: str, pair: str | None = None) -> tuple[list[int], list[int], bool]:
        encoding = self._tokenizer.encode(text, pair)
        return encoding.ids, encoding.type_ids, bool(encoding.overflowing)


@pytest.fixture(scope="module")
def encoders(
    request: pytest.FixtureRequest, specs: dict[str, TokenizerSpec]
) -> dict[str, TextEncoder]:
    return {name: TextEncoder(request.getfixturevalue(name), specs[name]) for name in FAMILIES}


@pytest.fixture(scope="module")
def plains(request: pytest.FixtureRequest, specs: dict[str, TokenizerSpec]) -> dict[str, Plain]:
    return {n: Plain(request.getfixturevalue(n), specs[n].max_tokens) for n in FAMILIES}


def assert_equal(
    encoder: TextEncoder, plain: Plain, text: str, pair: str | None, stand_in: list[int]
) -> None:
    encoded = encoder.encode([text], None if pair is None else [pair])
    ids, types, truncated = plain(text, pair)
    assert encoded.ids[0] == (ids or stand_in)
    assert (encoded.type_ids or [[0] * len(encoded.ids[0])])[0] == (types or [0])
    assert encoded.truncated == [truncated]
    assert encoded.tokens == [len(encoded.ids[0])]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(text=texts_of_all_kinds)
def test_a_text_gets_the_tokens_that_the_library_gives_it(
    family: str, text: str, encoders: dict[str, TextEncoder], plains: dict[str, Plain]
) -> None:
    # Twice: the second time words are known.
    for _ in range(2):
        assert_equal(encoders[family], plains[family], text, None, [1])


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=50, deadline=None)
@given(text=texts_of_all_kinds, pair=texts_of_all_kinds)
def test_a_pair_gets_the_tokens_types_and_cuts_that_the_library_gives_it(
    family: str, text: str, pair: str, encoders: dict[str, TextEncoder], plains: dict[str, Plain]
) -> None:
    assert_equal(encoders[family], plains[family], text, pair, [1])


@pytest.mark.parametrize("family", FAMILIES)
def test_real_texts_get_the_tokens_that_the_library_gives_them(
    family: str,
    english: list[str],
    encoders: dict[str, TextEncoder],
    plains: dict[str, Plain],
) -> None:
    encoded = encoders[family].encode(english)
    expected = [plains[family](text) for text in english]
    assert encoded.ids == [ids for ids, _, _ in expected]
    assert encoded.truncated == [truncated for _, _, truncated in expected]
    assert any(encoded.truncated)
    assert not all(encoded.truncated)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(texts_of_all_kinds, max_size=6))
def test_rows_never_exceed_the_limit_and_are_never_empty(
    family: str, texts: list[str], encoders: dict[str, TextEncoder]
) -> None:
    encoded = encoders[family].encode(texts)
    assert len(encoded) == len(texts)
    assert all(1 <= tokens <= 48 for tokens in encoded.tokens)
    assert all(0 <= unk <= tokens for unk, tokens in zip(encoded.unk, encoded.tokens, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_of_100_000_words_equals_its_beginning_and_says_it_was_cut(
    family: str, english: list[str], encoders: dict[str, TextEncoder], plains: dict[str, Plain]
) -> None:
    words = " ".join(english).split()
    text = " ".join((words * (100_000 // len(words) + 1))[:100_000])
    assert_equal(encoders[family], plains[family], text, None, [1])
    assert encoders[family].encode([text]).truncated == [True]


def test_of_a_text_far_too_long_only_a_beginning_is_tokenised(
    bert: bytes, specs: dict[str, TokenizerSpec]
) -> None:
    encoder = TextEncoder(bert, specs["bert"])
    # No-break spaces, so that the fast way word by word is not taken.
    content = encoder._content(0, "film\u00a0" * 100_000)
    assert not content.whole
    assert len(content.text) <= 4 * 16 * 48


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "text", [" " * 5_000 + "film", "a" * 5_000, "中" * 5_000, "x" * 3_000 + " good" * 2_000]
)
def test_long_texts_of_an_odd_make_get_the_tokens_of_the_whole(
    family: str, text: str, encoders: dict[str, TextEncoder], plains: dict[str, Plain]
) -> None:
    assert_equal(encoders[family], plains[family], text, None, [1])
    assert_equal(encoders[family], plains[family], "good film", text, [1])


def test_threads_may_share_an_encoder(
    bert: bytes, specs: dict[str, TokenizerSpec], english: list[str]
) -> None:
    expected = TextEncoder(bert, specs["bert"]).encode(english)
    shared = TextEncoder(bert, specs["bert"])  # has learned nothing yet
    with ThreadPoolExecutor(4) as threads:
        for encoded in threads.map(lambda _: shared.encode(english), range(8)):
            assert encoded == expected


def test_an_empty_text_is_its_special_tokens(encoders: dict[str, TextEncoder]) -> None:
    encoded = encoders["bert"].encode([""])
    assert encoded.ids == [[2, 3]]
    assert (encoded.tokens, encoded.words, encoded.unk) == ([2], [0], [0])
    assert encoded.truncated == [False]


def test_a_row_that_nothing_is_left_of_holds_one_unknown_token(
    encoders: dict[str, TextEncoder],
) -> None:
    assert encoders["plain"].encode(["", "good"]).ids == [[1], [2]]


@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_those_that_the_model_sees(family: str, encoders: dict[str, TextEncoder]) -> None:
    encoded = encoders[family].encode(["good  bad\nfilm", "good " * 100])
    assert encoded.words[0] == 3
    assert encoded.truncated[1]
    assert 8 <= encoded.words[1] <= 48


def test_words_are_counted_the_same_by_either_way(encoders: dict[str, TextEncoder]) -> None:
    text = "good unheard-of " * 100
    known, unknown = encoders["bert"].encode([text, text.replace(" ", "\u00a0")]).words
    assert known == unknown


def test_words_of_a_pair_are_those_of_both_texts(encoders: dict[str, TextEncoder]) -> None:
    encoded = encoders["bert"].encode(["good film"], ["a bad one"])
    assert encoded.words == [5]


def test_unknown_tokens_are_counted_over_what_the_model_sees(
    encoders: dict[str, TextEncoder],
) -> None:
    encoded = encoders["plain"].encode(["good what film", "what " * 100, "good"])
    assert encoded.unk == [1, 48, 0]
    assert encoders["roberta"].encode(["\u4e2d"]).unk == [0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["a\ud800", "\udcff", "film " * 5_000 + "\ud83d"])
def test_a_lone_surrogate_is_refused_with_the_texts_index(
    family: str, text: str, encoders: dict[str, TextEncoder]
) -> None:
    with pytest.raises(InvalidTextError, match=r"^text 1 is not Unicode") as refused:
        encoders[family].encode(["good", text, "bad"])
    assert (refused.value.index, refused.value.pair) == (1, False)
    with pytest.raises(InvalidTextError, match=r"^pair 0 ") as refused:
        encoders[family].encode(["good"], [text])
    assert (refused.value.index, refused.value.pair) == (0, True)


def test_pairs_must_be_as_many_as_texts(encoders: dict[str, TextEncoder]) -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        encoders["bert"].encode(["a", "b"], ["c"])


def test_token_types_are_told_only_where_one_is_not_0(encoders: dict[str, TextEncoder]) -> None:
    assert encoders["bert"].encode(["good film"]).type_ids is None
    assert encoders["roberta"].encode(["good film"], ["bad"]).type_ids is None
    pair = encoders["bert"].encode(["good"], ["bad"])
    assert pair.type_ids is not None
    assert set(pair.type_ids[0]) == {0, 1}
    single = encoders["unigram"].encode(["good"])
    assert single.type_ids is not None
    assert single.type_ids[0][-1] == 2


def test_only_tokenisers_whose_words_are_independent_learn_words(
    encoders: dict[str, TextEncoder],
) -> None:
    learning = {name for name, encoder in encoders.items() if encoder.learns_words}
    assert learning == {"bert", "plain"}


def test_a_tokeniser_that_belies_its_definition_learns_no_words(
    encoders: dict[str, TextEncoder],
) -> None:
    encoder = encoders["bert"]
    assert encoder._prove(WordTable(encoder._ids_of_words)) is not None
    assert encoder._prove(WordTable(lambda words: [(7,) for _ in words])) is None


@pytest.mark.parametrize("broken", [b"", b"{}", b"\xff\xfe", b"[1, 2]", b'{"model": 3}'])
def test_a_broken_file_is_refused(broken: bytes, specs: dict[str, TokenizerSpec]) -> None:
    with pytest.raises(TokenizerFileError, match=r"tokenizer\.json can't be read"):
        TextEncoder(broken, specs["bert"])


def test_a_limit_without_room_for_a_text_is_refused(bert: bytes) -> None:
    spec = TokenizerSpec(max_tokens=3, pad_id=0, unk_id=1, vocabulary=800)
    with pytest.raises(TokenizerFileError, match="no room beside 3 special"):
        TextEncoder(bert, spec)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "text", ["the film " * 40_000, "naïve 🙂 " * 40_000, "x" * 300_000, "  a" * 9]
)
def test_what_is_behind_the_characters_that_were_read_changes_nothing(
    family: str, text: str, encoders: dict[str, TextEncoder]
) -> None:
    encoder = encoders[family]
    for pairs in (None, ["a film", text]):
        whole = encoder.encode([text, "a film"], pairs)
        if whole.seen is None:
            assert len(text) < 100 or " " not in text  # one word, which is read to its end
            continue
        seen, seen_pairs = whole.seen
        assert seen[0] < len(text) // 4 or family == "plain" or " " not in text
        beginnings = [each[:length] for each, length in zip([text, "a film"], seen, strict=True)]
        others = pairs and [each[:many] for each, many in zip(pairs, seen_pairs, strict=True)]
        cut = encoder.encode(beginnings, others)
        assert cut.statistics() == whole.statistics()
        assert (cut.ids, cut.type_ids) == (whole.ids, whole.type_ids)
        for at, one in enumerate([text, "a film"]):
            other = None if pairs is None else pairs[at]
            same = encoder.unknown_words(beginnings[at], None if others is None else others[at])
            assert same == encoder.unknown_words(one, other)


def test_a_text_that_comes_again_gets_its_prompt_once(
    bert: bytes, specs: dict[str, TokenizerSpec]
) -> None:
    spec = specs["bert"].model_copy(update={"prompts": {"query": "query: "}})
    encoder = TextEncoder(bert, spec)
    query, other = "w1 w2", "w3"
    first, second, third = encoder.prompted([query, query, other], "query")
    assert (first, third) == ("query: w1 w2", "query: w3")
    assert first is second
