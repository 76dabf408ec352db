"""What the chart's ValidatingAdmissionPolicy asks: ``python -P -m headrace.crd.ceilings FILE``.

Made from the table of ``contracts/ceilings.py``, so that a cluster refuses what the controller
refuses. The chart holds the file and puts the operator's numbers in; a test holds it current.
"""

import sys
from pathlib import Path

import yaml

from contracts.ceilings import CEILINGS, POOL_CEL, POOLS

_HEADER = "# Made by python -P -m headrace.crd.ceilings from contracts/ceilings.py. Do not edit.\n"


def as_yaml() -> str:
    """The chart's file: of each ceiling its name, what it bounds, and the wish as CEL."""
    rows = [{"name": each.name, "what": each.what, "wish": each.cel} for each in CEILINGS]
    rows.append({"name": POOLS, "what": "spec.pool", "wish": POOL_CEL})
    text: str = yaml.safe_dump(rows, sort_keys=False, width=100)
    return _HEADER + text


def main(arguments: list[str]) -> int:
    """Writes the file that is named; returns the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -P -m headrace.crd.ceilings FILE\n")
        return 2
    Path(arguments[0]).write_text(as_yaml(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
