"""Rows that a version is compared and profiled on.

Best are the rows that it was evaluated on: a ``.csv`` or ``.jsonl`` with a column for each feature
where texts would be (``registry.convert.texts``). Else the ``input_example`` that MLflow keeps.
Rows that are drawn around these, or around nothing, stand in if they are too few; they are never
part of a profile.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contracts.features import FeatureKind
from registry.convert.errors import VersionError
from registry.convert.flavours.config import parse_json
from registry.convert.tables.flavour import SignatureColumn, TableVersion
from registry.convert.tables.original import Row
from registry.convert.texts import is_evaluation_file, thin_out

EXAMPLE = "input_example.json"
_MOST_ROWS = 5000
_MOST_BYTES = 64 << 20
_SPREAD = 0.25  # beyond what was seen, of its width, to each side
_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")
_MISSING = ("", "nan", "null", "none")


@dataclass(frozen=True)
class OwnRows:
    """Rows of the version's own, and where they came from in words."""

    rows: tuple[Row, ...]
    source: str


def find(version: TableVersion, folders: Sequence[Path]) -> OwnRows:
    """The version's own rows: none, if it has none.

    Raises:
        VersionError: a file of them that can't be read.
    """
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if (
                path.is_file()
                and path.suffix in (".csv", ".jsonl")
                and is_evaluation_file(str(name))
            ):
                rows = _rows(path.name, _read(path), version.columns)
                return OwnRows(tuple(thin_out(rows, _MOST_ROWS)), f"{name} of the version")
    example = version.folder / EXAMPLE
    if example.is_file():
        try:
            found = _example(parse_json(example.read_bytes(), EXAMPLE), version.columns)
        except (ValueError, KeyError, TypeError) as error:
            raise VersionError(f"{EXAMPLE} can't be read: {error}") from error
        return OwnRows(tuple(_rows(EXAMPLE, found, version.columns)), "the version's input example")
    return OwnRows((), "no rows of its own")


def draw_rows(
    columns: Sequence[SignatureColumn],
    rows: Sequence[Row],
    categories: Mapping[str, Sequence[str]],
    count: int,
) -> list[Row]:
    """Rows that are drawn feature by feature, the same ones each time.

    Numbers lie around those that were seen, or around 0 if none were; half of them are among
    those that were seen.
    """
    random = np.random.default_rng(0)
    values = {
        column.name: _draw_values(
            column, [row[column.name] for row in rows], categories, count, random
        )
        for column in columns
    }
    return [{name: found[at] for name, found in values.items()} for at in range(count)]


def _draw_values(
    column: SignatureColumn,
    seen: Sequence[Any],
    categories: Mapping[str, Sequence[str]],
    count: int,
    random: np.random.Generator,
) -> list[Any]:
    if column.kind is FeatureKind.CATEGORY:
        known = categories[column.name]
        return [known[at] for at in random.integers(len(known), size=count)]
    if column.kind is FeatureKind.BOOLEAN:
        return [bool(at) for at in random.integers(2, size=count)]
    numbers = np.array([value for value in seen if value is not None], np.float64)
    if len(numbers) == 0:
        found = random.normal(0, 3, size=count)
    else:
        low, high = numbers.min(), numbers.max()
        wide = _SPREAD * (high - low)
        found = random.uniform(low - wide, high + wide, size=count)
        again = random.random(count) < 0.5
        found = np.where(again, random.choice(numbers, size=count), found)
    if column.kind is FeatureKind.INTEGER:
        return [int(value) for value in np.rint(found)]
    return [float(value) for value in found]


def _read(path: Path) -> list[Mapping[str, Any]]:
    if path.stat().st_size > _MOST_BYTES:
        raise VersionError(f"{path.name} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        content = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            return [parse_json(row, path.name) for row in content.split("\n") if row.strip()]
        return list(csv.DictReader(content.splitlines(keepends=True)))
    except (ValueError, csv.Error) as error:
        raise VersionError(f"{path.name} can't be read as rows: {error}") from error


def _example(data: Any, columns: Sequence[SignatureColumn]) -> list[Mapping[str, Any]]:  # noqa: ANN401
    """The rows of MLflow's example: a frame in one of its two forms, or an array."""
    names = [column.name for column in columns]
    if isinstance(data, dict) and "data" in data:
        named = data.get("columns", names)
        return [dict(zip(named, row, strict=True)) for row in data["data"]]
    if isinstance(data, dict):
        data = data.get("inputs", data)
    if not isinstance(data, list):
        raise TypeError("it holds no rows")
    return [row if isinstance(row, dict) else dict(zip(names, row, strict=True)) for row in data]


def _rows(
    source: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[SignatureColumn]
) -> list[Row]:
    found: list[Row] = []
    for number, row in enumerate(rows):
        try:
            found.append({column.name: _value(column, row[column.name]) for column in columns})
        except (KeyError, TypeError, ValueError) as error:
            raise VersionError(
                f"row {number} of {source} is none of the model's: {error!r}"
            ) from error
    return found


def _value(column: SignatureColumn, value: Any) -> Any:  # noqa: ANN401 - out of a file
    """A value as the model takes it; of CSV they are all texts."""
    if column.kind is FeatureKind.CATEGORY:
        return None if value is None else str(value)
    if value is None or (isinstance(value, str) and value.strip().lower() in _MISSING):
        return None
    if column.kind is FeatureKind.BOOLEAN:
        text = str(value).strip().lower()
        if text not in (*_TRUE, *_FALSE):
            raise ValueError(f"{column.name} is {text[:40]!r}")
        return text in _TRUE
    number = float(value)
    if math.isnan(number):
        return None
    return int(number) if column.kind is FeatureKind.INTEGER else number
