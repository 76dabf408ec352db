"""The way of a version that reads texts to a package whose graph runs on padded rows.

Read ``convert`` downward: bring the graph to the engine's form, compare, choose a precision,
profile, publish.
"""

from pathlib import Path

import onnx

from contracts.endpoint import Phase, Precision
from contracts.loading import DeviceKind
from contracts.manifest import MODEL_ONNX
from contracts.model import ModelRef
from contracts.tasks import ENGINE_OUTPUT
from registry.conversions.messages import ConversionRequest
from registry.convert import fixed, texts, tokeniser
from registry.convert.download import DownloadedVersion
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.graph import engine_form
from registry.convert.package import write_configs
from registry.convert.parity.choose import Trial, choose
from registry.convert.parity.engine import GraphEngine
from registry.convert.parity.profiling import profile_of
from registry.convert.parity.verify import values_of
from registry.convert.steps import (
    Answers,
    EngineParts,
    Floats,
    Report,
    compare_with_original,
    encode_texts,
    evaluation_of,
    load_original,
    manifest_of,
    require_tokens_of_file,
    write_common,
)
from registry.packages.store import PackageStore


def convert(
    request: ConversionRequest,
    downloaded: DownloadedVersion,
    work: Path,
    store: PackageStore,
    report: Report,
    *,
    given_up: str,
) -> ModelRef:
    """Makes and publishes the package; raises as ``walk.convert``.

    ``given_up`` says why it has no engine that suits its device better.
    """
    original = downloaded.original
    _require_precision_for(request, given_up)
    model, built, answers = prepare(request, original, work)
    inputs = engine_form.inputs_of(model)
    comparison, signature = compare_with_original(
        request, downloaded, built, answers, report, inputs=inputs
    )
    width = comparison.reference.shape[1]
    fused, given_up = fixed.fuse_for_gpus(request, original, model, built, given_up)
    chosen = choose(
        Trial(
            requested=request.serving.precision,
            model=model,
            comparison=comparison,
            threads=request.threads,
            device=request.device,
            fused=fused,
            given_up=given_up,
        )
    )
    profile = profile_of(
        evaluation_of(downloaded),
        original,
        chosen.engine,
        built,
        weights=engine_form.weights_of(chosen.model),
        labels=signature.labels,
        inputs=inputs,
    )
    report(Phase.PUBLISHING, f"publishing the {chosen.precision} package")
    folder = work / "package"
    write_common(folder, downloaded, built)
    onnx.save(chosen.model, str(folder / MODEL_ONNX))
    output = ENGINE_OUTPUT[original.task]
    parts = EngineParts(
        precision=chosen.precision,
        inputs=engine_form.inputs_of(chosen.model),
        outputs=(output.model_copy(update={"shape": (*output.shape[:-1], width)}),),
        fixed=fixed.laid_out(folder, request, built, comparison, chosen),
    )
    write_configs(
        folder,
        inputs=parts.inputs,
        outputs=parts.outputs,
        max_batch_size=request.serving.max_batch_size,
        threads=request.threads,
        native=parts.fixed is None,
    )
    manifest = manifest_of(
        request, downloaded, built, signature,
        parts=parts, proof=chosen.proof, profile=profile, folder=folder,
    )  # fmt: skip
    return store.publish(folder, manifest)


def _require_precision_for(request: ConversionRequest, given_up: str) -> None:
    """Refuses a precision that a graph has not, or not on the endpoint's kind of device.

    Raises:
        VersionError: what to do instead.
    """
    asked = request.serving.precision
    if asked is Precision.INT8 and request.device is DeviceKind.GPU:
        raise VersionError(
            "int8 was asked for, and the Tritons of the endpoint's pool compute on GPUs, where "
            "ONNX Runtime has no kernels for it: its products (MatMulIntegerToFloat) would run on "
            "the CPU. Leave spec.serving.precision at auto, or set spec.pool to a pool of CPUs"
        )
    if asked is Precision.BF16:
        why = f": {given_up}" if given_up else ""
        raise VersionError(
            "bf16 was asked for, and only the packed engine has it (spec.serving.engine: packed)"
            f"{why}"
        )


def prepare(
    request: ConversionRequest, original: OriginalTextModel, work: Path
) -> tuple[onnx.ModelProto, tokeniser.Tokeniser, Answers]:
    """The graph in the engine's form, the tokeniser, and what gives the original's answers."""
    if original.onnx is not None:
        built = tokeniser.build(original, request.serving)
        require_tokens_of_file(original, built)
        registered = engine_form.load(original.onnx)
        model = engine_form.finish(registered, original.task, original.pooling)
        return model, built, _answers_of_graph(model, original, built, request.threads)
    loaded, built, answers = load_original(request, original)
    from registry.convert.graph import export  # noqa: PLC0415 - needs torch

    path = work / "exported.onnx"
    export.to_onnx(loaded, original.task, path)
    model = engine_form.finish(engine_form.load(path), original.task, original.pooling)
    return model, built, answers


def _answers_of_graph(
    model: onnx.ModelProto, original: OriginalTextModel, built: tokeniser.Tokeniser, threads: int
) -> Answers:
    def answers(compared: texts.EvaluationTexts) -> tuple[Floats, str]:
        inputs = engine_form.inputs_of(model)
        outputs = GraphEngine(model, threads=threads).run_one_by_one(
            encode_texts(compared, built, inputs)
        )
        return values_of(original.task, outputs, multi_label=original.multi_label), "onnx-fp32"

    return answers
