"""Looks at ONNX graphs and brings them to the form that the engine runs.

The form: inputs are some of ``input_ids``, ``attention_mask``, ``token_type_ids``, integers
``[batch, length]``; the one output is the float32 ``logits`` or ``embedding`` that
``contracts.tasks.ENGINE_OUTPUT`` names. It never runs a graph.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from contracts.tasks import ENGINE_INPUTS, ENGINE_OUTPUT, Task
from contracts.tensors import Datatype, TensorSpec
from registry.convert.errors import VersionError
from registry.convert.flavours.original import Pooling
from registry.convert.forms import FORMS, STATE_OUTPUTS
from registry.convert.graph.pooler import Pooler

CONTRIB = "com.microsoft"  # the domain of ONNX Runtime's own operators
_PREFIX = "headrace"
_DATATYPES = {TensorProto.INT64: Datatype.INT64, TensorProto.INT32: Datatype.INT32}
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UNDEFINED)


def load(path: Path) -> onnx.ModelProto:
    """The graph with its external data; raises ``VersionError``."""
    try:
        return onnx.load(str(path))
    except Exception as error:  # protobuf and onnx raise many kinds, all about this file
        raise VersionError(f"{path.name} is not a readable ONNX graph: {error}") from error


def inputs_of(model: onnx.ModelProto) -> tuple[TensorSpec, ...]:
    """The graph's inputs, in the engine's order.

    Raises:
        VersionError: an input that Headrace can't fill, or a fixed batch or length.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        if value.name not in ENGINE_INPUTS:
            raise VersionError(
                f"the graph asks for {value.name}; only {', '.join(ENGINE_INPUTS)} can be given"
            )
        kind = value.type.tensor_type.elem_type
        if kind not in _DATATYPES:
            raise VersionError(f"input {value.name} must be int64 or int32")
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if len(dims) != 2:
            raise VersionError(f"input {value.name} must have two dimensions, batch and length")
        if any(dims):
            raise VersionError(
                f"input {value.name} has a fixed size {dims}; "
                "export it with a variable batch and length"
            )
        found[value.name] = TensorSpec(name=value.name, datatype=_DATATYPES[kind], shape=(-1, -1))
    if not found:
        raise VersionError("the graph has no inputs")
    return tuple(found[name] for name in ENGINE_INPUTS if name in found)


def finish(model: onnx.ModelProto, task: Task, pooling: Pooling | None) -> onnx.ModelProto:
    """A copy that ends in the engine's one output.

    Args:
        model: ends in logits, vectors or token vectors.
        task: which of them is meant.
        pooling: what follows token vectors; not used if the graph ends in vectors.

    Raises:
        VersionError: no output that fits, or an operator set that is too old for pooling.
    """
    finished = onnx.ModelProto()
    finished.CopyFrom(model)
    graph = finished.graph
    form = FORMS[task]
    rank: int | None = 3
    if form.joined:
        name = _join(graph, form.joined)
    elif form.stacked and set(form.stacked) <= {value.name for value in graph.output}:
        name = _stack(graph, form.stacked)
    else:
        name = _pick(graph, task)
        rank = _rank(graph, name)
    states = rank == 3 or (rank is None and name in STATE_OUTPUTS)
    named, name = name, _widen(graph, name)
    wanted = ENGINE_OUTPUT[task]
    dimensions = ["batch", "length", "width"] if len(wanted.shape) == 3 else ["batch", "width"]
    if not form.pooling:
        if named in STATE_OUTPUTS or rank not in {None, len(dimensions)}:
            raise VersionError(
                f"output {named} has {rank} dimensions, not [{', '.join(dimensions)}]"
            )
    elif states:
        if pooling is None:
            raise VersionError("the graph ends in token vectors and no file says how to pool them")
        name = Pooler(finished).apply(name, pooling)
    if name != wanted.name:
        _free(graph, wanted.name)
        graph.node.append(helper.make_node("Identity", [name], [wanted.name]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(wanted.name, TensorProto.FLOAT, dimensions))
    prune(finished)
    return finished


def prune(model: onnx.ModelProto) -> None:
    """Takes out nodes and constants that no output needs, in place."""
    graph = model.graph
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
            needed.update(_inner_names(node))
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    nodes = list(reversed(kept))
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(constants)


def weights_of(model: onnx.ModelProto) -> int:
    """How many numbers the graph's constant matrices hold."""
    matrices = (tensor for tensor in model.graph.initializer if len(tensor.dims) == 2)
    return sum(int(np.prod(tensor.dims)) for tensor in matrices)


def require_opset(model: onnx.ModelProto, domain: str, version: int) -> None:
    """Declares an operator set, if the model does not."""
    if all(item.domain != domain for item in model.opset_import):
        model.opset_import.append(helper.make_opsetid(domain, version))


def _pick(graph: onnx.GraphProto, task: Task) -> str:
    names = [value.name for value in graph.output]
    for name in FORMS[task].outputs:
        if name in names:
            break
    else:
        if len(names) != 1:
            raise VersionError(
                f"the graph has the outputs {', '.join(names)}; name one {ENGINE_OUTPUT[task].name}"
            )
        name = names[0]
    kind = next(v.type.tensor_type.elem_type for v in graph.output if v.name == name)
    if kind not in _FLOATS:
        raise VersionError(f"output {name} does not hold floats")
    return name


def _widen(graph: onnx.GraphProto, name: str) -> str:
    """The same in float32, which everything after it is in."""
    kinds = {value.name: value.type.tensor_type.elem_type for value in graph.output}
    if kinds.get(name) != TensorProto.FLOAT16:
        return name
    wide = f"{_PREFIX}/wide-{name}"
    graph.node.append(helper.make_node("Cast", [name], [wide], to=TensorProto.FLOAT))
    return wide


def _join(graph: onnx.GraphProto, parts: tuple[str, ...]) -> str:
    """One output ``[batch, length, n + 1]`` of three: see ``Form.joined``."""
    held = {value.name for value in graph.output}
    if not held.issuperset(parts):
        raise VersionError(
            f"the graph has the outputs {', '.join(sorted(held))}; {', '.join(parts)} are needed: "
            "export the model to ONNX with all three"
        )
    dense, tokens, weights = (_widen(graph, name) for name in parts)
    axis = f"{_PREFIX}/axis"
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), axis))
    row, vectors, joined = (f"{_PREFIX}/{name}" for name in ("dense-row", "vectors", "joined"))
    graph.node.extend(
        [
            helper.make_node("Unsqueeze", [dense, axis], [row]),
            helper.make_node("Concat", [row, tokens], [vectors], axis=1),
            helper.make_node("Concat", [vectors, weights], [joined], axis=2),
        ]
    )
    return joined


def _stack(graph: onnx.GraphProto, names: tuple[str, ...]) -> str:
    """The outputs ``[batch, length]`` of these names as columns ``[batch, length, names]``.

    Raises:
        VersionError: one of them is no such output.
    """
    for name in names:
        kind = next(v.type.tensor_type.elem_type for v in graph.output if v.name == name)
        rank = _rank(graph, name)
        if kind not in _FLOATS or rank not in {None, 2}:
            raise VersionError(f"output {name} must hold floats [batch, length]")
    columns = [f"{_PREFIX}/column-{name}" for name in names]
    # A shape [batch, length, 1] means the same in every operator set; the axes of Unsqueeze do not.
    shape = f"{_PREFIX}/column-shape"
    graph.initializer.append(numpy_helper.from_array(np.array([0, 0, 1], np.int64), shape))
    for name, column in zip(names, columns, strict=True):
        graph.node.append(helper.make_node("Reshape", [_widen(graph, name), shape], [column]))
    graph.node.append(helper.make_node("Concat", columns, [f"{_PREFIX}/columns"], axis=2))
    return f"{_PREFIX}/columns"


def _rank(graph: onnx.GraphProto, name: str) -> int | None:
    kind = next(v.type.tensor_type for v in graph.output if v.name == name)
    return len(kind.shape.dim) if kind.HasField("shape") else None


def _inner_names(node: onnx.NodeProto) -> set[str]:
    """Names that the node's subgraphs take from around them (a superset)."""
    names: set[str] = set()
    for attribute in node.attribute:
        graphs = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
        for graph in graphs:
            names.update(value.name for value in graph.output)
            for inner in graph.node:
                names.update(inner.input)
                names |= _inner_names(inner)
    return names


def _free(graph: onnx.GraphProto, name: str) -> None:
    for node in graph.node:
        for index, item in enumerate(node.input):
            if item == name:
                node.input[index] = f"{_PREFIX}/was-{name}"
        for index, item in enumerate(node.output):
            if item == name:
                node.output[index] = f"{_PREFIX}/was-{name}"
