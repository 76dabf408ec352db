"""``headrace gc``: removes packages that nobody needs any more."""

from pathlib import Path

from headrace.commands.output import console, print_json
from headrace.errors import NotRunningError
from headrace.stack import answers
from headrace.stack.state import Home
from registry import gc


def run(root: Path, *, keep: int, as_json: bool) -> None:
    """Removes all but the newest ``keep`` packages of each model and what endpoints name.

    Raises:
        NotRunningError: there is no such home.
    """
    home = Home(root)
    if not home.marker.exists():
        raise NotRunningError(f"{root} is no Headrace home. Start a stack with headrace up.")
    removed = gc.collect(home.packages.as_uri(), answers.read(home).values(), keep=keep)
    if as_json:
        print_json({"removed": removed})
    else:
        console.print(f"Removed {len(removed)} packages, kept the newest {keep} of each model.")
