"""``headrace recount``: holds the merged windows against the raw events, and says what differs."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.commands.kafka import bootstrap
from headrace.commands.output import console, print_json
from headrace.errors import NotRunningError, RefusedError
from stats.errors import StatsError
from stats.recount import Asked, Recount, recount_kafka

_SHOWN = 20


def run(home: Path, kafka: str | None, asked: Asked, *, as_json: bool) -> None:
    """Counts again, and shows the result.

    Args:
        home: whose running stack's Kafka is meant without ``kafka``.
        kafka: ``host:port``, comma-separated.
        asked: which time, and whose.
        as_json: print JSON; what is done meanwhile goes to standard error.

    Raises:
        NotRunningError: Kafka is away, or nothing was ever folded.
        RefusedError: see ``tell``.
    """
    progress = Console(stderr=True)
    with progress.status("") as status:
        try:
            found = recount_kafka(bootstrap(home, kafka), asked, said=status.update)
        except StatsError as error:
            raise NotRunningError(f"Nothing can be counted: {error}.") from error
    tell(asked, found, as_json=as_json)


def tell(asked: Asked, found: Recount, *, as_json: bool) -> None:
    """Shows what was found.

    Raises:
        RefusedError: a number differs, or messages of the time are in no window.
    """
    if as_json:
        print_json(_document(asked, found))
    else:
        _show(found)
    if found.differences:
        raise RefusedError(f"{len(found.differences)} numbers are not what the raw events say.")
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
    if found.differences:
        console.print(_table(found))


def _table(found: Recount) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("partition", "offset", "what", "written", "counted"):
        table.add_column(heading, overflow="fold")
    for partition, start, what in found.differences[:_SHOWN]:
        figures = (f"{what.written:.17g}", f"{what.counted:.17g}")
        table.add_row(str(partition), str(start), escape(what.where), *figures)
    more = len(found.differences) - _SHOWN
    if more > 0:
        table.add_row("", "", f"and {more} more: --json has them all", "", "")
    return table


def _document(asked: Asked, found: Recount) -> dict[str, Any]:
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
    }
