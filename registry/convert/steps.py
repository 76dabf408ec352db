"""The steps that versions which read texts have in common, whatever engine will run them.

What to compare on, how the original is asked, what callers will rely on, and the manifest. It
chooses no engine and no precision, and stores nothing.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import EngineChoice, Phase, Precision
from contracts.manifest import CODE, TOKENIZER, EngineKind, FixedSpec, Manifest, PackedSpec
from contracts.profile import ReferenceProfile
from contracts.tasks import QUERY, RELEVANCE
from contracts.tensors import TensorSpec
from preprocess.late_interaction import QueryDocumentEncoder
from preprocess.tasks import HEADS, SecondText
from registry.conversions.messages import ConversionRequest, Signature
from registry.convert import texts, tokeniser, weights
from registry.convert.download import DownloadedVersion, lineage
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.flavours.original import Reader
from registry.convert.flavours.sides import DOCUMENT
from registry.convert.forms import FORMS, AgreementKind
from registry.convert.package import created_by, proofs
from registry.convert.parity.engine import TokenisedTexts, encode
from registry.convert.parity.proof import Comparison, Proof
from registry.convert.parity.same_tokens import of_file, require_same_tokens, special_texts
from registry.convert.parity.verify import FEWEST_FOR_NEIGHBOURS, values_of
from registry.convert.space import space_of

log = logging.getLogger(__name__)

Report = Callable[[Phase, str], None]
Floats = NDArray[np.float32]
Answers = Callable[[texts.EvaluationTexts], tuple[Floats, str]]  # and what gave them, in words

_PARITY_TEXTS = 256
_SPECIAL_TEXTS = 16


def evaluation_of(downloaded: DownloadedVersion) -> texts.EvaluationTexts:
    """The version's texts: pairs for a task that reads pairs."""
    task = downloaded.original.task
    if HEADS[task].second_text is SecondText.REQUIRED or RELEVANCE in HEADS[task].kinds:
        return downloaded.evaluation.pair()
    return downloaded.evaluation if FORMS[task].pairs else downloaded.evaluation.single()


def choose_compared_texts(
    downloaded: DownloadedVersion, built: tokeniser.Tokeniser
) -> texts.EvaluationTexts:
    """The texts that engines are compared with the original on.

    Among them are long ones, and some with the vocabulary's own special tokens: callers send them,
    and some networks look for them in the rows of a batch.
    """
    compared = evaluation_of(downloaded).thin(_PARITY_TEXTS)
    if FORMS[downloaded.original.task].agreement is AgreementKind.COSINE:
        compared = compared.fill(FEWEST_FOR_NEIGHBOURS)
    special = special_texts(built.encoder.tokenizer)[:_SPECIAL_TEXTS]
    return compared.with_further(special).with_long_ones(built.spec.max_tokens)


def encode_texts(
    compared: texts.EvaluationTexts, built: tokeniser.Tokeniser, inputs: tuple[TensorSpec, ...]
) -> TokenisedTexts:
    """The texts as the engine takes them; ``inputs`` are of one that pads, none of others."""
    return encode(
        compared.texts, built.encoder, inputs, built.spec, built.buckets, pairs=compared.pairs
    )


def require_tokens_of_file(original: OriginalTextModel, built: tokeniser.Tokeniser) -> None:
    """Refuses a version whose tokens are not those of its own ``tokenizer.json``; ``VersionError``.

    For versions that no library loads as a whole.
    """
    read = of_file(built.encoder.tokenizer, built.spec.max_tokens)
    _require_tokens(original, built, read, "", ())


def require_tokens_of_library(
    original: OriginalTextModel,
    built: tokeniser.Tokeniser,
    loaded: Any,  # noqa: ANN401
) -> None:
    """Refuses a version whose tokens are not those of the library that loads it; ``VersionError``.

    ``loaded`` is a ``graph.export.TorchModel`` with a tokeniser.
    """
    from registry.convert.graph import export  # noqa: PLC0415 - as below

    how = f", as {type(loaded.tokenizer).__name__},"
    for side in ("",) if original.sides is None else (DOCUMENT, QUERY):
        read = export.reader_of(loaded, max_tokens=built.longest, side=side)
        _require_tokens(original, built, read, how, export.special_tokens_of(loaded), side=side)


def _require_tokens(
    original: OriginalTextModel,
    built: tokeniser.Tokeniser,
    read: Reader,
    how: str,
    special: tuple[str, ...],
    *,
    side: str = "",
) -> None:
    encoder, encode = built.encoder, None
    if isinstance(encoder, QueryDocumentEncoder):
        encode = partial(encoder.encode_sided, queries=side == QUERY)
    require_same_tokens(
        encoder,
        read,
        encode=encode,
        max_tokens=built.spec.max_tokens,
        pairs=HEADS[original.task].second_text is not SecondText.NONE,
        original=f"the version's own library{how}",
        special=special,
    )


def load_network(request: ConversionRequest, original: OriginalTextModel) -> Any:  # noqa: ANN401
    """A PyTorch version in memory (``graph.export.TorchModel``).

    Raises:
        ExportMissingError: torch or the library is not installed.
        VersionError: they can't load it, or not all libraries would load the same.
    """
    # Imported only for PyTorch versions: it is slow, and needs an environment of its own.
    from registry.convert.graph import export  # noqa: PLC0415

    weights.require_one_of_each(original)
    return export.load(
        original,
        threads=request.threads,
        allow_pickle=request.allow_pickle,
        allow_remote_code=request.allow_remote_code,
    )


def load_original(
    request: ConversionRequest, original: OriginalTextModel
) -> tuple[Any, tokeniser.Tokeniser, Answers]:
    """The same with its tokeniser and its own answers; raises as ``load_network`` does."""
    from registry.convert.graph import export, span_network  # noqa: PLC0415 - need torch

    if FORMS[original.task].own_network:
        return _load_spans(request, original, span_network)
    loaded = load_network(request, original)
    built = _built_as_library_has_it(request, original, loaded)

    def answers(compared: texts.EvaluationTexts) -> tuple[Floats, str]:
        by_library = bool(original.loaded_by)  # which puts the usual prompt before texts itself
        outputs = export.originals(
            loaded,
            original.task,
            compared.texts if by_library else built.encoder.prompted(compared.texts),
            compared.pairs,
            max_tokens=built.longest,
        )
        values = values_of(original.task, outputs, multi_label=original.multi_label)
        return values, original.flavour

    return loaded, built, answers


def _load_spans(
    request: ConversionRequest,
    original: OriginalTextModel,
    network: Any,  # noqa: ANN401
) -> tuple[Any, tokeniser.Tokeniser, Answers]:
    """The same of a model that finds spans by labels; ``network`` is ``graph.span_network``."""
    loaded = network.load(original, threads=request.threads, allow_pickle=request.allow_pickle)
    built = tokeniser.build(
        original, request.serving, pad_id=loaded.pad_id, rows=loaded.embedding_rows
    )

    def answers(compared: texts.EvaluationTexts) -> tuple[Floats, str]:
        encoded = built.encoder.encode(compared.texts)
        loaded.require_rows(compared.texts, encoded)
        outputs = loaded.outputs(encoded)
        return values_of(original.task, outputs, multi_label=False), original.flavour

    return loaded, built, answers


def _built_as_library_has_it(
    request: ConversionRequest,
    original: OriginalTextModel,
    loaded: Any,  # noqa: ANN401
) -> tokeniser.Tokeniser:
    """The tokeniser to publish, which makes the tokens of ``loaded``; raises ``VersionError``."""
    from registry.convert.graph import export  # noqa: PLC0415 - as above

    pad_id, rows = export.pad_id_of(loaded), export.rows_of(loaded)
    if (original.tokenizer / TOKENIZER).is_file():
        built = tokeniser.build(original, request.serving, pad_id=pad_id, rows=rows)
        try:
            require_tokens_of_library(original, built, loaded)
        except VersionError as error:
            if not loaded.tokenizer.is_fast:
                raise
            # Some classes make their tokeniser of the vocabulary again, and not as the file has it.
            # The original's answers are what the library gives.
            log.warning("the library's tokeniser is published", extra={"reason": error.reason})
        else:
            return built
    fast = export.fast_tokenizer(loaded)
    built = tokeniser.build(original, request.serving, fast, pad_id=pad_id, rows=rows)
    require_tokens_of_library(original, built, loaded)
    return built


def signature_of(
    request: ConversionRequest, original: OriginalTextModel, built: tokeniser.Tokeniser, width: int
) -> Signature:
    """What callers will rely on.

    Raises:
        VersionError: the width does not go with the task, or callers of stable would lose by it.
    """
    signature = Signature(
        task=original.task,
        labels=_labels(original, width),
        dimension=_dimension(original, width),
        prompts=tuple(sorted(built.spec.prompts)),
    )
    if request.stable is not None and (broken := request.stable.broken_by(signature)):
        raise VersionError(broken)
    return signature


def require_no_packed(request: ConversionRequest, what: str) -> None:
    """Refuses the packed engine for what it can't run; raises ``VersionError``."""
    if request.serving.engine is EngineChoice.PACKED:
        raise VersionError(
            f"the packed engine was asked for, and {what} has none: leave spec.serving.engine at "
            "auto"
        )


def compare_with_original(
    request: ConversionRequest,
    downloaded: DownloadedVersion,
    built: tokeniser.Tokeniser,
    answers: Answers,
    report: Report,
    *,
    inputs: tuple[TensorSpec, ...] = (),
    gpu: str = "",
) -> tuple[Comparison, Signature]:
    """What engines are compared with, and what callers will rely on; raises ``VersionError``.

    ``inputs`` are of an engine that pads; ``gpu`` is the one that engines run on, if they do.
    """
    original = downloaded.original
    compared = choose_compared_texts(downloaded, built)
    where = f" on {gpu}" if gpu else ""
    report(Phase.VERIFYING, f"comparing with the original over {len(compared.texts)} texts{where}")
    reference, reference_name = answers(compared)
    signature = signature_of(request, original, built, reference.shape[1])
    comparison = Comparison(
        task=original.task,
        multi_label=original.multi_label,
        texts=encode_texts(compared, built, inputs),
        reference=reference,
        reference_name=reference_name,
        min_neighbours=request.serving.min_neighbours,
        device=gpu,
    )
    return comparison, signature


@dataclass(frozen=True)
class EngineParts:
    """What of a manifest depends on the engine."""

    precision: Precision
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    engine: EngineKind = EngineKind.PADDED
    packed: PackedSpec | None = None
    fixed: FixedSpec | None = None


def write_common(folder: Path, downloaded: DownloadedVersion, built: tokeniser.Tokeniser) -> None:
    """The files that every package of texts has, and the version's own code."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TOKENIZER).write_bytes(built.data)
    if downloaded.code is not None:
        (folder / CODE).write_bytes(downloaded.code)


def manifest_of(
    request: ConversionRequest,
    downloaded: DownloadedVersion,
    built: tokeniser.Tokeniser,
    signature: Signature,
    *,
    parts: EngineParts,
    proof: Proof,
    profile: ReferenceProfile,
    folder: Path,
) -> Manifest:
    """The manifest that proves the package's files, all of which are in ``folder``."""
    original = downloaded.original
    return Manifest(
        model=request.model,
        version=request.version,
        task=original.task,
        multi_label=original.multi_label,
        labels=signature.labels,
        dimension=signature.dimension,
        space=space_of(original, built, downloaded.code),
        precision=parts.precision,
        engine=parts.engine,
        packed=parts.packed,
        fixed=parts.fixed,
        max_batch_size=request.serving.max_batch_size,
        length_buckets=built.buckets,
        tokenizer=built.spec,
        inputs=parts.inputs,
        outputs=parts.outputs,
        files=proofs(folder),
        profile=profile,
        parity=proof.parity,
        ranges=proof.ranges,
        has_code=downloaded.code is not None,
        lineage=lineage(request, downloaded.version, downloaded.run),
        created_by=created_by(),
    )


def _labels(original: OriginalTextModel, width: int) -> tuple[str, ...]:
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


def _dimension(original: OriginalTextModel, width: int) -> int | None:
    if FORMS[original.task].has_labels:
        return None
    return width - HEADS[original.task].further_columns
