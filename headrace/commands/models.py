"""``headrace models`` and ``headrace gc``: registered versions, and the packages made of them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer

from contracts.endpoint import Arm, ModelEndpoint, Phase
from contracts.model import qualify
from headrace import home as homes
from headrace.commands.layout import TableRow, TableRows, rows, sentences
from headrace.commands.output import console, print_json
from headrace.endpoints import edits
from headrace.errors import BrokenHomeError, NotRunningError, RefusedError, RequestFailedError
from headrace.home import Cluster, Where
from headrace.invocation import is_structured
from headrace.options import HOME, Home, checked_url, find_place, make_absolute
from headrace.program import App, refuse_cluster, say_wait
from headrace.stack import answers, state
from service import json_files
from service.key_files import HexKeyFileError, read_keys

_TIMEOUT_SECONDS = 20.0

app = App()


@dataclass(frozen=True, slots=True)
class VersionLine:
    """One version of a registered model, as one endpoint (if any) sees it."""

    model: str
    version: str
    endpoint: str | None
    state: str
    reason: str = ""
    package: str | None = None


@app.declare()
def models(
    home: Home = HOME,
    mlflow_uri: Annotated[
        str | None,
        typer.Option(callback=checked_url, help="URL of MLflow; else that of the stack on --home."),
    ] = None,
    mlflow_workspace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Of this workspace; may be given several times."),
    ] = None,
) -> None:
    """Lists registered models, their versions, and what became of each."""
    place = find_place(home)
    mlflow = mlflow_uri or _mlflow_of(place)
    endpoints = edits.list_all(homes.site(place).store)
    say_wait(f"MLflow at {mlflow} has {_TIMEOUT_SECONDS:g} s to answer")
    registered = [
        (qualify(workspace, model), version)
        for workspace in mlflow_workspace or [""]
        for model, version in _list_registered(mlflow, workspace)
    ]
    lines = join(registered, endpoints)
    if is_structured():
        print_json([asdict(line) for line in lines])
        return
    console.print(_table(lines) if lines else "No model is registered yet.")


def _table(lines: Iterable[VersionLine]) -> TableRows:
    return rows(
        ("model", "version", "endpoint", "package", "state"),
        [
            TableRow(
                (
                    line.model,
                    line.version,
                    line.endpoint or "-",
                    line.package[:12] if line.package else "-",
                    line.state,
                ),
                sentences(line.reason),
            )
            for line in lines
        ],
    )


def join(
    registered: Iterable[tuple[str, str]], endpoints: Iterable[ModelEndpoint]
) -> list[VersionLine]:
    """What became of every registered (model, version), for every endpoint that serves the model.

    A version that no endpoint has considered is ``Registered``.
    """
    by_model: dict[str, list[ModelEndpoint]] = {}
    for endpoint in endpoints:
        by_model.setdefault(endpoint.spec.model, []).append(endpoint)
    lines: list[VersionLine] = []
    for model, version in registered:
        serving = by_model.get(model, [])
        if not serving:
            lines.append(VersionLine(model, version, None, "Registered"))
        lines += [_line(endpoint, model, version) for endpoint in serving]
    return lines


def _line(endpoint: ModelEndpoint, model: str, version: str) -> VersionLine:
    status = endpoint.status
    for route in status.routes:
        if route.ref.version == version and route.arm is not Arm.SHADOW:  # which serves nobody
            said = Phase.SERVING.value
            if route.weight < 100:
                said += f" {route.weight:g} % ({route.arm.value})"
            return VersionLine(model, version, endpoint.name, said, package=route.ref.package)
    if status.candidate is not None and status.candidate.version == version:
        candidate = status.candidate
        package = None if candidate.ref is None else candidate.ref.package
        return VersionLine(
            model, version, endpoint.name, candidate.phase.value, candidate.reason, package
        )
    for rejection in reversed(status.rejected):
        if rejection.version == version:
            return VersionLine(
                model, version, endpoint.name, rejection.phase.value, rejection.reason
            )
    for ref in status.packages:
        if ref.version == version:
            return VersionLine(model, version, endpoint.name, "Held", package=ref.package)
    return VersionLine(model, version, endpoint.name, "Registered")


def _mlflow_of(where: Where) -> str:
    if isinstance(where, Cluster):
        raise NotRunningError("Name the MLflow of the cluster with --mlflow-uri: it is read.")
    return homes.running(where, ", or name an MLflow with --mlflow-uri").mlflow_url


def _list_registered(mlflow_url: str, workspace: str) -> list[tuple[str, str]]:
    """(model, version) of every registered version, models by name, newest version first.

    Of a workspace; empty: MLflow's default one.
    """
    found: list[tuple[str, str]] = []
    url = f"{mlflow_url.rstrip('/')}/api/2.0/mlflow/model-versions/search"
    token: str | None = None
    asked = {"X-MLFLOW-WORKSPACE": workspace} if workspace else {}
    try:
        with httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=False, headers=asked) as client:
            while True:
                params: dict[str, str | int] = {"max_results": 1000}
                if token:
                    params["page_token"] = token
                answer = client.get(url, params=params)
                answer.raise_for_status()
                page = answer.json()
                found += [
                    (item["name"], item["version"]) for item in page.get("model_versions", [])
                ]
                token = page.get("next_page_token")
                if not token:
                    break
    except httpx.HTTPError as error:
        raise NotRunningError(f"MLflow at {mlflow_url} does not answer: {error}.") from error
    return sorted(found, key=lambda item: (item[0], -int(item[1])))


@app.declare("gc")
def collect(
    home: Home = HOME,
    keep: Annotated[int, typer.Option(min=1, help="Packages to keep of each model.")] = 5,
) -> None:
    """Removes old packages, keeping the newest and all that an endpoint names."""
    refuse_cluster(
        "headrace gc removes packages of a home; in a cluster the controller does so by itself, as "
        "packages.keep in the chart's values says."
    )
    # Stores of all kinds take a moment to import, which headrace models need not wait for.
    from registry.conversions.index import KEY_FILE  # noqa: PLC0415
    from registry.packages import gc  # noqa: PLC0415
    from registry.packages.store import StoreUnavailableError  # noqa: PLC0415
    from registry.packages.store_mark import StoreMark  # noqa: PLC0415

    opened = homes.open_home(make_absolute(home))
    endpoints = answers.read(opened)
    try:
        unread = {
            Path(name).stem for name in json_files.stamps(opened.endpoints)
        } - endpoints.keys()
    except OSError as error:
        raise BrokenHomeError(
            f"Nothing was removed: the endpoints can't be read ({error})."
        ) from error
    if unread:
        names = ", ".join(sorted(unread))
        raise BrokenHomeError(f"Nothing was removed: the endpoint file of {names} can't be read.")
    record = state.read_record(opened)
    store = (record.package_store if record else "") or f"file://{opened.packages}"
    key_file = opened.root / "work" / KEY_FILE  # there is one once a controller has run here
    try:
        if key_file.exists() and (why := StoreMark(store, read_keys(key_file)).foreign()):
            raise RefusedError(f"Nothing was removed: {why}.")
        removed = gc.collect(store, endpoints.values(), keep=keep)
    except StoreUnavailableError as error:
        raise RequestFailedError(f"The package store can't be used: {error}.") from error
    except HexKeyFileError as error:
        raise BrokenHomeError(f"Nothing was removed: {error}") from error
    if is_structured():
        print_json({"removed": removed})
    else:
        console.print(f"Removed {len(removed)} packages, kept the newest {keep} of each model.")
