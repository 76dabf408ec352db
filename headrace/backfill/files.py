"""Files of ids and texts, and of ids and vectors: JSON lines, and Parquet where pyarrow is there.

A row of JSON lines is ``{"id": ..., "text": ...}`` or ``{"id": ..., "vector": [...]}``, with the
columns of ``headrace.backfill.vectors``; Parquet has the same ones. Ids are texts or whole numbers,
all of one kind; they come out as they went in. Files are read row by row, never as a whole.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from headrace.backfill.vectors import DENSE, Vector, kind_in, kind_of
from headrace.errors import RequestFailedError
from service import durable

FORMATS = (".jsonl", ".parquet")
_ROWS_AT_ONCE = 4096

Id: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class TextColumns:
    """The names of the input's columns."""

    id: str = "id"
    text: str = "text"


@dataclass(frozen=True, slots=True)
class Survey:
    """What an input holds: its number of rows, and a digest of all its ids and texts."""

    rows: int
    digest: str


def format_of(path: str) -> str:
    """A file's format by its name; raises ``RequestFailedError`` for any but ``FORMATS``."""
    found = next((each for each in FORMATS if path.lower().endswith(each)), None)
    if found is None:
        raise RequestFailedError(f"{path}: the name has to end with {' or '.join(FORMATS)}.")
    return found


def survey(path: Path, columns: TextColumns) -> Survey:
    """Reads an input once, before anything is asked of anybody.

    Raises:
        RequestFailedError: it can't be read, lacks a column, holds no row, or has an id twice, ids
            of two kinds, or an id or a text that is none.
    """
    seen = set[Id]()
    digest = hashlib.sha256()
    kind: type | None = None
    for number, (key, text) in enumerate(read_texts(path, columns), 1):
        if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
            raise RequestFailedError(
                f"{path}, row {number}: {columns.id} holds {key!r}; ids are texts or whole numbers."
            )
        if not isinstance(text, str) or not text.strip():
            raise RequestFailedError(f"{path}: {columns.text} of {key!r} holds {text!r}, no text.")
        kind = kind or type(key)
        if type(key) is not kind:
            raise RequestFailedError(f"{path}: some ids are texts and some numbers; {key!r} is.")
        if key in seen:
            raise RequestFailedError(f"{path}: two rows have the id {key!r}.")
        seen.add(key)
        try:
            digest.update(json.dumps([key, text], ensure_ascii=False).encode())
        except UnicodeEncodeError as error:
            raise RequestFailedError(f"{path}, row {number}: half a character: {error}.") from error
    if not seen:
        raise RequestFailedError(f"{path} holds no row.")
    return Survey(len(seen), digest.hexdigest())


def read_texts(path: Path, columns: TextColumns) -> Iterator[tuple[Any, Any]]:
    """The ids and texts of an input, unchecked; raises ``RequestFailedError``."""
    with _name_errors(path):
        rows = _read_parquet if _is_parquet(path) else _read_lines
        yield from rows(path, (columns.id, columns.text))


def read_vectors(path: Path) -> Iterator[tuple[Id, Vector]]:
    """The ids and vectors of an output or a part; raises ``RequestFailedError``."""
    with _name_errors(path):
        yield from (_vectors_of_parquet if _is_parquet(path) else _vectors_of_lines)(path)


def _is_parquet(path: Path) -> bool:
    return format_of(str(path)) == ".parquet"


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestFailedError(f"{path} can't be read: {error.strerror or error}.") from error
    except ValueError as error:  # of JSON, UTF-8 and pyarrow
        raise RequestFailedError(f"{path} can't be read: {error}.") from error


def _read_lines(path: Path, names: tuple[str, str]) -> Iterator[tuple[Any, Any]]:
    first, second = names
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = json.loads(line)
            if not isinstance(row, dict) or first not in row or second not in row:
                has = ", ".join(row) if isinstance(row, dict) else "no columns"
                raise _lacks(f"{path}, line {number}", names, has)
            yield row[first], row[second]


def _read_parquet(path: Path, names: tuple[str, str]) -> Iterator[tuple[Any, Any]]:
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    with parquet.ParquetFile(path) as file:
        has = file.schema_arrow.names
        if any(name not in has for name in names):
            raise _lacks(str(path), names, ", ".join(has))
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(names)):
            first, second = (batch.column(name) for name in names)
            yield from zip(first.to_pylist(), second.to_pylist(), strict=True)


def _vectors_of_lines(path: Path) -> Iterator[tuple[Id, Vector]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            kind = kind_in(row)
            yield row["id"], kind.read_columns([row[name] for name in kind.columns])


def _vectors_of_parquet(path: Path) -> Iterator[tuple[Id, Vector]]:
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    with parquet.ParquetFile(path) as file:
        kind = kind_in(file.schema_arrow.names)
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["id", *kind.columns]):
            if kind is DENSE:  # lists of numbers would take minutes for a million texts
                keys, vectors = (batch.column(name) for name in ("id", "vector"))
                flat = vectors.flatten().to_numpy(zero_copy_only=False)
                yield from zip(keys.to_pylist(), flat.reshape(len(keys), -1), strict=True)
                continue
            for key, *fields in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                yield key, kind.read_columns(fields)


def _lacks(where: str, names: tuple[str, str], has: str) -> RequestFailedError:
    return RequestFailedError(
        f"{where}: it needs the columns {names[0]} and {names[1]} and has {has}; --id-field and "
        "--text-field take other names."
    )


def write_part(path: Path, ids: Sequence[Id], vectors: Sequence[Vector]) -> None:
    """Writes a part whole or not at all, and waits until it is on the disk; raises ``OSError``.

    ``vectors`` are of one kind and size.
    """
    kind = kind_of(vectors[0])
    aside = path.with_name(f"writing-{path.name}")
    if path.suffix == ".parquet":
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415

        columns = dict(zip(kind.columns, kind.arrays(vectors), strict=True))
        parquet.write_table(pa.table({"id": list(ids), **columns}), aside)
    else:
        with aside.open("w", encoding="utf-8") as file:
            for key, vector in zip(ids, vectors, strict=True):
                file.write(f'{{"id": {json.dumps(key)}, {kind.line(vector)}}}\n')
    _put(aside, path)


def join_parts(parts: Iterable[Path], whole: Path) -> None:
    """Writes one file of the parts in their order; raises ``OSError``."""
    aside = whole.with_name(f"writing-{whole.name}")
    if whole.suffix == ".parquet":
        from pyarrow import parquet  # noqa: PLC0415 - an extra

        writer: Any = None
        for part in parts:
            table = parquet.read_table(part)
            writer = writer or parquet.ParquetWriter(aside, table.schema)
            writer.write_table(table)
        writer.close()
    else:
        with aside.open("wb") as file:
            for part in parts:
                file.write(part.read_bytes())
    _put(aside, whole)


def _put(aside: Path, path: Path) -> None:
    durable.sync(aside)
    aside.replace(path)
    durable.sync(path.parent)
