"""``headrace packages verify``: reads every package of a store, and says which are not whole.

It changes nothing: a damaged package that an endpoint needs is converted again by the controller.
"""

from pathlib import Path

from headrace.commands import home as homes
from headrace.commands.output import console, print_json
from headrace.errors import RefusedError, RequestFailedError
from headrace.stack import state


def verify(root: Path, url: str | None, *, as_json: bool) -> None:
    """Verifies the store under ``url``, or that of the home ``root``."""
    from registry.packages.store import (  # noqa: PLC0415 - with stores of all kinds, for this alone
        PackageDamagedError,
        PackageMissingError,
        PackageStore,
        StoreUnavailableError,
    )

    if url is None:
        home = homes.opened(root)
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
