"""Fuses a graph by ONNX Runtime's offline tool: attention, norms and activations become one each.

For GPUs only: on CPUs the fused graph was no faster. The tool knows graphs by their patterns, which
torch's tracing exporter writes of eager attention; of others it fuses less or nothing, so what it
did is counted. It never judges whether the fused graph still answers as before.
"""

import importlib
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from registry.convert.errors import VersionError
from registry.convert.flavours.config import Json
from registry.convert.graph.engine_form import CONTRIB, require_opset

log = logging.getLogger(__name__)

_HEADS = ("num_attention_heads", "n_heads", "encoder_attention_heads")
_WIDTHS = ("hidden_size", "dim", "d_model")


@dataclass(frozen=True)
class FusedGraph:
    """A graph, and the operators that took the place of several, counted by name."""

    model: onnx.ModelProto
    counts: Mapping[str, int]


def fuse(model: onnx.ModelProto, config: Json) -> FusedGraph:
    """A fused copy.

    Args:
        model: in the engine's form.
        config: the transformer's own, which says how many heads it has; empty if there is none, and
            then attention stays as it is unless its graph says that too.

    Raises:
        VersionError: the tool fuses nothing, or fails.
    """
    try:
        importlib.import_module("sympy")  # the tool needs it to know shapes, and says so late
        from onnxruntime.transformers import optimizer  # noqa: PLC0415  # slow, and seldom needed
        from onnxruntime.transformers.fusion_options import FusionOptions  # noqa: PLC0415
    except ImportError as error:
        raise VersionError(f"the graph is not fused: {error.name} is not installed") from error
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    options = FusionOptions("bert")
    options.enable_embed_layer_norm = False  # its kernel takes int32 ids and its own mask
    try:
        fused = optimizer.optimize_by_fusion(
            copy,
            num_heads=_number(config, _HEADS),
            hidden_size=_number(config, _WIDTHS),
            optimization_options=options,
        ).model
    except Exception as error:  # the tool raises many kinds
        raise VersionError(f"the graph can't be fused: {error}") from error
    counts = _count_contributed(fused) - _count_contributed(model)
    if not counts:
        raise VersionError("nothing of the graph could be fused")
    require_opset(fused, CONTRIB, 1)
    return FusedGraph(fused, dict(sorted(counts.items())))


def _count_contributed(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node if node.domain == CONTRIB)


def _number(config: Json, names: tuple[str, ...]) -> int:
    """The first of these that is a number; 0, which is "unknown" to the tool, if none is."""
    return next((config[name] for name in names if isinstance(config.get(name), int)), 0)
