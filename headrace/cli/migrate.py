"""Words of ``headrace migrate``: manifests of other servers become endpoints."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.program import App

app = App(help="Translates manifests of other model servers to endpoints.")

File = Annotated[Path, typer.Option("--file", "-f", help="YAML; - is standard input.")]
Name = Annotated[str, typer.Option(help="Name of the endpoint, in place of the manifest's.")]
Model = Annotated[
    str, typer.Option(help="Registered model in MLflow; else called as the endpoint.")
]
AsTask = Annotated[str, typer.Option("--task", help="The endpoint's task, such as text-ranking.")]


@app.declare(names=True)
def kserve(file: File, name: Name = "", model: Model = "", task: AsTask = "") -> None:
    """Writes a ModelEndpoint for each InferenceService; what is left out goes to standard error."""
    from headrace.commands import migrate as command

    command.kserve(file, name=name, model=model, task=task)


@app.declare(names=True)
def seldon(file: File, name: Name = "", model: Model = "", task: AsTask = "") -> None:
    """Writes one for each SeldonDeployment, and each Model of Core 2 with its Experiment."""
    from headrace.commands import migrate as command

    command.seldon(file, name=name, model=model, task=task)


@app.declare(names=True)
def tei(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="Its command line, as docker run ..."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="A manifest that runs it; - is standard input."),
    ] = None,
    name: Name = "",
    model: Model = "",
    task: AsTask = "",
) -> None:
    """Writes one for a server of Text Embeddings Inference, by its command or its Deployment."""
    from headrace.commands import migrate as command

    command.tei(words or [], file, name=name, model=model, task=task)
