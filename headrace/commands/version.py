"""``headrace version``, and ``headrace completion``: the program about itself."""

import platform
from enum import StrEnum
from importlib.metadata import version as version_of
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from headrace.commands.output import print_json, print_line
from headrace.invocation import is_structured
from headrace.program import App

app = App()


@app.declare()
def version() -> None:
    """Shows which Headrace this is, and what it runs on."""
    found = {"headrace": version_of("headrace"), "python": platform.python_version()}
    found["kubernetes client"] = version_of("kubernetes")
    if is_structured():
        print_json({name.replace(" ", "_"): said for name, said in found.items()})
    else:
        for name, said in found.items():
            print_line(f"{name} {said}")


class Shell(StrEnum):
    """A shell that can complete words."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.declare()
def completion(
    shell: Annotated[Shell, typer.Argument(help="Whose script: bash, zsh or fish.")],
) -> None:
    """Prints a script for a shell, which then completes commands, names, versions, namespaces.

    Only for this shell: source <(headrace completion bash).
    """
    script = get_completion_script(
        prog_name="headrace", complete_var="_HEADRACE_COMPLETE", shell=shell.value
    )
    typer.echo(script)
