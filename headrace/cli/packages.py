"""Words of ``headrace packages``."""

from typing import Annotated

import typer

from headrace.cli.options import HOME, Home, Json, absolute
from headrace.cli.program import App

_VERIFY = (
    "headrace packages verify reads the store of a home, or the one that --store names; in a "
    "cluster name it, with the rights to read it."
)
app = App(help="The store of packages.")


@app.declare("verify", local=_VERIFY)
def verify(
    home: Home = HOME,
    store: Annotated[
        str | None,
        typer.Option(help="URL of the store, as the controller's --store-url has it."),
    ] = None,
    json: Json = False,
) -> None:
    """Reads every package, and says which have lost or damaged files."""
    from headrace.commands import packages as command

    command.verify(absolute(home), store, as_json=json)
