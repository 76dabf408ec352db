"""The options that several commands share, each declared once."""

from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[
    Path,
    typer.Option(
        envvar="HEADRACE_HOME",
        help="Folder with everything that the local stack keeps.",
        file_okay=True,
    ),
]
Cache = Annotated[
    Path, typer.Option(envvar="HEADRACE_CACHE", help="Folder of downloads, shared by all homes.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Gateway = Annotated[
    str | None,
    typer.Option(
        envvar="HEADRACE_URL",
        help="The gateway's address; by default that of the stack that runs on --home.",
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(
        envvar="HEADRACE_KAFKA",
        help="Kafka's host:port; by default that of the stack that runs on --home.",
    ),
]
ApiKey = Annotated[str | None, typer.Option(envvar="HEADRACE_KEY", help="API key, if needed.")]
Port = Annotated[int, typer.Option(min=1, max=65535, rich_help_panel="Ports on 127.0.0.1")]

HOME = Path("~/.headrace")
CACHE = Path("~/.cache/headrace")


def absolute(path: Path) -> Path:
    """A path as a user gave it, with ~ and this folder put in."""
    return path.expanduser().absolute()
