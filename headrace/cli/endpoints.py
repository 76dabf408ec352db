"""Words of the commands about endpoints: ``apply``, ``diff``, ``get``, ``delete``, ``schema``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace import invocation
from headrace.cli.options import HOME, Endpoint, Home, Json, names, where


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


def apply(
    file: File,
    recursive: Recursive = False,
    dry_run: Annotated[
        DryRun, typer.Option(help="Say what would change; with server, the cluster checks it too.")
    ] = DryRun.NONE,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Makes endpoints, or changes them, to what YAML files say; takes effect without a restart."""
    from headrace.commands import endpoints as command

    command.apply(where(home), file, recursive=recursive, dry_run=dry_run.value, as_json=json)


def diff(file: File, recursive: Recursive = False, home: Home = HOME, json: Json = False) -> None:
    """Shows what apply would change; ends with 0 where that is nothing, and with 1 otherwise."""
    from headrace.commands import endpoints as command

    command.diff(where(home), file, recursive=recursive, as_json=json)


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
    from headrace.commands import endpoints as command

    command.get(where(home), endpoint, form=invocation.current().form, defaults=everything)


def delete(
    endpoint: Endpoint,
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
