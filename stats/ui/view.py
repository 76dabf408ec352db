"""The page's document, as a pure function of endpoint objects and the evaluate role's board.

It judges nothing by itself: verdicts are the rollout's, drift is the board's. No clock, no file, no
network.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from contracts.device_words import report_in_words
from contracts.endpoint import Arm, EndpointStatus, ModelEndpoint
from contracts.loading import Device, LoaderReport
from contracts.model import name_within, workspace_of
from contracts.waiting import sentences
from measures.counting import CountingState, clock_time
from rollout.view import list_spaces
from stats.evaluation.board import Board, EndpointBoard, Origin, VersionDrift
from stats.ui import drifts, rollout_view, series
from stats.ui.columns import per_second, round_value, span
from stats.ui.document import (
    Detail,
    HealthView,
    RouteView,
    StatisticsDocument,
    Summary,
    TritonLine,
    VersionView,
)
from stats.ui.endpoint_health import endpoint_health
from stats.ui.tables import Slot, Table, add_tables, attempts, tables


@dataclass(frozen=True, slots=True)
class Zoom:
    """How much time is shown, in what columns, and how often it is worth asking again."""

    column_seconds: int
    columns: int
    refresh_seconds: float


SPANS: Mapping[str, Zoom] = {
    "5m": Zoom(10, 30, 3.0),
    "15m": Zoom(10, 90, 3.0),
    "1h": Zoom(60, 60, 5.0),
    "6h": Zoom(300, 72, 15.0),
    "24h": Zoom(900, 96, 30.0),
}
DEFAULT_SPAN = "15m"

SPARKS = Zoom(30, 30, 3.0)  # of the list: always the last quarter of an hour
RATE_COLUMNS = 2  # of SPARKS
HISTORY_LINES = 20
IDLE_SECONDS = 60.0
STILL_SECONDS = 30.0  # without a new board nobody reads
MOST_VERSIONS = 12


@dataclass(frozen=True, slots=True)
class Links:
    """Where browsers reach the gateway and MLflow; empty: not known."""

    gateway_url: str = ""
    mlflow_url: str = ""


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """What the page asks for: an endpoint by name (empty: the first) and one of ``SPANS``."""

    endpoint: str = ""
    span: str = DEFAULT_SPAN


def view(
    endpoints: Sequence[ModelEndpoint],
    board: Board,
    links: Links,
    asked: ViewRequest,
    now: float,
    *,
    reports: Iterable[LoaderReport] = (),
    whole: Callable[[ModelEndpoint], ModelEndpoint] = lambda endpoint: endpoint,
) -> StatisticsDocument:
    """The document. ``whole`` gives the endpoint that is looked at its whole status."""
    name = asked.span if asked.span in SPANS else DEFAULT_SPAN
    ordered = sorted(endpoints, key=lambda endpoint: endpoint.name)
    chosen = next((e for e in ordered if e.name == asked.endpoint), ordered[0] if ordered else None)
    return StatisticsDocument(
        now=now,
        refresh_seconds=SPANS[name].refresh_seconds,
        span=name,
        spans=list(SPANS),
        gateway_url=links.gateway_url.rstrip("/"),
        mlflow_url=links.mlflow_url.rstrip("/"),
        health=health(board, now),
        endpoints=[_summary(endpoint, board, now) for endpoint in ordered],
        detail=None if chosen is None else _detail(whole(chosen), board, links, SPANS[name], now),
        engines=[
            TritonLine(report.loader, report.pool, words, _is_well(report.device))
            for report in sorted(reports, key=lambda report: report.loader)
            if (words := report_in_words(report, now))
        ],
    )


def _is_well(device: Device | None) -> bool:
    return device is None or not device.fault


def health(board: Board, now: float) -> HealthView:
    """Whether the statistics can be trusted now."""
    through = board.through or None
    if not board.connected:
        said = "Kafka does not answer, so statistics stand still. The gateways go on serving."
        return HealthView(known=False, through=through, said=said)
    if board.counting.holds and board.counting.since:
        said = f"{board.counting.sentence()[:1].upper()}{board.counting.sentence()[1:]}."
        return HealthView(known=False, through=through, said=said)
    if board.at and now - board.at > STILL_SECONDS:
        said = f"Statistics have stood still since {clock_time(board.at)}: nothing reads them."
        return HealthView(known=False, through=through, said=said)
    if through is None:
        return HealthView(known=True, through=None, said="No prediction has been counted yet.")
    return HealthView(known=True, through=through)


def counted_until(board: Board, now: float) -> float:
    """Time up to which windows are closed, unix seconds.

    If all traffic is counted and no window ended for a minute, there was none. If it is not,
    or nobody knows, what came since is unknown, and no rate of 0.
    """
    ends = [
        series.windows[-1].start + series.windows[-1].seconds
        for name in board.endpoints()
        for series in board.series(name)
        if series.windows
    ]
    until = max(ends, default=0.0)
    return until if now - until < IDLE_SECONDS or not _all_is_counted(board) else now


def _all_is_counted(board: Board) -> bool:
    """False if the board knows better; one that does not yet know is no news."""
    waits = board.counting.since and board.counting.state is not CountingState.COUNTED
    return board.connected and not waits


# The list


def _summary(endpoint: ModelEndpoint, board: Board, now: float) -> Summary:
    over = span(now, SPARKS.column_seconds, SPARKS.columns)
    found = [item for item in board.series(endpoint.name) if item.arm is not Arm.SHADOW]
    every, failed = attempts(found, over)
    # The last columns are being counted still.
    until = counted_until(board, now)
    whole = over.column(until) or over.count - 1
    latest = slice(whole - RATE_COLUMNS, whole)
    requests = int(every[latest].sum())
    # Long after the last window nobody can tell how many there are now.
    known = board.through and (_all_is_counted(board) or now - until < IDLE_SECONDS)
    tone, said = endpoint_health(endpoint.status, _list_routed(endpoint, board))
    return Summary(
        name=endpoint.name,
        model=endpoint.spec.model,
        tone=tone,
        said=said,
        routes=_routes(endpoint.status),
        rate=round_value(requests / (RATE_COLUMNS * over.seconds)) if known else None,
        errors=round_value(int(failed[latest].sum()) / requests) if requests else None,
        spark=per_second(every, over, until),
    )


def _routes(status: EndpointStatus) -> list[RouteView]:
    return [RouteView(route.arm.value, route.ref.version, route.weight) for route in status.routes]


def _list_routed(endpoint: ModelEndpoint, board: Board) -> list[VersionDrift]:
    """Drift of the packages that get requests now."""
    packages = {route.ref.package for route in endpoint.status.routes}
    return [found for found in board.of(endpoint.name).drift if found.package in packages]


# One endpoint


def _detail(endpoint: ModelEndpoint, board: Board, links: Links, zoom: Zoom, now: float) -> Detail:
    status, known = endpoint.status, board.of(endpoint.name)
    over = span(now, max(zoom.column_seconds, _find_longest(known)), zoom.columns)
    found = tables(known.series, over)
    by_version, called = _by_version(found, over.count), _sum_called(found, over.count)
    tone, said = endpoint_health(status, _list_routed(endpoint, board))
    routed = {(route.ref.version, route.arm) for route in status.routes}
    return Detail(
        name=endpoint.name,
        model=endpoint.spec.model,
        model_url=model_url(links.mlflow_url, endpoint.spec.model),
        task="" if status.task is None else status.task.value,
        tone=tone,
        said=said,
        notes=[*status.notes, *_own_waits(endpoint, now)],
        columns=over,
        routes=_routes(status),
        versions=_versions(endpoint, known, by_version, links),
        series=[
            series.build_series(
                slot, found[slot], over, counted_until(board, now), routed=slot in routed
            )
            for slot in sorted(found, key=_order)
        ],
        labels={version: series.labels(table) for version, table in by_version.items()},
        heatmaps=series.heatmaps(called, by_version),
        counters=series.counters(called, over, counted_until(board, now)),
        unfit=series.unfit(called),
        unk_words=[
            words
            for version, table in by_version.items()
            if (words := series.unk_words(version, table)) is not None
        ],
        drift=[drifts.build_drift(item, over) for item in known.drift],
        accuracy=[drifts.accuracy(item) for item in known.accuracy],
        refusals=dict(known.refusals),
        counted_since=board.since,
        rollout=rollout_view.rollout(endpoint),
        preparing=rollout_view.coming(endpoint),
        history=[
            rollout_view.history_line(line) for line in reversed(status.history[-HISTORY_LINES:])
        ],
        try_it=_try_it(endpoint.name) if status.stable is not None else "",
    )


def _own_waits(endpoint: ModelEndpoint, now: float) -> Iterable[str]:
    """What the endpoint itself waits for; why a version is where it is stands with its rollout."""
    own = tuple(wait for wait in endpoint.status.waits if not wait.version)
    status = endpoint.status.model_copy(update={"waits": own})
    return sentences(endpoint.model_copy(update={"status": status}), now) if own else ()


def _try_it(name: str) -> str:
    return f"headrace replay examples/sentiment/texts/replay.txt --endpoint {shlex.quote(name)}"


def _find_longest(known: EndpointBoard) -> int:
    """A stack may count in windows that are longer than the columns asked for."""
    return max((one.windows[-1].seconds for one in known.series if one.windows), default=1)


def _sum_called(found: Mapping[Slot, Table], columns: int) -> Table:
    """What callers met: all arms but shadow."""
    return add_tables((t for (_, arm), t in found.items() if arm is not Arm.SHADOW), columns)


def _by_version(found: Mapping[Slot, Table], columns: int) -> dict[str, Table]:
    """All arms of each version, newest first."""
    return {
        version: add_tables((t for (other, _), t in found.items() if other == version), columns)
        for version in sorted({version for version, _ in found}, key=_sort_key)
    }


def _sort_key(version: str) -> tuple[int, str]:
    """Sorts the newest first if versions are numbers, as MLflow's are."""
    return (-int(version), "") if version.isdecimal() else (1, version)


_ARMS = (Arm.STABLE, Arm.CANARY, Arm.CONTROL, Arm.SHADOW, Arm.FORCED)


def _order(slot: Slot) -> tuple[int, tuple[int, str]]:
    return _ARMS.index(slot[1]), _sort_key(slot[0])


# Versions


def _versions(
    endpoint: ModelEndpoint,
    known: EndpointBoard,
    counted: Mapping[str, Table],
    links: Links,
) -> list[VersionView]:
    packages = _packages(endpoint.status)
    named = packages.keys() | counted.keys() | {line.version for line in endpoint.status.history}
    return [
        _version(endpoint, version, packages.get(version, ""), counted.get(version), links, known)
        for version in sorted(named, key=_sort_key)[:MOST_VERSIONS]
    ]


def _packages(status: EndpointStatus) -> dict[str, str]:
    """The package of each version that the status still knows; what is routed goes first."""
    refs = [route.ref for route in status.routes] + list(status.packages)
    for state in (status.rollout, status.last_rollout):
        if state is not None:
            refs += [state.candidate, state.stable]
    if status.candidate is not None and status.candidate.ref is not None:
        refs.append(status.candidate.ref)
    return {ref.version: ref.package for ref in reversed(refs)}


def _version(  # noqa: PLR0917 - what is known of a version lies in as many places
    endpoint: ModelEndpoint,
    version: str,
    package: str,
    table: Table | None,
    links: Links,
    known: EndpointBoard,
) -> VersionView:
    spaces = {each.version: f"{each.space}: {each.who}" for each in list_spaces(endpoint)}
    lines = [line for line in endpoint.status.history if line.version == version]
    last = lines[-1] if lines else None
    origin = _origin(known.origins, version, package)
    drift = [item for item in known.drift if item.version == version]
    return VersionView(
        version=version,
        package=package,
        arms=[route for route in _routes(endpoint.status) if route.version == version],
        phase="" if last is None else last.phase.value,
        since=None if last is None else last.at,
        reason="" if last is None else last.reason,
        requests=0 if table is None else int(table.requests.sum()),
        run_url=""
        if origin is None
        else run_url(links.mlflow_url, endpoint.spec.model, origin.run_id),
        version_url=model_url(links.mlflow_url, endpoint.spec.model, version),
        data_sets=[] if origin is None else list(origin.data_sets),
        precision="" if origin is None else origin.precision,
        level=max((item.level for item in drift), default=None),
        space=spaces.get(version, ""),
    )


def _origin(origins: Iterable[Origin], version: str, package: str) -> Origin | None:
    mine = [origin for origin in origins if origin.version == version]
    return next((origin for origin in mine if origin.package == package), mine[0] if mine else None)


def run_url(mlflow_url: str, model: str, run_id: str) -> str:
    """The page of an MLflow run of a model's workspace; empty if it is not known, or MLflow."""
    return _page(mlflow_url, model, f"runs/{quote(run_id, safe='')}") if run_id else ""


def model_url(mlflow_url: str, model: str, version: str = "") -> str:
    """The page of a model or its version in MLflow's registry; empty if MLflow is not known."""
    within = f"/versions/{quote(version, safe='')}" if version else ""
    return _page(mlflow_url, model, f"models/{quote(name_within(model), safe='')}{within}")


def _page(mlflow_url: str, model: str, where: str) -> str:
    workspace = workspace_of(model)
    asked = f"?workspace={quote(workspace, safe='')}" if workspace else ""
    return f"{mlflow_url.rstrip('/')}/#/{where}{asked}" if mlflow_url else ""
