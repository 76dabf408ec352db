"""Proves that a graph answers as the original does.

Differences are measured where a caller would see them: on probabilities for classifiers, on vectors
divided by the originals' mean length for embeddings. It changes nothing and decides nothing but
whether a figure is within its limit.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Precision
from contracts.manifest import Parity
from contracts.tasks import Task
from measures.retrieval import MOST, count_shared
from preprocess.errors import EngineOutputError
from preprocess.tasks import HEADS
from registry.convert.errors import VersionError
from registry.convert.forms import FORMS, AgreementKind
from registry.convert.parity.engine import TextEngine, TokenisedTexts
from registry.packages.device_proof import cosines, unit

Floats = NDArray[np.float32]

BATCH_LIMIT = 1e-3
# Of bf16, whose rounding is eight times as coarse: other batches are summed in another order.
BF16_BATCH_LIMIT = 1e-2
# With fewer texts ten are so large a part of all that any vectors would share some.
FEWEST_FOR_NEIGHBOURS = 50
_LONGEST_BATCH_TOKENS = 1024
_ROWS = 3


def limits_for(
    task: Task, precision: Precision, min_neighbours: float | None = None
) -> dict[str, float]:
    """What the figures of a precision are held to.

    An endpoint's own ``min_neighbours`` takes the place of the task's, if the task has one.
    float32 keeps the task's, for it has to answer as the original.

    Raises:
        VersionError: the task has no limits for the precision.
    """
    if precision not in FORMS[task].limits:
        raise VersionError(f"{task} has no limits for {precision}")
    moved = BF16_BATCH_LIMIT if precision is Precision.BF16 else BATCH_LIMIT
    limits = {**FORMS[task].limits[precision], "batch_max_abs_difference": moved}
    if min_neighbours is not None and precision is not Precision.FP32:
        limits |= {name: min_neighbours for name in limits if name == "min_neighbours"}
    return limits


def values_of(task: Task, outputs: Floats, *, multi_label: bool) -> Floats:
    """What a caller sees of outputs ``[texts, n]`` or ``[tokens, n]``; raises ``VersionError``."""
    head = HEADS[task]
    batch = outputs if outputs.ndim == head.rank else outputs[np.newaxis]
    try:
        values = head.values(batch, width=outputs.shape[-1], multi_label=multi_label)
        return values.reshape(outputs.shape)
    except EngineOutputError as error:
        raise VersionError(f"the model can't be used: {error}") from error


def scale_of(task: Task, original: Floats) -> float:
    """What differences are divided by: 1 for probabilities, the mean length of vectors."""
    if not FORMS[task].scaled:
        return 1.0
    return float(max(np.linalg.norm(original, axis=1).mean(), 1e-12))


def compare(
    task: Task,
    original: Floats,
    values: Floats,
    *,
    precision: Precision,
    reference: str,
    batch_difference: float,
    texts: int | None = None,
    min_neighbours: float | None = None,
) -> Parity:
    """The parity report.

    Args:
        task: what the values are.
        original: float32 ``[texts, n]``, the original's values.
        values: the same of the graph.
        precision: whose limits apply.
        reference: what ``original`` comes from.
        batch_difference: from ``batch_invariance``.
        texts: how many they are of, if that is not one row each.
        min_neighbours: see ``limits_for``.
    """
    size = scale_of(task, original)
    equal: float | None = None
    cosine: float | None = None
    shared: float | None = None
    original, values = HEADS[task].measured(original), HEADS[task].measured(values)
    agreement = FORMS[task].agreement
    if agreement is AgreementKind.EQUAL_LABELS:
        equal = float((original.argmax(axis=1) == values.argmax(axis=1)).mean())
    elif agreement is AgreementKind.COSINE:
        cosine = float(cosines(original, values).min())
        if texts is None or texts == len(original):  # rows are texts
            shared = shared_neighbours(original, values)
    difference = np.abs(original - values) / size
    return Parity(
        texts=len(original) if texts is None else texts,
        reference=reference,
        max_abs_difference=short(difference.max()),
        mean_abs_difference=short(difference.mean()),
        equal_labels=None if equal is None else short(equal),
        min_cosine=None if cosine is None else short(cosine),
        neighbours=None if shared is None else short(shared),
        batch_max_abs_difference=short(batch_difference),
        limits=limits_for(task, precision, min_neighbours),
    )


def broken_limit(parity: Parity) -> str:
    """The first figure that is outside its limit, in words; empty if all are within."""
    figures: Mapping[str, float | None] = {
        "max_abs_difference": parity.max_abs_difference,
        "mean_abs_difference": parity.mean_abs_difference,
        "batch_max_abs_difference": parity.batch_max_abs_difference,
        "min_equal_labels": parity.equal_labels,
        "min_cosine": parity.min_cosine,
        "min_neighbours": parity.neighbours,
    }
    for name, limit in parity.limits.items():
        figure = figures[name]
        within = figure is None or (figure >= limit if name.startswith("min_") else figure <= limit)
        if not within and name == "min_neighbours":
            return (
                f"of the {MOST} texts nearest to a text, {figure:.1%} are the original's on "
                f"average, and at least {limit:.1%} must be: searches would find other texts"
            )
        if not within:
            words = name.removeprefix("min_").replace("_", " ")
            return f"{words} is {figure:.3g}, the limit is {limit:g}"
    return ""


def shared_neighbours(original: Floats, values: Floats) -> float | None:
    """Of the ten texts that are nearest to a text, by cosine, the share that the original has too.

    The mean over all texts. None for fewer than 50 texts, where it would say too little.

    Args:
        original: float32 ``[texts, n]``, the original's vectors.
        values: the same of the graph.
    """
    if len(original) < FEWEST_FOR_NEIGHBOURS:
        return None
    return float(count_shared(_cosines(original), _cosines(values)).mean() / MOST)


def _cosines(vectors: Floats) -> Floats:
    """Of each pair of texts, float32 ``[texts, texts]``; no text is near to itself."""
    rows = unit(vectors)
    found: Floats = rows @ rows.T
    np.fill_diagonal(found, -np.inf)
    return found


def batch_invariance(
    engine: TextEngine, texts: TokenisedTexts, task: Task, *, multi_label: bool, size: float = 1.0
) -> float:
    """The largest change of any answer by its neighbours in the batch, over all buckets.

    In every bucket, a few texts are run alone and then together, the shortest and the longest that
    the bucket can hold among them: both neighbours and padding differ as much as they can. A bucket
    that no text falls in gets the longest texts, cut to its length.
    """
    order = sorted(range(len(texts)), key=lambda index: texts.encoded.tokens[index])
    worst = 0.0
    for position, bucket in enumerate(texts.buckets):
        below = texts.buckets[position - 1] if position else 0
        fitting = [i for i in order if texts.encoded.tokens[i] <= bucket]
        own = [i for i in fitting if texts.encoded.tokens[i] > below]
        rows = max(2, min(_ROWS, _LONGEST_BATCH_TOKENS // bucket))
        chosen = list(dict.fromkeys([*own[-rows + 1 :], *fitting[:1], *fitting[-rows:]]))[:rows]
        if len(chosen) < 2:
            continue
        together = np.concatenate(engine.rows(texts, chosen, bucket))
        alone = np.concatenate([engine.rows(texts, [i], bucket)[0] for i in chosen])
        both = [
            HEADS[task].measured(values_of(task, item, multi_label=multi_label))
            for item in (together, alone)
        ]
        worst = max(worst, float(np.abs(both[0] - both[1]).max()) / size)
    return worst


def short(value: float | np.floating) -> float:
    """Six digits: figures enter the package's digest, and noise below them says nothing."""
    return float(f"{float(value):.6g}")
