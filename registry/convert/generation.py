"""The way of a version that writes text to a package: another graph, another proof.

Read ``convert`` downward: export a decoder, and of an encoder-decoder both; compare what is written
with what the original writes; publish.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from contracts.endpoint import Phase, Precision
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
from registry.convert import tokeniser
from registry.convert.download import DownloadedVersion, lineage
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel, marian
from registry.convert.graph import decoder, encoder_decoder, engine_form
from registry.convert.package import created_by, proofs, write_generation_config
from registry.convert.parity import continuations
from registry.convert.steps import (
    Floats,
    Report,
    load_network,
    require_no_packed,
    require_tokens_of_file,
    require_tokens_of_library,
)
from registry.packages.store import PackageStore


def convert(
    request: ConversionRequest,
    downloaded: DownloadedVersion,
    work: Path,
    store: PackageStore,
    report: Report,
) -> ModelRef:
    """Makes and publishes the package; raises as ``walk.convert``."""
    original, serving = downloaded.original, request.serving
    require_no_packed(request, str(original.task))
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
    graphs, built, write = _prepare(request, original, work)
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


def _prepare(
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

    from registry.convert.graph import export  # noqa: PLC0415 - needs torch

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
