"""``python -P -m bench.drift``: simulates drift on real texts, prints tables, writes JSON.

``make drift`` runs all of it, in about twenty minutes on one core, and writes the tables of
``docs/statistics.md``. Sizes and seeds are fixed: a machine changes how long it takes, and not what
is found.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from bench import machine
from bench.drift import false_alarms, rivals, shifts
from bench.drift.figures import Row
from bench.drift.tables import tables
from bench.drift.traffic import Stock
from bench.rollouts.tables import written

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


def main() -> int:
    """Reads the command line, simulates, prints, writes."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.drift", description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(FULL))
    parser.add_argument("--small", action="store_true", help="few streams, to see that it runs")
    parser.add_argument("--peers", type=Path, help="interpreter that has river; without, no river")
    parser.add_argument("--json", type=Path, help="file of results; other studies in it are kept")
    parser.add_argument("--document", type=Path, help="markdown whose tables are written")
    arguments = parser.parse_args()
    sizes = SMALL if arguments.small else FULL
    for name in arguments.studies:
        if name not in sizes:
            parser.error(f"there is no study {name}: choose from {', '.join(sizes)}")
    kept = _read(arguments.json)
    studies = kept["studies"]
    for name in arguments.studies or sizes:
        began = time.monotonic()
        rows = simulate(name, sizes[name], arguments.peers)
        studies[name] = {
            "streams": sizes[name],
            "seconds": round(time.monotonic() - began, 1),
            "machine": machine.describe(),
            "rows": [row.plain() for row in rows],
        }
        made = tables(name, rows)
        for title, text in made.items():
            print(f"{title}\n\n{text}\n", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        if arguments.document:
            text = arguments.document.read_text(encoding="utf-8")
            arguments.document.write_text(written(text, made), encoding="utf-8")
    return 0


def _read(path: Path | None) -> dict[str, dict[str, object]]:
    if path is None or not path.exists():
        return {"studies": {}}
    content: dict[str, dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))
    return content


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
