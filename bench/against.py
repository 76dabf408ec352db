"""``python -P -m bench.against OTHER [SUITE ...]``: two commits side by side, in alternate rounds.

OTHER is another checkout, set up with ``make setup``. A round runs the suites there and here, one
after the other and in the other order the next time, so that what else the machine does strikes
both alike. Printed are the figures that both have, with the ratio of each pair of rounds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[1]

Rounds = Mapping[str, float]  # a figure's value in one round, by suite and name


def main() -> int:
    """Reads the command line, runs, prints, writes."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.against", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout's folder")
    parser.add_argument("suites", nargs="*", metavar="SUITE", default=["gateway", "endtoend"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of a round")
    parser.add_argument("--json", type=Path, help="file to write the results to")
    arguments = parser.parse_args()
    checkouts = {"other": arguments.other.resolve(), "this": HERE}
    seen: dict[str, list[Rounds]] = {name: [] for name in checkouts}
    described: dict[str, object] = {}
    for number in range(arguments.rounds):
        for name in sorted(checkouts, reverse=number % 2 == 1):
            said = _run(checkouts[name], arguments.suites, arguments.seconds)
            described[name] = said["machine"]
            seen[name].append(_values(said["reports"]))
    compared = compare(seen["other"], seen["this"])
    print(table(compared))
    if arguments.json is not None:
        told = {"machines": described, "seconds": arguments.seconds, "figures": compared}
        arguments.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


def _run(checkout: Path, suites: Sequence[str], seconds: float) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(prefix="headrace-against-") as folder:
        results = Path(folder) / "results.json"
        command = [
            str(checkout / ".venv/bin/python"), "-P", "-m", "bench", *suites,
            "--rounds", "1", "--seconds", str(seconds), "--json", str(results),
        ]  # fmt: skip
        subprocess.run(command, cwd=checkout, check=True, stdout=sys.stderr)
        read: Mapping[str, Any] = json.loads(results.read_text(encoding="utf-8"))
        return read


def _values(reports: Iterable[Mapping[str, Any]]) -> Rounds:
    return {
        f"{report['suite']}: {figure['name']} ({figure['unit']})": figure["median"]
        for report in reports
        for figure in report["figures"]
    }


def compare(other: Sequence[Rounds], this: Sequence[Rounds]) -> dict[str, dict[str, list[float]]]:
    """Each figure that every round of both has: its values, and the ratio of each pair of rounds.

    Args:
        other: of the other checkout, a mapping a round.
        this: of this one; the round of the same number ran beside.
    """
    common = set.intersection(*(set(each) for each in (*other, *this)))
    return {
        name: {
            "other": [each[name] for each in other],
            "this": [each[name] for each in this],
            "ratios": [b[name] / a[name] for a, b in zip(other, this, strict=True) if a[name]],
        }
        for name in this[0]
        if name in common
    }


def table(compared: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """For people: medians, and the ratio of this to the other with its lowest and highest round."""
    lines = ["| figure | other | this | this to other |", "|---|---|---|---|"]
    for name, each in compared.items():
        ratios = each["ratios"]
        told = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
        lines.append(
            f"| {name} | {median(each['other']):.5g} | {median(each['this']):.5g} | {told} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
