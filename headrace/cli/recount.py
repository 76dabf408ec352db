"""Words of ``headrace recount``."""

from typing import Annotated

import typer

from headrace.cli.moments import moment
from headrace.cli.options import HOME, Home, Json, Kafka, absolute

_SETTLED = "15s"  # what is younger may be on its way into the windows


def recount(
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="E.g. 15m (ago), or 2026-03-01T12:00Z.")
    ] = "1h",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="And before this; now: all there is.")
    ] = _SETTLED,
    endpoint: Annotated[str | None, typer.Option(help="Only this endpoint.")] = None,
    home: Home = HOME,
    kafka: Kafka = None,
    exporter: Annotated[
        str | None,
        typer.Option(help="URL of the statistics' exporter; by default that of the same stack."),
    ] = None,
    json: Json = False,
) -> None:
    """Counts raw events again, and shows that the windows and the exporter agree."""
    from headrace.commands import recount as command
    from stats.recounting.recount import Asked

    asked = Asked(moment(begin, "--from"), moment(end, "--to"), endpoint)
    if asked.begin >= asked.end:
        raise typer.BadParameter("it must lie before --to", param_hint="--from")
    command.run(absolute(home), kafka, exporter, asked, as_json=json)
