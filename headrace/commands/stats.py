"""``headrace stats``: the statistics of users' own that an endpoint declares."""

from functools import partial
from typing import Annotated

import typer

from contracts.rollout import CustomStatistic, StatisticKind
from headrace import home as homes
from headrace.commands.layout import TableRow, rows, sentences
from headrace.commands.output import console, print_json
from headrace.endpoints import edits, statistics
from headrace.invocation import is_structured
from headrace.options import HOME, Endpoint, Home, Kafka, Since, find_place, moment
from headrace.program import App

app = App(help="Statistics of your own, and the words that became UNK.")

Statistic = Annotated[str, typer.Argument(help="Name of the statistic.")]


@app.declare("list")
def show(endpoint: Endpoint, home: Home = HOME) -> None:
    """Lists the statistics that an endpoint declares."""
    found = edits.find_existing(homes.site(find_place(home)).store, endpoint).spec.statistics
    if is_structured():
        print_json([_document(one) for one in found])
    elif not found:
        console.print(f"{endpoint} declares no statistics: headrace stats add {endpoint} ...")
    else:
        console.print(rows(("statistic", "kind"), [_row(one) for one in found]))


def _row(one: CustomStatistic) -> TableRow:
    words = [*(f"{edge:g}" for edge in one.edges), *one.values]
    return TableRow((one.name, one.kind.value), sentences(", ".join(words)))


@app.declare()
def add(
    endpoint: Endpoint,
    statistic: Statistic,
    kind: Annotated[StatisticKind, typer.Option(help="What it counts.")],
    edges: Annotated[str, typer.Option(help="Upper edges of a histogram: 0.1,0.5,1")] = "",
    values: Annotated[str, typer.Option(help="Values of a category: en,de,other")] = "",
    home: Home = HOME,
) -> None:
    """Declares a statistic, or changes one."""
    try:
        numbers = tuple(float(edge) for edge in edges.split(",") if edge.strip())
    except ValueError:
        raise typer.BadParameter("edges are numbers: 0.1,0.5,1") from None
    words = tuple(value.strip() for value in values.split(",") if value.strip())
    spec = statistics.build_declaration(statistic, kind.value, numbers, words)
    change = partial(statistics.with_statistic, statistic=spec)
    edits.edit(homes.site(find_place(home)).store, endpoint, change)
    if is_structured():
        print_json(_document(spec))
    else:
        console.print(f"{endpoint} declares {spec.name}", highlight=False)


@app.declare()
def remove(endpoint: Endpoint, statistic: Statistic, home: Home = HOME) -> None:
    """Removes a statistic."""
    change = partial(statistics.without_statistic, name=statistic)
    edits.edit(homes.site(find_place(home)).store, endpoint, change)
    if is_structured():
        print_json({"removed": statistic})
    else:
        console.print(f"{endpoint} declares {statistic} no more", highlight=False)


@app.declare("unk-words")
def unk_words(
    endpoint: Endpoint,
    begin: Since = "1h",
    top: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Number of words; by default what the endpoint says."),
    ] = None,
    home: Home = HOME,
    kafka: Kafka = None,
) -> None:
    """Lists the words that became UNK most often, if the endpoint keeps them."""
    from headrace.commands.unk_words import show_words  # noqa: PLC0415 - with Kafka and numpy

    show_words(find_place(home), kafka, endpoint, moment(begin, "--from"), top=top)


def _document(statistic: CustomStatistic) -> dict[str, object]:
    return statistic.model_dump(mode="json", by_alias=True, exclude_defaults=True)
