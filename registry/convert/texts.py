"""Finds the texts that a version is verified, calibrated and profiled on.

Best are the texts that the version was evaluated on: a file in a folder called ``evaluation``, or
called ``evaluation_texts``, beside the model or among the run's artifacts (``.txt``: a text a line;
``.jsonl``: objects with ``text``; ``.csv``: a column ``text``). Without one, neutral sentences that
come with Headrace stand in, and the profile says so. ``docs/models.md`` has this for users. Texts
never enter the package.
"""

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from registry.convert.errors import VersionError

STEM = "evaluation_texts"
FOLDER = "evaluation"
SUFFIXES = (".txt", ".jsonl", ".csv")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_TEXTS = 5000
_MOST_BYTES = 32 << 20
_JOINED_WORDS = (24, 48, 96, 192, 384)


@dataclass(frozen=True)
class EvaluationTexts:
    """Texts, and where they came from in words; ``own`` if they are the version's."""

    texts: tuple[str, ...]
    source: str
    own: bool


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
            if path.is_file() and is_evaluation_file(str(name)) and (texts := _read(path)):
                return EvaluationTexts(
                    thinned(texts, _MOST_TEXTS), f"{name} of the version", own=True
                )
    bundled = files("registry.convert").joinpath("texts.txt").read_text(encoding="utf-8")
    return EvaluationTexts(tuple(bundled.splitlines()), "neutral texts of Headrace", own=False)


def with_long_ones(texts: Sequence[str]) -> tuple[str, ...]:
    """The texts and, behind them, a few long ones that are joined from them.

    Evaluation sets are often all short; a served model gets long texts all the same.
    """
    words = " ".join(texts).split()
    joined = [
        " ".join(words[start : start + size])
        for size in _JOINED_WORDS
        for start in range(0, min(len(words), 2 * size), size)
    ]
    return (*texts, *joined)


def thinned(texts: Sequence[str], count: int) -> tuple[str, ...]:
    """At most ``count`` of the texts, evenly out of all."""
    if len(texts) <= count:
        return tuple(texts)
    return tuple(texts[place * len(texts) // count] for place in range(count))


def _read(path: Path) -> list[str]:
    if path.stat().st_size > _MOST_BYTES:
        raise VersionError(f"{path.name} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        content = path.read_text(encoding="utf-8")
        if path.suffix == ".txt":
            texts = content.splitlines()
        elif path.suffix == ".jsonl":
            texts = [json.loads(line)["text"] for line in content.splitlines() if line.strip()]
        else:
            texts = [row["text"] for row in csv.DictReader(content.splitlines(keepends=True))]
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise VersionError(f"{path.name} can't be read as evaluation texts: {error}") from error
    if not all(isinstance(text, str) for text in texts):
        raise VersionError(f"{path.name} has a text that is not a string")
    if any(not text.isascii() and _SURROGATE.search(text) for text in texts):
        raise VersionError(f"{path.name} has a text with a lone surrogate, which is no Unicode")
    return [text for text in texts if text.strip()]
