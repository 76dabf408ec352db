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
from numpy.typing import NDArray

from contracts.endpoint import Phase, Precision
from contracts.manifest import (
    CODE,
    ENCODER_ONNX,
    MODEL_ONNX,
    TOKENIZER,
    GenerationSpec,
    Manifest,
    TokenRules,
)
from contracts.model import ModelRef
from contracts.profile import ReferenceProfile
from contracts.tasks import ENGINE_OUTPUT, INPUT_IDS
from contracts.tensors import Datatype, TensorSpec
from measures.profile import reference_profile
from preprocess.model_code import archive
from preprocess.observe import unanswered
from preprocess.tasks import HEADS, SecondText
from preprocess.tasks.generation import FINISHES
from registry.conversions.messages import ConversionRequest, Signature
from registry.convert import tables, texts, tokeniser
from registry.convert.download import Downloaded, fetch, lineage, recognised, with_pickles
from registry.convert.errors import VersionError
from registry.convert.flavours import Original, marian
from registry.convert.forms import FORMS, Agreement
from registry.convert.graph import decoder, encoder_decoder, engine_form
from registry.convert.package import (
    created_by,
    proofs,
    write_configs,
    write_generation_config,
)
from registry.convert.parity import continuations
from registry.convert.parity.choose import Chosen, Trial, choose
from registry.convert.parity.engine import Engine, Texts, encode
from registry.convert.parity.profiling import profile_of
from registry.convert.parity.verify import FEWEST_FOR_NEIGHBOURS, values_of
from registry.convert.tracking import Tracking
from registry.packages.store import PackageStore

log = logging.getLogger(__name__)

Report = Callable[[Phase, str], None]
Floats = NDArray[np.float32]

_PARITY_TEXTS = 256


def convert(
    request: ConversionRequest, tracking: Tracking, store: PackageStore, report: Report
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
    downloaded = recognised(fetched, request)
    original = downloaded.original
    report(Phase.CONVERTING, f"preparing the {original.flavour} model")
    if FORMS[original.task].generates:
        return _convert_decoder(request, downloaded, work, store, report)
    model, built, answers = _prepare(request, original, work)
    inputs = engine_form.inputs_of(model)
    evaluation = _evaluation(downloaded)
    compared = evaluation.thinned(_PARITY_TEXTS)
    if FORMS[original.task].agreement is Agreement.COSINE:
        compared = compared.filled(FEWEST_FOR_NEIGHBOURS)
    compared = compared.with_long_ones()
    report(Phase.VERIFYING, f"comparing with the original over {len(compared.texts)} texts")
    reference, reference_name = answers(compared)
    width = reference.shape[1]
    signature = Signature(
        task=original.task,
        labels=_labels(original, width),
        dimension=_dimension(original, width),
        prompts=tuple(sorted(built.spec.prompts)),
    )
    if request.stable is not None and (broken := request.stable.broken_by(signature)):
        raise VersionError(broken)
    chosen = choose(
        Trial(
            task=original.task,
            multi_label=original.multi_label,
            requested=request.serving.precision,
            model=model,
            texts=_encoded(compared, built, inputs),
            reference=reference,
            reference_name=reference_name,
            threads=request.threads,
            min_neighbours=request.serving.min_neighbours,
        )
    )
    profile = profile_of(
        evaluation, original, chosen, built, labels=signature.labels, inputs=inputs
    )
    report(Phase.PUBLISHING, f"publishing the {chosen.precision} package")
    folder = work / "package"
    manifest = _package(
        request, downloaded, built, chosen, signature, profile=profile, folder=folder
    )
    return store.publish(folder, manifest)


def _package(
    request: ConversionRequest,
    downloaded: Downloaded,
    built: tokeniser.Tokeniser,
    chosen: Chosen,
    signature: Signature,
    *,
    profile: ReferenceProfile,
    folder: Path,
) -> Manifest:
    """Writes the package's files into ``folder``; returns the manifest that proves them."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(chosen.model, str(folder / MODEL_ONNX))
    (folder / TOKENIZER).write_bytes(built.data)
    if downloaded.code is not None:
        (folder / CODE).write_bytes(downloaded.code)
    serving, original = request.serving, downloaded.original
    inputs = engine_form.inputs_of(chosen.model)
    output = ENGINE_OUTPUT[original.task]
    outputs = (output.model_copy(update={"shape": (*output.shape[:-1], chosen.width)}),)
    write_configs(
        folder,
        inputs=inputs,
        outputs=outputs,
        max_batch_size=serving.max_batch_size,
        threads=request.threads,
    )
    return Manifest(
        model=request.model,
        version=request.version,
        task=original.task,
        multi_label=original.multi_label,
        labels=signature.labels,
        dimension=signature.dimension,
        precision=chosen.precision,
        max_batch_size=serving.max_batch_size,
        length_buckets=built.buckets,
        tokenizer=built.spec,
        inputs=inputs,
        outputs=outputs,
        files=proofs(folder),
        profile=profile,
        parity=chosen.parity,
        ranges=chosen.ranges,
        has_code=downloaded.code is not None,
        lineage=lineage(request, downloaded.version, downloaded.run),
        created_by=created_by(),
    )


def _convert_decoder(
    request: ConversionRequest,
    downloaded: Downloaded,
    work: Path,
    store: PackageStore,
    report: Report,
) -> ModelRef:
    """The same of a model that writes text: another graph, another proof."""
    original, serving = downloaded.original, request.serving
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
    compared = evaluation.thinned(continuations.PROMPTS)
    stops = decoder.stop_ids(original)
    spec = GenerationSpec(stop_ids=stops, start_id=graphs.start_id, rules=graphs.rules)
    most = min(continuations.MOST_TOKENS, built.spec.max_tokens // 2)
    longest = min(continuations.LONGEST_PROMPT, built.spec.max_tokens - most)
    prompts = [ids[:longest] for ids in built.encoder.encode(compared.texts).ids]
    report(Phase.VERIFYING, f"comparing with the original after {len(prompts)} prompts")
    parity = continuations.proved(
        graphs.loaded(request.threads),
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

    def loaded(self, threads: int) -> continuations.Decoder:
        """Raises ``VersionError``."""
        return continuations.Decoder(
            self.decoder,
            threads=threads,
            encoder=self.encoder,
            start=self.start_id or 0,
            rules=self.rules.model_dump(),
        )


_Write = Callable[[list[list[int]], tuple[int, ...], int], tuple[list[list[int]], Floats]]


def _prepare_decoder(
    request: ConversionRequest, original: Original, work: Path
) -> tuple[_Graphs, tokeniser.Tokeniser, _Write]:
    """The graphs, the tokeniser, and what has the original write after prompts."""
    if original.onnx is not None:
        model = decoder.registered(original.onnx)
        graphs = _Graphs(model)
        alone = graphs.loaded(request.threads)

        def by_graph(
            prompts: list[list[int]], stops: tuple[int, ...], most: int
        ) -> tuple[list[list[int]], Floats]:
            found = [alone.writes(prompt, stops, most=most) for prompt in prompts]
            return [tokens for tokens, _ in found], np.stack([first for _, first in found])

        return graphs, tokeniser.build(original, request.serving), by_graph

    # Imported here for the same reason as in ``_prepare``.
    from registry.convert.graph import export  # noqa: PLC0415

    loaded = export.load(
        original,
        threads=request.threads,
        allow_remote_code=request.allow_remote_code,
        allow_pickle=request.allow_pickle,
    )
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
        return decoder.written(
            loaded, prompts, stops, most=most, start=graphs.start_id, rules=graphs.rules
        )

    return graphs, tokeniser.build(original, request.serving, fast), by_original


_Answers = Callable[[texts.EvaluationTexts], tuple[Floats, str]]


def _prepare(
    request: ConversionRequest, original: Original, work: Path
) -> tuple[onnx.ModelProto, tokeniser.Tokeniser, _Answers]:
    """The graph in the engine's form, the tokeniser, and what gives the original's answers."""
    if original.onnx is not None:
        built = tokeniser.build(original, request.serving)
        registered = engine_form.load(original.onnx)
        model = engine_form.finish(registered, original.task, original.pooling)
        return model, built, _answers_of_graph(model, original, built, request.threads)

    # Imported for PyTorch versions alone: it is slow, and needs an environment of its own.
    from registry.convert.graph import export  # noqa: PLC0415

    loaded = export.load(
        original,
        threads=request.threads,
        allow_pickle=request.allow_pickle,
        allow_remote_code=request.allow_remote_code,
    )
    fast = None
    if not (original.tokenizer / TOKENIZER).is_file():
        fast = export.fast_tokenizer(loaded)
    built = tokeniser.build(original, request.serving, fast)
    path = work / "exported.onnx"
    export.to_onnx(loaded, original.task, path)
    model = engine_form.finish(engine_form.load(path), original.task, original.pooling)

    def answers(compared: texts.EvaluationTexts) -> tuple[Floats, str]:
        outputs = export.originals(
            loaded,
            original.task,
            compared.texts,
            compared.pairs,
            max_tokens=built.spec.max_tokens,
        )
        values = values_of(original.task, outputs, multi_label=original.multi_label)
        return values, original.flavour

    return model, built, answers


def _answers_of_graph(
    model: onnx.ModelProto, original: Original, built: tokeniser.Tokeniser, threads: int
) -> _Answers:
    def answers(compared: texts.EvaluationTexts) -> tuple[Floats, str]:
        inputs = engine_form.inputs_of(model)
        encoded = _encoded(compared, built, inputs)
        outputs = Engine(model, threads=threads).alone(encoded)
        return values_of(original.task, outputs, multi_label=original.multi_label), "onnx-fp32"

    return answers


def _encoded(
    compared: texts.EvaluationTexts, built: tokeniser.Tokeniser, inputs: tuple[TensorSpec, ...]
) -> Texts:
    return encode(
        compared.texts, built.encoder, inputs, built.spec, built.buckets, pairs=compared.pairs
    )


def _evaluation(downloaded: Downloaded) -> texts.EvaluationTexts:
    """The texts to compare on: pairs for a task that reads pairs."""
    task = downloaded.original.task
    if HEADS[task].second_text is SecondText.REQUIRED:
        return downloaded.evaluation.paired()
    return downloaded.evaluation if FORMS[task].pairs else downloaded.evaluation.single()


def _labels(original: Original, width: int) -> tuple[str, ...]:
    form = FORMS[original.task]
    if not form.has_labels:
        return ()
    if form.one_label and width != 1:
        raise VersionError(f"{original.task} needs one logit, and the graph gives {width}")
    if form.columns:
        if width != len(form.columns):
            raise VersionError(
                f"{original.task} needs {' and '.join(form.columns)}, and the graph gives {width}"
            )
        return form.columns
    if form.named and not any(label.lower().startswith(form.named) for label in original.labels):
        raise VersionError(f"{original.task} needs a label that begins with {form.named!r}")
    labels = original.labels or tuple(f"LABEL_{index}" for index in range(width))
    if len(labels) != width:
        raise VersionError(f"the files name {len(labels)} labels, but the graph gives {width}")
    if len(set(labels)) != len(labels):
        raise VersionError("two labels of the version have the same name")
    return labels


def _dimension(original: Original, width: int) -> int | None:
    if FORMS[original.task].has_labels:
        return None
    return width - HEADS[original.task].further_columns
