"""``headrace migrate kserve``: endpoints on standard output, what is left out beside them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from contracts.tasks import Task
from headrace.commands.endpoints import source_of, text_of
from headrace.commands.output import print_json
from headrace.endpoints import document
from headrace.errors import RefusedError
from headrace.invocation import OutputFormat, current
from headrace.migration import Options, Translation, translate
from headrace.program import App, do_nothing

app = App(help="Translates manifests of other model servers to endpoints.", callback=do_nothing)

File = Annotated[Path, typer.Option("--file", "-f", help="YAML; - is standard input.")]
Name = Annotated[str, typer.Option(help="Name of the endpoint, in place of the manifest's.")]
Model = Annotated[
    str, typer.Option(help="Registered model in MLflow; else called as the endpoint.")
]
AsTask = Annotated[str, typer.Option("--task", help="The endpoint's task, such as text-ranking.")]


@app.declare()
def kserve(file: File, name: Name = "", model: Model = "", task: AsTask = "") -> None:
    """Writes a ModelEndpoint for each InferenceService; what is left out goes to standard error."""
    tasks = [each.value for each in Task]
    if task and task not in tasks:
        raise RefusedError(f"There is no task {task}. There are: {', '.join(tasks)}.")
    found = translate(text_of(file), source_of(file), Options(name, model, task))
    documents = [document.as_written(each.endpoint) for each in found]
    if current().form is OutputFormat.JSON:
        print_json([
            {
                **vars(each),
                "endpoint": written,
                "left_out": [{"where": where, "why": why} for where, why in each.left_out],
            }
            for written, each in zip(documents, found, strict=True)
        ])  # fmt: skip
        return
    sys.stdout.write("---\n".join(map(document.as_yaml, documents)))
    for each in found:
        sys.stderr.writelines(f"{line}\n" for line in lines(each))


def lines(translation: Translation) -> list[str]:
    """What a person is to know of a translation."""
    endpoint = translation.endpoint
    said = [f"{translation.source} is now the endpoint {endpoint.name}."]
    model = endpoint.spec.model
    if translation.register:
        said.append(f"  Register {translation.register} in MLflow as a version of {model}.")
    else:
        said.append(f"  It serves the model {model} of MLflow, which must be registered there.")
    said += [f"  {sentence}" for sentence in translation.changed]
    if translation.left_out:
        said.append("Not carried over:")
        said += [f"  {where}: {why}." for where, why in translation.left_out]
    return said
