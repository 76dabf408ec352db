"""``headrace migrate``: endpoints on standard output, what could not be carried over beside it."""

import sys
from collections.abc import Sequence
from pathlib import Path

from contracts.tasks import Task
from headrace import invocation
from headrace.commands.endpoints import source_of, text_of
from headrace.commands.output import print_json, resource
from headrace.endpoints import document
from headrace.errors import RefusedError
from headrace.invocation import Form
from headrace.migration import kserve as from_kserve
from headrace.migration import seldon as from_seldon
from headrace.migration import tei as from_tei
from headrace.migration.draft import Options, Translation


def kserve(file: Path, *, name: str, model: str, task: str) -> None:
    """Translates KServe's InferenceServices."""
    options = _options(name, model, task)
    _show(from_kserve.translate(text_of(file), source_of(file), options))


def seldon(file: Path, *, name: str, model: str, task: str) -> None:
    """Translates SeldonDeployments, and Models of Seldon Core 2."""
    options = _options(name, model, task)
    _show(from_seldon.translate(text_of(file), source_of(file), options))


def tei(words: Sequence[str], file: Path | None, *, name: str, model: str, task: str) -> None:
    """Translates a command line of Text Embeddings Inference, or the manifest that runs it."""
    options = _options(name, model, task)
    if bool(words) == (file is not None):
        raise RefusedError(
            "Give one of both: headrace migrate tei -f deployment.yaml, or headrace migrate tei -- "
            "docker run ..."
        )
    if file is None:
        _show(from_tei.translate_command(words, options))
    else:
        _show(from_tei.translate(text_of(file), source_of(file), options))


def _options(name: str, model: str, task: str) -> Options:
    tasks = [each.value for each in Task]
    if task and task not in tasks:
        raise RefusedError(f"There is no task {task}. There are: {', '.join(tasks)}.")
    return Options(name=name, model=model, task=task)


def _show(found: Sequence[Translation]) -> None:
    documents = [document.as_written(each.endpoint) for each in found]
    if invocation.current().form in {Form.JSON, Form.NAME}:
        told = zip(documents, found, strict=True)
        print_json(
            [
                {
                    "endpoint": written,
                    "source": each.source,
                    "register": each.register,
                    "changed": each.changed,
                    "left_out": [{"where": where, "why": why} for where, why in each.left_out],
                }
                for written, each in told
            ],
            [resource(each.endpoint.name) for each in found],
        )
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
