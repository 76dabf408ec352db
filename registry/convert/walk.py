"""The way of one model version, from the registry to a published package.

Read ``convert`` downwards: download, detect, bring to the engine's form, choose a precision, prove,
profile, package, publish. It keeps nothing between two conversions, and writes only to the scratch
folder and the store.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from contracts.endpoint import EngineChoice, Phase, Precision
from contracts.loading import DeviceKind
from contracts.manifest import (
    ENCODER_ONNX,
    MODEL_ONNX,
    TOKENIZER,
    GenerationSpec,
    Manifest,
    TokenRules,
)
from contracts.model import ModelRef
from contracts.tasks import ENGINE_OUTPUT, INPUT_IDS
from contracts.tensors import Datatype, TensorSpec
from measures.profile import reference_profile
from preprocess.model_code import archive
from preprocess.observe import unanswered
from preprocess.tasks.generation import FINISHES
from registry.conversions.messages import ConversionRequest, Signature
from registry.convert import fixed, packed, tables, texts, tokeniser
from registry.convert.download import DownloadedVersion, fetch, lineage, recognise, with_pickles
from registry.convert.errors import VersionError, refuse_panics
from registry.convert.flavours import OriginalTextModel, marian
from registry.convert.forms import FORMS
from registry.convert.graph import decoder, encoder_decoder, engine_form
from registry.convert.package import (
    created_by,
    proofs,
    write_configs,
    write_generation_config,
)
from registry.convert.parity import continuations
from registry.convert.parity.choose import Trial, choose
from registry.convert.parity.engine import GraphEngine
from registry.convert.parity.profiling import profile_of
from registry.convert.parity.proof import Comparison
from registry.convert.parity.verify import values_of
from registry.convert.steps import (
    Answers,
    EngineParts,
    Floats,
    Report,
    choose_compared_texts,
    encode_texts,
    evaluation_of,
    load_network,
    load_original,
    manifest_of,
    require_tokens_of_file,
    require_tokens_of_library,
    signature_of,
    write_common,
)
from registry.convert.tracking import TrackingServer
from registry.packages.store import PackageStore

log = logging.getLogger(__name__)


@refuse_panics()
def convert(
    request: ConversionRequest, tracking: TrackingServer, store: PackageStore, report: Report
) -> ModelRef:
    """Makes and publishes the package of one version.

    Raises:
        ConversionError: there will be no package, and whose fault that is.
        registry.packages.store.StoreError: the store can't be written.
    """
    work = Path(request.work_dir)
    report(Phase.CONVERTING, f"downloading version {request.version} of {request.model}")
    fetched = fetch(request, tracking, work)
    table = tables.find(fetched, request)
    if table is not None:
        _require_no_packed(request, "a model of tables")
        if archive.brings_code(fetched.folder):
            raise VersionError(
                f"it brings {archive.FOLDER}/{archive.MODULE}.py, which goes with models of texts; "
                "a model of tables does its own work around the model in a pyfunc"
            )
        if table.flavour == tables.PYFUNC:
            return tables.convert_pyfunc(
                request, with_pickles(fetched, tracking), table, store, report
            )
        return tables.convert(request, fetched, table, store, report)
    downloaded = recognise(fetched, request)
    original = downloaded.original
    report(Phase.CONVERTING, f"preparing the {original.flavour} model")
    if FORMS[original.task].generates:
        return _convert_decoder(request, downloaded, work, store, report)
    given_up = ""
    if packed.is_wanted(request):
        try:
            return packed.convert(request, downloaded, work, store, report)
        except VersionError as error:
            if request.serving.engine is EngineChoice.PACKED:
                raise
            given_up = error.reason
            log.info("no packed engine", extra={"reason": given_up})
    return _convert_padded(request, downloaded, work, store, report, given_up=given_up)


def _convert_padded(
    request: ConversionRequest,
    downloaded: DownloadedVersion,
    work: Path,
    store: PackageStore,
    report: Report,
    *,
    given_up: str,
) -> ModelRef:
    """The same of a model whose graph runs on padded rows.

    ``given_up`` says why it has no engine that suits its device better.
    """
    original = downloaded.original
    _require_precision_for(request, given_up)
    model, built, answers = _prepare(request, original, work)
    inputs = engine_form.inputs_of(model)
    compared = choose_compared_texts(downloaded, built)
    report(Phase.VERIFYING, f"comparing with the original over {len(compared.texts)} texts")
    reference, reference_name = answers(compared)
    width = reference.shape[1]
    signature = signature_of(request, original, built, width)
    comparison = Comparison(
        task=original.task,
        multi_label=original.multi_label,
        texts=encode_texts(compared, built, inputs),
        reference=reference,
        reference_name=reference_name,
        min_neighbours=request.serving.min_neighbours,
    )
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


def _require_no_packed(request: ConversionRequest, what: str) -> None:
    """Refuses the packed engine for what it can't run; raises ``VersionError``."""
    if request.serving.engine is EngineChoice.PACKED:
        raise VersionError(
            f"the packed engine was asked for, and {what} has none: leave spec.serving.engine at "
            "auto"
        )


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


def _convert_decoder(
    request: ConversionRequest,
    downloaded: DownloadedVersion,
    work: Path,
    store: PackageStore,
    report: Report,
) -> ModelRef:
    """The same of a model that writes text: another graph, another proof."""
    original, serving = downloaded.original, request.serving
    _require_no_packed(request, str(original.task))
    if downloaded.code is not None:
        raise VersionError(
            f"it brings {archive.FOLDER}/{archive.MODULE}.py, which goes with models that read "
            f"texts, and not with {original.task}"
        )
    if serving.precision not in (Precision.AUTO, Precision.FP32):
        raise VersionError(
            f"{original.task} is served in fp32, and {serving.precision} is asked for: how far a "
            "text strays by smaller numbers was measured on no trained model, so that no limit is "
            "known; leave spec.serving.precision at auto, or say fp32"
        )
    graphs, built, write = _prepare_decoder(request, original, work)
    signature = Signature(task=original.task, labels=FINISHES)
    if request.stable is not None and (broken := request.stable.broken_by(signature)):
        raise VersionError(broken)
    evaluation = downloaded.evaluation.single()
    compared = evaluation.thin(continuations.PROMPTS)
    stops = decoder.stop_ids(original)
    spec = GenerationSpec(stop_ids=stops, start_id=graphs.start_id, rules=graphs.rules)
    most = min(continuations.MOST_TOKENS, built.spec.max_tokens // 2)
    longest = min(continuations.LONGEST_PROMPT, built.spec.max_tokens - most)
    prompts = [ids[:longest] for ids in built.encoder.encode(compared.texts).ids]
    report(Phase.VERIFYING, f"comparing with the original after {len(prompts)} prompts")
    parity = continuations.prove_continuations(
        graphs.load(request.threads),
        prompts,
        stops,
        write(prompts, stops, most),
        reference=original.flavour if original.onnx is None else "onnx-fp32",
        most=most,
    )
    report(Phase.PUBLISHING, "publishing the fp32 package")
    folder = work / "package"
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(graphs.decoder, str(folder / MODEL_ONNX))
    if graphs.encoder is not None:
        onnx.save(graphs.encoder, str(folder / ENCODER_ONNX))
    (folder / TOKENIZER).write_bytes(built.data)
    write_generation_config(
        folder,
        context=built.spec.max_tokens,
        rows=serving.max_batch_size,
        threads=request.threads,
        generation=spec,
    )
    records = unanswered(built.encoder.encode(evaluation.texts))
    manifest = Manifest(
        model=request.model,
        version=request.version,
        task=original.task,
        labels=FINISHES,
        precision=Precision.FP32,
        max_batch_size=serving.max_batch_size,
        length_buckets=built.buckets,
        tokenizer=built.spec,
        inputs=(TensorSpec(name=INPUT_IDS, datatype=Datatype.INT64, shape=(-1, -1)),),
        outputs=(ENGINE_OUTPUT[original.task],),
        files=proofs(folder),
        profile=reference_profile(records, source=evaluation.source),
        parity=parity,
        generation=spec,
        lineage=lineage(request, downloaded.version, downloaded.run),
        created_by=created_by(),
    )
    return store.publish(folder, manifest)


@dataclass(frozen=True)
class _Graphs:
    """What writes: a decoder, and of an encoder-decoder both, with how texts begin and go on."""

    decoder: onnx.ModelProto
    encoder: onnx.ModelProto | None = None
    start_id: int | None = None
    rules: TokenRules = field(default_factory=TokenRules)

    def load(self, threads: int) -> continuations.Decoder:
        """Raises ``VersionError``."""
        return continuations.Decoder(
            self.decoder,
            threads=threads,
            encoder=self.encoder,
            start=self.start_id or 0,
            rules=self.rules.model_dump(exclude_defaults=True),
        )


_Write = Callable[[list[list[int]], tuple[int, ...], int], tuple[list[list[int]], Floats]]


def _prepare_decoder(
    request: ConversionRequest, original: OriginalTextModel, work: Path
) -> tuple[_Graphs, tokeniser.Tokeniser, _Write]:
    """The graphs, the tokeniser, and what has the original write after prompts."""
    if original.onnx is not None:
        model = decoder.keep_last_logits(original.onnx)
        graphs = _Graphs(model)
        alone = graphs.load(request.threads)

        def by_graph(
            prompts: list[list[int]], stops: tuple[int, ...], most: int
        ) -> tuple[list[list[int]], Floats]:
            found = [alone.writes(prompt, stops, most=most) for prompt in prompts]
            return [tokens for tokens, _ in found], np.stack([first for _, first in found])

        built = tokeniser.build(original, request.serving)
        require_tokens_of_file(original, built)
        return graphs, built, by_graph

    # Imported here for the same reason as in ``_prepare``.
    from registry.convert.graph import export  # noqa: PLC0415

    loaded = load_network(request, original)
    fast = None
    if marian.has_files(original.tokenizer):
        fast = marian.tokenizer_json(original.tokenizer)
    elif not (original.tokenizer / TOKENIZER).is_file():
        fast = export.fast_tokenizer(loaded)
    path = work / "exported.onnx"
    if export.is_encoder_decoder(original):
        start, reading = encoder_decoder.start_id(original), work / "encoder.onnx"
        encoder_decoder.to_onnx(loaded, reading, path)
        rules = encoder_decoder.token_rules(loaded.network.generation_config.to_dict())
        graphs = _Graphs(engine_form.load(path), engine_form.load(reading), start, rules)
    else:
        decoder.to_onnx(loaded, path)
        graphs = _Graphs(engine_form.load(path))

    def by_original(
        prompts: list[list[int]], stops: tuple[int, ...], most: int
    ) -> tuple[list[list[int]], Floats]:
        return decoder.write_continuations(
            loaded, prompts, stops, most=most, start=graphs.start_id, rules=graphs.rules
        )

    built = tokeniser.build(original, request.serving, fast, rows=export.rows_of(loaded))
    if loaded.tokenizer is None:
        require_tokens_of_file(original, built)
    else:
        require_tokens_of_library(original, built, loaded)
    return graphs, built, by_original


def _prepare(
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
