"""``python -P -m bench.rollouts``: simulates, prints tables, writes JSON and the documents' tables.

``make simulate`` runs all of it, which takes minutes, ``make simulate-small`` a little of each. The
sizes and seeds are fixed: a machine changes how long it takes, and not what is found.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import studies
from bench.findings import Finding, table
from bench.rollouts import (
    copies,
    faults,
    labels,
    rivals,
    shifts,
    slow_callers,
    small_services,
    whole,
    worlds,
)

FULL = {"caught": 1000, "late": 1000, "passed": 1000, "wrongly-passed": 2000,
        "output-shift": 2000, "drift": 1000, "identical": 2016,
        "harmful": 900, "labels": 500, "worlds": 60, "slow-callers": 60,
        "rivals": 60, "small-services": 20, "one-caller": 60, "copies": 60}  # fmt: skip
SMALL = {"caught": 50, "late": 20, "passed": 50, "wrongly-passed": 100,
         "output-shift": 100, "drift": 50, "identical": 18,
         "harmful": 90, "labels": 50, "worlds": 6, "slow-callers": 4,
         "rivals": 2, "small-services": 2, "one-caller": 2, "copies": 2}  # fmt: skip

# First number of each seed; the others are of the setting, by its place in the study.
SEEDS = {"caught": 1, "late": 11, "passed": 2, "wrongly-passed": 3,
         "output-shift": 4, "drift": 5, "identical": 6, "harmful": 7,
         "labels": labels.SEED, "worlds": worlds.SEED,
         "slow-callers": slow_callers.SEED, "rivals": rivals.SEED,
         "small-services": small_services.SEED, "one-caller": small_services.SEED,
         "copies": copies.SEED}  # fmt: skip
# Studies of which single rows can be made again: a row's seed is its own.
BY_ROWS: dict[str, Callable[[int, str], list[Finding]]] = {
    "worlds": worlds.wrongly_back,
    "copies": copies.copies,
    "slow-callers": slow_callers.slow_callers,
    "rivals": rivals.judged,
}


_SINGLE = {*BY_ROWS, "harmful"}


def simulate(name: str, rollouts: int, processes: int, rows: str = "") -> list[Finding]:
    """One study; of those by rows, and of ``harmful``, what has ``rows`` in its name."""
    if name in BY_ROWS:
        return BY_ROWS[name](rollouts, rows)
    if name == "harmful":
        return whole.harmful(rollouts, processes, rows)
    if name == "identical":
        return whole.identical(rollouts, processes)
    study = {
        "caught": faults.caught,
        "late": faults.late,
        "passed": faults.passed,
        "wrongly-passed": faults.wrongly_passed,
        "output-shift": shifts.output_shift,
        "drift": shifts.drifts,
        "labels": labels.labels,
        "small-services": small_services.small_services,
        "one-caller": small_services.of_one_caller,
    }[name]
    return study(rollouts)


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, simulates, prints, writes."""
    options = studies.Options("bench.rollouts", __doc__, FULL, SMALL)
    options.parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options.parser.add_argument("--worlds", type=Path, help="markdown of the worlds and rivals")
    options.parser.add_argument("--labels", type=Path, help="markdown that has the labels' table")
    told = "markdown that has the slow callers' table"
    options.parser.add_argument("--slow-callers", type=Path, help=told)
    told = f"part of the names of the rows to simulate, of {', '.join(sorted(_SINGLE))}; "
    told += "the table keeps the others as they are"
    options.parser.add_argument("--rows", default="", help=told)
    told = "so many rollouts in place of a study's own number; the results tell it"
    options.parser.add_argument("--rollouts", type=int, default=0, help=told)
    read = options.read(words)
    if read.rollouts < 0:
        options.parser.error("--rollouts is a number of rollouts, 1 at least")
    if read.rollouts:
        read.sizes = dict.fromkeys(read.sizes, read.rollouts)
    if read.rows and not _SINGLE.issuperset(read.sizes):
        options.parser.error(f"--rows goes with {', '.join(sorted(_SINGLE))}")
    found = partial(_found, processes=read.processes, rows=read.rows, kept=read.json)
    documents = {
        "worlds": read.worlds,
        "rivals": read.worlds,
        "one-caller": read.worlds,
        "copies": read.worlds,
        "labels": read.labels,
        "slow-callers": read.slow_callers,
    }
    for name, size in read.sizes.items():
        document = documents.get(name, read.document)
        studies.run({name: size}, found, results=read.json, document=document)
    return 0


def _found(
    name: str, rollouts: int, processes: int, rows: str = "", kept: Path | None = None
) -> studies.Found:
    findings = simulate(name, rollouts, processes, rows)
    made = tuple(dict.fromkeys(each.what for each in findings)) if rows else ()
    if rows and kept is not None:
        findings = beside(findings, json.loads(kept.read_text())["studies"][name]["findings"])
    tables = tables_of(name, findings)
    shown = "\n".join(f"{title}, {rollouts} rollouts\n\n{made}\n" for title, made in tables.items())
    return studies.Found(
        sizes={"rollouts": rollouts, "seed": SEEDS[name]},
        figures={"findings": [found.plain() for found in findings]},
        tables=tables,
        shown=shown,
        rows=made,
    )


def beside(found: Sequence[Finding], kept: Sequence[dict[str, Any]]) -> list[Finding]:
    """Rows as they were kept, in their order, with those found now in place or behind them."""
    by_row: dict[str, list[Finding]] = {each["what"]: [] for each in kept}
    now = {each.what for each in found}
    for each in (*found, *(Finding.of_plain(one) for one in kept if one["what"] not in now)):
        by_row.setdefault(each.what, []).append(each)
    return [each for row in by_row.values() for each in row]


def tables_of(name: str, findings: Sequence[Finding]) -> dict[str, str]:
    """A study's tables, by the names of their places in the document."""
    if name == "rivals":  # identical versions, and harmful ones
        harmful = [found for found in findings if found.where in rivals.OF_HARMS]
        identical = [found for found in findings if found.where not in rivals.OF_HARMS]
        return {"rivals": table(identical), "rivals-harms": table(harmful)}
    return {name: table(findings, turned=name == "small-services")}


if __name__ == "__main__":
    sys.exit(main())
