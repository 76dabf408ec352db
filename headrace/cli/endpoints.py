"""Words of the commands about endpoints: ``apply``, ``get``, ``delete`` and ``schema``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import HOME, Home, Json, where


class Form(StrEnum):
    """How documents are printed."""

    YAML = "yaml"
    JSON = "json"


def apply(
    file: Annotated[
        list[Path], typer.Option("--file", "-f", help="YAML of endpoints; - is standard input.")
    ],
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Makes endpoints, or changes them, to what YAML files say; takes effect without a restart."""
    from headrace.commands import endpoints as command

    command.apply(where(home), file, as_json=json)


def get(
    endpoint: Annotated[str | None, typer.Argument(help="Only this endpoint.")] = None,
    home: Home = HOME,
    output: Annotated[
        Form | None, typer.Option("--output", "-o", help="Print documents, to edit and apply.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the fields that are at their default.")
    ] = False,
) -> None:
    """Shows endpoints as they are written."""
    from headrace.commands import endpoints as command

    form = None if output is None else output.value
    command.get(where(home), endpoint, form=form, defaults=everything)


def delete(
    endpoint: Annotated[str, typer.Argument(help="Name of the endpoint.")],
    home: Home = HOME,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: Json = False,
) -> None:
    """Removes an endpoint: its callers get 404."""
    from headrace.commands import endpoints as command

    command.delete(where(home), endpoint, sure=yes, as_json=json)


def schema() -> None:
    """Prints the JSON schema of an endpoint's YAML, for editors."""
    from headrace.commands.output import print_json
    from headrace.endpoints.schema import endpoint_schema

    print_json(endpoint_schema())
