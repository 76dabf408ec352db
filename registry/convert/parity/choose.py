"""Tries a version's graph in the precisions that come into question, and takes the best proved one.

What is taken has kept to every limit against the original; why something faster was given up is in
the parity report. It measures through ``precision`` and ``verify`` and does nothing else itself.
"""

import logging
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from contracts.endpoint import Precision
from contracts.manifest import Parity, VectorRanges
from contracts.tasks import Task
from preprocess.tasks import HEADS
from registry.convert.errors import VersionError
from registry.convert.parity import precision
from registry.convert.parity.engine import Engine, Texts
from registry.convert.parity.precision import Built
from registry.convert.parity.verify import (
    batch_invariance,
    broken_limit,
    compare,
    scale_of,
    values_of,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trial:
    """A version and what it is compared with.

    Attributes:
        task: what it answers.
        multi_label: see ``preprocess.tasks``.
        requested: the precision that the endpoint asks for.
        model: the graph as exported or registered, float32.
        texts: to compare on.
        reference: the original's values for them, float32 ``[texts, n]``.
        reference_name: what the original ran in.
        threads: of one execution.
        min_neighbours: the endpoint's own limit for int8 and fp16; None for the task's.
    """

    task: Task
    multi_label: bool
    requested: Precision
    model: onnx.ModelProto
    texts: Texts
    reference: NDArray[np.float32]
    reference_name: str
    threads: int
    min_neighbours: float | None = None


@dataclass(frozen=True)
class Chosen:
    """The graph to publish, and its proof. ``width`` is the number of values a text.

    ``ranges``: of its vectors over the texts that it was compared on; None for other tasks.
    """

    width: int
    precision: Precision
    model: onnx.ModelProto
    engine: Engine
    parity: Parity
    ranges: VectorRanges | None = None


def choose(trial: Trial) -> Chosen:
    """The graph that will be served.

    float32 has to answer as the original in any case: a faulty export must not pass by the
    wider limits of int8.

    Raises:
        VersionError: the precision that was asked for, or float32 itself, breaks a limit.
    """
    standard = Built(Precision.FP32, trial.model, Engine(trial.model, threads=trial.threads))
    _parity(trial, standard, _values(trial, standard))
    if trial.requested is Precision.AUTO:
        return _fastest(trial, standard)
    built: Built | None = standard
    if trial.requested is Precision.FP16:
        built = precision.fp16(trial.model, threads=trial.threads)
    elif trial.requested is Precision.INT8:
        built = precision.int8(trial.model, trial.texts, threads=trial.threads)
    if built is None:
        raise VersionError("int8 was asked for, but the graph has no matrix products")
    return _proved(trial, built)


def _fastest(trial: Trial, standard: Built) -> Chosen:
    """int8 if it is worth it and keeps to its limits, else float32 with the reason."""
    built = precision.int8(trial.model, trial.texts, threads=trial.threads)
    if built is None:
        reason = "the graph has no matrix products to make int8"
    elif not (reason := precision.slower(built.engine, standard.engine, trial.texts)):
        try:
            return _proved(trial, built)
        except VersionError as error:
            reason = error.reason
    log.info("staying with fp32", extra={"reason": reason})
    return _proved(trial, standard, fallback=reason)


def _proved(trial: Trial, built: Built, *, fallback: str = "") -> Chosen:
    """The graph with its whole proof; ``fallback`` says why nothing faster was taken."""
    values = _values(trial, built)
    parity = _parity(trial, built, values, neighbours=True)
    return Chosen(
        width=trial.reference.shape[1],
        precision=built.precision,
        model=built.model,
        engine=built.engine,
        parity=parity.model_copy(update={"fallback": fallback}),
        ranges=_ranges(trial.task, values),
    )


def _ranges(task: Task, values: NDArray[np.float32]) -> VectorRanges | None:
    """What the package keeps of its vectors, to six digits."""
    kept = HEADS[task].ranges(values)
    if kept is None:
        return None
    low, high = ([float(f"{value:.6g}") for value in row] for row in kept.tolist())
    return VectorRanges(low=tuple(low), high=tuple(high))


def _values(trial: Trial, built: Built) -> NDArray[np.float32]:
    outputs = built.engine.outputs(trial.texts)
    return values_of(trial.task, outputs, multi_label=trial.multi_label)


def _parity(
    trial: Trial, built: Built, values: NDArray[np.float32], *, neighbours: bool = False
) -> Parity:
    """The parity report of a graph that keeps to its limits."""
    if values.shape != trial.reference.shape:
        raise VersionError(
            f"the graph gives {values.shape[1]} values a text, "
            f"the original {trial.reference.shape[1]}"
        )
    size = scale_of(trial.task, trial.reference)
    moved = 0.0
    if neighbours:
        moved = batch_invariance(
            built.engine, trial.texts, trial.task, multi_label=trial.multi_label, size=size
        )
    parity = compare(
        trial.task,
        trial.reference,
        values,
        precision=built.precision,
        reference=trial.reference_name,
        texts=len(trial.texts),
        batch_difference=moved,
        min_neighbours=trial.min_neighbours,
    )
    reason = broken_limit(parity)
    if reason:
        raise VersionError(
            f"{built.precision} does not answer as the original ({trial.reference_name}): {reason}"
        )
    return parity
