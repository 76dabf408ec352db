"""``python -P -m bench.drift``: simulates drift on real texts, prints tables, writes JSON.

``make drift`` runs all of it, in about an hour on one core, and writes the tables of
``docs/drift-figures.md``. Sizes and seeds are fixed: a machine changes how long it takes, and not
what is found.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench import studies
from bench.drift import false_alarms, libraries, rivals, shifts, topic_shifts, weeks
from bench.drift.traffic import Stock
from bench.findings import Finding, table

# Streams of each study.
FULL = {
    "steady": 48,
    "rhythm": 48,
    "shifts": 40,
    "weeks": 26,
    "topics": 26,
    "vectors": 26,
    "rivals": 12,
    "libraries": 3,
}
SMALL = {
    "steady": 2,
    "rhythm": 2,
    "shifts": 4,
    "weeks": 2,
    "topics": 2,
    "vectors": 2,
    "rivals": 2,
    "libraries": 1,
}


def simulate(name: str, streams: int, peers: Path | None) -> list[Finding]:
    """One study."""
    stock = Stock.committed()
    if name == "rivals":
        return rivals.study(stock, streams, peers)
    if name == "libraries":
        environments = Path(".venv") if peers is None else peers.parents[2]
        return libraries.study(stock, streams, environments)
    known: dict[str, Callable[[Stock, int], list[Finding]]] = {
        "steady": false_alarms.steadily,
        "rhythm": false_alarms.rhythmically,
        "shifts": shifts.study,
        "weeks": weeks.study,
        "topics": topic_shifts.study,
        "vectors": partial(topic_shifts.study, source=topic_shifts.VECTORS),
    }
    return known[name](stock, streams)


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, simulates, prints, writes."""
    options = studies.Options("bench.drift", __doc__, FULL, SMALL)
    options.parser.add_argument(
        "--peers",
        type=Path,
        help="interpreter that has river; the libraries' environments lie beside it",
    )
    read = options.read(words)
    found = partial(_found, peers=read.peers)
    studies.run(read.sizes, found, results=read.json, document=read.document)
    return 0


def _found(name: str, streams: int, peers: Path | None) -> studies.Found:
    rows = simulate(name, streams, peers)
    tables = tables_of(name, rows)
    return studies.Found(
        sizes={"streams": streams},
        figures={"rows": [row.plain() for row in rows]},
        tables=tables,
        shown="\n".join(f"{title}\n\n{made}\n" for title, made in tables.items()),
    )


def tables_of(study: str, rows: Sequence[Finding]) -> dict[str, str]:
    """Every table of a study, by the name of its place in the document."""
    if study in {"weeks", "topics", "vectors"}:  # rates and windows have other columns
        needed = [row for row in rows if row.unit == "windows"]
        rates = [row for row in rows if row.unit != "windows"]
        return {f"drift-{study}": table(rates), f"drift-{study}-shifts": table(needed, turned=True)}
    return {f"drift-{study}": table_of(study, rows)}


def table_of(study: str, rows: Sequence[Finding]) -> str:
    """One line for each ``what``; for each method where shifts are to be found."""
    if study in {"shifts", "rivals", "libraries"}:
        return table(rows, turned=True)
    # Warnings and alarms are rarer still than what is significant: the JSON has them.
    return table([row for row in rows if "significant" in row.what or "PSI" in row.what])


if __name__ == "__main__":
    sys.exit(main())
