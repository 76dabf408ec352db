"""Words of ``headrace stats`` and ``headrace recount``."""

from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.options import HOME, Endpoint, Home, Json, Kafka, moment, names, where
from headrace.cli.program import App

app = App(help="Statistics of your own, and the words that became UNK.")

Since = Annotated[
    str, typer.Option("--from", metavar="TIME", help="E.g. 15m (ago), or 2026-03-01T12:00Z.")
]
Statistic = Annotated[str, typer.Argument(help="Name of the statistic.")]
_SETTLED = "15s"  # what is younger may be on its way into the windows


class Kind(StrEnum):
    """What a statistic is."""

    HISTOGRAM = "histogram"
    CATEGORY = "category"
    COUNTER = "counter"


@app.declare("list", names=True)
def show(endpoint: Endpoint, home: Home = HOME, json: Json = False) -> None:
    """Lists the statistics that an endpoint declares."""
    from headrace.commands import stats as command

    command.show(where(home), endpoint, as_json=json)


@app.declare()
def add(
    endpoint: Endpoint,
    statistic: Statistic,
    kind: Annotated[Kind, typer.Option(help="What it counts.")],
    edges: Annotated[str, typer.Option(help="Upper edges of a histogram: 0.1,0.5,1")] = "",
    values: Annotated[str, typer.Option(help="Values of a category: en,de,other")] = "",
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Declares a statistic, or changes one."""
    from headrace.commands import stats as command

    try:
        numbers = tuple(float(edge) for edge in edges.split(",") if edge.strip())
    except ValueError:
        raise typer.BadParameter("edges are numbers: 0.1,0.5,1") from None
    command.add(
        where(home),
        endpoint,
        statistic,
        kind=kind.value,
        edges=numbers,
        values=tuple(value.strip() for value in values.split(",") if value.strip()),
        as_json=json,
    )


@app.declare()
def remove(endpoint: Endpoint, statistic: Statistic, home: Home = HOME, json: Json = False) -> None:
    """Takes a statistic back."""
    from headrace.commands import stats as command

    command.remove(where(home), endpoint, statistic, as_json=json)


@app.declare("unk-words")
def unk_words(
    endpoint: Endpoint,
    begin: Since = "1h",
    top: Annotated[
        int | None, typer.Option(min=1, max=1000, help="So many words; else as the endpoint says.")
    ] = None,
    home: Home = HOME,
    kafka: Kafka = None,
    json: Json = False,
) -> None:
    """Lists the words that became UNK most often, where the endpoint keeps them."""
    from headrace.commands import unk_words as command

    since = moment(begin, "--from")
    command.show(where(home), kafka, endpoint, since, top=top, as_json=json)


def recount(
    begin: Since = "1h",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="And before this; now: all there is.")
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
            help="Derive the verdict of this endpoint's rollout, or of its last one, in place of"
            " all that. It takes the time of the rollout.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Counts raw events again, and shows that the windows and the exporter agree."""
    if rollout is not None:
        from headrace.commands import recount_rollout

        recount_rollout.run(where(home), kafka, rollout, as_json=json)
        return
    from headrace.commands import recount as command
    from stats.recounting.recount import Asked

    asked = Asked(moment(begin, "--from"), moment(end, "--to"), endpoint)
    if asked.begin >= asked.end:
        raise typer.BadParameter("it must lie before --to", param_hint="--from")
    command.run(where(home), kafka, exporter, asked, as_json=json)
