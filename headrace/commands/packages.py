"""``headrace packages``: says which packages of a store are not whole, and frees a store.

It changes no package: a damaged one that an endpoint needs is converted again by the controller.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from headrace import home as homes
from headrace.commands.output import console, print_json
from headrace.errors import RefusedError, RequestFailedError
from headrace.invocation import is_structured
from headrace.options import HOME, Home, make_absolute
from headrace.program import App, do_nothing, refuse_cluster, say_wait
from headrace.stack import state
from registry.packages.store import (
    PackageDamagedError,
    PackageMissingError,
    PackageStore,
    StoreUnavailableError,
)
from registry.packages.store_mark import LIVE_SECONDS, read_facts
from registry.packages.store_mark import free as free_store

Store = Annotated[
    str | None,
    typer.Option(help="URL of the store, as the controller's --store-url has it."),
]

app = App(help="The store of packages.", callback=do_nothing)


@app.declare("verify")
def verify_store(
    home: Home = HOME,
    store: Store = None,
) -> None:
    """Reads every package, and says which have lost or damaged files."""
    refuse_cluster(
        "headrace packages verify reads the store of a home, or the one that --store names; in a "
        "cluster name it, with the rights to read it."
    )
    verify(make_absolute(home), store, as_json=is_structured())


def verify(root: Path, url: str | None, *, as_json: bool) -> None:
    """Verifies the store under ``url``, or that of the home ``root``."""
    url = url or _url_of(root)
    damaged: dict[str, str] = {}
    try:
        store = PackageStore(url)
        found, left = store.packages(), store.leftovers()
        say_wait(f"{len(found)} packages are read")
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
            f"{len(damaged)} packages are damaged. A controller that runs reads those that "
            "endpoints name, some ten minutes after its start and each day, and converts damaged "
            "ones again. The others are made whole when an endpoint wants their versions."
        )


@app.declare("free")
def free_of_its_release(
    home: Home = HOME,
    store: Store = None,
    force: Annotated[
        bool, typer.Option("--force", help="Although its release gave a sign of life lately.")
    ] = False,
) -> None:
    """Takes away the mark of the release that has a store, so that another can have it."""
    refuse_cluster(
        "headrace packages free takes the mark out of the store of a home, or of the one that "
        "--store names; in a cluster name it, with the rights to write it."
    )
    free(make_absolute(home), store, force=force, now=time.time())


def free(root: Path, url: str | None, *, force: bool, now: float) -> None:
    """Frees the store under ``url``, or that of the home ``root``."""
    url = url or _url_of(root)
    try:
        facts = read_facts(url)
        if facts is not None and now - facts.seen <= LIVE_SECONDS and not force:
            raise RefusedError(
                f"The store {url} has a release that may still run ({facts.describe(now)}), and "
                "each of two would remove the other's packages: stop its controller first, or say "
                "--force."
            )
        free_store(url)
    except StoreUnavailableError as error:
        raise RequestFailedError(f"The package store can't be used: {error}.") from error
    of = "a release of which nothing is known" if facts is None else facts.describe(now)
    if is_structured():
        print_json({"freed": url, "of": of})
    else:
        console.print(f"{url} is free of {of}: the next controller that starts on it has it.")


def _url_of(root: Path) -> str:
    home = homes.open_home(root)
    record = state.read_record(home)
    return (record.package_store if record else "") or f"file://{home.packages}"
