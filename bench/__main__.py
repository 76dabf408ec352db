"""``python -P -m bench [SUITE ...]``: runs suites, prints a table each, writes JSON.

Without a suite it runs those that need neither a GPU nor torch; ``gpu`` has options of its own
(``python -P -m bench gpu --help``). The load generator, Kafka and all
else that is not under test keep to one core, what is under test has the other.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench import machine
from bench.figures import Report, table
from bench.gpu import command as gpu
from bench.plan import Plan
from bench.suites import (
    cache,
    endtoend,
    fold,
    gateway,
    joining,
    overload,
    shadow,
)

SUITES: dict[str, Callable[[Plan], Report]] = {
    "gateway": gateway.run,
    "endtoend": endtoend.run,
    "overload": overload.run,
    "joining": joining.run,
    "cache": cache.run,
    "shadow": shadow.run,
    "fold": fold.run,
}


def main() -> int:
    """Reads the command line, runs, prints, writes."""
    if sys.argv[1:2] == ["gpu"]:
        return gpu.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -P -m bench", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--json", type=Path, help="file to write the results to")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each, interleaved")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of a round")
    parser.add_argument("--warm-up-seconds", type=float, default=2.0, help="time not measured")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--keep", type=Path, help="folder for logs and state, kept")
    parser.add_argument(
        "--cache",
        type=Path,
        default=os.environ.get("HEADRACE_CACHE", "~/.cache/headrace"),
        help="folder of downloads (HEADRACE_CACHE)",
    )
    arguments = parser.parse_args()
    for name in arguments.suites:
        if name not in SUITES:
            parser.error(f"there is no suite {name}: choose from {', '.join(SUITES)}")

    described = machine.describe()
    under_test, rest = machine.two_cores()
    # Whatever is started keeps to this core, unless its suite moves it to the other.
    os.sched_setaffinity(0, [rest])
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    results: dict[str, object] = {"machine": described, "arguments": _plain(arguments)}
    reports: list[dict[str, object]] = []
    try:
        for name in arguments.suites or SUITES:
            plan = Plan(
                folder=folder / name,
                cache=Path(arguments.cache).expanduser(),
                rounds=arguments.rounds,
                seconds=arguments.seconds,
                warm_up_seconds=arguments.warm_up_seconds,
                under_test=under_test,
                rest=rest,
                seed=arguments.seed,
            )
            plan.folder.mkdir(parents=True, exist_ok=True)
            report = SUITES[name](plan)
            print(table(report), end="\n\n", flush=True)
            reports.append(_json(report))
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        results["reports"] = reports
        if arguments.json is not None and reports:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _plain(arguments: argparse.Namespace) -> dict[str, object]:
    chosen = ("rounds", "seconds", "warm_up_seconds", "seed")
    return {name: getattr(arguments, name) for name in chosen}


def _json(report: Report) -> dict[str, object]:
    return {**asdict(report), "figures": [figure.plain() for figure in report.figures]}


if __name__ == "__main__":
    sys.exit(main())
