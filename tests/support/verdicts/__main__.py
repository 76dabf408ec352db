"""``python -P -m verdicts [STUDY ...]``: simulates whole rollouts, and prints tables.

``make simulate`` runs all of it, which takes minutes, ``make simulate STUDY=--small`` a little of
each. Sizes and seeds are fixed: a machine changes how long it takes, and not what is found.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from verdicts import (
    backfills,
    claimed_spaces,
    cold_starts,
    late_labels,
    search,
    whole,
    worlds,
)
from verdicts.findings import Finding, table

STUDIES = ("labels", "cold", "shared", "sessions", "names", "found", "claims")
# Of a backfill there are interactive calls, in place of rollouts.
FULL = {"identical": 2016, "harmful": 900, "worlds": 60, **dict.fromkeys(STUDIES, 200)} | {
    "found": 40,
    "claims": 100,
    "backfill": 20_000,
}
SMALL = {"identical": 18, "harmful": 90, "worlds": 6, **dict.fromkeys(STUDIES, 6)} | {
    "sessions": 2,
    "found": 2,
    "claims": 2,
    "backfill": 200,
}


def simulate(name: str, rollouts: int, processes: int) -> list[Finding]:
    """One study, of so many rollouts (of all but the first two, in each of their worlds)."""
    studies: dict[str, Callable[[], list[Finding]]] = {
        "identical": lambda: whole.identical(rollouts, processes),
        "harmful": lambda: whole.harmful(rollouts, processes),
        "worlds": lambda: worlds.wrongly_back(rollouts),
        "labels": lambda: late_labels.wrongly_back(rollouts),
        "cold": lambda: cold_starts.wrongly_back(rollouts, processes),
        "shared": lambda: worlds.wrongly_back(rollouts, worlds.SHARED),
        "claims": lambda: claimed_spaces.tested(rollouts),
        "backfill": lambda: backfills.slowed(rollouts, processes),
        "sessions": lambda: worlds.wrongly_back(rollouts, worlds.SESSIONS, seed=35),
        "names": lambda: worlds.wrongly_back(rollouts, worlds.NAMES_CHANGE, seed=35),
        "found": lambda: search.again(rollouts),
    }
    return studies[name]()


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, simulates, prints."""
    parser = argparse.ArgumentParser(prog="python -P -m verdicts", description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(FULL))
    parser.add_argument("--small", action="store_true", help="a little of each")
    parser.add_argument("--rollouts", type=int, help="in place of each study's own number")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    read = parser.parse_args(words)
    sizes = SMALL if read.small else FULL
    if read.rollouts:
        sizes = dict.fromkeys(sizes, read.rollouts)
    for name in read.studies:
        if name not in sizes:
            parser.error(f"there is no study {name}: choose from {', '.join(sizes)}")
    for name in read.studies or sizes:
        made = table(simulate(name, sizes[name], read.processes))
        print(f"{name}, {sizes[name]} rollouts\n\n{made}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
