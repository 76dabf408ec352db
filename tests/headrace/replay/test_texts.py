import gzip
from pathlib import Path

import pytest

from headrace.errors import RequestFailedError
from headrace.replay.texts import Columns, ReplayText, read


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        (
            "a.txt",
            "one\n\n two \r\nthree",
            [ReplayText("one"), ReplayText("two"), ReplayText("three")],
        ),
        ("a.csv", 'text,label\n"a, b",1\nc,\n', [ReplayText("a, b", "1"), ReplayText("c")]),
        ("a.csv", '\ufefftext,label\r\n"two\r\nlines",x\r\n', [ReplayText("two\r\nlines", "x")]),
        ("a.tsv", "label\tsentence\nx\ta\n", [ReplayText("a", "x")]),
        ("a.jsonl", '{"text": "a", "label": 0}\n"b"\n', [ReplayText("a", "0"), ReplayText("b")]),
        ("a.jsonl", '{"text": "a\u2028b"}\n{"text": " "}\n', [ReplayText("a\u2028b")]),
    ],
)
def test_each_format_is_read_as_it_is_also_packed(
    tmp_path: Path, name: str, content: str, found: list[ReplayText]
) -> None:
    plain, packed = tmp_path / name, tmp_path / f"{name}.gz"
    plain.write_bytes(content.encode())
    packed.write_bytes(gzip.compress(content.encode()))
    assert list(read(plain)) == list(read(packed)) == found


def test_columns_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,body,truth,user\nno,yes,good,ann\n")
    columns = Columns(text="body", label="truth", key="user")
    assert read(file, columns) == (ReplayText("yes", "good", "ann"),)


def test_no_more_is_read_than_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a\nb\nc\n")
    assert len(read(file, most=2)) == 2


@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("a.parquet", b"x", Columns(), ".jsonl"),
        ("a.txt", b" \n", Columns(), "holds no text"),
        ("a.txt", b"\xff\xfe", Columns(), "can't be read"),
        ("a.csv", b"a,b\n1,2\n", Columns(), "there are: a, b"),
        ("a.csv", b"text\n1\n", Columns(key="user"), "no column user"),
        ("a.csv", b'text\n"open\n', Columns(), "can't be read"),
        ("a.jsonl", b"{", Columns(), "can't be read"),
        ("a.jsonl", b'{"text": 5}', Columns(), "holds 5, not a text"),
        ("a.txt.gz", b"no gzip", Columns(), "can't be read"),
        ("a.txt.gz", gzip.compress(b"a" * 999, mtime=0)[:-9], Columns(), "can't be read"),
    ],
)
def test_what_can_not_be_read_is_a_sentence(
    tmp_path: Path, name: str, content: bytes, columns: Columns, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(RequestFailedError) as caught:
        read(file, columns)
    assert said in caught.value.message


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match="There is no file"):
        read(tmp_path / "none")
