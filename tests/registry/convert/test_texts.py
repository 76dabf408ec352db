from pathlib import Path

import pytest

from registry.convert import texts
from registry.convert.errors import VersionError


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evaluation_texts.txt", "one two\n\nthree\n"),
        ("evaluation/anything.txt", "one two\nthree"),
        ("evaluation/rows.jsonl", '{"text": "one two", "label": "x"}\n\n{"text": "three"}\n'),
        ("evaluation_texts.csv", 'label,text\nx,"one two"\ny,three\n'),
    ],
)
def test_evaluation_texts_are_found_by_name(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    found = texts.find([tmp_path / "nothing", tmp_path])
    assert found.texts == ("one two", "three")
    assert found.own
    assert name in found.source


@pytest.mark.parametrize("name", ["evaluation_texts.bin", "evaluation", "texts.txt", "a/b.csv"])
def test_other_files_are_not_taken_for_texts(name: str) -> None:
    assert not texts.is_evaluation_file(name)


def test_without_any_neutral_texts_stand_in_and_say_so(tmp_path: Path) -> None:
    found = texts.find([tmp_path])
    assert not found.own
    assert "Headrace" in found.source
    assert len(found.texts) > 100
    lengths = [len(text.split()) for text in found.texts]
    assert min(lengths) == 1
    assert max(lengths) > 150


def test_a_text_of_json_may_hold_line_separators_that_are_no_line_breaks(tmp_path: Path) -> None:
    rows = '{"text": "one\u2028two\x85three"}\r\n{"text": "four"}\n'
    (tmp_path / "evaluation_texts.jsonl").write_bytes(rows.encode())
    assert texts.find([tmp_path]).texts == ("one\u2028two\x85three", "four")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("evaluation_texts.jsonl", "not json", "is not JSON"),
        ("evaluation_texts.jsonl", '{"txt": "a"}', "can't be read"),
        ("evaluation_texts.jsonl", '{"text": 3}', "not a string"),
        ("evaluation_texts.jsonl", '{"text": "a\\ud800"}', "surrogate"),
        ("evaluation_texts.jsonl", '{"text": ' + "[" * 480 + "]" * 480 + "}", "not a string"),
        ("evaluation_texts.csv", "words\na\n", "can't be read"),
    ],
)
def test_texts_that_can_not_be_read_are_the_versions_fault(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(VersionError, match=words):
        texts.find([tmp_path])


def test_a_large_set_is_thinned_evenly() -> None:
    kept = texts.thin_out([str(place) for place in range(1000)], 10)
    assert kept == tuple(str(place) for place in range(0, 1000, 100))
    assert texts.thin_out(["a"], 10) == ("a",)


def test_long_texts_are_joined_from_short_ones() -> None:
    joined = texts.with_long_ones(["one two three"] * 200)
    assert joined[:200] == ("one two three",) * 200
    assert max(len(text.split()) for text in joined) == 384


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "evaluation_texts.jsonl",
            '{"text": "q", "text_pair": "d"}\n{"text": "r", "text_pair": ""}\n',
        ),
        ("evaluation_texts.csv", "text,text_pair\nq,d\nr,\n"),
    ],
)
def test_evaluation_texts_may_be_pairs(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    found = texts.find([tmp_path])
    assert (found.texts, found.pairs) == (("q", "r"), ("d", ""))
    assert found.pair() == found
    assert found.single().pairs is None


def test_pairs_and_single_texts_in_one_file_are_refused(tmp_path: Path) -> None:
    rows = '{"text": "q", "text_pair": "d"}\n{"text": "r"}'
    (tmp_path / "evaluation_texts.jsonl").write_text(rows)
    with pytest.raises(VersionError, match="text_pair"):
        texts.find([tmp_path])


def test_texts_without_pairs_are_paired_with_the_next_one() -> None:
    found = texts.EvaluationTexts(("a", "b", "c"), "here", own=True).pair()
    assert found.pairs == ("b", "c", "a")
    longer = found.with_long_ones()
    assert longer.pairs is not None
    assert len(longer.texts) == len(longer.pairs) > 3
    assert found.thin(1).pairs == ("b",)


def test_few_texts_are_filled_with_neutral_ones() -> None:
    own = texts.EvaluationTexts(("a", "b"), "here", own=True)
    filled = own.fill(50)
    assert (filled.texts[:2], len(filled.texts), filled.source) == (("a", "b"), 50, "here")
    assert filled.fill(50) == filled


def test_a_long_text_fills_the_longest_row() -> None:
    joined = texts.with_long_ones(["one two three"] * 9, longest=500)
    assert len(joined[-1].split()) == 500
    assert texts.with_long_ones(["one two three"] * 9, longest=100) == texts.with_long_ones(
        ["one two three"] * 9
    )


def test_further_texts_of_pairs_are_pairs() -> None:
    found = texts.EvaluationTexts(("a",), "x", own=True, pairs=("b",)).with_further(("c", "d"))
    assert (found.texts, found.pairs) == (("a", "c", "d"), ("b", "d", "c"))
    single = texts.EvaluationTexts(("a",), "x", own=True).with_further(("c", "d"))
    assert (single.texts, single.pairs) == (("a", "c", "d"), None)
