"""The command line ``headrace``: which commands there are, and where each is.

Each file of ``headrace.commands`` has one command, or a group of them, and is imported when a line
names it: ``--help`` and completion stay quick. ``headrace.program`` has what all commands share.
"""

import os
import shlex
import sys
from importlib import import_module
from importlib.metadata import version as version_of
from typing import Annotated, Any

import typer

from headrace.program import PLUGIN, App, SentenceGroup, do_nothing

_HELP = "Serves Hugging Face encoder models: registered in MLflow, run by Triton."
# Name -> its file, and the first line of its help. tests/headrace/test_cli.py holds them together.
COMMANDS = {
    "up": ("up", "Starts the whole stack on this machine and runs it until Ctrl-C."),
    "status": ("status", "Shows what runs, and where each endpoint's versions are on their way."),
    "apply": (
        "endpoints",
        "Makes endpoints, or changes them, to what YAML files say; takes effect without a restart.",
    ),
    "diff": (
        "endpoints",
        "Shows what apply would change; ends with 0 if that is nothing, and with 1 otherwise.",
    ),
    "get": (
        "endpoints",
        "Shows endpoints as they are written: all in a table, one as YAML to edit and apply.",
    ),
    "delete": ("endpoints", "Removes an endpoint: its callers get 404."),
    "schema": (
        "endpoints",
        "Prints the JSON schema of an endpoint's YAML, for editors, or of messages in Kafka.",
    ),
    "predict": ("predict", "Sends texts to an endpoint and shows its answers."),
    "replay": (
        "replay",
        "Sends a file's texts to an endpoint at an even pace, again and again, and sums it up.",
    ),
    "backfill": (
        "backfill",
        "Makes the vectors of a file's texts with idle capacity; again the same line, it goes on.",
    ),
    "recount": (
        "recount",
        "Counts raw events again, and shows that the windows and the exporter agree.",
    ),
    "models": ("models", "Lists registered models, their versions, and what became of each."),
    "doctor": ("doctor", "Says what of this machine is missing for the local stack."),
    "gc": ("models", "Removes old packages, keeping the newest and all that an endpoint names."),
    "version": ("version", "Shows which Headrace this is, and what it runs on."),
    "completion": (
        "version",
        "Prints a script for a shell, which then completes commands, names, versions, namespaces.",
    ),
    "rollout": ("rollout", "A new version's way to all callers, and what people decide of it."),
    "space": ("space", "Vector spaces of an embedding model, and the change to another."),
    "stats": ("stats", "Statistics of your own, and the words that became UNK."),
    "label": (
        "label",
        "Label pairs of answers that disagree, and see whether a version is less accurate.",
    ),
    "preprocessor": ("preprocessor", "Preprocessing and postprocessing of your own."),
    "keys": ("keys", "API keys of the gateway."),
    "packages": ("packages", "The store of packages."),
}


def load_command(name: str) -> Any:  # noqa: ANN401 - click's command, which typer brings along
    """The command, or group, of this name."""
    module = import_module(f"headrace.commands.{COMMANDS[name][0]}")
    found = typer.main.get_command(module.app)
    return getattr(found, "commands", {}).get(name, found)


class Program(SentenceGroup):
    """The root: it knows names and help of its commands, and loads the one that a line names."""

    def resolve_command(self, ctx: Any, args: Any) -> Any:  # noqa: ANN401 - click's
        """Finds the command that the line names."""
        name, known, rest = super().resolve_command(ctx, args)
        try:
            return name, known and load_command(known.name or ""), rest
        except ModuleNotFoundError:
            if ctx.resilient_parsing:  # a line that is being completed
                return name, known, rest
            raise


def whole_program() -> Any:  # noqa: ANN401 - click's group, which typer brings along
    """The root with all commands loaded, for what looks through them."""
    root: Any = typer.main.get_command(app)
    root.commands = {name: load_command(name) for name in COMMANDS}
    return root


def _print_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if asked:
        typer.echo(f"headrace {version_of('headrace')}")
        raise typer.Exit


app = App(
    cls=Program,
    help=_HELP,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Serves Hugging Face encoder models: registered in MLflow, run by Triton."""


for _name, (_, _told) in COMMANDS.items():
    app.declare(_name, help=_told)(do_nothing)


def complete_for_kubectl() -> None:
    """``kubectl_complete-headrace``, which kubectl asks for what may follow ``kubectl headrace``.

    Its arguments are the words so far and the one to complete. It prints a choice a line, and last
    what kubectl's own shell scripts are to do beside: nothing, so that they offer files if there is
    no choice.
    """
    words = sys.argv[1:] or [""]
    variable = "_HEADRACE_COMPLETE"
    os.environ[variable] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join([PLUGIN, *words])
    os.environ["COMP_CWORD"] = str(len(words))
    try:
        app(prog_name=PLUGIN, complete_var=variable)
    finally:
        typer.echo(":0")
