"""The command line ``headrace``: declares the commands and turns every error into a sentence.

The words of a command are in ``headrace.cli.<group>``, its work is in ``headrace.commands.<name>``,
imported when it is run, so that ``--help`` and completion stay quick. A failure that a person can
act on is printed without a traceback and ends with the error's own exit status.
"""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from headrace.cli import endpoints, gateway, label, migrate, preprocessor, rollout, stack, stats
from headrace.cli.options import Namespace, chosen_namespace
from headrace.errors import HeadraceError, RefusedError

_IN_A_CLUSTER = frozenset({"apply", "get", "delete", "rollout", "schema"})

errors = Console(stderr=True)


class SentenceGroup(TyperGroup):
    """Prints a ``HeadraceError`` as its message."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's context, which typer brings along
        """Runs a command."""
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            errors.print(error.message, style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(error.exit_status) from None


app = typer.Typer(
    cls=SentenceGroup,
    no_args_is_help=True,
    help="Serves Hugging Face encoder models: registered in MLflow, run by Triton.",
    pretty_exceptions_show_locals=False,
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if asked:
        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    namespace: Namespace = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Serves Hugging Face encoder models: registered in MLflow, run by Triton."""
    chosen_namespace.set(namespace)
    command = context.invoked_subcommand
    if namespace is not None and command not in _IN_A_CLUSTER:
        names = ", ".join(sorted(_IN_A_CLUSTER))
        raise RefusedError(f"headrace {command} works on a local stack. In a cluster: {names}.")


for command in (
    stack.up,
    stack.status,
    endpoints.apply,
    endpoints.get,
    endpoints.delete,
    endpoints.schema,
    gateway.predict,
    gateway.replay,
    stats.recount,
    stack.models,
    stack.doctor,
    stack.gc,
):
    app.command()(command)
app.add_typer(rollout.app, name="rollout")
app.add_typer(stats.app, name="stats")
app.add_typer(label.app, name="label")
app.add_typer(preprocessor.app, name="preprocessor")
app.add_typer(migrate.app, name="migrate")
app.add_typer(gateway.keys, name="keys")
