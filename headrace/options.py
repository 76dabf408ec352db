"""The options that several commands share, each declared once, and how their values are read."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from contracts.durations import seconds
from contracts.endpoint import ModelEndpoint
from headrace import home as homes
from headrace import invocation
from headrace.endpoints.rollouts import list_known, list_rejected
from headrace.errors import HeadraceError
from headrace.home import Cluster, Where
from headrace.program import PLUGIN, environment, said_so_far, say_wait

HOME = Path("~/.headrace")
_LONGEST_SECONDS = 365 * 86400.0
CACHE = Path("~/.cache/headrace")


def names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of endpoints, to complete one; none if they can't be known."""
    found = _list_stored(context)
    return [endpoint.name for endpoint in found if endpoint.name.startswith(incomplete)]


def versions(context: typer.Context, incomplete: str) -> list[str]:
    """Versions that the endpoint on the line has considered, newest first, to complete one."""
    return [each for each in _of_endpoint(context, list_known) if each.startswith(incomplete)]


def rejected_versions(context: typer.Context, incomplete: str) -> list[str]:
    """As ``versions``, only of those that may be tried again."""
    return [each for each in _of_endpoint(context, list_rejected) if each.startswith(incomplete)]


def _of_endpoint(
    context: typer.Context, choose: Callable[[ModelEndpoint], tuple[str, ...]]
) -> tuple[str, ...]:
    # If an option waits for its value, click gives no argument its name.
    name = said_so_far(context).get("name") or next(iter(context.args), None)
    found = (
        [endpoint for endpoint in _list_stored(context) if endpoint.name == name] if name else []
    )
    return choose(found[0]) if found else ()


def _list_stored(context: typer.Context) -> tuple[ModelEndpoint, ...]:
    """The endpoints of the place that a line names so far; none if they can't be read."""
    said = said_so_far(context)
    namespace, kube_context = said.get("namespace"), said.get("kube_context")
    kubeconfig = said.get("kubeconfig")
    is_plugin = context.find_root().info_name == PLUGIN
    where: Where = make_absolute(Path(said.get("home", HOME)))
    if namespace or kube_context or kubeconfig or is_plugin:
        where = Cluster(namespace, environment(kubeconfig), kube_context)
    try:
        return tuple(homes.site(where).store.list())
    except (HeadraceError, OSError):
        return ()


def checked_url(url: str | None) -> str | None:
    """An address of HTTP as it was given; refuses one that no client takes."""
    with suppress(ValueError):
        parts = urlsplit(url or "http://host")
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return url
    raise typer.BadParameter(f"{url} is no address such as http://host:8080")


def checked_brokers(brokers: str | None) -> str | None:
    """Addresses of Kafka as they were given; refuses one without a port."""
    for broker in (brokers or "host:1").split(","):
        host, _, port = broker.strip().rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536):
            raise typer.BadParameter(f"{broker} is no address such as host:9092")
    return brokers


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
Details = Annotated[
    bool, typer.Option("--details", "-v", help="Also show what it rests on, with all figures.")
]
Gateway = Annotated[
    str | None,
    typer.Option(
        callback=checked_url,
        envvar="HEADRACE_URL",
        help="The gateway's address; by default that of the stack that runs on --home.",
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(
        callback=checked_brokers,
        envvar="HEADRACE_KAFKA",
        help="Kafka's host:port; by default that of the stack that runs on --home.",
    ),
]
Since = Annotated[
    str, typer.Option("--from", metavar="TIME", help="E.g. 15m (ago), or 2026-03-01T12:00Z.")
]
Endpoint = Annotated[str, typer.Argument(help="Name of the endpoint.", autocompletion=names)]
ApiKey = Annotated[str | None, typer.Option(envvar="HEADRACE_KEY", help="API key, if needed.")]
SEVERAL_PANEL = "Several of each"
_MOST_REPLICAS = 16
Gateways = Annotated[
    int,
    typer.Option(
        min=1,
        max=_MOST_REPLICAS,
        help="How many gateways; further ones take the next ports.",
        rich_help_panel=SEVERAL_PANEL,
    ),
]
Tritons = Annotated[
    int,
    typer.Option(
        min=1,
        max=_MOST_REPLICAS,
        help="How many Tritons, each with a loader; further ones take the next ports.",
        rich_help_panel=SEVERAL_PANEL,
    ),
]


def find_place(home: Path) -> Where:
    """The cluster that was named anywhere on the line, else the home."""
    said = invocation.current()
    if not said.in_cluster:
        return make_absolute(home)
    say_wait("the cluster's API server")
    return Cluster(said.namespace, environment(said.kubeconfig), said.context)


def duration(text: str | float) -> float:
    """Seconds of a number, or of a duration as people write it: 30s, 5m."""
    try:
        value = _read(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not 0 < value < _LONGEST_SECONDS:
        raise typer.BadParameter("it must be longer than nothing, and shorter than a year")
    return value


def _read(text: str | float) -> float:
    with suppress(ValueError):
        return float(text)
    return seconds(str(text))


def make_absolute(path: Path) -> Path:
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
        value = _parse_time(text, option)
    if not math.isfinite(value) or value < 0:
        raise typer.BadParameter("it must lie after 1970", param_hint=option)
    return value


def _parse_time(text: str, option: str) -> float:
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
