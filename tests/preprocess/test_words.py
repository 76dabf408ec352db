"""Words are learned once, within bounds, and only where a word's ids do not depend on others."""

import json
import tracemalloc
from typing import Any

import pytest

from preprocess import words
from preprocess.words import Tokens, WordTable, split, words_are_independent


class Counting:
    """Gives each word its length as its only id, and counts the words it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, asked: list[str]) -> list[Tokens]:
        self.asked += asked
        return [(len(word),) for word in asked]


def test_a_word_is_tokenised_once() -> None:
    tokenise = Counting()
    table = WordTable(tokenise)
    for _ in range(3):
        assert table.ids(["a", "bb", "a"]) == [(1,), (2,), (1,)]
    assert tokenise.asked == ["a", "bb"]


def test_a_text_of_too_many_new_words_is_left_to_the_tokeniser_and_learned_from() -> None:
    tokenise = Counting()
    table = WordTable(tokenise)
    text = [f"w{i}" for i in range(2 * words.LEARNED_A_TEXT)]
    assert table.ids(text) is None
    assert len(tokenise.asked) == words.LEARNED_A_TEXT
    assert table.ids(text) is not None
    assert table.ids(text) is not None
    assert tokenise.asked == text


def test_words_too_long_to_come_again_are_not_kept() -> None:
    tokenise = Counting()
    table = WordTable(tokenise)
    long = "x" * (words.LONGEST_WORD + 1)
    assert table.ids([long, "a", long]) == [(len(long),), (1,), (len(long),)]
    assert len(table) == 1


@pytest.mark.slow
def test_the_table_is_bounded_and_keeps_what_is_used() -> None:
    tokenise = Counting()
    table = WordTable(tokenise)
    for number in range(3 * words.WORDS_A_GENERATION):
        table.ids(["kept", f"{number}"])
    assert len(table) <= 2 * words.WORDS_A_GENERATION
    assert tokenise.asked.count("kept") == 1


def test_a_table_full_of_the_worst_words_stays_small() -> None:
    def tokenise(asked: list[str]) -> list[Tokens]:
        return [tuple(range(1_000, 1_000 + words.MOST_TOKENS)) for _ in asked]

    table = WordTable(tokenise)
    few = 400
    tracemalloc.start()
    for number in range(few):
        table.ids([f"{number:a>{words.LONGEST_WORD - 1}}🙂"])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == few
    assert held / few * 2 * words.WORDS_A_GENERATION < 60_000_000


def test_words_of_many_tokens_are_not_kept() -> None:
    table = WordTable(lambda asked: [tuple(range(words.MOST_TOKENS + 1)) for _ in asked])
    assert table.ids(["word"]) is not None
    assert len(table) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" a  b\tc\nd\r\ne ", ["a", "b", "c", "d", "e"]),
        ("naïve café 中文", ["naïve", "café", "中文"]),
        ("a\u00a0b", None),  # white space to both, removed by neither: not worth the rule
        ("a\x1cb", None),  # white space to Python, removed by BERT's normaliser
        ("a\u200db", None),  # a joiner
        ("a\ud800", None),  # no Unicode at all
    ],
)
def test_a_text_is_split_only_where_all_agree_on_its_spaces(
    text: str, expected: list[str] | None
) -> None:
    assert split(text) == expected


def definition(bert: bytes, **changes: Any) -> dict[str, Any]:
    return {**json.loads(bert), **changes}


def test_a_bert_like_definition_has_independent_words(bert: bytes) -> None:
    assert words_are_independent(definition(bert))
    parts = [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]
    normalizer = {"type": "Sequence", "normalizers": parts}
    splitters = [{"type": "WhitespaceSplit"}, {"type": "Punctuation"}]
    splitter = {"type": "Sequence", "pretokenizers": splitters}
    assert words_are_independent(definition(bert, normalizer=normalizer, pre_tokenizer=splitter))


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "ByteLevel"}},
        {"pre_tokenizer": {"type": "Metaspace"}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}]}},
        {"normalizer": {"type": "Replace"}},
        {"normalizer": {"type": "Prepend"}},
        {"model": {"type": "Unigram"}},
        {"model": {"type": "BPE", "dropout": 0.1}},
    ],
)
def test_a_definition_that_is_not_known_to_have_independent_words_is_left_alone(
    bert: bytes, changes: dict[str, Any]
) -> None:
    assert not words_are_independent(definition(bert, **changes))


@pytest.mark.parametrize(
    "change",
    [{"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"content": "two words"}],
)
def test_an_added_token_that_reaches_beyond_a_word_forbids_the_rule(
    bert: bytes, change: dict[str, Any]
) -> None:
    token = json.loads(bert)["added_tokens"][0]
    assert not words_are_independent(definition(bert, added_tokens=[{**token, **change}]))
