"""``python -P -m bench.rollouts``: simulates, prints tables, writes JSON and the document's tables.

``make simulate`` runs all of it, which takes minutes, ``make simulate-small`` a little of each. The
sizes and seeds are fixed: a machine changes how long it takes, and not what is found.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from bench import machine
from bench.rollouts import faults, shifts, whole
from bench.rollouts.findings import Finding
from bench.rollouts.tables import table, written

FULL = {"caught": 1000, "passed": 1000, "wrongly-passed": 2000, "output-shift": 2000,
        "drift": 1000, "identical": 2016, "harmful": 900}  # fmt: skip
SMALL = {"caught": 50, "passed": 50, "wrongly-passed": 100, "output-shift": 100, "drift": 50,
         "identical": 18, "harmful": 90}  # fmt: skip

# First number of each seed; the others are of the setting, by its place in the study.
SEEDS = {"caught": 1, "passed": 2, "wrongly-passed": 3, "output-shift": 4, "drift": 5,
         "identical": 6, "harmful": 7}  # fmt: skip
_WHOLE = {"identical": whole.identical, "harmful": whole.harmful}


def simulate(name: str, rollouts: int, processes: int) -> list[Finding]:
    """One study."""
    if name in _WHOLE:
        return _WHOLE[name](rollouts, processes)
    study = {
        "caught": faults.caught,
        "passed": faults.passed,
        "wrongly-passed": faults.wrongly_passed,
        "output-shift": shifts.output_shift,
        "drift": shifts.drifts,
    }[name]
    return study(rollouts)


def main() -> int:
    """Reads the command line, simulates, prints, writes."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.rollouts", description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(FULL))
    parser.add_argument("--small", action="store_true", help="few of each, in under a minute")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
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
        findings = simulate(name, sizes[name], arguments.processes)
        print(f"{name}, {sizes[name]} rollouts\n\n{table(findings)}\n", flush=True)
        studies[name] = {
            "rollouts": sizes[name],
            "seed": SEEDS[name],
            "seconds": round(time.monotonic() - began, 1),
            "machine": machine.describe(),
            "findings": [found.plain() for found in findings],
        }
        if arguments.json:
            arguments.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        if arguments.document:
            text = arguments.document.read_text(encoding="utf-8")
            arguments.document.write_text(written(text, {name: table(findings)}), encoding="utf-8")
    return 0


def _read(path: Path | None) -> dict[str, dict[str, object]]:
    if path is None or not path.exists():
        return {"studies": {}}
    content: dict[str, dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))
    return content


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
