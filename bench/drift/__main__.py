"""``python -P -m bench.drift``: simulates drift on real texts, prints tables, writes JSON.

``make drift`` runs all of it, in about twenty minutes on one core, and writes the tables of
``docs/statistics.md``. Sizes and seeds are fixed: a machine changes how long it takes, and not what
is found.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench import studies
from bench.drift import false_alarms, rivals, shifts
from bench.drift.figures import Row
from bench.drift.tables import tables
from bench.drift.traffic import Stock

# Streams of each study.
FULL = {"steady": 48, "rhythm": 48, "shifts": 40, "rivals": 12}
SMALL = {"steady": 2, "rhythm": 2, "shifts": 4, "rivals": 2}


def simulate(name: str, streams: int, peers: Path | None) -> list[Row]:
    """One study."""
    stock = Stock.committed()
    if name == "rivals":
        return rivals.study(stock, streams, peers)
    study = {
        "steady": false_alarms.steadily,
        "rhythm": false_alarms.rhythmically,
        "shifts": shifts.study,
    }[name]
    return study(stock, streams)


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, simulates, prints, writes."""
    options = studies.Options("bench.drift", __doc__, FULL, SMALL)
    options.parser.add_argument(
        "--peers", type=Path, help="interpreter that has river; without, no river"
    )
    read = options.read(words)
    found = partial(_found, peers=read.peers)
    studies.run(read.sizes, found, results=read.json, document=read.document)
    return 0


def _found(name: str, streams: int, peers: Path | None) -> studies.Found:
    rows = simulate(name, streams, peers)
    made = tables(name, rows)
    return studies.Found(
        sizes={"streams": streams},
        figures={"rows": [row.plain() for row in rows]},
        tables=made,
        shown="\n".join(f"{title}\n\n{text}\n" for title, text in made.items()),
    )


if __name__ == "__main__":
    sys.exit(main())
