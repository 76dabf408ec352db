"""Proves one engine of a version against the original, and refuses what breaks a limit.

The same for every engine and precision: what is proved is what callers would see. It chooses
nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Precision
from contracts.manifest import Parity, VectorRanges
from contracts.tasks import Task
from preprocess.tasks import HEADS
from registry.convert.errors import VersionError
from registry.convert.parity.engine import TextEngine, TokenisedTexts
from registry.convert.parity.verify import (
    batch_invariance,
    broken_limit,
    compare,
    scale_of,
    values_of,
)

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Comparison:
    """What a version's engines are compared with.

    Attributes:
        task: what it answers.
        multi_label: see ``preprocess.tasks``.
        texts: to compare on.
        reference: the original's values for them, float32 ``[texts, n]``.
        reference_name: what the original ran in.
        min_neighbours: the endpoint's own limit below float32; None for the task's.
        device: GPU that the engines run on; empty for a CPU.
    """

    task: Task
    multi_label: bool
    texts: TokenisedTexts
    reference: Floats
    reference_name: str
    min_neighbours: float | None = None
    device: str = ""


@dataclass(frozen=True)
class Proof:
    """The parity report of an engine that keeps to its limits.

    ``ranges``: of its vectors over the texts that it was compared on; None for other tasks.
    """

    parity: Parity
    ranges: VectorRanges | None


def prove_engine(
    comparison: Comparison, engine: TextEngine, precision: Precision, *, fallback: str = ""
) -> Proof:
    """The whole proof of an engine; ``fallback`` says why nothing faster was taken.

    Raises:
        VersionError: a limit is broken.
    """
    values = _values(comparison, engine)
    parity = _parity(comparison, engine, precision, values, neighbours=True)
    update = {"fallback": fallback, "device": comparison.device}
    return Proof(parity.model_copy(update=update), _ranges(comparison.task, values))


def require_equal_answers(comparison: Comparison, engine: TextEngine) -> None:
    """Shows that an engine in float32 answers as the original, each text as it is batched.

    It has to in any case: a faulty export must not pass by the wider limits of fewer bits.

    Raises:
        VersionError: a limit of float32 is broken.
    """
    _parity(comparison, engine, Precision.FP32, _values(comparison, engine), neighbours=False)


def _ranges(task: Task, values: Floats) -> VectorRanges | None:
    """What the package keeps of its vectors, to six digits."""
    kept = HEADS[task].ranges(values)
    if kept is None:
        return None
    low, high = ([float(f"{value:.6g}") for value in row] for row in kept.tolist())
    return VectorRanges(low=tuple(low), high=tuple(high))


def _values(comparison: Comparison, engine: TextEngine) -> Floats:
    outputs = engine.outputs(comparison.texts)
    values = values_of(comparison.task, outputs, multi_label=comparison.multi_label)
    return HEADS[comparison.task].select_answered(comparison.texts.encoded, values)


def _parity(
    comparison: Comparison,
    engine: TextEngine,
    precision: Precision,
    values: Floats,
    *,
    neighbours: bool,
) -> Parity:
    if len(values) != len(comparison.reference):
        raise VersionError(
            f"the graph gives {len(values)} vectors, the original {len(comparison.reference)}"
        )
    if values.shape != comparison.reference.shape:
        raise VersionError(
            f"the graph gives {values.shape[1]} values a text, "
            f"the original {comparison.reference.shape[1]}"
        )
    moved = 0.0
    if neighbours:
        moved = batch_invariance(
            engine,
            comparison.texts,
            comparison.task,
            multi_label=comparison.multi_label,
            size=scale_of(comparison.task, comparison.reference),
        )
    parity = compare(
        comparison.task,
        comparison.reference,
        values,
        precision=precision,
        reference=comparison.reference_name,
        texts=len(comparison.texts),
        batch_difference=moved,
        min_neighbours=comparison.min_neighbours,
    )
    reason = broken_limit(parity)
    if reason:
        raise VersionError(
            f"{precision} does not answer as the original ({comparison.reference_name}): {reason}"
        )
    return parity
