"""``headrace packages verify``: reads every package of a store, and says which are not whole.

It changes nothing: a damaged package that an endpoint needs is converted again by the controller.
"""

from pathlib import Path
from typing import Annotated

import typer

from headrace import home as homes
from headrace.commands.output import console, print_json
from headrace.errors import RefusedError, RequestFailedError
from headrace.invocation import is_structured
from headrace.options import HOME, Home, make_absolute
from headrace.program import App, do_nothing, refuse_cluster
from headrace.stack import state
from registry.packages.store import (
    PackageDamagedError,
    PackageMissingError,
    PackageStore,
    StoreUnavailableError,
)

app = App(help="The store of packages.", callback=do_nothing)


@app.declare("verify")
def verify_store(
    home: Home = HOME,
    store: Annotated[
        str | None,
        typer.Option(help="URL of the store, as the controller's --store-url has it."),
    ] = None,
) -> None:
    """Reads every package, and says which have lost or damaged files."""
    refuse_cluster(
        "headrace packages verify reads the store of a home, or the one that --store names; in a "
        "cluster name it, with the rights to read it."
    )
    verify(make_absolute(home), store, as_json=is_structured())


def verify(root: Path, url: str | None, *, as_json: bool) -> None:
    """Verifies the store under ``url``, or that of the home ``root``."""
    if url is None:
        home = homes.open_home(root)
        record = state.read_record(home)
        url = (record.package_store if record else "") or home.packages.as_uri()
    damaged: dict[str, str] = {}
    try:
        store = PackageStore(url)
        found, left = store.packages(), store.leftovers()
        for package in found:
            try:
                store.verify(package)
            except PackageDamagedError as error:
                damaged[package] = str(error)
            except PackageMissingError:  # deleted meanwhile
                continue
    except StoreUnavailableError as error:
        raise RequestFailedError(f"The package store can't be used: {error}.") from error
    if as_json:
        print_json({"packages": len(found), "damaged": damaged, "leftovers": left})
    else:
        for sentence in damaged.values():
            console.print(f"{sentence}.", style="red")
        console.print(f"Read {len(found)} packages: {len(damaged)} are damaged.")
        if left:
            console.print(f"{len(left)} folders were left half written or half deleted.")
    if damaged:
        raise RefusedError(
            f"{len(damaged)} packages are damaged: register or retry their versions, which makes "
            "them whole."
        )
