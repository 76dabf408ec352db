"""Files of ids and texts, and of ids and vectors: JSON lines, and Parquet where pyarrow is there.

A row of JSON lines is ``{"id": ..., "text": ...}`` or ``{"id": ..., "vector": [...]}``; Parquet has
the same columns, with vectors as lists of float32 of one size. Ids are texts or whole numbers, all
of one kind; they come out as they went in. Files are read row by row, never as a whole.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from headrace.errors import RequestFailedError
from service import durable

FORMATS = (".jsonl", ".parquet")
_ROWS_AT_ONCE = 4096

Id = str | int
Vector: TypeAlias = "array[float]"  # of the type "f"


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
    yield from _read(path, (columns.id, columns.text))


def read_vectors(path: Path) -> Iterator[tuple[Id, Sequence[float]]]:
    """The ids and vectors of an output or a part; raises ``RequestFailedError``."""
    yield from _read(path, ("id", "vector"))


def _read(path: Path, names: tuple[str, str]) -> Iterator[tuple[Any, Any]]:
    try:
        rows = _read_parquet if format_of(str(path)) == ".parquet" else _read_lines
        yield from rows(path, names)
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
            if names[1] == "vector":
                flat = second.flatten().to_numpy(zero_copy_only=False)
                yield from zip(first.to_pylist(), flat.reshape(len(first), -1), strict=True)
            else:
                yield from zip(first.to_pylist(), second.to_pylist(), strict=True)


def _lacks(where: str, names: tuple[str, str], has: str) -> RequestFailedError:
    return RequestFailedError(
        f"{where}: it needs the columns {names[0]} and {names[1]} and has {has}; --id-field and "
        "--text-field take other names."
    )


def write_part(path: Path, ids: Sequence[Id], vectors: Sequence[Vector]) -> None:
    """Writes a part whole or not at all, and waits until it is on the disk; raises ``OSError``.

    ``vectors`` are of one size.
    """
    aside = path.with_name(f"writing-{path.name}")
    if path.suffix == ".parquet":
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415

        flat = array("f")
        for vector in vectors:
            flat.extend(vector)
        values = pa.FloatArray.from_buffers(pa.float32(), len(flat), [None, pa.py_buffer(flat)])
        lists = pa.FixedSizeListArray.from_arrays(values, len(vectors[0]))
        parquet.write_table(pa.table({"id": list(ids), "vector": lists}), aside)
    else:
        with aside.open("w", encoding="utf-8") as file:
            for key, vector in zip(ids, vectors, strict=True):
                # Nine digits are enough for each float32.
                numbers = ", ".join([f"{number:.9g}" for number in vector])
                file.write(f'{{"id": {json.dumps(key)}, "vector": [{numbers}]}}\n')
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
