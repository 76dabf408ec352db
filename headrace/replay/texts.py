"""Reads texts, true labels and callers' keys from a file.

Formats by the file's name: ``.txt`` (a text a line), ``.csv`` and ``.tsv`` (the first line names
the columns), ``.jsonl`` (an object, or a text, a line); each also with ``.gz``.
"""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from headrace.errors import RequestFailedError

# What is read is kept in memory, and a million texts are enough to replay.
MOST_ROWS = 1_000_000
_TEXT_FIELDS = ("text", "sentence", "review", "content", "input", "inputs")
_LABEL_FIELD = "label"
_FIELD_BYTES = 16 * 2**20

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayText:
    """One text to send; ``label`` is the truth about it, ``key`` whom to stick to."""

    text: str
    label: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """Where in a row things are; None: by their usual names."""

    text: str | None = None
    label: str | None = None
    key: str | None = None


def read(
    path: Path, columns: Columns = Columns(), *, most: int = MOST_ROWS
) -> tuple[ReplayText, ...]:
    """The file's texts in their order, at most the first ``most``; empty ones are left out.

    Raises:
        RequestFailedError: the file can't be read, is of no known format, or lacks a column.
    """
    if not path.is_file():
        raise RequestFailedError(f"There is no file {path}.")
    names = [suffix.lower() for suffix in path.suffixes]
    form = next((name for name in reversed(names) if name != ".gz"), "")
    if form not in {".txt", ".csv", ".tsv", ".jsonl"}:
        raise RequestFailedError(
            f"{path}: texts are read from .txt, .csv, .tsv and .jsonl files, also with .gz."
        )
    found: list[ReplayText] = []
    try:
        with _open(path) as file:
            for text in _texts(_rows(form, file), columns, path):
                found.append(text)
                if len(found) >= most:
                    break
    except OSError as error:  # gzip raises some of its own, without a number
        raise RequestFailedError(f"{path} can't be read: {error.strerror or error}.") from error
    except (EOFError, UnicodeDecodeError, csv.Error, json.JSONDecodeError) as error:
        raise RequestFailedError(f"{path} can't be read: {error}.") from error
    if not found:
        raise RequestFailedError(f"{path} holds no text.")
    return tuple(found)


@contextmanager
def _open(path: Path) -> Iterator[IO[str]]:
    with path.open("rb") as raw:
        data = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
        # A text is to the next \n, whatever else it holds; csv looks at line ends by itself.
        with io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as file:
            yield file


def _rows(form: str, file: IO[str]) -> Iterator[Row]:
    if form in {".csv", ".tsv"}:
        csv.field_size_limit(_FIELD_BYTES)
        yield from csv.DictReader(file, delimiter="\t" if form == ".tsv" else ",", strict=True)
        return
    for line in file:
        stripped = line.strip()
        if stripped and form == ".txt":
            yield {"text": stripped}
        elif stripped:
            value = json.loads(stripped)
            yield value if isinstance(value, dict) else {"text": value}


def _texts(rows: Iterable[Row], columns: Columns, path: Path) -> Iterator[ReplayText]:
    field = columns.text
    for row in rows:
        if field is None:
            field = next((name for name in _TEXT_FIELDS if name in row), None)
            if field is None:
                names = ", ".join(map(str, row)) or "none"
                raise RequestFailedError(
                    f"{path}: which column holds the text? Name it with --text-field; there are: "
                    f"{names}."
                )
        text = _field(row, field, "--text-field", path)
        if not isinstance(text, str):
            raise RequestFailedError(f"{path}: the column {field} holds {text!r}, not a text.")
        if text.strip():
            yield ReplayText(
                text=text,
                label=_word(
                    _find_optional(row, columns.label, _LABEL_FIELD, "--label-field", path)
                ),
                key=_word(_find_optional(row, columns.key, None, "--key-field", path)),
            )


def _find_optional(row: Row, named: str | None, usual: str | None, flag: str, path: Path) -> object:
    if named is not None:
        return _field(row, named, flag, path)
    return None if usual is None else row.get(usual)


def _field(row: Row, name: str, flag: str, path: Path) -> object:
    if name not in row:
        names = ", ".join(map(str, row))
        raise RequestFailedError(f"{path}: a row has no column {name} ({flag}); it has: {names}.")
    return row[name]


def _word(value: object) -> str | None:
    return None if value is None or value == "" else str(value)
