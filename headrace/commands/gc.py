"""``headrace gc``: removes packages that nobody needs any more."""

from pathlib import Path

from headrace.commands import home as homes
from headrace.commands.output import console, print_json
from headrace.errors import BrokenHomeError, RequestFailedError
from headrace.stack import answers, state
from registry.packages import gc
from registry.packages.store import StoreUnavailableError
from service import json_files


def run(root: Path, *, keep: int, as_json: bool) -> None:
    """Removes all but the newest ``keep`` packages of each model and what endpoints name.

    Raises:
        NotRunningError: there is no such home.
        BrokenHomeError: an endpoint can't be read, so that what it needs is unknown.
        RequestFailedError: the package store can't be read or written.
    """
    home = homes.opened(root)
    endpoints = answers.read(home)
    try:
        unread = {Path(name).stem for name in json_files.stamps(home.endpoints)} - endpoints.keys()
    except OSError as error:
        raise BrokenHomeError(
            f"Nothing was removed: the endpoints can't be read ({error})."
        ) from error
    if unread:
        names = ", ".join(sorted(unread))
        raise BrokenHomeError(f"Nothing was removed: the endpoint file of {names} can't be read.")
    record = state.read_record(home)
    store = (record.package_store if record else "") or home.packages.as_uri()
    try:
        removed = gc.collect(store, endpoints.values(), keep=keep)
    except StoreUnavailableError as error:
        raise RequestFailedError(f"The package store can't be used: {error}.") from error
    if as_json:
        print_json({"removed": removed})
    else:
        console.print(f"Removed {len(removed)} packages, kept the newest {keep} of each model.")
