"""Fuses a graph's small operators into ONNX Runtime's large ones. Called by the walk.

Only rewrites that hold on every machine: layouts for one CPU are left to the engine at load. Where
a pattern isn't found the graph stays as it was; parity is proved afterwards either way.
"""

import logging
from pathlib import Path

import onnx

from registry.convert.errors import ConversionError
from registry.flavours.config import CONFIG, read_json

log = logging.getLogger(__name__)

# Families whose encoders look like BERT's to the optimiser.
_BERT_LIKE = {
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "mpnet", "deberta",
    "deberta-v2", "albert", "ernie", "nomic_bert",
}  # fmt: skip
_FUSED = ("MultiHeadAttention", "SkipLayerNormalization", "LayerNormalization", "BiasGelu", "Gelu")


def fuse(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto | None:
    """The fused graph, or None where there is nothing to fuse.

    Attention keeps its three matrix products apart, so that they can be quantised.

    Args:
        model: in the engine's form.
        folder: with the model's ``config.json``.
    """
    try:
        config = read_json(folder / CONFIG)
    except ConversionError:
        config = {}
    if config.get("model_type") not in _BERT_LIKE:
        return None
    heads = config.get("num_attention_heads") or config.get("n_heads") or 0
    width = config.get("hidden_size") or config.get("dim") or 0
    # Imported here: half a second that small graphs don't need.
    from onnxruntime.transformers import optimizer  # noqa: PLC0415
    from onnxruntime.transformers.fusion_options import FusionOptions  # noqa: PLC0415

    options = FusionOptions("bert")
    options.use_multi_head_attention = True
    options.enable_embed_layer_norm = False  # its mask input is bound to one layout of padding
    options.enable_gelu_approximation = False
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        fused = optimizer.optimize_model(
            copy, "bert", num_heads=int(heads), hidden_size=int(width),
            optimization_options=options, opt_level=0,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001  # any failure of a rewrite means: leave the graph
        log.warning("graph left unfused", extra={"reason": str(error)})
        return None
    kinds = {node.op_type for node in fused.model.graph.node}
    return fused.model if kinds.intersection(_FUSED) else None
