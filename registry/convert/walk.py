"""The way of one model version, from the registry to a published package.

Called by ``registry.convert.__main__``. Read ``convert`` downwards: download, detect, bring to the
engine's form, choose a precision, prove, profile, package, publish. It keeps nothing between two
conversions, writes only to the scratch folder and the store, and takes no clock but to tell a
version whose files are still on their way.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from contracts.endpoint import Phase
from contracts.manifest import MODEL_ONNX, TOKENIZER, Lineage, Manifest, TokenizerSpec
from contracts.model import ModelRef
from contracts.profile import ReferenceProfile
from contracts.tasks import ENGINE_OUTPUT, Task
from contracts.tensors import Datatype, TensorSpec
from measures.profile import reference_profile
from preprocess.buckets import automatic_buckets, checked_buckets
from preprocess.encoder import TextEncoder
from preprocess.errors import PreprocessError
from preprocess.observe import answered
from registry.convert import graph, optimise, texts, tokeniser
from registry.convert.choose import Chosen, Trial, choose
from registry.convert.engine import Engine, encode
from registry.convert.errors import EnvironmentFaultError, VersionError
from registry.convert.tracking import Run, Tracking, Version
from registry.convert.verify import values_of
from registry.flavours import Original, detect
from registry.flavours.detect import TokenizerNotFoundError, is_pickle
from registry.job import ConversionRequest, Signature
from registry.package import created_by, proofs, write_configs
from registry.store import PackageStore

log = logging.getLogger(__name__)

Report = Callable[[Phase, str], None]
Floats = NDArray[np.float32]

# Someone who logs a model and then its tokeniser registers the version in between.
_STILL_ARRIVING_SECONDS = 30.0
_TOKENIZER_FOLDER = "tokenizer"
_PARITY_TEXTS = 256
# The profile is over as many texts as this much arithmetic allows: the same on every machine.
_PROFILE_OPERATIONS = 4e11
_MOST_UNKNOWN = 0.5


@dataclass(frozen=True)
class _Downloaded:
    version: Version
    run: Run | None
    original: Original
    evaluation: texts.EvaluationTexts


@dataclass(frozen=True)
class _Tokeniser:
    """What the package says of texts and rows."""

    data: bytes
    encoder: TextEncoder
    spec: TokenizerSpec
    buckets: tuple[int, ...]


def convert(
    request: ConversionRequest, tracking: Tracking, store: PackageStore, report: Report
) -> ModelRef:
    """Makes and publishes the package of one version.

    Args:
        request: which version, and how it is to be served.
        tracking: where it is registered.
        store: where the package goes.
        report: told of each step as it begins.

    Raises:
        ConversionError: there will be no package, and whose fault that is.
        registry.store.StoreError: the store can't be written.
    """
    work = Path(request.work_dir)
    report(Phase.CONVERTING, f"downloading version {request.version} of {request.model}")
    got = _download(request, tracking, work)
    original = got.original
    report(Phase.CONVERTING, f"preparing the {original.flavour} model")
    model, tokenizer, answers = _prepare(request, original, work)
    inputs = graph.inputs_of(model)
    judged = texts.with_long_ones(_thin(got.evaluation.texts, _PARITY_TEXTS))
    encoded = encode(judged, tokenizer.encoder, inputs, tokenizer.spec, tokenizer.buckets)
    report(Phase.VERIFYING, f"comparing with the original over {len(judged)} texts")
    reference, reference_name = answers(judged)
    chosen = choose(
        Trial(
            task=original.task,
            multi_label=original.multi_label,
            wished=request.serving.precision,
            base=model,
            fused=optimise.fuse(model, original.folder),
            texts=encoded,
            reference=reference,
            reference_name=reference_name,
            threads=request.threads,
        )
    )
    width = reference.shape[1]
    labels = _labels(original, width)
    _keep_signature(request.stable, original.task, labels, width)
    profile = _profile(got.evaluation, original, labels, chosen, tokenizer, inputs)
    package = work / "package"
    package.mkdir(parents=True, exist_ok=True)
    onnx.save(chosen.model, str(package / MODEL_ONNX))
    (package / TOKENIZER).write_bytes(tokenizer.data)
    outputs = (
        TensorSpec(name=ENGINE_OUTPUT[original.task], datatype=Datatype.FP32, shape=(-1, width)),
    )
    serving = request.serving
    write_configs(
        package,
        inputs=inputs,
        outputs=outputs,
        max_batch_size=serving.max_batch_size,
        instances=serving.instances,
        threads=request.threads,
    )
    manifest = Manifest(
        model=request.model,
        version=request.version,
        task=original.task,
        multi_label=original.multi_label,
        labels=labels,
        dimension=width if original.task is Task.TEXT_EMBEDDING else None,
        precision=chosen.precision,
        instances=serving.instances,
        max_batch_size=serving.max_batch_size,
        length_buckets=tokenizer.buckets,
        tokenizer=tokenizer.spec,
        inputs=inputs,
        outputs=outputs,
        files=proofs(package),
        profile=profile,
        parity=chosen.parity,
        lineage=_lineage(request, got.version, got.run),
        created_by=created_by(),
    )
    report(Phase.PUBLISHING, f"publishing {chosen.precision} package {manifest.package_id()[:12]}")
    return store.publish(package, manifest)


def _download(request: ConversionRequest, tracking: Tracking, work: Path) -> _Downloaded:
    version = tracking.version(request.model, request.version)
    folder, beside = work / "version", work / "run"
    refused = tracking.download(
        version.artifacts,
        folder,
        skip=lambda name: is_pickle(name) and not request.allow_pickle,
    )
    run = tracking.run(version.run_id) if version.run_id else None
    beside.mkdir(parents=True, exist_ok=True)
    if run is not None and run.artifacts:
        tracking.download(run.artifacts, beside, skip=lambda name: not _wanted_of_run(name))
    try:
        original = detect(
            folder,
            refused=refused,
            tokenizers=(beside / _TOKENIZER_FOLDER, beside),
            task=request.task,
            allow_remote_code=request.allow_remote_code,
        )
    except TokenizerNotFoundError as error:
        if time.time() - version.created < _STILL_ARRIVING_SECONDS:
            raise EnvironmentFaultError(f"{error} (the version is new: looking again)") from error
        raise
    return _Downloaded(version, run, original, texts.find((folder, beside)))


def _wanted_of_run(name: str) -> bool:
    """A run may hold gigabytes; only a tokeniser and evaluation texts are wanted of it."""
    parts = Path(name).parts
    ours = parts[0] == _TOKENIZER_FOLDER or name == TOKENIZER
    return (ours and not is_pickle(name)) or texts.is_evaluation_file(name)


_Answers = Callable[[Sequence[str]], tuple[Floats, str]]


def _prepare(
    request: ConversionRequest, original: Original, work: Path
) -> tuple[onnx.ModelProto, _Tokeniser, _Answers]:
    """The graph in the engine's form, the tokeniser, and what gives the original's answers."""
    if original.onnx is not None:
        made = _tokeniser(request, original, None)
        registered = graph.load(original.onnx)
        model = graph.finish(registered, original.task, original.pooling)
        return model, made, _answers_of_graph(model, original, made, request.threads)

    # Imported for PyTorch versions alone: it is slow, and needs an environment of its own.
    from registry.convert import export  # noqa: PLC0415

    loaded = export.load(
        original, threads=request.threads, allow_remote_code=request.allow_remote_code
    )
    fast = None
    if not (original.tokenizer / TOKENIZER).is_file():
        fast = export.fast_tokenizer(loaded)
    made = _tokeniser(request, original, fast)
    path = work / "exported.onnx"
    export.to_onnx(loaded, original.task, path)
    model = graph.finish(graph.load(path), original.task, original.pooling)

    def answers(judged: Sequence[str]) -> tuple[Floats, str]:
        outputs = export.originals(loaded, original.task, judged, max_tokens=made.spec.max_tokens)
        values = values_of(original.task, outputs, multi_label=original.multi_label)
        return values, original.flavour

    return model, made, answers


def _answers_of_graph(
    model: onnx.ModelProto, original: Original, made: _Tokeniser, threads: int
) -> _Answers:
    def answers(judged: Sequence[str]) -> tuple[Floats, str]:
        inputs = graph.inputs_of(model)
        encoded = encode(judged, made.encoder, inputs, made.spec, made.buckets)
        outputs = Engine(model, threads=threads).alone(encoded)
        return values_of(original.task, outputs, multi_label=original.multi_label), "onnx-fp32"

    return answers


def _tokeniser(request: ConversionRequest, original: Original, fast: str | None) -> _Tokeniser:
    path = original.tokenizer / TOKENIZER
    if fast is not None:
        path = Path(request.work_dir) / TOKENIZER
        path.write_text(fast, encoding="utf-8")
    elif not path.is_file():
        raise VersionError(
            "the version has a tokeniser but no tokenizer.json; save it with a fast tokeniser"
        )
    read = tokeniser.read(path, prompt=original.prompt, lowercase=original.lowercase)
    spec = tokeniser.spec_for(read, original, wished_tokens=request.serving.max_tokens)
    wished = request.serving.length_buckets
    data = str(read.to_str()).encode()
    try:
        buckets = (
            automatic_buckets(spec.max_tokens)
            if wished == "auto"
            else checked_buckets(wished, spec.max_tokens)
        )
        return _Tokeniser(data, TextEncoder(data, spec), spec, buckets)
    except (PreprocessError, ValueError) as error:
        raise VersionError(f"the tokeniser can't be used: {error}") from error


def _labels(original: Original, width: int) -> tuple[str, ...]:
    if original.task is not Task.TEXT_CLASSIFICATION:
        return ()
    labels = original.labels or tuple(f"LABEL_{index}" for index in range(width))
    if len(labels) != width:
        raise VersionError(f"the files name {len(labels)} labels, but the graph gives {width}")
    if len(set(labels)) != len(labels):
        raise VersionError("two labels of the version have the same name")
    return labels


def _keep_signature(
    stable: Signature | None, task: Task, labels: tuple[str, ...], width: int
) -> None:
    """Refuses a version that would break the callers of the stable one."""
    if stable is None:
        return
    if stable.task is not task:
        raise VersionError(f"the version does {task}, the stable one {stable.task}")
    if set(stable.labels) != set(labels):
        gone = ", ".join(sorted(set(stable.labels) - set(labels))) or "none"
        new = ", ".join(sorted(set(labels) - set(stable.labels))) or "none"
        raise VersionError(
            f"the labels are not those of the stable version: gone {gone}; new {new}"
        )
    if stable.dimension is not None and stable.dimension != width:
        raise VersionError(
            f"vectors have {width} dimensions, those of the stable version {stable.dimension}"
        )


def _profile(
    evaluation: texts.EvaluationTexts,
    original: Original,
    labels: tuple[str, ...],
    chosen: Chosen,
    made: _Tokeniser,
    inputs: tuple[TensorSpec, ...],
) -> ReferenceProfile:
    """What the texts and the answers look like, by the code that the gateway runs."""
    encoded = encode(evaluation.texts, made.encoder, inputs, made.spec, made.buckets)
    affordable = _affordable(chosen.model, encoded.encoded.tokens)
    if affordable < len(encoded):
        kept = _thin(evaluation.texts, affordable)
        encoded = encode(kept, made.encoder, inputs, made.spec, made.buckets)
    outputs = chosen.engine.outputs(encoded)
    values = values_of(original.task, outputs, multi_label=original.multi_label)
    records = answered(encoded.encoded, original.task, values, labels)
    unknown = sum(encoded.encoded.unk) / max(1, sum(encoded.encoded.tokens))
    if evaluation.own and unknown > _MOST_UNKNOWN:
        raise VersionError(
            f"the tokeniser does not know {unknown:.0%} of the tokens in {evaluation.source}"
        )
    return reference_profile(
        records,
        source=evaluation.source,
        labels=labels,
        scores=values if labels else None,
    )


def _affordable(model: onnx.ModelProto, tokens: Sequence[int]) -> int:
    """How many of the texts the profile's arithmetic pays for, a few hundred at least."""
    weights = sum(
        int(np.prod(tensor.dims)) for tensor in model.graph.initializer if len(tensor.dims) == 2
    )
    mean = sum(tokens) / max(1, len(tokens))
    return max(_PARITY_TEXTS, int(_PROFILE_OPERATIONS / max(1.0, 2.0 * weights * mean)))


def _thin(items: Sequence[str], count: int) -> tuple[str, ...]:
    """At most ``count`` of the items, evenly out of all."""
    if len(items) <= count:
        return tuple(items)
    return tuple(items[int(place * len(items) / count)] for place in range(count))


def _lineage(request: ConversionRequest, version: Version, run: Run | None) -> Lineage:
    tags = {} if run is None else run.tags
    return Lineage(
        registered_model=request.model,
        version=request.version,
        run_id=version.run_id,
        source=version.source,
        git_commit=tags.get("mlflow.source.git.commit", ""),
        data_sets=() if run is None else run.data_sets,
    )
