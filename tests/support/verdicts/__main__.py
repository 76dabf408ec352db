"""``make simulate STUDY=NAME``: simulates rollouts and prints the tables that pages show of them.

The sizes and seeds are fixed: a machine changes how long it takes, and not what is found. All
studies take hours of a core; ``--rollouts`` asks for fewer, and ``--rows`` for single rows.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from verdicts import copies, small_services, whole, worlds
from verdicts.findings import Finding, table

ROLLOUTS = {
    "identical": 2016,
    "harmful": 900,
    "worlds": 60,
    "copies": 60,
    "small-services": 20,
    "one-caller": 60,
}
_BY_ROWS = ("harmful", "worlds", "copies")


def simulate(study: str, rollouts: int, processes: int, rows: str = "") -> list[Finding]:
    """One study; of those by rows what has ``rows`` in its name."""
    match study:
        case "identical":
            return whole.identical(rollouts, processes)
        case "harmful":
            return whole.harmful(rollouts, processes, rows)
        case "worlds":
            return worlds.wrongly_back(rollouts, rows)
        case "copies":
            return copies.copies(rollouts, rows)
        case "small-services":
            return small_services.small_services(rollouts)
        case _:
            return small_services.of_one_caller(rollouts)


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, simulates, prints."""
    parser = argparse.ArgumentParser(prog="python -P -m verdicts", description=__doc__)
    add = parser.add_argument
    add("studies", nargs="*", metavar="STUDY", help=", ".join(ROLLOUTS))
    add("--processes", type=int, default=len(os.sched_getaffinity(0)))
    add("--rollouts", type=int, default=0, help="so many in place of a study's own number")
    add("--rows", default="", help=f"only rows with this in their names, of {', '.join(_BY_ROWS)}")
    options = parser.parse_args(words)
    for name in options.studies:
        if name not in ROLLOUTS:
            parser.error(f"there is no study {name}: choose from {', '.join(ROLLOUTS)}")
    for name in options.studies or ROLLOUTS:
        count = options.rollouts or ROLLOUTS[name]
        found = simulate(name, count, options.processes, options.rows)
        made = table(found, turned=name == "small-services")
        print(f"{name}, {count} rollouts\n\n{made}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
