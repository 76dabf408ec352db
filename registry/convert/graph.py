"""Looks at ONNX graphs and brings them to the form that the engine runs.

Called by the walk, for registered graphs and for exported ones alike. The form: inputs are some of
``input_ids``, ``attention_mask``, ``token_type_ids``, integers ``[batch, length]``; the one output
is float32 ``logits`` or ``embedding``, ``[batch, n]``. It never runs a graph.
"""

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from contracts.tasks import ATTENTION_MASK, ENGINE_INPUTS, ENGINE_OUTPUT, Task
from contracts.tensors import Datatype, TensorSpec
from registry.convert.errors import VersionError
from registry.flavours.original import Pooling, PoolingMode

CONTRIB = "com.microsoft"  # the domain of ONNX Runtime's own operators
_PREFIX = "headrace"
_DATATYPES = {TensorProto.INT64: Datatype.INT64, TensorProto.INT32: Datatype.INT32}
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UNDEFINED)
_LOGITS = ("logits", "output", "scores", "probabilities")
_VECTORS = ("embedding", "embeddings", "sentence_embedding", "pooled_embedding", "text_embeds")
_STATES = ("last_hidden_state", "token_embeddings", "hidden_states")
_SMALLEST_OPSET = 13  # ReduceSum takes its axes as an input from here on
_TINY = 1e-9


def load(path: Path) -> onnx.ModelProto:
    """The graph with its external data.

    Raises:
        VersionError: not an ONNX graph, or data missing.
    """
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
                f"input {value.name} has a fixed size {dims}; export with a dynamic batch and length"
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
        pooling: what follows token vectors; not used where the graph ends in vectors.

    Raises:
        VersionError: no output that fits, or an operator set that is too old for pooling.
    """
    finished = onnx.ModelProto()
    finished.CopyFrom(model)
    graph = finished.graph
    name = _pick(graph, task)
    rank = _rank(graph, name)
    states = rank == 3 or (rank is None and name in _STATES)
    if task is Task.TEXT_CLASSIFICATION:
        if states or (rank is not None and rank != 2):
            raise VersionError(f"output {name} has {rank} dimensions, not [batch, classes]")
    elif states:
        if pooling is None:
            raise VersionError("the graph ends in token vectors and no file says how to pool them")
        name = _Pooler(finished).apply(name, pooling)
    wanted = ENGINE_OUTPUT[task]
    if name != wanted:
        _free(graph, wanted)
        graph.node.append(helper.make_node("Identity", [name], [wanted]))
    del graph.output[:]
    graph.output.append(
        helper.make_tensor_value_info(wanted, TensorProto.FLOAT, ["batch", "width"])
    )
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


def require_opset(model: onnx.ModelProto, domain: str, version: int) -> None:
    """Declares an operator set, if the model does not."""
    if all(item.domain != domain for item in model.opset_import):
        model.opset_import.append(helper.make_opsetid(domain, version))


def metadata(model: onnx.ModelProto) -> dict[str, str]:
    """What the exporter wrote into the graph for people and programs."""
    return {item.key: item.value for item in model.metadata_props}


def _pick(graph: onnx.GraphProto, task: Task) -> str:
    names = [value.name for value in graph.output]
    known = _LOGITS if task is Task.TEXT_CLASSIFICATION else (*_VECTORS, *_STATES)
    for name in known:
        if name in names:
            break
    else:
        if len(names) != 1:
            raise VersionError(
                f"the graph has the outputs {', '.join(names)}; name one {ENGINE_OUTPUT[task]}"
            )
        name = names[0]
    kind = next(v.type.tensor_type.elem_type for v in graph.output if v.name == name)
    if kind not in _FLOATS:
        raise VersionError(f"output {name} does not hold floats")
    return name


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
    """Renames whatever inner tensor has the name that the output is to have."""
    for node in graph.node:
        for index, item in enumerate(node.input):
            if item == name:
                node.input[index] = f"{_PREFIX}/was-{name}"
        for index, item in enumerate(node.output):
            if item == name:
                node.output[index] = f"{_PREFIX}/was-{name}"


class _Pooler:
    """Appends the nodes that make one vector of token vectors ``[batch, length, width]``."""

    def __init__(self, model: onnx.ModelProto) -> None:
        opset = next((item.version for item in model.opset_import if not item.domain), 0)
        if opset < _SMALLEST_OPSET:
            raise VersionError(f"operator set {opset} is too old; export with {_SMALLEST_OPSET}")
        self._opset = opset
        self._graph = model.graph
        self._count = 0
        if ATTENTION_MASK not in {value.name for value in self._graph.input}:
            raise VersionError("pooling needs attention_mask, which the graph does not take")

    def apply(self, states: str, pooling: Pooling) -> str:
        """The name of the finished vectors, ``[batch, width]``."""
        mask = self._node("Cast", [ATTENTION_MASK], to=TensorProto.FLOAT)
        mask = self._node("Unsqueeze", [mask, self._constant(np.array([2], np.int64))])
        vectors = [self._pooled(states, mask, mode) for mode in pooling.modes]
        vector = vectors[0] if len(vectors) == 1 else self._node("Concat", vectors, axis=1)
        for dense in pooling.dense:
            weight, bias = read_dense(dense.weights)
            vector = self._node("MatMul", [vector, self._constant(weight)])
            if bias is not None:
                vector = self._node("Add", [vector, self._constant(bias)])
            if dense.activation:
                vector = self._node(dense.activation, [vector])
        if pooling.normalise:
            squares = self._node("Mul", [vector, vector])
            length = self._node("Sqrt", [self._sum(squares, keep=True)])
            floor = self._constant(np.array(1e-12, np.float32))
            vector = self._node("Div", [vector, self._node("Max", [length, floor])])
        return vector

    def _pooled(self, states: str, mask: str, mode: PoolingMode) -> str:
        if mode is PoolingMode.CLS:
            return self._node("Gather", [states, self._constant(np.array(0, np.int64))], axis=1)
        if mode is PoolingMode.MAX:
            absent = self._node("Sub", [self._constant(np.array(1, np.float32)), mask])
            low = self._node("Mul", [absent, self._constant(np.array(-1e9, np.float32))])
            return self._reduce("ReduceMax", self._node("Add", [states, low]))
        weights = mask
        if mode is PoolingMode.WEIGHTED_MEAN:
            weights = self._node("Mul", [mask, self._positions(mask)])
        elif mode is PoolingMode.LAST_TOKEN:
            # The last token is the only one whose running count is the whole count.
            running = self._positions(mask)
            last = self._node("Equal", [running, self._sum(mask, keep=True)])
            weights = self._node("Mul", [self._node("Cast", [last], to=TensorProto.FLOAT), mask])
        total = self._sum(self._node("Mul", [states, weights]))
        if mode is PoolingMode.LAST_TOKEN:
            return total
        count = self._node("Max", [self._sum(weights), self._constant(np.array(_TINY, np.float32))])
        if mode is PoolingMode.MEAN_SQRT_LENGTH:
            count = self._node("Sqrt", [count])
        return self._node("Div", [total, count])

    def _positions(self, mask: str) -> str:
        """1, 2, 3, ... along the tokens that count."""
        return self._node("CumSum", [mask, self._constant(np.array(1, np.int64))])

    def _sum(self, name: str, *, keep: bool = False) -> str:
        axes = self._constant(np.array([1], np.int64))
        return self._node("ReduceSum", [name, axes], keepdims=int(keep))

    def _reduce(self, kind: str, name: str) -> str:
        if self._opset >= 18:
            axes = self._constant(np.array([1], np.int64))
            return self._node(kind, [name, axes], keepdims=0)
        return self._node(kind, [name], axes=[1], keepdims=0)

    def _constant(self, value: NDArray[np.generic]) -> str:
        self._count += 1
        name = f"{_PREFIX}/constant-{self._count}"
        self._graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def _node(self, kind: str, inputs: list[str], **attributes: object) -> str:
        self._count += 1
        name = f"{_PREFIX}/{kind}-{self._count}"
        self._graph.node.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name


def read_dense(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Weight ``[in, out]`` and bias ``[out]`` of a Dense module.

    Raises:
        VersionError: not a safetensors file with ``linear.weight``.
    """
    try:
        tensors = read_safetensors(path)
        weight = tensors["linear.weight"]
    except (OSError, ValueError, KeyError) as error:
        raise VersionError(f"the weights of a Dense module can't be read: {error}") from error
    bias = tensors.get("linear.bias")
    return np.ascontiguousarray(weight.T), bias


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """All tensors of a safetensors file as float32; a Dense layer is small.

    Raises:
        ValueError: another type than F32 or F16, or a damaged file.
    """
    import json

    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind = {"F32": np.float32, "F16": np.float16}.get(entry["dtype"])
        if kind is None:
            raise ValueError(f"tensor {name} is {entry['dtype']}, not F32 or F16")
        start, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + start : 8 + size + end], dtype=kind)
        found[name] = values.reshape(entry["shape"]).astype(np.float32)
    return found
