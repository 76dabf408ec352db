"""``headrace recount``: holds windows against raw events, and the exporter against the windows."""

from datetime import UTC, datetime
from typing import Annotated, Any

import httpx
import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from headrace.commands import recount_rollout
from headrace.commands.output import console, print_json, table_of
from headrace.errors import NotRunningError, RefusedError
from headrace.home import Cluster, kafka_of
from headrace.invocation import is_structured
from headrace.options import HOME, Home, Kafka, Since, find_place, moment, names
from headrace.program import App, say_wait
from headrace.stack.state import Home as StackHome
from headrace.stack.state import read_record
from measures.recounting import CountDifference
from service.kafka import StreamError
from stats.recounting.counters import CounterRecount, recount_counters_kafka
from stats.recounting.recount import Recount, RecountScope, recount_kafka

_SHOWN = 20
_TIMEOUT_SECONDS = 10.0
_SETTLED = "15s"  # what is younger may be on its way into the windows

app = App()


@app.declare()
def recount(
    begin: Since = "1h",
    end: Annotated[
        str,
        typer.Option("--to", metavar="TIME", help="Traffic before this time; now: all there is."),
    ] = _SETTLED,
    endpoint: Annotated[
        str | None, typer.Option(help="Only this endpoint.", autocompletion=names)
    ] = None,
    home: Home = HOME,
    kafka: Kafka = None,
    exporter: Annotated[
        str | None,
        typer.Option(help="URL of the statistics' exporter; by default that of the same stack."),
    ] = None,
    rollout: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Derive only the verdict of this endpoint's rollout, or of its last one, from the"
            " events of its time.",
        ),
    ] = None,
) -> None:
    """Counts raw events again, and shows that the windows and the exporter agree."""
    place = find_place(home)
    if rollout is not None:
        recount_rollout.derive(place, kafka, rollout)
        return
    asked = RecountScope(moment(begin, "--from"), moment(end, "--to"), endpoint)
    if asked.begin >= asked.end:
        raise typer.BadParameter("it must lie before --to", param_hint="--from")
    brokers = kafka_of(place, kafka)
    record = None if kafka or isinstance(place, Cluster) else read_record(StackHome(place))
    exporter = exporter or ("" if record is None else record.stats_url)
    say_wait(f"Kafka at {brokers}")
    try:
        found = recount_kafka(brokers, asked, progress=say_wait)
        say_wait("adding up what the exporter shows")
        counters = _counters(exporter, brokers) if exporter else None
    except StreamError as error:
        raise NotRunningError(f"Nothing can be counted: {error}.") from error
    tell(asked, found, counters, as_json=is_structured())


def _counters(exporter: str, brokers: str) -> CounterRecount:
    url = f"{exporter.rstrip('/')}/counters.json"
    try:
        document = httpx.get(url, timeout=_TIMEOUT_SECONDS).raise_for_status().json()
        if document.get("shards", 1) > 1:
            raise NotRunningError(
                f"{url} has the counters of one of {document['shards']} shards, which can't be held"
                " against all windows: leave --exporter out."
            )
        return recount_counters_kafka(brokers, document)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotRunningError(f"The exporter does not answer at {url}: {error}.") from error
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise NotRunningError(f"No exporter of ours answers at {url}: {error!r}.") from error


def tell(
    asked: RecountScope, found: Recount, counters: CounterRecount | None = None, *, as_json: bool
) -> None:
    """Shows what was found."""
    if as_json:
        print_json(_document(asked, found, counters))
    else:
        _show(found)
        if counters is not None:
            _show_counters(counters)
    if found.differences:
        raise RefusedError(f"{len(found.differences)} numbers are not what the raw events say.")
    if counters is not None and counters.differences and not counters.overflow:
        raise RefusedError(
            f"{len(counters.differences)} numbers of the exporter are not what the windows say."
        )
    if found.unfolded:
        raise RefusedError(
            f"{found.unfolded} messages are in no window: see whether the fold role runs and what "
            "lag it reports, or ask for an earlier --to."
        )


def _show(found: Recount) -> None:
    say = f"{found.events} events in {found.ranges} ranges were counted again: "
    if not found.ranges:
        say = "No events of this time can be counted again."
    elif found.agrees:
        say += f"all {found.numbers} numbers of the merged windows agree."
    else:
        say += f"{len(found.differences)} of {found.numbers} numbers differ."
    console.print(say, highlight=False)
    if found.gone:
        console.print(
            f"{found.gone} ranges can't be counted: Kafka has deleted messages of theirs.",
            highlight=False,
        )
    if found.other_topic:
        console.print(
            f"{found.other_topic} ranges are of a topic that was deleted since.", highlight=False
        )
    _show_losses(found)
    if found.differences:
        named = [
            (f"partition {partition}, range {start}: {what.where}", what)
            for partition, start, what in found.differences
        ]
        console.print(_table("written", named))


def _show_losses(found: Recount) -> None:
    if not found.ranges:
        return
    if not found.gateways:
        say = "Not all of this time could be counted: which messages are missing is not known."
    else:
        missing = sum(len(gateway.missing) for gateway in found.gateways)
        lost = sum(sum(sum(of.values()) for of in each.dropped.values()) for each in found.gateways)
        starts = f"{len(found.gateways)} start{'s' * (len(found.gateways) > 1)}"
        say = (
            f"Of {starts} of gateways {missing or 'no'} messages are missing, "
            f"and they say that they lost {lost or 'no'} events."
        )
    console.print(say, highlight=False)
    for gateway in found.gateways:
        if gateway.missing:
            numbers = ", ".join(map(str, gateway.missing[:_SHOWN]))
            more = len(gateway.missing) - _SHOWN
            console.print(
                f"{gateway.gateway}: messages {numbers}"
                + (f" and {more} more" if more > 0 else ""),
                markup=False,
                highlight=False,
            )
        for endpoint, reasons in gateway.dropped.items():
            told = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
            console.print(
                f"{gateway.gateway}: lost of {endpoint or 'further endpoints'}: {told}",
                markup=False,
                highlight=False,
            )


def _show_counters(found: CounterRecount) -> None:
    since = datetime.fromtimestamp(found.since, UTC).isoformat(timespec="seconds")
    if found.why_not:
        say = f"The exporter can't be compared: {found.why_not}."
    elif not found.differences:
        say = f"All {found.numbers} numbers of the exporter are those of the windows since {since}."
    else:
        say = f"{len(found.differences)} of {found.numbers} numbers of the exporter differ."
    console.print(say, highlight=False)
    if found.overflow:
        bounds = ", ".join(sorted(found.overflow))
        console.print(
            f"There was no room for all, and some are summed or forgotten: {bounds}.",
            highlight=False,
        )
    if found.differences:
        console.print(_table("shown", [(what.where, what) for what in found.differences]))


def _table(written: str, differences: list[tuple[str, CountDifference]]) -> Table:
    table = table_of("what", written, "counted")
    for place, what in differences[:_SHOWN]:
        table.add_row(escape(place), f"{what.written:.17g}", f"{what.counted:.17g}")
    more = len(differences) - _SHOWN
    if more > 0:
        table.add_row(f"and {more} more: --json has them all", "", "")
    return table


def _counter_document(found: CounterRecount | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "agrees": not found.differences and not found.why_not,
        "since": found.since,
        "numbers": found.numbers,
        "not_compared": found.why_not or None,
        "summed_under_other": found.overflow,
        "differences": [
            {"where": what.where, "shown": what.written, "counted": what.counted}
            for what in found.differences
        ],
    }


def _document(
    asked: RecountScope, found: Recount, counters: CounterRecount | None
) -> dict[str, Any]:
    return {
        "from": asked.begin,
        "to": asked.end,
        "endpoint": asked.endpoint,
        "agrees": found.agrees and not found.unfolded,
        "ranges": found.ranges,
        "events": found.events,
        "numbers": found.numbers,
        "gone_ranges": found.gone,
        "ranges_of_deleted_topics": found.other_topic,
        "messages_in_no_window": found.unfolded,
        "differences": [
            {
                "partition": partition,
                "offset": start,
                "where": what.where,
                "written": what.written,
                "counted": what.counted,
            }
            for partition, start, what in found.differences
        ],
        "gateways": [
            {
                "gateway": each.gateway,
                "first": each.first,
                "last": each.last,
                "missing": each.missing,
                "lost": each.dropped,
                "heard": each.heard,
                "ended": each.ended,
            }
            for each in found.gateways
        ],
        "exporter": _counter_document(counters),
    }
