"""Appends pooling and normalisation to a graph, as the model's own files say.

The formulas are those of sentence-transformers. Padding never counts: every mode looks at tokens
through the attention mask. It never runs a graph.
"""

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from contracts.tasks import ATTENTION_MASK
from registry.convert import weights
from registry.convert.errors import VersionError
from registry.convert.flavours.original import Pooling, PoolingMode

_PREFIX = "headrace"
_SMALLEST_OPSET = 13  # ReduceSum takes its axes as an input from here on
_TINY = 1e-9


class Pooler:
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
        """The name of the finished vectors, ``[batch, width]``, or ``[batch, length, width]``."""
        mask = self._node("Cast", [ATTENTION_MASK], to=TensorProto.FLOAT)
        mask = self._node("Unsqueeze", [mask, self._constant(np.array([2], np.int64))])
        vectors = [self._pool(states, mask, mode) for mode in pooling.modes]
        vector = vectors[0] if len(vectors) == 1 else self._node("Concat", vectors, axis=1)
        for dense in pooling.dense:
            weight, bias = _read_dense(dense.weights)
            vector = self._node("MatMul", [vector, self._constant(weight)])
            if bias is not None:
                vector = self._node("Add", [vector, self._constant(bias)])
            if dense.activation:
                vector = self._node(dense.activation, [vector])
        if pooling.normalise:
            squares = self._node("Mul", [vector, vector])
            axis = 2 if PoolingMode.EACH_TOKEN in pooling.modes else 1
            length = self._node("Sqrt", [self._sum(squares, keep=True, axis=axis)])
            floor = self._constant(np.array(1e-12, np.float32))
            vector = self._node("Div", [vector, self._node("Max", [length, floor])])
        return vector

    def _pool(self, states: str, mask: str, mode: PoolingMode) -> str:
        if mode is PoolingMode.EACH_TOKEN:
            return states
        if mode is PoolingMode.CLS:
            return self._node("Gather", [states, self._constant(np.array(0, np.int64))], axis=1)
        if mode is PoolingMode.SPLADE:
            # log(1 + relu(x)) grows with x, so that it can be taken of only the largest: once a
            # text instead of once a token. A text without tokens has a largest far below 0.
            largest = self._pool(states, mask, PoolingMode.MAX)
            one = self._constant(np.array(1, np.float32))
            return self._node("Log", [self._node("Add", [self._node("Relu", [largest]), one])])
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

    def _sum(self, name: str, *, keep: bool = False, axis: int = 1) -> str:
        axes = self._constant(np.array([axis], np.int64))
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


def _read_dense(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Weight ``[in, out]`` and bias ``[out]`` of a Dense module.

    Raises:
        VersionError: the file holds something else, which the library would not load either.
    """
    try:
        tensors = weights.read_numbers(path)
        weight, bias = tensors.pop("linear.weight"), tensors.pop("linear.bias", None)
        if tensors:
            raise ValueError(f"it holds {min(tensors)}, which no such module has")
        if weight.ndim != 2:
            raise ValueError(f"linear.weight is {_size(weight)}")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError(f"linear.bias is {_size(bias)}, and linear.weight {_size(weight)}")
    except KeyError as error:
        raise VersionError(
            f"the weights of a Dense module can't be read: there is no {error.args[0]}"
        ) from error
    except (OSError, ValueError, VersionError) as error:
        raise VersionError(f"the weights of a Dense module can't be read: {error}") from error
    return np.ascontiguousarray(weight.T), bias


def _size(values: NDArray[np.float32]) -> str:
    return " x ".join(map(str, values.shape))
