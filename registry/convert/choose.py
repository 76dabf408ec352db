"""Tries a version's graph in the precisions that come into question, and takes the best proved one.

Called by the walk. What is taken has kept to every limit against the original; why something faster
was given up is in the parity report. It measures through ``precision`` and ``verify`` and does
nothing else itself.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np
import onnx
from numpy.typing import NDArray

from contracts.endpoint import Precision
from contracts.manifest import Parity
from contracts.tasks import Task
from preprocess.errors import EngineOutputError
from registry.convert import precision
from registry.convert.engine import Engine, Texts
from registry.convert.errors import VersionError
from registry.convert.precision import Built
from registry.convert.verify import batch_invariance, broken_limit, compare, values_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trial:
    """A version, ready to be judged.

    Attributes:
        task: what it answers.
        multi_label: see ``preprocess.heads``.
        wished: the precision that the endpoint asks for.
        base: the graph as exported or registered.
        fused: the same with large operators, if there is such a form.
        texts: to judge it on.
        reference: the original's values for them, float32 ``[texts, n]``.
        reference_name: what the original ran in.
        threads: of one execution.
    """

    task: Task
    multi_label: bool
    wished: Precision
    base: onnx.ModelProto
    fused: onnx.ModelProto | None
    texts: Texts
    reference: NDArray[np.float32]
    reference_name: str
    threads: int


@dataclass(frozen=True)
class Chosen:
    """The graph to publish, and its proof."""

    precision: Precision
    model: onnx.ModelProto
    engine: Engine
    parity: Parity


def choose(trial: Trial) -> Chosen:
    """The graph that will be served.

    Raises:
        VersionError: the precision that was asked for, or float32 itself, breaks a limit.
    """
    standard = _standard(trial)
    if trial.wished is Precision.FP32:
        return standard
    if trial.wished is Precision.FP16:
        return _held(trial, precision.fp16(standard.model, threads=trial.threads))
    built = precision.int8(standard.model, trial.texts, threads=trial.threads)
    if trial.wished is Precision.INT8:
        if built is None:
            raise VersionError("int8 was asked for, but the graph has no matrix products")
        return _held(trial, built)
    if built is None:
        return _with_reason(standard, "the graph has no matrix products to make int8")
    reason = precision.slower(built.engine, standard.engine, trial.texts)
    if reason:
        return _with_reason(standard, reason)
    parity, reason = _judge(trial, built)
    if reason or parity is None:
        return _with_reason(standard, f"int8: {reason}")
    return Chosen(built.precision, built.model, built.engine, parity)


def _standard(trial: Trial) -> Chosen:
    """float32, fused if that keeps to the limits, which it has to prove like anything else."""
    if trial.fused is not None:
        try:
            return _held(trial, _float32(trial.fused, trial.threads))
        except VersionError as error:
            log.warning("fused graph given up", extra={"reason": str(error)})
    return _held(trial, _float32(trial.base, trial.threads))


def _float32(model: onnx.ModelProto, threads: int) -> Built:
    return Built(Precision.FP32, model, Engine(model, threads=threads))


def _held(trial: Trial, built: Built) -> Chosen:
    parity, reason = _judge(trial, built)
    if reason or parity is None:
        raise VersionError(
            f"{built.precision} does not answer as the original ({trial.reference_name}): {reason}"
        )
    return Chosen(built.precision, built.model, built.engine, parity)


def _judge(trial: Trial, built: Built) -> tuple[Parity | None, str]:
    """The parity report, and which limit is broken in words."""
    try:
        values = values_of(
            trial.task, built.engine.outputs(trial.texts), multi_label=trial.multi_label
        )
        size = 1.0
        if trial.task is Task.TEXT_EMBEDDING:
            size = float(max(np.linalg.norm(trial.reference, axis=1).mean(), 1e-12))
        moved = batch_invariance(
            built.engine, trial.texts, trial.task, multi_label=trial.multi_label, size=size
        )
    except EngineOutputError as error:
        return None, str(error)
    if values.shape != trial.reference.shape:
        return None, f"it gives {values.shape[1]} values a text, not {trial.reference.shape[1]}"
    parity = compare(
        trial.task,
        trial.reference,
        values,
        precision=built.precision,
        reference=trial.reference_name,
        batch_difference=moved,
    )
    return parity, broken_limit(parity)


def _with_reason(chosen: Chosen, reason: str) -> Chosen:
    return replace(chosen, parity=chosen.parity.model_copy(update={"fallback": reason}))
