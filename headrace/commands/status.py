"""``headrace status``: what runs, and where each endpoint's versions are on their way."""

import os
import time
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from contracts.endpoint import ModelEndpoint
from headrace.commands import home as homes
from headrace.commands.output import console, print_json
from headrace.errors import RequestFailedError
from headrace.rollouts.view import in_brief, view
from headrace.stack import answers, state
from headrace.stack.state import Home, StackRecord

_REFRESH_SECONDS = 0.5


def run(root: Path, endpoint: str | None, *, watch: bool, as_json: bool) -> None:
    """Shows the status once, or until Ctrl-C.

    Raises:
        NotRunningError: there is no such home.
        RequestFailedError: there is no such endpoint.
    """
    home = homes.opened(root)
    if as_json:
        print_json(document(home, endpoint))
        return
    if not watch:
        console.print(_picture(home, endpoint))
        return
    try:
        with Live(_picture(home, endpoint), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(_REFRESH_SECONDS)
                live.update(_picture(home, endpoint), refresh=True)
    except KeyboardInterrupt:
        return


def document(home: Home, endpoint: str | None) -> dict[str, Any]:
    """The status as JSON: the running stack or null, and the endpoints as they are stored.

    Raises:
        RequestFailedError: there is no such endpoint.
    """
    record = state.read_record(home)
    return {
        "home": str(home.root),
        "running": record is not None,
        "stack": None if record is None else record.model_dump(mode="json"),
        "endpoints": [
            item.model_dump(mode="json", by_alias=True) for item in _chosen(home, endpoint)
        ],
    }


def _chosen(home: Home, endpoint: str | None) -> list[ModelEndpoint]:
    found = answers.read(home)
    if endpoint is None:
        return list(found.values())
    if endpoint not in found:
        names = ", ".join(found) or "none yet"
        raise RequestFailedError(f"There is no endpoint {endpoint}; the endpoints are: {names}.")
    return [found[endpoint]]


def _picture(home: Home, endpoint: str | None) -> Group:
    record = state.read_record(home)
    return Group(_services(home, record), "", _endpoints(_chosen(home, endpoint)))


def _services(home: Home, record: StackRecord | None) -> Table:
    table = Table.grid(padding=(0, 2))
    if record is None:
        running = state.is_locked(home)
        table.add_row("starting" if running else "not running", escape(str(home.root)))
        return table
    table.add_row("running", escape(str(home.root)), f"process {record.pid}")
    table.add_row("gateway", record.gateway_url, f"gRPC {record.gateway_grpc}")
    table.add_row("MLflow", escape(record.mlflow_url))
    table.add_row("page", f"{record.stats_url}/ui/")
    for name, pid in record.services.items():
        alive = "[green]up[/]" if _alive(pid) else "[yellow]down, starts again[/]"
        table.add_row(f"  {name}", alive, f"process {pid}")
    return table


def _endpoints(endpoints: list[ModelEndpoint]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("endpoint", "serving", "newest", "rollout", "rejected"):
        table.add_column(heading, overflow="fold")
    for endpoint in endpoints:
        stable = endpoint.status.stable
        rejected = "\n".join(
            f"version {item.version}: {item.reason}" for item in endpoint.status.rejected
        )
        table.add_row(
            endpoint.name,
            "-" if stable is None else f"version {stable.version} ({stable.package[:12]})",
            escape(answers.standing(endpoint.status)),
            in_brief(view(endpoint, time.time())) or "-",
            escape(rejected) or "-",
        )
    return table


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
