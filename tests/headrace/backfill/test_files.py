"""What is no input is refused in a sentence, before anything is asked of anybody."""

from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from headrace.backfill import files
from headrace.backfill.files import TextColumns
from headrace.errors import RequestFailedError

LINE = '{"id": "a", "text": "x"}\n'


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "holds no row"),
        (LINE + LINE, "two rows have the id 'a'"),
        ('{"id": "a"}\n', "line 1: it needs the columns id and text and has id;"),
        ('["a"]\n', "has no columns"),
        ('{"id": "", "text": "x"}\n', "row 1: id holds ''"),
        ('{"id": 1.5, "text": "x"}\n', r"id holds 1\.5"),
        ('{"id": true, "text": "x"}\n', "id holds True"),
        ('{"id": "b", "text": " "}\n', "text of 'b' holds ' ', no text"),
        ('{"id": "b", "text": null}\n', "holds None"),
        (LINE + '{"id": 1, "text": "x"}\n', "some ids are texts and some numbers; 1 is"),
        (LINE + "{", "can't be read"),
        (LINE + '{"id": "b", "text": "\\ud83d"}\n', "row 2: half a character"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, content: str, error: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(RequestFailedError, match=error):
        files.survey(path, TextColumns())


def test_a_missing_file_a_wrong_name_and_what_is_no_parquet_are_named(tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match="No such file"):
        files.survey(tmp_path / "t.jsonl", TextColumns())
    with pytest.raises(RequestFailedError, match=r"has to end with \.jsonl or \.parquet"):
        files.survey(tmp_path / "t.csv", TextColumns())
    (tmp_path / "t.parquet").write_bytes(b"no")
    with pytest.raises(RequestFailedError, match="can't be read"):
        files.survey(tmp_path / "t.parquet", TextColumns())


def test_columns_of_parquet_have_the_names_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"key": [7, 8], "body": ["x", "y"], "more": [0, 0]}), path)
    assert files.survey(path, TextColumns("key", "body")).rows == 2
    assert list(files.read_texts(path, TextColumns("key", "body"))) == [(7, "x"), (8, "y")]
    with pytest.raises(RequestFailedError, match="has key, body, more; --id-field"):
        files.survey(path, TextColumns())


@given(
    ids=st.lists(
        st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])), min_size=1
    ),
    form=st.sampled_from(files.FORMATS),
    numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1),
)
def test_parts_come_back_as_they_were_and_joined_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], form: str, numbers: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("p")
    parts = [folder / f"{i}{form}" for i in range(2)]
    for part in parts:
        files.write_part(part, ids, [array("f", numbers)] * len(ids))
    files.join_parts(parts, folder / f"whole{form}")
    read: Iterable[tuple[object, Any]] = files.read_vectors(folder / f"whole{form}")
    assert [(key, [*map(float, vector)]) for key, vector in read] == [
        (key, numbers) for key in ids
    ] * 2
    assert sorted(path.name for path in folder.iterdir()) == [
        f"0{form}",
        f"1{form}",
        f"whole{form}",
    ]
