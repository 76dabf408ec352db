"""``headrace stats``: the statistics of users' own that an endpoint declares."""

from functools import partial

from contracts.rollout import StatisticSpec
from headrace.commands import home as homes
from headrace.commands.home import Where
from headrace.commands.layout import Row, rows, sentences
from headrace.commands.output import console, print_json
from headrace.endpoints import edits, statistics


def show(where: Where, name: str, *, as_json: bool) -> None:
    """Lists them."""
    found = edits.existing(homes.site(where).store, name).spec.statistics
    if as_json:
        print_json([_document(one) for one in found], (one.name for one in found))
        return
    if not found:
        console.print(f"{name} declares no statistics: headrace stats add {name} ...")
        return
    console.print(rows(("statistic", "kind"), [_row(one) for one in found]))


def _row(one: StatisticSpec) -> Row:
    words = [*(f"{edge:g}" for edge in one.edges), *one.values]
    return Row((one.name, one.kind.value), sentences(", ".join(words)))


def add(
    where: Where,
    endpoint: str,
    statistic: str,
    *,
    kind: str,
    edges: tuple[float, ...],
    values: tuple[str, ...],
    as_json: bool,
) -> None:
    """Declares one, in place of one of the same name."""
    spec = statistics.declared(statistic, kind, edges, values)
    change = partial(statistics.with_statistic, statistic=spec)
    edits.edit(homes.site(where).store, endpoint, change)
    if as_json:
        print_json(_document(spec))
    else:
        console.print(f"{endpoint} declares {spec.name}", highlight=False)


def remove(where: Where, endpoint: str, statistic: str, *, as_json: bool) -> None:
    """Takes one back."""
    change = partial(statistics.without_statistic, name=statistic)
    edits.edit(homes.site(where).store, endpoint, change)
    if as_json:
        print_json({"removed": statistic})
    else:
        console.print(f"{endpoint} declares {statistic} no more", highlight=False)


def _document(statistic: StatisticSpec) -> dict[str, object]:
    return statistic.model_dump(mode="json", by_alias=True, exclude_defaults=True)
