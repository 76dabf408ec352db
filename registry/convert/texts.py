"""Finds the texts that a version is verified, calibrated and profiled on.

Best are the texts that the version was evaluated on: a file in a folder called ``evaluation``, or
called ``evaluation_texts``, beside the model or among the run's artifacts (``.txt``: a text a line;
``.jsonl``: objects with ``text``; ``.csv``: a column ``text``; objects and rows may have a
``text_pair``). Without one, neutral sentences that
come with Headrace stand in, and the profile says so. ``docs/models.md`` has this for users. Texts
never enter the package.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import TypeVar

from registry.convert.errors import VersionError
from registry.convert.flavours.config import parse_json

STEM = "evaluation_texts"
FOLDER = "evaluation"
SUFFIXES = (".txt", ".jsonl", ".csv")
_MOST_TEXTS = 5000
_MOST_BYTES = 32 << 20
_JOINED_WORDS = (24, 48, 96, 192, 384)

Item = TypeVar("Item")
_Row = tuple[str, str | None]  # a text, and the second one of a pair


@dataclass(frozen=True)
class EvaluationTexts:
    """Texts, and where they came from in words; ``own`` if they are the version's.

    ``pairs`` has the second text of each, if they are pairs.
    """

    texts: tuple[str, ...]
    source: str
    own: bool
    pairs: tuple[str, ...] | None = None

    def thin(self, count: int) -> "EvaluationTexts":
        """At most ``count`` of them, evenly out of all."""
        pairs = None if self.pairs is None else thin_out(self.pairs, count)
        return replace(self, texts=thin_out(self.texts, count), pairs=pairs)

    def with_further(self, further: Sequence[str]) -> "EvaluationTexts":
        """Returns the texts with further texts behind them, as pairs each with the next one."""
        texts = (*self.texts, *further)
        if self.pairs is None:
            return replace(self, texts=texts)
        return replace(self, texts=texts, pairs=(*self.pairs, *further[1:], *further[:1]))

    def with_long_ones(self, longest: int = 0) -> "EvaluationTexts":
        """Adds a few long texts at the end, of both texts of a pair: see below."""
        texts = with_long_ones(self.texts, longest)
        if self.pairs is None:
            return replace(self, texts=texts)
        pairs = with_long_ones(self.pairs, longest)
        both = list(zip_longest(texts, pairs, fillvalue=""))
        return replace(
            self, texts=tuple(text for text, _ in both), pairs=tuple(pair for _, pair in both)
        )

    def fill(self, count: int) -> "EvaluationTexts":
        """Adds neutral texts of Headrace at the end, if there are fewer than ``count``."""
        if len(self.texts) >= count or self.pairs is not None:
            return self
        return replace(self, texts=(*self.texts, *_read_bundled())[:count])

    def pair(self) -> "EvaluationTexts":
        """As pairs. If the texts are none, each is paired with the next one."""
        if self.pairs is not None:
            return self
        return replace(self, pairs=(*self.texts[1:], *self.texts[:1]))

    def single(self) -> "EvaluationTexts":
        """Returns the texts without second texts."""
        return replace(self, pairs=None)


def is_evaluation_file(path: str) -> bool:
    """Whether an artifact holds evaluation texts, by its name."""
    place = Path(path)
    named = place.stem == STEM or FOLDER in place.parts[:-1]
    return named and place.suffix in SUFFIXES


def find(folders: Sequence[Path]) -> EvaluationTexts:
    """The version's own texts out of the first folder that has some, else the bundled ones.

    At most 5,000 are taken, evenly out of all.

    Raises:
        VersionError: a file of evaluation texts that can't be read.
    """
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and is_evaluation_file(str(name)) and (rows := _read(path)):
                return _evaluation(rows, f"{name} of the version")
    return EvaluationTexts(_read_bundled(), "neutral texts of Headrace", own=False)


def _read_bundled() -> tuple[str, ...]:
    text = files("registry.convert").joinpath("texts.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def _evaluation(rows: Sequence[_Row], source: str) -> EvaluationTexts:
    texts = tuple(text for text, _ in rows)
    pairs = tuple(pair for _, pair in rows if pair is not None)
    if pairs and len(pairs) != len(texts):
        raise VersionError(f"{source} has a text_pair in some rows and not in others")
    return EvaluationTexts(texts, source, own=True, pairs=pairs or None).thin(_MOST_TEXTS)


def with_long_ones(texts: Sequence[str], longest: int = 0) -> tuple[str, ...]:
    """The texts and, behind them, a few long ones that are joined from them.

    Evaluation sets are often all short; a served model gets long texts all the same. The last one
    has as many words as the longest row has tokens, if that is more.
    """
    words = " ".join(texts).split()
    joined = [
        " ".join(words[start : start + size])
        for size in _JOINED_WORDS
        for start in range(0, min(len(words), 2 * size), size)
    ]
    if words and longest > max(_JOINED_WORDS):
        joined.append(" ".join(islice(cycle(words), longest)))
    return (*texts, *joined)


def thin_out(texts: Sequence[Item], count: int) -> tuple[Item, ...]:
    """At most ``count`` of the texts or rows, evenly out of all."""
    if len(texts) <= count:
        return tuple(texts)
    return tuple(texts[place * len(texts) // count] for place in range(count))


def _read(path: Path) -> list[_Row]:
    if path.stat().st_size > _MOST_BYTES:
        raise VersionError(f"{path.name} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        content = path.read_text(encoding="utf-8")
        if path.suffix == ".txt":
            rows: list[_Row] = [(line, None) for line in content.splitlines()]
        elif path.suffix == ".jsonl":
            objects = [parse_json(row, path.name) for row in content.split("\n") if row.strip()]
            rows = [(each["text"], each.get("text_pair")) for each in objects]
        else:
            table = csv.DictReader(content.splitlines(keepends=True))
            rows = [(row["text"], row.get("text_pair")) for row in table]
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise VersionError(f"{path.name} can't be read as evaluation texts: {error}") from error
    texts = [text for row in rows for text in row if text is not None]
    if not all(isinstance(text, str) for text in (*texts, *(row[0] for row in rows))):
        raise VersionError(f"{path.name} has a text that is not a string")
    return [row for row in rows if row[0].strip()]
