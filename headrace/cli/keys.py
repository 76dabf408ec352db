"""Words of ``headrace keys``."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import Json, absolute

app = typer.Typer(no_args_is_help=True, help="API keys of the gateway.")


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is; appears in metrics and logs.")],
    file: Annotated[Path, typer.Option(help="The gateway's key file, made if need be.")],
    endpoint: Annotated[
        list[str] | None, typer.Option(help="An endpoint that it opens; all, unless given.")
    ] = None,
    requests_per_second: Annotated[
        float | None,
        typer.Option(help="Most requests a second, of all endpoints and gateways together."),
    ] = None,
    json: Json = False,
) -> None:
    """Makes an API key, adds its hash to the key file and prints the key, this once."""
    from headrace.commands import keys as command

    command.create(
        absolute(file),
        name,
        endpoint or ["*"],
        requests_per_second=requests_per_second,
        as_json=json,
    )
