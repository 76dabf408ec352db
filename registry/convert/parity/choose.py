"""Tries a version's graph in the precisions that come into question, and takes the best proved one.

What is taken has kept to every limit against the original; why something faster was given up is in
the parity report. It measures through ``precision`` and ``proof`` and does nothing else itself.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import onnx

from contracts.endpoint import Precision
from contracts.loading import DeviceKind
from registry.convert.errors import VersionError
from registry.convert.graph.fusing import FusedGraph
from registry.convert.parity import precision
from registry.convert.parity.engine import GraphEngine
from registry.convert.parity.precision import BuiltEngine
from registry.convert.parity.proof import Comparison, Proof, prove_engine, require_equal_answers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trial:
    """A version's graph, and what it is compared with.

    Attributes:
        requested: the precision that the endpoint asks for.
        model: the graph as exported or registered, float32.
        comparison: with the original.
        threads: of one execution.
        device: of the Tritons that will run it.
        fused: the graph in fewer operators, for GPUs; None if it could not be.
        given_up: why no engine that suits the device better was taken.
    """

    requested: Precision
    model: onnx.ModelProto
    comparison: Comparison
    threads: int
    device: DeviceKind = DeviceKind.CPU
    fused: FusedGraph | None = None
    given_up: str = ""


@dataclass(frozen=True)
class ChosenGraph:
    """The graph to publish, and its proof; ``fused`` counts what was fused in it, if it was."""

    precision: Precision
    model: onnx.ModelProto
    engine: GraphEngine
    proof: Proof
    fused: Mapping[str, int] | None = None


def choose(trial: Trial) -> ChosenGraph:
    """The graph that will be served.

    Raises:
        VersionError: the precision that was asked for, or float32 itself, breaks a limit.
    """
    standard = BuiltEngine(
        Precision.FP32, trial.model, GraphEngine(trial.model, threads=trial.threads)
    )
    require_equal_answers(trial.comparison, standard.engine)
    if trial.requested is Precision.AUTO and trial.device is DeviceKind.CPU:
        return _fastest(trial, standard)
    if trial.fused is not None:
        try:
            return _choose_fused(trial, trial.fused)
        except VersionError as error:
            log.info("the fused graph is given up", extra={"reason": error.reason})
            trial = replace(trial, given_up=join_reasons(trial.given_up, f"fused: {error.reason}"))
    built: BuiltEngine | None = standard
    if trial.requested is Precision.FP16:
        built = precision.fp16(trial.model, threads=trial.threads)
    elif trial.requested is Precision.INT8:
        built = precision.int8(trial.model, trial.comparison.texts, threads=trial.threads)
    if built is None:
        raise VersionError("int8 was asked for, but the graph has no matrix products")
    return _prove(trial, built, fallback=trial.given_up)


def _fastest(trial: Trial, standard: BuiltEngine) -> ChosenGraph:
    """int8 if it is worth it and keeps to its limits, else float32 with the reason."""
    texts = trial.comparison.texts
    built = precision.int8(trial.model, texts, threads=trial.threads)
    if built is None:
        reason = "the graph has no matrix products to make int8"
    elif not (reason := precision.slower(built.engine, standard.engine, texts)):
        try:
            return _prove(trial, built)
        except VersionError as error:
            reason = error.reason
    log.info("staying with fp32", extra={"reason": reason})
    return _prove(trial, standard, fallback=reason)


def _choose_fused(trial: Trial, fused: FusedGraph) -> ChosenGraph:
    """The fused graph in the best precision that keeps to its limits.

    Raises:
        VersionError: none that may be taken does, or it does not answer as the original in float32.
    """
    standard = BuiltEngine(
        Precision.FP32, fused.model, GraphEngine(fused.model, threads=trial.threads)
    )
    require_equal_answers(trial.comparison, standard.engine)
    fallback = trial.given_up
    if trial.requested is not Precision.FP32:
        try:
            half = precision.fp16(fused.model, threads=trial.threads)
            return replace(_prove(trial, half, fallback=fallback), fused=fused.counts)
        except VersionError as error:
            if trial.requested is not Precision.AUTO:
                raise
            fallback = join_reasons(fallback, error.reason)
    return replace(_prove(trial, standard, fallback=fallback), fused=fused.counts)


def join_reasons(*reasons: str) -> str:
    """Reasons one after the other, as a parity report has them."""
    return "; ".join(filter(None, reasons))


def _prove(trial: Trial, built: BuiltEngine, *, fallback: str = "") -> ChosenGraph:
    proof = prove_engine(trial.comparison, built.engine, built.precision, fallback=fallback)
    return ChosenGraph(built.precision, built.model, built.engine, proof)
