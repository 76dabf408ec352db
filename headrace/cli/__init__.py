"""The command line ``headrace``: declares the commands and turns every error into a sentence.

The words of a command are in ``headrace.cli.<group>``, its work is in ``headrace.commands.<name>``,
imported when it is run, so that ``--help`` and completion stay quick. ``headrace.cli.program`` has
what all commands share.
"""

import os
import shlex
import sys
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from headrace import invocation
from headrace.cli import (
    endpoints,
    gateway,
    label,
    migrate,
    packages,
    preprocessor,
    rollout,
    stack,
    stats,
)
from headrace.cli.program import (
    PLUGIN,
    App,
    Kubeconfig,
    KubeContext,
    Output,
    RootNamespace,
    SentenceGroup,
)

app = App(
    cls=SentenceGroup,
    help="Serves Hugging Face encoder models: registered in MLflow, run by Triton.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if asked:
        typer.echo(f"headrace {version_of('headrace')}")
        raise typer.Exit


@app.callback()
def main(
    namespace: RootNamespace = None,
    kube_context: KubeContext = None,
    kubeconfig: Kubeconfig = None,
    output: Output = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Serves Hugging Face encoder models: registered in MLflow, run by Triton."""
    invocation.say(namespace, kube_context, kubeconfig, output)


def kubectl() -> None:
    """``kubectl headrace``: of a cluster, the namespace of the context unless one is named."""
    app(prog_name=PLUGIN)


def complete_for_kubectl() -> None:
    """``kubectl_complete-headrace``, which kubectl asks for what may follow ``kubectl headrace``.

    Its arguments are the words so far and the one to complete. It prints a choice a line, and last
    what kubectl's own shell scripts are to do beside: nothing, so that they offer files where
    there is no choice.
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


_UP = (
    "headrace up runs a stack on this machine; a cluster gets one by the Helm chart: "
    "helm install headrace charts/headrace."
)
_DOCTOR = "headrace doctor looks at this machine; in a cluster, helm test says what is wrong."
_GC = (
    "headrace gc removes packages of a home; in a cluster the controller does so by itself, as "
    "packages.keep in the chart's values says."
)
app.declare(local=_UP)(stack.up)
app.declare(names=True)(stack.status)
app.declare(names=True)(endpoints.apply)
app.declare(names=True)(endpoints.diff)
app.declare(names=True)(endpoints.get)
app.declare(names=True)(endpoints.delete)
app.declare()(endpoints.schema)
app.declare()(gateway.predict)
app.declare()(gateway.replay)
app.declare()(stats.recount)
app.declare(names=True)(stack.models)
app.declare(local=_DOCTOR)(stack.doctor)
app.declare(local=_GC)(stack.gc)
app.declare()(stack.version)
app.declare()(stack.completion)
app.add_typer(rollout.app, name="rollout")
app.add_typer(stats.app, name="stats")
app.add_typer(label.app, name="label")
app.add_typer(preprocessor.app, name="preprocessor")
app.add_typer(migrate.app, name="migrate")
app.add_typer(gateway.keys, name="keys")
app.add_typer(packages.app, name="packages")
