"""The space of a version's vectors: a digest of all that decides which vector a text gets.

Vectors of two versions may be compared if their digests are equal. What goes in: every number of
the weights as they were registered, in whichever format the file has them (of an ONNX version the
graph), the network's configuration without the fields of no effect, pooling with its layers and
normalisation, the tokeniser, the prompts, and Python code that runs in between. What does not:
precision, engine and device of the package, batches, names of files, how weights are spread over
files, and the longest row. It never says that two versions are equal if it can't prove it: unequal
digests may belong to equal vectors. It runs nothing of the version.
"""

import hashlib
import json
from pathlib import Path

from onnx import ModelProto, NodeProto, numpy_helper

from contracts.tasks import GIVE_VECTORS
from registry.convert import weights
from registry.convert.flavours import OriginalTextModel, fields
from registry.convert.flavours.config import CONFIG, Json, read_json, runs_own_code
from registry.convert.flavours.folders import transformer_folder
from registry.convert.flavours.original import Dense
from registry.convert.flavours.sentences import transformer_config
from registry.convert.graph import engine_form
from registry.convert.tokeniser import Tokeniser

_CHARACTERS = 12
_LENGTHS = {"query_tokens", "document_tokens"}  # of the longest row of each side
_FORM = 1  # of what is hashed: another one makes another space of every version


def space_of(original: OriginalTextModel, built: Tokeniser, code: bytes | None) -> str:
    """The digest, 12 hexadecimal characters; empty if the version gives no vectors.

    Raises:
        VersionError: weights or a graph that can't be read.
    """
    if original.task not in GIVE_VECTORS:
        return ""
    pooling = original.pooling
    parts = {
        "form": _FORM,
        "task": original.task.value,
        "network": _network(original),
        "pooling": [] if pooling is None else [mode.value for mode in pooling.modes],
        "dense": [] if pooling is None else [_layer(layer) for layer in pooling.dense],
        "normalise": pooling is not None and pooling.normalise,
        "tokeniser": _sha256(built.data),
        "prompts": dict(built.spec.prompts),
        "default_prompt": built.spec.default_prompt,
        "sides": built.spec.sides and built.spec.sides.model_dump(mode="json", exclude=_LENGTHS),
        "code": "" if code is None else _sha256(code),
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return _sha256(text.encode())[:_CHARACTERS]


def _network(original: OriginalTextModel) -> object:
    if original.onnx is not None:
        return _digest_graph(engine_form.load(original.onnx))
    folder, sided = transformer_folder(original), original.sides is not None
    known = fields.SIDED_TRANSFORMER if sided else fields.TRANSFORMER
    return {
        "weights": _digest_weights(folder),
        "config": _without_effect(read_json(folder / CONFIG), fields.NETWORK),
        "sentences": {
            name: value
            for name, value in transformer_config(folder, sided=sided).items()
            if known[name].effect is fields.Effect.COMPARED
        }
        if original.loaded_by
        else {},
        "code": _digest_code(folder),
    }


def _without_effect(config: Json, known: fields.Fields) -> dict[str, object]:
    """The fields that may decide vectors: all but those that are known not to."""
    return {
        name: value
        for name, value in config.items()
        if name not in known or known[name].effect is not fields.Effect.NONE
    }


def _layer(layer: Dense) -> list[str]:
    return [weights.digest_numbers([layer.weights]), layer.activation]


def _digest_weights(folder: Path) -> str:
    """Of pickles, which are never opened here, the bytes."""
    files = weights.find_files(folder)
    if files:
        return weights.digest_numbers(files)
    pickles = sorted(_sha256_of(path) for path in folder.glob("pytorch_model*.bin"))
    return _sha256(" ".join(pickles).encode())


def _digest_code(folder: Path) -> list[str]:
    """Of Python that the network itself brings, if it is run at all."""
    if not runs_own_code(folder):
        return []
    return sorted(_sha256_of(path) for path in folder.glob("*.py"))


def _digest_graph(model: ModelProto) -> str:
    """Of all that computes: names of nodes, comments and who wrote the file are left out."""
    found = hashlib.sha256()
    graph = model.graph
    for tensor in sorted(graph.initializer, key=lambda each: each.name):
        found.update(f"{tensor.name} {tensor.data_type} {list(tensor.dims)};".encode())
        found.update(numpy_helper.to_array(tensor).tobytes())
    for node in graph.node:
        bare = NodeProto()
        bare.CopyFrom(node)
        bare.ClearField("doc_string")
        bare.ClearField("name")
        found.update(bare.SerializeToString(deterministic=True))
    further = (*graph.sparse_initializer, *graph.input, *graph.output)
    for part in (*further, *model.opset_import, *model.functions):
        found.update(part.SerializeToString(deterministic=True))
    return found.hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
