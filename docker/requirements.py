"""Prints what extras of ``pyproject.toml`` ask for, a line each: ``requirements.py gateway s3``.

Images hold that alone. The package's own dependencies are the command line's, which no image needs.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
_OWN = re.compile(r"headrace\[(?P<extras>[\w,-]+)\]")


def requirements(extras: Iterable[str], known: Mapping[str, list[str]]) -> tuple[str, ...]:
    """What extras ask for, with those that they name; raises ``KeyError`` for an unknown one."""
    found: dict[str, None] = {}
    for extra in extras:
        for line in known[extra]:
            own = _OWN.fullmatch(line)
            lines = (line,) if own is None else requirements(own["extras"].split(","), known)
            found.update(dict.fromkeys(lines))
    return tuple(found)


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    sys.stdout.write("\n".join(requirements(sys.argv[1:], project["optional-dependencies"])) + "\n")
