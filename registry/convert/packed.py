"""The way of a version to a package that runs its own weights, rows joined without padding.

Read ``convert`` downward: load the original, lay out its files, prove the engine on them, profile,
publish. Conversion is a copy with a proof: no weight is changed, and what computes is the file that
Triton will run. On a machine with a GPU it is proved there; the package carries a smaller proof for
the device that will serve it (``registry.packages.device_proof``).
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from contracts.endpoint import EngineChoice, Phase, Precision
from contracts.loading import DeviceKind
from contracts.manifest import CONFIG_PYTHON, DEVICE_PROOF, MODEL_CONFIG, EngineKind, PackedSpec
from contracts.model import ModelRef
from contracts.tasks import ENGINE_OUTPUT, TOKEN_TYPE_IDS, packed_inputs
from registry.conversions.messages import ConversionRequest
from registry.convert import weights
from registry.convert.download import DownloadedVersion
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.flavours.config import Json, read_json, runs_own_code
from registry.convert.flavours.folders import transformer_folder
from registry.convert.forms import FORMS
from registry.convert.parity import packed_engine
from registry.convert.parity.carried_proof import make_device_proof
from registry.convert.parity.packed_engine import PackedTextEngine
from registry.convert.parity.profiling import profile_of
from registry.convert.parity.proof import Comparison, Proof, prove_engine, require_equal_answers
from registry.convert.steps import (
    EngineParts,
    Report,
    compare_with_original,
    evaluation_of,
    load_original,
    manifest_of,
    write_common,
)
from registry.packages.store import PackageStore
from registry.packages.triton_config import packed_settings, render_packed

log = logging.getLogger(__name__)

_HALF = (Precision.FP16, Precision.BF16)


def is_wanted(request: ConversionRequest) -> bool:
    """Whether the version should get this engine, if it suits."""
    if request.serving.engine is EngineChoice.AUTO:
        return request.device is DeviceKind.GPU
    return request.serving.engine is EngineChoice.PACKED


def convert(
    request: ConversionRequest,
    downloaded: DownloadedVersion,
    work: Path,
    store: PackageStore,
    report: Report,
) -> ModelRef:
    """Makes and publishes the package.

    Raises:
        ConversionError: there will be none, and whose fault that is.
        registry.packages.store.StoreError: the store can't be written.
    """
    original = downloaded.original
    config = _suitable_config(original)
    precisions = _precisions(request, config)
    loaded, built, answers = load_original(request, original)
    if reason := packed_engine.unsuitable(config, FORMS[original.task].loader):
        raise VersionError(reason)
    folder = work / "packed"
    write_common(folder, downloaded, built)
    spec = PackedSpec(
        loader=FORMS[original.task].loader,
        type_ids=TOKEN_TYPE_IDS in loaded.inputs,
        modes=tuple(mode.value for mode in original.pooling.modes) if original.pooling else (),
        dense=weights.lay_out(original, folder),
        normalise=bool(original.pooling and original.pooling.normalise),
    )
    device, gpu = packed_engine.device_here(gpu=request.device is DeviceKind.GPU)
    comparison, signature = compare_with_original(
        request, downloaded, built, answers, report, gpu=gpu
    )
    width = comparison.reference.shape[1]
    opener = _Opener(folder, spec, original, request.threads, device)
    precision, engine, proof = _fastest(comparison, opener, precisions)
    profile = profile_of(
        evaluation_of(downloaded),
        original,
        engine,
        built,
        weights=weights.weights_of(folder),
        labels=signature.labels,
        inputs=(),
    )
    report(Phase.PUBLISHING, f"publishing the {precision} package of a packed engine")
    parts = EngineParts(
        precision=precision,
        inputs=packed_inputs(type_ids=spec.type_ids),
        outputs=(ENGINE_OUTPUT[original.task].model_copy(update={"shape": (-1, width)}),),
        engine=EngineKind.PACKED,
        packed=spec,
    )
    (folder / CONFIG_PYTHON).write_text(
        render_packed(
            task=original.task, width=width, type_ids=spec.type_ids, threads=request.threads
        ),
        encoding="utf-8",
    )
    carried = make_device_proof(comparison, proof, type_ids=spec.type_ids)
    (folder / DEVICE_PROOF).write_text(carried.model_dump_json(), encoding="utf-8")
    manifest = manifest_of(
        request, downloaded, built, signature,
        parts=parts, proof=proof, profile=profile, folder=folder,
    )  # fmt: skip
    return store.publish(folder, manifest)


class _Opener:
    """Opens the engine on a package's files, in any precision."""

    def __init__(
        self, folder: Path, spec: PackedSpec, original: OriginalTextModel, threads: int, device: str
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._task = original.task
        self._threads = threads
        self._device = device

    def open_engine(self, precision: Precision) -> PackedTextEngine:
        """The engine; raises ``ConversionError``."""
        settings = packed_settings(
            self._spec, task=self._task, precision=precision, threads=self._threads
        )
        return packed_engine.load(self._folder, settings, self._device)


def _suitable_config(original: OriginalTextModel) -> Json:
    """The model's configuration; raises ``VersionError`` if the engine is not for it."""
    if original.onnx is not None:
        raise VersionError("it is registered as an ONNX graph, and the packed engine runs PyTorch")
    if FORMS[original.task].joined:
        raise VersionError(f"{original.task} joins several outputs, which only a graph does")
    if original.sides is not None:
        raise VersionError(f"{original.task} has vectors of tokens, which only a graph gives")
    if FORMS[original.task].own_network:
        raise VersionError(f"{original.task} has a network that the packed engine does not know")
    folder = transformer_folder(original)
    if file := runs_own_code(folder):
        raise VersionError(f"{file} asks for code of its own, which the packed engine does not run")
    return read_json(folder / MODEL_CONFIG)


def _precisions(request: ConversionRequest, config: Json) -> Sequence[Precision]:
    """What to try, the best first; raises ``VersionError`` for what this engine lacks."""
    asked = request.serving.precision
    if asked is Precision.INT8:
        raise VersionError(
            "int8 was asked for, and the packed engine has none: leave spec.serving.precision at "
            "auto, or set spec.serving.engine to padded in a pool of CPUs"
        )
    if request.device is DeviceKind.CPU:
        if asked is Precision.FP16:
            raise VersionError(
                "fp16 was asked for, and on CPUs the packed engine takes fp32 and bf16: set "
                "spec.serving.precision to one of them, or spec.pool to a pool of GPUs"
            )
        return (Precision.FP32,) if asked is Precision.AUTO else (asked,)
    if asked is not Precision.AUTO:
        return (asked,)
    half = _HALF[::-1] if _is_bf16(config) else _HALF
    return (*half, Precision.FP32)


def _is_bf16(config: Json) -> bool:
    """Whether the model was saved in bf16, whose range fp16 lacks."""
    return "bfloat16" in str(config.get("dtype") or config.get("torch_dtype") or "")


def _fastest(
    comparison: Comparison, opener: _Opener, precisions: Sequence[Precision]
) -> tuple[Precision, PackedTextEngine, Proof]:
    """The first precision that keeps to its limits, once float32 answers as the original.

    Raises:
        VersionError: none does.
    """
    require_equal_answers(comparison, opener.open_engine(Precision.FP32))
    reasons: list[str] = []
    for precision in precisions:
        try:
            engine = opener.open_engine(precision)
            proof = prove_engine(comparison, engine, precision, fallback="; ".join(reasons))
        except VersionError as error:
            log.info("%s is given up", precision, extra={"reason": error.reason})
            reasons.append(error.reason)
        else:
            return precision, engine, proof
    raise VersionError("; ".join(reasons))
