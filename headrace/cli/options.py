"""The options that several commands share, each declared once, and how their values are read."""

import math
import os
import time
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headrace.commands.home import Where

Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        envvar="HEADRACE_NAMESPACE",
        help="Work on this namespace of the cluster that KUBECONFIG names, not on --home.",
    ),
]
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
Details = Annotated[
    bool, typer.Option("--details", "-v", help="Also show what it rests on, with all figures.")
]
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


# What ``headrace --namespace`` said, for the command that follows it.
chosen_namespace: ContextVar[str | None] = ContextVar("namespace", default=None)


def where(home: Path) -> "Where":
    """The cluster that ``headrace --namespace`` named, else the home."""
    from headrace.commands.home import Cluster

    namespace = chosen_namespace.get()
    return absolute(home) if namespace is None else Cluster(namespace, environment())


def environment() -> dict[str, str]:
    """The environment of this process, which the commands read here alone."""
    return dict(os.environ)


def absolute(path: Path) -> Path:
    """A path as a user gave it, with ~ and this folder put in."""
    return path.expanduser().absolute()


def moment(text: str, option: str) -> float:
    """Unix seconds of ``now``, ``15m`` (ago), ``2026-03-01T12:00:00Z`` or unix seconds.

    A date without a zone is of UTC, as everything that the services write.

    Raises:
        typer.BadParameter: it is none of these.
    """
    if text == "now":
        return time.time()
    try:
        value = float(text)
    except ValueError:
        value = _written(text, option)
    if not math.isfinite(value) or value < 0:
        raise typer.BadParameter("it must lie after 1970", param_hint=option)
    return value


def _written(text: str, option: str) -> float:
    from contracts.durations import seconds

    with suppress(ValueError):  # else it is a date
        return time.time() - seconds(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            "a time is written as 15m (ago), now, 2026-03-01T12:00:00Z or in unix seconds",
            param_hint=option,
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
