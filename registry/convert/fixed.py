"""What a graph gets beside itself if it is fused for GPUs: shapes, and a proof for the device.

A fused graph compiles a plan for each new shape on a GPU, so that it is served in a fixed, bounded
set of them (``triton/fixed_model``). The choice of a precision is ``choose``'s.
"""

import logging
from pathlib import Path

import onnx

from contracts.loading import DeviceKind
from contracts.manifest import DEVICE_PROOF, FixedSpec
from contracts.tasks import TOKEN_TYPE_IDS
from preprocess.buckets import row_buckets
from registry.conversions.messages import ConversionRequest
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.flavours.config import CONFIG, read_json
from registry.convert.flavours.folders import transformer_folder
from registry.convert.graph import engine_form, fusing
from registry.convert.graph.fusing import FusedGraph
from registry.convert.parity.carried_proof import make_device_proof
from registry.convert.parity.choose import ChosenGraph, join_reasons
from registry.convert.parity.proof import Comparison
from registry.convert.tokeniser import Tokeniser

log = logging.getLogger(__name__)


def fuse_for_gpus(
    request: ConversionRequest,
    original: OriginalTextModel,
    model: onnx.ModelProto,
    built: Tokeniser,
    given_up: str,
) -> tuple[FusedGraph | None, str]:
    """The graph fused, for a pool of GPUs; else None, and why together with ``given_up``."""
    if request.device is not DeviceKind.GPU:
        return None, given_up
    try:
        row_buckets(request.serving.max_batch_size, built.buckets)
        made = fusing.fuse(model, read_json(transformer_folder(original) / CONFIG))
    except (VersionError, ValueError) as error:
        reason = error.reason if isinstance(error, VersionError) else str(error)
        log.info("the graph stays as it is", extra={"reason": reason})
        return None, join_reasons(given_up, reason)
    log.info("the graph was fused", extra={"counts": made.counts})
    return made, given_up


def laid_out(
    folder: Path,
    request: ConversionRequest,
    built: Tokeniser,
    comparison: Comparison,
    chosen: ChosenGraph,
) -> FixedSpec | None:
    """Writes the proof that a loader runs, and says the shapes; None of a graph as it was."""
    if chosen.fused is None:
        return None
    names = {spec.name for spec in engine_form.inputs_of(chosen.model)}
    carried = make_device_proof(comparison, chosen.proof, type_ids=TOKEN_TYPE_IDS in names)
    (folder / DEVICE_PROOF).write_text(carried.model_dump_json(), encoding="utf-8")
    rows = row_buckets(request.serving.max_batch_size, built.buckets)
    return FixedSpec(rows=rows, fused=dict(chosen.fused))
