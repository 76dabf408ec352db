"""``headrace apply``, ``diff``, ``get``, ``delete``, ``schema``: endpoints as people write them."""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from contracts import waiting
from contracts.endpoint import (
    AliasVersion,
    EndpointSpec,
    EndpointStatus,
    ModelEndpoint,
    PinnedVersion,
    WaitsFor,
)
from contracts.endpoint_schema import endpoint_schema
from contracts.message_schemas import Messages, message_schema
from headrace import home as homes
from headrace.commands.layout import TableRow, TableRows, rows, sentences
from headrace.commands.output import console, print_json, print_line
from headrace.endpoints import document, edits
from headrace.errors import (
    BadDocumentError,
    BrokenHomeError,
    DifferentError,
    RefusedError,
    RequestFailedError,
)
from headrace.home import Cluster
from headrace.invocation import OutputFormat, current, is_structured
from headrace.options import HOME, Endpoint, Home, find_place, names
from headrace.program import App
from headrace.stack import answers
from registry.stores.endpoints import EndpointStore

_STANDARD_INPUT = Path("-")
_ASKED = ("spec.model", "spec.version", "spec.rollout.alias")
_CONTROLLER_SECONDS, _LOOK_SECONDS = 2.0, 0.1  # its passes come four times a second
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})

app = App()


class DryRun(StrEnum):
    """How to try ``apply`` without writing anything."""

    NONE = "none"
    CLIENT = "client"  # read and compared here
    SERVER = "server"  # the API server also checks it, with all its admission


File = Annotated[
    list[Path],
    typer.Option(
        "--file", "-f", help="YAML of endpoints, a folder of such files, or - for standard input."
    ),
]
Recursive = Annotated[bool, typer.Option("--recursive", "-R", help="Also the folders in a folder.")]


@app.declare()
def apply(
    file: File,
    recursive: Recursive = False,
    dry_run: Annotated[
        DryRun, typer.Option(help="Say what would change; with server, the cluster checks it too.")
    ] = DryRun.NONE,
    home: Home = HOME,
) -> None:
    """Makes endpoints, or changes them, to what YAML files say; takes effect without a restart."""
    # All files are read before the first write: a bad document leaves all endpoints as they are.
    place = find_place(home)
    site = homes.site(place)
    store = site.store
    wanted = _read_wanted(store, file, recursive=recursive)
    known = {each.name: _status(store, each.name) for each in wanted}
    if dry_run is DryRun.SERVER and isinstance(place, Cluster):
        rehearsed = homes.of_namespace(place.open(), dry_run=True).store
        applied = [edits.apply(rehearsed, endpoint) for endpoint in wanted]
    elif dry_run is not DryRun.NONE:
        applied = [edits.compare(store, endpoint) for endpoint in wanted]
    else:
        applied = [edits.apply(store, endpoint) for endpoint in wanted]
    said = "" if dry_run is DryRun.NONE else f" ({dry_run} dry run)"
    if is_structured():
        print_json([asdict(each) for each in applied])
    else:
        for each in applied:
            print_line(f"endpoint {each.name} {each.what}{said}")
            for change in each.changes:
                print_line(f"  {change}")
    # The controller has a moment to say what the endpoint names and MLflow lacks.
    if dry_run is DryRun.NONE and not site.no_controller:
        _warn(store, {each.name: known[each.name] for each in applied if _names_others(each)})


def _names_others(applied: edits.EditOutcome) -> bool:
    """Whether the endpoint names something in MLflow that it did not name before."""
    asked = any(change.field.startswith(_ASKED) for change in applied.changes)
    return applied.what == "created" or asked


def _warn(store: EndpointStore, known: Mapping[str, EndpointStatus | None]) -> None:
    """Shows what the controller notes about endpoints that were written just now."""
    deadline, unheard = time.monotonic() + _CONTROLLER_SECONDS, dict(known)
    while unheard:
        is_over = time.monotonic() >= deadline
        for name, before in tuple(unheard.items()):
            status = _status(store, name)
            if not is_over and (status == before or not _is_told(status)):
                continue
            del unheard[name]
            for warning in () if status is None else _warnings(name, status):
                sys.stderr.write(f"Warning: endpoint {name}: {warning}.\n")
        if unheard:
            time.sleep(_LOOK_SECONDS)


def _is_told(status: EndpointStatus | None) -> bool:
    """Whether the controller has said what there is to be said of the endpoint."""
    if status is None or status.outdated or status == EndpointStatus():
        return False
    return WaitsFor.MLFLOW not in {wait.cause for wait in status.waits}


def _warnings(name: str, status: EndpointStatus) -> Iterator[str]:
    """What keeps the endpoint itself from being as it was asked to be."""
    yield from status.notes
    for wait in status.waits:
        if not wait.version and wait.cause is not WaitsFor.CALLER:
            yield f"{waiting.describe_wait(status, wait)}: {waiting.to_do(name, wait)}"


def _status(store: EndpointStore, name: str) -> EndpointStatus | None:
    found = edits.find_stored(store, name)
    return None if found is None else found.status


@app.declare()
def diff(file: File, recursive: Recursive = False, home: Home = HOME) -> None:
    """Shows what apply would change; ends with 0 if that is nothing, and with 1 otherwise."""
    store = homes.site(find_place(home)).store
    compared = [
        edits.compare(store, endpoint)
        for endpoint in _read_wanted(store, file, recursive=recursive)
    ]
    differing = [each for each in compared if each.what != "unchanged"]
    if is_structured():
        print_json([asdict(each) for each in differing])
    else:
        for each in differing:
            print_line(f"endpoint {each.name} would be {each.what}")
            for change in each.changes:
                print_line(f"  {change}")
    if differing:
        raise DifferentError


def _read_wanted(
    store: EndpointStore, files: list[Path], *, recursive: bool
) -> tuple[ModelEndpoint, ...]:
    """What the files ask for, by name; raises unless all can be read, and what is stored too."""
    wanted: dict[str, ModelEndpoint] = {}
    for file in _list_files(files, recursive=recursive):
        for endpoint in document.read(text_of(file), source_of(file)):
            if endpoint.name in wanted:
                raise BadDocumentError(f"Two of the files hold the endpoint {endpoint.name}.")
            wanted[endpoint.name] = endpoint
    for name in wanted:
        edits.find_stored(store, name)
    return tuple(wanted.values())


def _list_files(files: list[Path], *, recursive: bool) -> Iterator[Path]:
    for file in files:
        if not file.is_dir():
            yield file
            continue
        found = sorted(
            each
            for each in (file.rglob("*") if recursive else file.iterdir())
            if each.suffix in _SUFFIXES and each.is_file()
        )
        if not found:
            raise RequestFailedError(f"The folder {file} holds no file of YAML or JSON.")
        yield from found


def source_of(file: Path) -> str:
    """What a file of documents is called in messages; ``-`` is standard input."""
    return "standard input" if file == _STANDARD_INPUT else str(file)


def text_of(file: Path) -> str:
    """A file of documents, or standard input.

    Raises:
        RequestFailedError: it can't be read.
    """
    try:
        if file == _STANDARD_INPUT:
            return sys.stdin.read()
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestFailedError(f"{source_of(file)} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestFailedError(f"{source_of(file)} can't be read: {error}.") from error


@app.declare()
def get(
    endpoint: Annotated[
        str | None, typer.Argument(help="Only this endpoint.", autocompletion=names)
    ] = None,
    home: Home = HOME,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the fields that are at their default.")
    ] = False,
) -> None:
    """Shows endpoints as they are written: all in a table, one as YAML to edit and apply."""
    store = homes.site(find_place(home)).store
    found = edits.list_all(store) if endpoint is None else (edits.find_existing(store, endpoint),)
    form = current().form or (OutputFormat.TABLE if endpoint is None else OutputFormat.YAML)
    if form is OutputFormat.TABLE:
        console.print(_table(found))
    else:
        documents = [document.as_written(each, defaults=everything) for each in found]
        if form is OutputFormat.JSON:
            print_json(documents if endpoint is None else documents[0])
        else:
            sys.stdout.write("---\n".join(map(document.as_yaml, documents)))
    for unread in sorted(store.unreadable):
        sys.stderr.write(f"The endpoint {unread} is left out: what is stored can't be read.\n")


def _table(endpoints: tuple[ModelEndpoint, ...]) -> TableRows | str:
    if not endpoints:
        return "No endpoint yet: headrace apply -f endpoint.yaml, or register a model."
    entries: list[TableRow] = []
    for endpoint in endpoints:
        spec, (newest, reason) = endpoint.spec, answers.describe_newest(endpoint.status)
        strategy = spec.rollout.strategy.value
        cells = (endpoint.name, spec.model, _wanted_version(spec), strategy, newest)
        entries.append(TableRow(cells, sentences(reason)))
    return rows(("endpoint", "model", "wants", "rollout", "newest"), entries)


def _wanted_version(spec: EndpointSpec) -> str:
    if isinstance(spec.version, PinnedVersion):
        return f"version {spec.version.pin}"
    if isinstance(spec.version, AliasVersion):
        return f"alias {spec.version.alias}"
    return spec.version.follow


@app.declare()
def delete(
    endpoint: Endpoint,
    home: Home = HOME,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Removes an endpoint: its callers get 404."""
    site = homes.site(find_place(home))
    store = site.store
    is_unreadable = False
    try:
        known = edits.find_existing(store, endpoint)
        notes = _consequences(known, edits.list_all(store), auto_endpoints=site.auto_endpoints)
    except BrokenHomeError:
        # An endpoint that can't be read is to be got rid of all the same.
        is_unreadable = True
        notes = [f"What is stored of the endpoint {endpoint} can't be read; its history is lost."]
    if not yes:
        _ask(endpoint, notes)
    try:
        store.delete(endpoint)
    except OSError as error:
        raise BrokenHomeError(f"The endpoint {endpoint} can't be removed: {error}.") from error
    if is_structured():
        print_json({"deleted": endpoint, "notes": notes, "unreadable": is_unreadable})
        return
    print_line(f"endpoint {endpoint} deleted")
    if yes:
        for line in notes:
            print_line(f"  {line}")


def _consequences(
    endpoint: ModelEndpoint, endpoints: tuple[ModelEndpoint, ...], *, auto_endpoints: bool
) -> list[str]:
    status = endpoint.status
    lines = []
    if status.stable is not None:
        lines.append(
            f"Callers of {endpoint.name} get 404 from then on; version {status.stable.version} "
            "is unloaded if nothing else needs it."
        )
    if status.rollout is not None:
        lines.append(f"The rollout of version {status.rollout.candidate.version} ends unjudged.")
    if status.rejected or status.history:
        lines.append("Its history and its list of rejected versions go with it.")
    model = endpoint.spec.model
    others = [
        each.name for each in endpoints if each.spec.model == model and each.name != endpoint.name
    ]
    if auto_endpoints and not others:
        lines.append(
            f"While {model} is registered in MLflow it comes back with defaults, since this stack "
            "makes an endpoint for every model that has none. To stop that, start the stack with "
            "headrace up --no-auto-endpoints, or delete the registered model."
        )
    return lines


def _ask(name: str, notes: list[str]) -> None:
    for line in notes:
        sys.stderr.write(f"{line}\n")
    if not sys.stdin.isatty():
        raise RefusedError(f"The endpoint {name} was not deleted: say so with --yes.")
    if not typer.confirm(f"Delete the endpoint {name}?", err=True):
        raise RefusedError(f"The endpoint {name} was not deleted.")


@app.declare()
def schema(
    of: Annotated[
        Messages | None, typer.Argument(help="Of messages in Kafka, in place of endpoints.")
    ] = None,
) -> None:
    """Prints the JSON schema of an endpoint's YAML, for editors, or of messages in Kafka."""
    print_json(endpoint_schema() if of is None else message_schema(of))
