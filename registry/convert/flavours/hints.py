"""Reads from an ONNX graph what its files don't say: the task and the labels.

It looks at names and at the exporter's metadata, never at weights outside the graph.
"""

from collections.abc import Mapping
from pathlib import Path

import onnx

from contracts.tasks import ENGINE_OUTPUT, Task
from registry.convert.errors import VersionError
from registry.convert.flavours.config import parse_json
from registry.convert.forms import FORMS, TaskForm


def read_hints(path: Path, requested: Task | None) -> tuple[Task, tuple[str, ...]]:
    """The task by the graph's output, and the labels by its metadata, if there are any.

    Labels are ``id2label`` (a JSON object) or ``labels`` (a JSON list) in the metadata.
    ``requested``, the endpoint's task, decides if the output's name does not.

    Raises:
        VersionError: not a graph, or nothing says what it does.
    """
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf and onnx raise many kinds, all about this file
        raise VersionError(f"{path.name} is not a readable ONNX graph: {error}") from error
    outputs = {value.name: _rank(value) for value in model.graph.output}
    said = [task for task, form in FORMS.items() if _fits(task, form, outputs)]
    found = requested if requested in said or not said else said[0]
    if found is None:
        names = ", ".join(sorted(outputs))
        raise VersionError(
            f"nothing says what the graph does: its outputs are {names}; name one of them logits "
            "or embedding, or put config.json beside it"
        )
    if requested is not None and found is not requested:
        raise VersionError(f"the endpoint asks for {requested}, but the graph does {found}")
    metadata = {item.key: item.value for item in model.metadata_props}
    return found, _labels(metadata)


def _rank(value: onnx.ValueInfoProto) -> int | None:
    kind = value.type.tensor_type
    return len(kind.shape.dim) if kind.HasField("shape") else None


def _fits(task: Task, form: TaskForm, outputs: Mapping[str, int | None]) -> bool:
    """Whether an output has a telling name, and as many dimensions as the task's, if known."""
    if form.stacked and set(form.stacked) <= set(outputs):
        return True
    ranks = [outputs[name] for name in form.telling if name in outputs]
    return any(
        rank is None or form.pooling or rank == len(ENGINE_OUTPUT[task].shape) for rank in ranks
    )


def _labels(metadata: dict[str, str]) -> tuple[str, ...]:
    try:
        if "id2label" in metadata:
            named = parse_json(metadata["id2label"], "id2label of the graph's metadata")
            return tuple(str(named[str(place)]) for place in range(len(named)))
        if "labels" in metadata:
            named = parse_json(metadata["labels"], "labels of the graph's metadata")
            return tuple(str(label) for label in named)
    except (KeyError, TypeError) as error:
        raise VersionError("the labels in the graph's metadata can't be read") from error
    return ()
