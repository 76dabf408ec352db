"""The way of a version that reads tables, from its files to a published package.

Read ``convert`` downward: open, find rows, make a graph, prove it, publish. The original is asked
in this process and nowhere else; what is served is the graph.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray

from contracts.endpoint import Phase, Precision
from contracts.features import ENGINE_FEATURES, Feature, FeatureKind
from contracts.manifest import MODEL_ONNX, Manifest, Parity, PyfuncSpec, TokenizerSpec
from contracts.model import ModelRef
from contracts.profile import ReferenceProfile
from contracts.statistics import Statistic
from contracts.tasks import ENGINE_OUTPUT, Task
from contracts.tensors import Datatype, TensorSpec
from measures.profile import reference_profile
from preprocess.observe import answered as answered_records
from preprocess.table import WORDS_A_NUMBER, TableEncoder, TablePadder
from preprocess.tasks import HEADS
from registry.conversions.messages import ConversionRequest, Signature
from registry.convert.download import FetchedVersion, lineage
from registry.convert.errors import VersionError
from registry.convert.package import created_by, proofs, write_configs
from registry.convert.parity.engine import GraphEngine
from registry.convert.parity.verify import broken_limit, short
from registry.convert.tables import graph, rows, schema
from registry.convert.tables.flavour import TableVersion
from registry.convert.tables.original import Floats, OriginalTableModel, Row, open_original
from registry.convert.tables.rows import OwnRows
from registry.convert.tables.schema import Schema
from registry.convert.texts import thin_out
from registry.packages.store import PackageStore

log = logging.getLogger(__name__)

_OF_ANSWERS = (Statistic.SCORE,)
Report = Callable[[Phase, str], None]

# A tree's answer jumps where a value lies at one of its thresholds, and engines have those in
# float32: the largest difference is of one such row, so that the mean and the labels are limited.
LIMITS = {
    Task.TABULAR_CLASSIFICATION: {"mean_abs_difference": 2e-3, "min_equal_labels": 0.99},
    Task.TABULAR_REGRESSION: {"mean_abs_difference": 2e-3},  # of the answers' standard deviation
}
_BATCH_LIMIT = {"batch_max_abs_difference": 1e-5}
_PARITY_ROWS = 256
_PROFILED_ROWS = 20  # fewest
_ALONE = 16
_SPECIAL_ROWS = 4  # with a missing value, or a new category, of each feature


class RowEngine(Protocol):
    """What is asked in place of Triton's engine."""

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Its one output, float32 ``[rows, width]``, of ``ENGINE_FEATURES``."""


@dataclass(frozen=True)
class ProvedModel:
    """What is served, once it was proved: a graph, or a pyfunc, whose archive is written already.

    ``width`` are numbers a row.
    """

    model: onnx.ModelProto | None
    engine: RowEngine
    features: tuple[Feature, ...]
    parity: Parity
    width: int
    pyfunc: PyfuncSpec | None = None


def convert(
    request: ConversionRequest,
    fetched: FetchedVersion,
    version: TableVersion,
    store: PackageStore,
    report: Report,
) -> ModelRef:
    """Makes and publishes the package of a version that reads tables.

    Raises:
        ConversionError: there will be no package, and whose fault that is.
        registry.packages.store.StoreError: the store can't be written.
    """
    check_precision(request)
    report(Phase.CONVERTING, f"preparing the {version.flavour} model")
    original = open_original(version, allow_pickle=request.allow_pickle)
    if request.task not in (None, original.task):
        raise VersionError(f"the endpoint asks for {request.task}, and this does {original.task}")
    own = rows.find(version, (fetched.folder, fetched.beside))
    stable = request.stable
    known = schema.schema_of(
        version.columns,
        own,
        () if stable is None else stable.features,
        estimator=original.estimator,
    )
    compared = choose_compared_rows(version, own, known)
    known = schema.probe_schema(original, known, compared)
    compared = [row for row in compared if is_taken(row, known.features)]
    report(Phase.VERIFYING, f"comparing with the original over {len(compared)} rows")
    made = _prove(original, known, compared, threads=request.threads)
    signature = signature_of(original, own, made, stable)
    if stable is not None and (broken := stable.broken_by(signature)):
        raise VersionError(broken)
    report(Phase.PUBLISHING, "publishing the fp32 package")
    profile = profile_of(original, own, made)
    manifest = package_of(request, fetched, made, signature, profile)
    return store.publish(folder_of(request), manifest)


def check_precision(request: ConversionRequest) -> None:
    """Raises ``VersionError`` if another precision than fp32 is asked for."""
    if request.serving.precision not in (Precision.AUTO, Precision.FP32):
        raise VersionError(
            f"{request.serving.precision} is asked for, and models of tables are served in fp32"
        )


def choose_compared_rows(version: TableVersion, own: OwnRows, known: Schema) -> list[Row]:
    """Rows to compare on: the version's own, and if they are too few, drawn ones."""
    found = list(thin_out(own.rows, _PARITY_ROWS))
    count = max(0, _PARITY_ROWS - len(found))
    found += rows.draw_rows(version.columns, own.rows, known.categories, count)
    return [row for row in found if not _lacks_category(row, known.features)]


def folder_of(request: ConversionRequest) -> Path:
    """Where the package's files are laid out."""
    return Path(request.work_dir) / "package"


def signature_of(
    original: OriginalTableModel, own: OwnRows, made: ProvedModel, stable: Signature | None
) -> Signature:
    """What callers rely on, with the buckets in which answers are counted."""
    taken = [row for row in own.rows if is_taken(row, made.features)]
    values = _answers_of(made, taken, original.task) if len(taken) >= _PROFILED_ROWS else None
    answers = schema.prediction(original, values, () if stable is None else stable.answers)
    return Signature(
        task=original.task,
        labels=original.labels,
        dimension=None if original.labels else made.width,
        features=made.features,
        answers=answers,
    )


def _prove(
    original: OriginalTableModel, known: Schema, compared: Sequence[Row], *, threads: int
) -> ProvedModel:
    """The first graph whose answers are the original's; raises ``VersionError``."""
    reasons: list[str] = []
    for layout in graph.layouts(known.features):
        try:
            model = graph.make_graph(original, known.features, layout)
            engine = GraphEngine(model, threads=threads)
            parity, width = parity_of(original, known.features, engine, compared)
        except VersionError as error:
            reasons.append(error.reason)
            continue
        if broken := broken_limit(parity):
            reasons.append(f"its answers are not the original's ({layout.value}): {broken}")
            continue
        features = tuple(
            _prove_feature(original, known.features, feature, engine, compared)
            for feature in known.features
        )
        return ProvedModel(model, engine, features, parity, width)
    raise VersionError("; ".join(dict.fromkeys(reasons)))


def _prove_feature(
    original: OriginalTableModel,
    features: Sequence[Feature],
    feature: Feature,
    engine: RowEngine,
    compared: Sequence[Row],
) -> Feature:
    """The feature, with only those special values that the graph answers as the original does."""
    value = None if feature.nullable else graph.UNSEEN if feature.unseen else ""
    if value == "":
        return feature
    special = [{**row, feature.name: value} for row in compared[:_SPECIAL_ROWS]]
    try:
        parity, _ = parity_of(original, features, engine, special)
        broken = broken_limit(parity)
    except VersionError as error:
        broken = error.reason
    if not broken:
        return feature
    log.warning("special values are refused", extra={"feature": feature.name, "reason": broken})
    return feature.model_copy(update={"nullable": False, "unseen": False})


def parity_of(
    original: OriginalTableModel,
    features: Sequence[Feature],
    engine: RowEngine,
    compared: Sequence[Row],
) -> tuple[Parity, int]:
    """How far the engine's answers are from the original's, and how many numbers a row has."""
    task = original.task
    expected = original.answers(compared)
    numbers = numbers_of(features, compared)
    values = _run(engine, numbers)
    if values.shape != expected.shape:
        raise VersionError(f"the graph gives {values.shape}, the original {expected.shape}")
    size = 1.0
    if not original.labels:
        size = max(float(expected.std()), float(np.abs(expected).mean()) * 1e-3, 1e-12)
    alone = np.concatenate([_run(engine, row[np.newaxis]) for row in numbers[:_ALONE]])
    difference = np.abs(values - expected) / size
    equal = None
    if original.labels:
        equal = float((values.argmax(axis=1) == expected.argmax(axis=1)).mean())
    parity = Parity(
        texts=len(compared),
        reference=original.reference,
        max_abs_difference=short(difference.max()),
        mean_abs_difference=short(difference.mean()),
        equal_labels=None if equal is None else short(equal),
        batch_max_abs_difference=short(np.abs(values[:_ALONE] - alone).max() / size),
        limits={**LIMITS[task], **_BATCH_LIMIT},
    )
    return parity, values.shape[1]


def _answers_of(made: ProvedModel, asked: Sequence[Row], task: Task) -> Floats:
    return HEADS[task].values(_run(made.engine, numbers_of(made.features, asked)), width=made.width)


def numbers_of(features: Sequence[Feature], asked: Sequence[Row]) -> NDArray[Any]:
    """Rows as the gateway sends them, float64 ``[rows, features]``."""
    encoded = TableEncoder(features).encode([json.dumps(row) for row in asked])
    inputs = (input_of(len(features)),)
    padder = TablePadder(inputs, len(features))
    return padder.pad(encoded.ids, WORDS_A_NUMBER * len(features))[ENGINE_FEATURES]


def _run(engine: RowEngine, numbers: NDArray[Any]) -> Floats:
    found = engine.run({ENGINE_FEATURES: numbers})[0].astype(np.float32, copy=False)
    if not np.isfinite(found).all():
        raise VersionError("it answers NaN or infinity")
    return found


def _lacks_category(row: Row, features: Sequence[Feature]) -> bool:
    """Whether a category is missing, which no model is asked about."""
    return any(
        row[feature.name] is None
        for feature in features
        if feature.kind in (FeatureKind.CATEGORY, FeatureKind.BOOLEAN)
    )


def is_taken(row: Row, features: Sequence[Feature]) -> bool:
    """Whether the gateway takes a row of the version's own."""
    return not any(row[feature.name] is None and not feature.nullable for feature in features)


def input_of(features: int) -> TensorSpec:
    """The engine's one input."""
    return TensorSpec(name=ENGINE_FEATURES, datatype=Datatype.FP64, shape=(-1, features))


def package_of(
    request: ConversionRequest,
    fetched: FetchedVersion,
    made: ProvedModel,
    signature: Signature,
    profile: ReferenceProfile | None,
) -> Manifest:
    """Writes the package's files; returns the manifest that proves them."""
    folder = folder_of(request)
    folder.mkdir(parents=True, exist_ok=True)
    width = len(signature.labels) or signature.dimension or 0
    output = ENGINE_OUTPUT[signature.task]
    inputs = (input_of(len(made.features)),)
    outputs = (output.model_copy(update={"shape": (-1, width)}),)
    size = request.serving.max_batch_size
    if made.model is not None:
        onnx.save(made.model, str(folder / MODEL_ONNX))
    write_configs(
        folder,
        inputs=inputs,
        outputs=outputs,
        max_batch_size=size,
        threads=request.threads,
        native=made.model is not None,
    )
    words = WORDS_A_NUMBER * len(made.features)
    return Manifest(
        model=request.model,
        version=request.version,
        task=signature.task,
        labels=signature.labels,
        dimension=signature.dimension,
        precision=Precision.FP32,
        max_batch_size=size,
        length_buckets=(words,),
        tokenizer=TokenizerSpec(max_tokens=words, pad_id=0, vocabulary=0),
        inputs=inputs,
        outputs=outputs,
        files=proofs(folder),
        profile=profile,
        parity=made.parity,
        features=made.features,
        answers=signature.answers,
        pyfunc=made.pyfunc,
        lineage=lineage(request, fetched.version, fetched.run),
        created_by=created_by(),
    )


def profile_of(
    original: OriginalTableModel, own: OwnRows, made: ProvedModel
) -> ReferenceProfile | None:
    """Of the answers to the version's own rows; None if they are too few."""
    taken = [row for row in own.rows if is_taken(row, made.features)]
    if len(taken) < _PROFILED_ROWS:
        return None
    encoded = TableEncoder(made.features).encode([json.dumps(row) for row in taken])
    values = _answers_of(made, taken, original.task)
    records = answered_records(encoded, original.task, values, original.labels)
    found = reference_profile(
        records,
        source=own.source,
        labels=original.labels,
        scores=values if original.labels else None,
    )
    # Tokens and words mean nothing here, and drift does not watch what a profile leaves out.
    kept = {name: counts for name, counts in found.histograms.items() if name in _OF_ANSWERS}
    return found.model_copy(update={"histograms": kept})
