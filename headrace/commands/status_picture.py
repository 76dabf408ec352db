"""Draws ``headrace status`` on a terminal: what runs, and a line for each endpoint. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.console import Group, RenderableType

from contracts import waiting
from contracts.device_words import report_in_words
from contracts.durations import humanise
from contracts.endpoint import REASONS_LIMIT, EndpointStatus, ModelEndpoint, Phase
from contracts.loading import LoaderReport
from contracts.model import DEFAULT_POOL
from headrace.commands.layout import Sentence, TableRow, rows, sentences
from headrace.commands.rollout_picture import in_brief
from headrace.stack import answers
from headrace.stack.health import CountingHealth
from headrace.stack.state import StackRecord, TritonRecord
from rollout.view import list_spaces, newest

_WRONG = {
    Phase.BLOCKED: "yellow",
    Phase.REJECTED: "red",
    Phase.ROLLED_BACK: "red",
    Phase.EXPIRED: "yellow",
}


@dataclass(frozen=True, slots=True)
class StackStatus:
    """What is known of a home's stack.

    ``alive`` names the services that have a process; ``unwell`` says of some what is wrong with
    them; ``counting`` is what the traffic's statistics were found to do, None if nobody was
    asked.
    """

    home: str
    is_starting: bool
    record: StackRecord | None
    alive: frozenset[str]
    counting: CountingHealth | None = None
    unwell: Mapping[str, str] = field(default_factory=dict)


def picture(
    running: StackStatus,
    endpoints: Iterable[ModelEndpoint],
    now: float,
    reports: Iterable[LoaderReport] = (),
    *,
    details: bool = False,
) -> Group:
    """The status for people; see ``endpoint_rows``."""
    told = tuple(reports)
    drawn = endpoint_rows(endpoints, now, told, details=details)
    return Group(*_services(running, told, now), "", drawn)


def endpoint_rows(
    endpoints: Iterable[ModelEndpoint],
    now: float,
    reports: Iterable[LoaderReport] = (),
    *,
    details: bool = False,
) -> RenderableType:
    """A line for each endpoint, and the reasons below it.

    ``reports`` of loaders say how long a model takes that sleeps.
    """
    told = tuple(reports)
    found = [_endpoint(endpoint, now, told, details=details) for endpoint in endpoints]
    return rows(("endpoint", "serves", "newest"), found) if found else "No endpoint yet."


def _triton(triton: TritonRecord) -> str:
    """Where a Triton listens; the metrics of an existing one are its owner's."""
    where = triton.metrics_url.removeprefix("http://").removesuffix("/metrics")
    pool = "" if triton.pool == DEFAULT_POOL else f", pool {triton.pool}"
    return f"gRPC {triton.grpc}, " + (f"metrics {where}" if where else "existing") + pool


def _triton_row(triton: TritonRecord, reports: tuple[LoaderReport, ...], now: float) -> TableRow:
    """Where a Triton listens, and below it what it computes with and whether it ended lately."""
    report = next((each for each in reports if each.triton_grpc == triton.grpc), None)
    found = None if report is None else report.device
    style = "yellow" if found is not None and found.fault else ""
    cells = (f"  {triton.name.capitalize()}", _triton(triton))
    return TableRow(cells, sentences(report_in_words(report, now)), style=style)


def _services(
    running: StackStatus, reports: tuple[LoaderReport, ...], now: float
) -> Iterable[RenderableType]:
    record = running.record
    if record is None:
        said = "A stack is starting" if running.is_starting else "No stack runs"
        return [Sentence(f"{said} on {running.home}.")]
    lines = [
        *(
            TableRow((f"  {each.name}", f"{each.url}, gRPC {each.grpc}"))
            for each in record.gateways
        ),
        *(_triton_row(each, reports, now) for each in record.tritons),
        TableRow(("  MLflow", record.mlflow_url)),
        TableRow(("  page", f"{record.stats_url}/ui/")),
    ]
    lines += [_service(name, pid, running) for name, pid in record.services.items()]
    head = Sentence(f"A stack runs on {running.home}, process {record.pid}.")
    return [head, rows((), lines), *_statistics(running.counting)]


def _service(name: str, pid: int, running: StackStatus) -> TableRow:
    """One process, and what was found wrong with it: that it lives says nothing."""
    if name not in running.alive:
        return TableRow((f"  {name}", "down, starts again"), style="yellow")
    wrong = running.unwell.get(name, "")
    if not wrong:
        return TableRow((f"  {name}", f"process {pid}"))
    return TableRow((f"  {name}", f"process {pid}"), sentences(wrong), style="yellow")


def _statistics(told: CountingHealth | None) -> list[Sentence]:
    if told is None:
        return []
    style = {"counted": "", "behind": "yellow"}.get(told.state, "red")
    lost = [Sentence(f"Lost: {told.lost}.", style="yellow")] if told.lost else []
    return [Sentence(f"Statistics: {told.said}.", style=style), *lost]


def _endpoint(
    endpoint: ModelEndpoint, now: float, reports: tuple[LoaderReport, ...], *, details: bool
) -> TableRow:
    status = endpoint.status
    stable, (at, reason) = status.stable, answers.describe_newest(status)
    brief = in_brief(newest(endpoint), now)
    waits = tuple(waiting.sentences(endpoint, now, told=f"{at} {reason}"))
    below = sentences(brief, reason, *waits)
    if details and stable is not None:
        below += sentences(f"version {stable.version} is package {stable.package}")
    below += sentences(_describe_spaces(endpoint))
    below += _pool(status, " ".join((reason, *waits)))
    below += sentences(_describe_sleep(status, now, reports))
    serves = "-" if stable is None else f"version {stable.version}"
    below += _list_rejected(status, reason, details=details)
    return TableRow((endpoint.name, serves, at), below, _style(status))


def _describe_spaces(endpoint: ModelEndpoint) -> str:
    """Of which vector space its answers are, and which others it holds; empty if it gives none."""
    spaces = list_spaces(endpoint)
    others = (f"; those of version {each.version} of {each.space}" for each in spaces[1:])
    also = "".join(others) + (": they can't be compared" if spaces[1:] else "")
    return f"its vectors are of the space {spaces[0].space}{also}" if spaces else ""


def _describe_sleep(status: EndpointStatus, now: float, reports: tuple[LoaderReport, ...]) -> str:
    """That a model is idle, and how long the next caller will wait; empty if it is awake.

    If a caller waits and a Triton can't load it again, why not.
    """
    stable = status.stable
    if status.asleep is None or stable is None:
        return ""
    for report in reports:
        for failure in report.failed:
            if failure.ref == stable:
                return f"asked for, and does not come back: {report.loader} says {failure.reason}"
    took = max((report.asleep.get(stable.package, 0.0) for report in reports), default=0.0)
    within = f" in about {took:.0f} s" if took else ""
    return (
        f"asleep for {humanise(max(0.0, now - status.asleep))}, as it was idle: it comes back with "
        f"the next caller{within}"
    )


def _pool(status: EndpointStatus, told: str) -> tuple[Sentence, ...]:
    """Where it is answered, unless that is usual; and what its status notes that ``told`` lacks."""
    where = ""
    if status.next_pool:
        where = f"pool {status.pool}, moves to the pool {status.next_pool}"
    elif status.pool != DEFAULT_POOL:
        where = f"pool {status.pool}"
    return sentences(where, *(note for note in status.notes if note not in told))


def _list_rejected(status: EndpointStatus, told: str, *, details: bool) -> tuple[Sentence, ...]:
    """Which versions were rejected, with details why; ``told`` is a reason that stands above."""
    newest = status.rejected[-REASONS_LIMIT:]
    others = len(status.rejected) - len(newest)
    earlier = f" and {others} earlier" if others else ""
    if details:
        return sentences(
            *(
                f"rejected: version {item.version}"
                + (f": {item.reason}" if item.reason not in ("", told) else "")
                for item in newest
            ),
            f"rejected: {others} earlier" if others else "",
        )
    versions = ", ".join(item.version for item in newest)
    return sentences(f"rejected: {versions}{earlier}" if versions else "")


def _style(status: EndpointStatus) -> str:
    return "" if status.candidate is None else _WRONG.get(status.candidate.phase, "")
