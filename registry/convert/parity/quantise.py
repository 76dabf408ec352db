"""Makes an int8 graph with fixed, calibrated scales out of a float32 one.

Only matrix products with constant weights are quantised (attention scores, softmax and
normalisation stay float32), since they hold almost all the work. Activation scales are measured
once over real texts and are then constants of the graph: a text's answer can't depend on what else
is in its batch, as it does if scales are taken from the batch.

Weights are 7 bit wide, signed, one scale a column: CPUs without VNNI add pairs of 8 bit products
in 16 bit and saturate with full-width weights. Activations are 8 bit wide, unsigned, with one scale
and zero point a tensor. Transformers have a few channels that are far larger than all others, so
each activation channel is first scaled down and its weight row up (SmoothQuant, arXiv 2211.10438),
as strongly as gives the least error on the calibration texts.

It never reads a file or an environment, and never changes the graph that it is given.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from registry.convert.graph.engine_form import CONTRIB, require_opset

Floats = NDArray[np.float32]

_WEIGHT_MAX = 63
_STRENGTHS = (None, 0.6, 0.75, 0.9)  # None: no smoothing
_SAMPLE_ROWS = 256
_TINY = 1e-5


@dataclass(frozen=True)
class Product:
    """A matrix product ``activation @ weight`` that can be quantised.

    ``activation`` and ``output`` name float32 tensors ``[..., k]`` and ``[..., n]``, and
    ``initializer`` the float32 weight ``[k, n]``.
    """

    activation: str
    output: str
    initializer: str
    weight: Floats


@dataclass
class Range:
    """What the calibration texts showed of one activation tensor ``[..., k]``.

    ``low`` and ``high`` are extremes a channel, ``[k]``; ``rows`` is a sample ``[<= 256, k]``.
    """

    low: Floats
    high: Floats
    rows: list[Floats] = field(default_factory=list)
    sampled: int = 0

    def add(self, values: Floats, take: int) -> None:
        """Counts in the values ``[..., k]`` of one text, and samples up to ``take`` rows."""
        flat = values.reshape(-1, values.shape[-1])
        self.low = np.minimum(self.low, flat.min(axis=0))
        self.high = np.maximum(self.high, flat.max(axis=0))
        take = min(take, _SAMPLE_ROWS - self.sampled, len(flat))
        if take > 0:
            picked = np.linspace(0, len(flat) - 1, take).astype(int)
            self.rows.append(flat[picked].astype(np.float32))
            self.sampled += take


@dataclass(frozen=True)
class Scales:
    """Constants that quantise one activation tensor: ``round(x / channel / scale) + zero_point``.

    ``channel`` is float32 ``[k]``, or None if no smoothing is best.
    """

    channel: Floats | None
    scale: float
    zero_point: int


def products(model: onnx.ModelProto) -> list[Product]:
    """The model's matrix products with a constant two-dimensional float32 weight."""
    weights = {
        tensor.name: tensor
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2
    }
    return [
        Product(
            node.input[0],
            node.output[0],
            node.input[1],
            numpy_helper.to_array(weights[node.input[1]]),
        )
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1] in weights
    ]


def with_taps(model: onnx.ModelProto, tensors: Iterable[str]) -> onnx.ModelProto:
    """A copy of the model that gives ``tensors`` as its only outputs, for calibration."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    del tapped.graph.output[:]
    tapped.graph.output.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in dict.fromkeys(tensors)
    )
    return tapped


class RangeCalibration:
    """Collects the ranges of activations over texts, each run alone and without padding."""

    def __init__(self, texts: int) -> None:
        self.ranges: dict[str, Range] = {}
        self._take = max(1, -(-_SAMPLE_ROWS // max(1, texts)))

    def add(self, name: str, values: Floats) -> None:
        """Counts in one text's values ``[1, length, k]`` of the activation ``name``."""
        width = values.shape[-1]
        if name not in self.ranges:
            empty = np.full(width, np.inf, np.float32)
            self.ranges[name] = Range(empty, -empty)
        self.ranges[name].add(values, self._take)


def scales_for(seen: Range, weights: Floats) -> Scales:
    """The constants with the least squared error in ``rows @ weights``.

    Args:
        seen: the activation's range.
        weights: float32 ``[k, n]``, all products of this activation side by side.
    """
    rows = np.concatenate(seen.rows)
    exact = rows @ weights
    widest = np.abs(weights).max(axis=1)
    largest = np.maximum(np.abs(seen.low), np.abs(seen.high))
    best, least = Scales(None, 1.0, 0), np.inf
    for strength in _STRENGTHS:
        channel = None if strength is None else _channel(largest, widest, strength)
        candidate = uniform_scales(seen, channel)
        error = float(np.square(int8_product(rows, weights, candidate) - exact).mean())
        if error < least:
            best, least = candidate, error
    return best


def quantise(model: onnx.ModelProto, calibration: RangeCalibration) -> onnx.ModelProto:
    """The model with every calibrated product in int8."""
    chosen = [item for item in products(model) if item.activation in calibration.ranges]
    by_activation: dict[str, list[Product]] = {}
    for product in chosen:
        by_activation.setdefault(product.activation, []).append(product)
    scales = {
        name: scales_for(calibration.ranges[name], np.hstack([item.weight for item in group]))
        for name, group in by_activation.items()
    }
    by_output = {product.output: product for product in chosen}

    quantised = onnx.ModelProto()
    quantised.CopyFrom(model)
    graph = quantised.graph
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    ready: set[str] = set()
    for node in model.graph.node:
        found = by_output.get(node.output[0])
        if found is None:
            nodes.append(node)
            continue
        scale = scales[found.activation]
        if found.activation not in ready:
            ready.add(found.activation)
            _quantise_activation(found.activation, scale, nodes, constants)
        nodes.append(_integer_product(found, scale, constants))
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend([*kept, *constants])
    require_opset(quantised, CONTRIB, 1)
    return quantised


def _channel(largest: Floats, widest: Floats, strength: float) -> Floats:
    ratio = np.maximum(largest, _TINY) ** strength / np.maximum(widest, _TINY) ** (1 - strength)
    scaled: Floats = (ratio / ratio.max()).astype(np.float32)
    return scaled


def uniform_scales(seen: Range, channel: Floats | None) -> Scales:
    """The constants with which all that was seen, and zero, falls into 8 bits.

    Args:
        seen: the activation's range.
        channel: float32 ``[k]``, what each channel is divided by first; None: nothing.
    """
    over = np.float32(1) if channel is None else channel
    low = min(0.0, float((seen.low / over).min()))
    high = max(0.0, float((seen.high / over).max()))
    scale = max(high - low, _TINY) / 255
    return Scales(channel, scale, round(-low / scale))


def int8_product(rows: Floats, weights: Floats, scales: Scales) -> Floats:
    """``rows @ weights``, ``[rows, n]``, with the rounding that the int8 graph will do."""
    over = np.float32(1) if scales.channel is None else scales.channel
    whole = np.rint(rows / over / scales.scale) + scales.zero_point
    near = (np.clip(whole, 0, 255) - scales.zero_point) * np.float32(scales.scale)
    codes, steps = integer_weight(_scaled_weight(weights, scales))
    product: Floats = near.astype(np.float32) @ (codes.astype(np.float32) * steps)
    return product


def _scaled_weight(weight: Floats, scales: Scales) -> Floats:
    return weight if scales.channel is None else weight * scales.channel[:, None]


def integer_weight(weight: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Codes ``[k, n]`` within +-63 and one step a column, ``[n]``."""
    steps = np.maximum(np.abs(weight).max(axis=0) / _WEIGHT_MAX, np.finfo(np.float32).tiny)
    codes = np.rint(weight / steps).astype(np.int8)
    return codes, steps.astype(np.float32)


def _quantise_activation(
    name: str, scales: Scales, nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto]
) -> None:
    source = name
    if scales.channel is not None:
        source = f"{name}/smooth"
        constants.append(
            numpy_helper.from_array((1 / scales.channel).astype(np.float32), f"{name}/channel")
        )
        nodes.append(helper.make_node("Mul", [name, f"{name}/channel"], [source]))
    constants.append(numpy_helper.from_array(np.float32(scales.scale), f"{name}/scale"))
    constants.append(numpy_helper.from_array(np.uint8(scales.zero_point), f"{name}/zero"))
    inputs = [source, f"{name}/scale", f"{name}/zero"]
    nodes.append(helper.make_node("QuantizeLinear", inputs, [f"{name}/int8"]))


def _integer_product(
    product: Product, scales: Scales, constants: list[onnx.TensorProto]
) -> onnx.NodeProto:
    codes, steps = integer_weight(_scaled_weight(product.weight, scales))
    stem = product.output
    constants.append(numpy_helper.from_array(codes, f"{stem}/codes"))
    constants.append(numpy_helper.from_array(steps, f"{stem}/steps"))
    constants.append(numpy_helper.from_array(np.zeros(len(steps), np.int8), f"{stem}/weight-zero"))
    return helper.make_node(
        "MatMulIntegerToFloat",
        [
            f"{product.activation}/int8",
            f"{stem}/codes",
            f"{product.activation}/scale",
            f"{stem}/steps",
            f"{product.activation}/zero",
            f"{stem}/weight-zero",
        ],
        [product.output],
        domain=CONTRIB,
    )
