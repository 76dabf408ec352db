"""``headrace apply``: makes endpoints ask what YAML files ask."""

import sys
from dataclasses import asdict
from pathlib import Path

from contracts.endpoint import ModelEndpoint
from headrace.commands import home as homes
from headrace.commands.home import Where
from headrace.commands.output import console, print_json
from headrace.endpoints import document, edits
from headrace.errors import BadDocumentError, RequestFailedError

_STANDARD_INPUT = Path("-")


def run(where: Where, files: list[Path], *, as_json: bool) -> None:
    """Reads every file, then writes; a bad document anywhere leaves all endpoints as they are.

    Raises:
        NotRunningError: there is no such home, or no way to the cluster.
        BadDocumentError: a document is no endpoint.
        RequestFailedError: a file can't be read.
        BrokenHomeError: an endpoint can't be written.
    """
    store = homes.site(where).store
    wanted: dict[str, ModelEndpoint] = {}
    for file in files:
        for endpoint in document.read(_text(file), _source(file)):
            if endpoint.name in wanted:
                raise BadDocumentError(f"Two of the files hold the endpoint {endpoint.name}.")
            wanted[endpoint.name] = endpoint
    for name in wanted:
        edits.stored(store, name)  # all can be read, before any is written
    applied = [edits.apply(store, endpoint) for endpoint in wanted.values()]
    if as_json:
        print_json([asdict(each) for each in applied])
        return
    for each in applied:
        console.print(f"endpoint {each.name} {each.what}", highlight=False)
        for change in each.changes:
            console.print(f"  {change}", markup=False, highlight=False, soft_wrap=True)


def _source(file: Path) -> str:
    return "standard input" if file == _STANDARD_INPUT else str(file)


def _text(file: Path) -> str:
    try:
        if file == _STANDARD_INPUT:
            return sys.stdin.read()
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestFailedError(f"{_source(file)} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestFailedError(f"{_source(file)} can't be read: {error}.") from error
