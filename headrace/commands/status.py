"""``headrace status``: what runs, and where each endpoint's versions are on their way."""

import os
import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Group

from contracts import waiting
from contracts.controller import ControllerBeat
from contracts.device_words import report_in_words
from contracts.durations import humanise
from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from contracts.model import DEFAULT_POOL
from headrace import home as homes
from headrace.commands import installation
from headrace.commands.installation import CachedInstallation
from headrace.commands.layout import Sentence, TableRow, rows, sentences
from headrace.commands.output import display, print_json
from headrace.commands.status_picture import StackStatus, endpoint_rows, picture
from headrace.endpoints import edits, rollouts
from headrace.errors import BrokenHomeError, RequestFailedError
from headrace.home import Cluster, EndpointSite
from headrace.invocation import is_structured
from headrace.options import HOME, Details, find_place, names
from headrace.options import Home as HomeFolder
from headrace.program import App
from headrace.stack import answers, health, state
from headrace.stack.state import Home, StackRecord
from registry.stores.heartbeats import FileHeartbeats, show_beat
from registry.stores.reports import FileReports
from service.cluster.access import ClusterNamespace

app = App()


@app.declare()
def status(
    endpoint: Annotated[
        str | None, typer.Argument(help="Only this endpoint.", autocompletion=names)
    ] = None,
    home: HomeFolder = HOME,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it.")] = False,
    details: Details = False,
) -> None:
    """Shows what runs, and where each endpoint's versions are on their way."""
    place = find_place(home)
    if isinstance(place, Cluster):
        _show_cluster(place, endpoint, watch=watch, details=details)
        return
    opened = homes.open_home(place)
    if is_structured():
        print_json(document(opened, endpoint))
    else:
        display(lambda: _draw_status(opened, endpoint, details=details), watch=watch)


def document(home: Home, endpoint: str | None) -> dict[str, Any]:
    """The status as JSON: the running stack or null, and the endpoints as they are stored."""
    record = state.read_record(home)
    chosen = _choose_endpoints(home, endpoint)
    return {
        "home": str(home.root),
        "running": record is not None,
        "stack": None if record is None else record.model_dump(mode="json"),
        "unwell": {} if record is None else _find_unwell(record),
        "statistics": None if record is None else health.ask_counting(record.stats_url).document(),
        "uncared": {} if record is None else _silence_warnings(home, chosen, time.time()),
        "devices": _devices(_reports(home)),
        "models": _models(_reports(home), chosen),
        "waits": _waits(chosen),
        "endpoints": [item.model_dump(mode="json", by_alias=True) for item in chosen],
    }


def _find_unwell(record: StackRecord) -> dict[str, str]:
    down = {name: "is down" for name, pid in record.services.items() if not _is_alive(pid)}
    return {name: said for name, said in (health.ask(record.pages) | down).items() if said}


def _choose_endpoints(home: Home, endpoint: str | None) -> list[ModelEndpoint]:
    found = answers.read(home)
    if endpoint is None:
        return list(found.values())
    if endpoint not in found:
        names = ", ".join(found) or "none yet"
        raise RequestFailedError(f"There is no endpoint {endpoint}; the endpoints are: {names}.")
    return [found[endpoint]]


def _draw_status(home: Home, endpoint: str | None, *, details: bool) -> Group:
    record = state.read_record(home)
    pids = {} if record is None else record.services
    running = StackStatus(
        home=str(home.root),
        is_starting=record is None and state.is_locked(home),
        record=record,
        alive=frozenset(name for name, pid in pids.items() if _is_alive(pid)),
        counting=None if record is None else health.ask_counting(record.stats_url),
        unwell={} if record is None else health.ask(record.pages),
    )
    chosen, now = _choose_endpoints(home, endpoint), time.time()
    reports = _reports(home)
    drawn = picture(running, chosen, now, reports, details=details)
    warnings = {} if record is None else _silence_warnings(home, chosen, now)
    drawn_warnings = [
        Sentence(f"{name}: {sentence}", style="yellow") for name, sentence in warnings.items()
    ]
    ways = map(_way, _models(reports, chosen)) if details else ()
    return Group(drawn, *ways, *drawn_warnings)


def _reports(home: Home) -> tuple[LoaderReport, ...]:
    return FileReports(home.reports).list() if home.reports.is_dir() else ()


def _models(
    reports: Iterable[LoaderReport], endpoints: Iterable[ModelEndpoint]
) -> list[dict[str, Any]]:
    """How each Triton runs the packages of these endpoints, as its loader reported it last."""
    known = [(endpoint.name, ref) for endpoint in endpoints for ref in endpoint.status.packages]
    reports = tuple(reports)
    return [
        {
            "endpoint": name,
            "version": ref.version,
            "package": ref.package,
            "loader": report.loader,
            "instances": model.instances,
            "threads": model.threads,
        }
        for name, ref in known
        for report in reports
        for model in report.loaded
        if model.ref == ref
    ]


def _waits(endpoints: Iterable[ModelEndpoint]) -> dict[str, list[dict[str, Any]]]:
    """What each endpoint and its versions wait for, since when, and what a person can do."""
    return {
        endpoint.name: [
            {
                **wait.model_dump(mode="json"),
                "what": waiting.describe_wait(endpoint.status, wait),
                "to_do": waiting.to_do(endpoint.name, wait),
            }
            for wait in waiting.waits_of(endpoint)
        ]
        for endpoint in endpoints
    }


def _devices(reports: Iterable[LoaderReport]) -> dict[str, Any]:
    """What each loader's Triton computes with; null while it is not known."""
    return {
        report.loader: None if report.device is None else report.device.model_dump(mode="json")
        for report in reports
    }


def _way(model: dict[str, Any]) -> Sentence:
    copies, threads = model["instances"], model["threads"]
    runs = "1 copy" if copies == 1 else f"{copies} copies"
    if threads:
        runs += " of 1 thread" if threads == 1 else f" of {threads} threads"
        runs += " each" if copies > 1 else ""
    name, version, loader = model["endpoint"], model["version"], model["loader"]
    return Sentence(f"{name}: version {version} runs as {runs} on the Triton of loader {loader}.")


def _silence_warnings(home: Home, endpoints: list[ModelEndpoint], now: float) -> dict[str, str]:
    """A sentence for each endpoint whose candidate could not be rolled back now."""
    return _warnings(show_beat(FileHeartbeats(home.endpoints)), endpoints, now)


def _warnings(
    beat: ControllerBeat | None, endpoints: Iterable[ModelEndpoint], now: float
) -> dict[str, str]:
    told = {endpoint.name: rollouts.silence_warning(endpoint, beat, now) for endpoint in endpoints}
    return {name: said for name, said in told.items() if said}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# In a cluster


def _show_cluster(cluster: Cluster, endpoint: str | None, *, watch: bool, details: bool) -> None:
    namespace = cluster.open()
    if is_structured():
        print_json(_document_of_cluster(namespace, endpoint))
        return
    pods = CachedInstallation(namespace)
    display(lambda: _shown_of_cluster(namespace, pods, endpoint, details=details), watch=watch)


def _document_of_cluster(namespace: ClusterNamespace, endpoint: str | None) -> dict[str, Any]:
    """The status as JSON: what the controller, the loaders and pods said, and the endpoints."""
    site = homes.of_namespace(namespace)
    chosen, now, beat = _chosen_of(site, endpoint), time.time(), show_beat(site.beats)
    reports = _reports_of(site)
    return {
        "namespace": namespace.name,
        "controller": None if beat is None else {"seconds_ago": max(0.0, now - beat.at)},
        "loaders": [
            {
                "loader": report.loader,
                "triton_grpc": report.triton_grpc,
                "pool": report.pool,
                "ready": report.ready,
                "cordoned": report.cordoned,
                "device": _devices((report,))[report.loader],
                "models": len(report.loaded),
                "seconds_ago": max(0.0, now - report.at),
            }
            for report in reports
        ],
        **installation.ask(namespace, now).document(),
        "uncared": _warnings(beat, chosen, now),
        "models": _models(reports, chosen),
        "waits": _waits(chosen),
        "endpoints": [item.model_dump(mode="json", by_alias=True) for item in chosen],
    }


def _shown_of_cluster(
    namespace: ClusterNamespace, lately: CachedInstallation, endpoint: str | None, *, details: bool
) -> Group:
    site = homes.of_namespace(namespace)
    chosen, now, beat = _chosen_of(site, endpoint), time.time(), show_beat(site.beats)
    reports = _reports_of(site)
    heard = "No controller has given a sign of life."
    if beat is not None:
        heard = f"The controller gave a sign of life {humanise(max(0.0, now - beat.at))} ago."
    loaders = [
        TableRow(
            (
                f"  {report.loader}",
                f"gRPC {report.triton_grpc}, {len(report.loaded)} models{_pool(report)}",
                _readiness(report),
            ),
            sentences(report_in_words(report, now)),
            style="" if report.ready else "yellow",
        )
        for report in reports
    ]
    warnings = _warnings(beat, chosen, now).items()
    pods = lately.ask(now)
    return Group(
        Sentence(f"Namespace {namespace.name}. {heard}", style="" if beat else "yellow"),
        rows((), loaders),
        pods.sentence(),
        pods.draw(),
        "",
        endpoint_rows(chosen, now, reports, details=details),
        *(map(_way, _models(reports, chosen)) if details else ()),
        *(Sentence(f"{name}: {sentence}", style="yellow") for name, sentence in warnings),
    )


def _readiness(report: LoaderReport) -> str:
    if report.cordoned:
        return "out of service"
    return "ready" if report.ready else "not ready"


def _pool(report: LoaderReport) -> str:
    return "" if report.pool == DEFAULT_POOL else f", pool {report.pool}"


def _chosen_of(site: EndpointSite, endpoint: str | None) -> tuple[ModelEndpoint, ...]:
    if endpoint is None:
        return edits.list_all(site.store)
    return (edits.find_existing(site.store, endpoint),)


def _reports_of(site: EndpointSite) -> tuple[LoaderReport, ...]:
    try:
        return site.reports()
    except (OSError, ValueError) as error:
        raise BrokenHomeError(f"The loaders' reports can't be read: {error}.") from error
