"""The program of a set of simulated studies: reads options, runs them, prints and keeps tables.

What a study found is kept as soon as it ends, so that a later one's failure loses nothing.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine


class NoMarkersError(ValueError):
    """The document has no place for a study's table."""


@dataclass(frozen=True)
class Found:
    """What a study found.

    Attributes:
        sizes: how much was simulated, and from which seed.
        figures: as they are kept.
        tables: name of a table's place in the document -> the table.
        shown: what is printed.
        rows: those that were made now; empty: all.
    """

    sizes: Mapping[str, object]
    figures: Mapping[str, object]
    tables: Mapping[str, str]
    shown: str
    rows: tuple[str, ...] = ()


class Options:
    """The command line of a set of studies."""

    def __init__(
        self, program: str, told: str | None, full: Mapping[str, int], small: Mapping[str, int]
    ) -> None:
        self._full = full
        self._small = small
        self.parser = argparse.ArgumentParser(prog=f"python -P -m {program}", description=told)
        add = self.parser.add_argument
        add("studies", nargs="*", metavar="STUDY", help=", ".join(full))
        add("--small", action="store_true", help="a little of each, to see that it runs")
        add("--json", type=Path, help="file of results; other studies in it are kept")
        add("--document", type=Path, help="markdown whose tables are written")

    def read(self, words: Sequence[str] | None) -> argparse.Namespace:
        """The options, by default of the command line; ``sizes`` holds the studies."""
        read = self.parser.parse_args(words)
        sizes = self._small if read.small else self._full
        for name in read.studies:
            if name not in sizes:
                self.parser.error(f"there is no study {name}: choose from {', '.join(sizes)}")
        read.sizes = {name: sizes[name] for name in read.studies or sizes}
        if read.small:
            print("A little of each, to see that it runs: too few to hold a target to.\n")
        return read


def run(
    sizes: Mapping[str, int],
    simulate: Callable[[str, int], Found],
    *,
    results: Path | None,
    document: Path | None,
) -> None:
    """Simulates each study at its size; prints what it found, and keeps it in these files."""
    kept: dict[str, Any] = _read(results)
    for name, size in sizes.items():
        began = time.monotonic()
        found = simulate(name, size)
        print(found.shown, flush=True)
        made = {
            **found.sizes,
            "seconds": round(time.monotonic() - began, 1),
            "machine": machine.describe(),
        }
        kept["studies"][name] = {**_with(kept["studies"].get(name), made, found), **found.figures}
        if results is not None:
            results.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        if document is not None:
            text = document.read_text(encoding="utf-8")
            document.write_text(written(text, found.tables), encoding="utf-8")


def _with(
    before: Mapping[str, Any] | None, made: Mapping[str, Any], found: Found
) -> Mapping[str, Any]:
    """How a study was made; of rows made later than the others, how each of these was."""
    if before is None or not found.rows:
        return made
    later = [
        {**each, "rows": [row for row in each["rows"] if row not in found.rows]}
        for each in before.get("later", [])
    ]
    later = [each for each in later if each["rows"]]
    return {**before, "later": [*later, {"rows": list(found.rows), **made}]}


def written(document: str, tables: Mapping[str, str], marker: str = "simulated") -> str:
    """The document with these tables between the markers that name them; the rest is people's."""
    for name, text in tables.items():
        begin, end = f"<!-- {marker}: {name} -->", "<!-- end -->"
        head, found, behind = document.partition(f"{begin}\n")
        _, closed, tail = behind.partition(end)
        if not found or not closed:
            raise NoMarkersError(f"there is no '{begin}' with an '{end}' behind it")
        document = f"{head}{found}{text}\n{closed}{tail}"
    return document


def _read(path: Path | None) -> dict[str, dict[str, object]]:
    if path is None or not path.exists():
        return {"studies": {}}
    content: dict[str, dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))
    return content
