"""``headrace get``: endpoints as people write them."""

import sys

from contracts.endpoint import AliasVersion, EndpointSpec, ModelEndpoint, PinnedVersion
from headrace.commands import home as homes
from headrace.commands.home import Where
from headrace.commands.layout import Row, Rows, rows, sentences
from headrace.commands.output import console, print_json
from headrace.endpoints import document, edits
from headrace.stack import answers


def run(where: Where, name: str | None, *, form: str | None, defaults: bool) -> None:
    """Shows one endpoint's document, or a line for each.

    Args:
        where: the home, or a cluster.
        name: of an endpoint; all without it.
        form: ``yaml`` or ``json``; without it YAML of a single one, and a table of all.
        defaults: also what is at its default.

    Raises:
        NotRunningError: there is no such home, or no way to the cluster.
        RequestFailedError: there is no such endpoint.
    """
    store = homes.site(where).store
    found = edits.every(store) if name is None else (edits.existing(store, name),)
    documents = [document.as_written(endpoint, defaults=defaults) for endpoint in found]
    if form == "json":
        print_json(documents if name is None else documents[0])
    elif form == "yaml" or name is not None:
        sys.stdout.write("---\n".join(map(document.as_yaml, documents)))
    else:
        console.print(_table(found))
    for unread in sorted(store.unreadable):
        sys.stderr.write(f"The endpoint {unread} is left out: what is stored can't be read.\n")


def _table(endpoints: tuple[ModelEndpoint, ...]) -> Rows | str:
    if not endpoints:
        return "No endpoint yet: headrace apply -f endpoint.yaml, or register a model."
    entries: list[Row] = []
    for endpoint in endpoints:
        spec, (newest, reason) = endpoint.spec, answers.newest(endpoint.status)
        strategy = spec.rollout.strategy.value
        cells = (endpoint.name, spec.model, wanted_version(spec), strategy, newest)
        entries.append(Row(cells, sentences(reason)))
    return rows(("endpoint", "model", "wants", "rollout", "newest"), entries)


def wanted_version(spec: EndpointSpec) -> str:
    """Which version an endpoint asks for, in a few words."""
    if isinstance(spec.version, PinnedVersion):
        return f"version {spec.version.pin}"
    if isinstance(spec.version, AliasVersion):
        return f"alias {spec.version.alias}"
    return spec.version.follow
