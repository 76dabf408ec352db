"""Chooses between float32 and int8 by measuring both.

int8 is taken if it was asked for, or if ``auto`` finds that it keeps to its limits and is
faster. What is measured is this machine's speed: the choice is part of the package, and says so.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from contracts.endpoint import Precision
from registry.convert.errors import VersionError
from registry.convert.parity import quantise
from registry.convert.parity.engine import Feed, GraphEngine, TokenisedTexts

log = logging.getLogger(__name__)

_BATCH, _LENGTH = 8, 64
_ROUNDS = 7
_FASTER = 0.95  # of float32's time: less of a gain isn't worth any loss
_CALIBRATION_TEXTS = 64


@dataclass(frozen=True)
class BuiltEngine:
    """A graph in one precision, loaded."""

    precision: Precision
    model: onnx.ModelProto
    engine: GraphEngine


def int8(model: onnx.ModelProto, texts: TokenisedTexts, *, threads: int) -> BuiltEngine | None:
    """The graph in int8, or None if it has no matrix product to quantise."""
    names = list(dict.fromkeys(item.activation for item in quantise.products(model)))
    if not names:
        return None
    tapped = GraphEngine(quantise.with_taps(model, names), threads=threads)
    picked = spread_indexes(texts, _CALIBRATION_TEXTS)
    calibration = quantise.RangeCalibration(len(picked))
    for index in picked:
        values = tapped.run(texts.feed([index], texts.encoded.tokens[index]))
        for name, value in zip(names, values, strict=True):
            calibration.add(name, value)
    quantised = quantise.quantise(model, calibration)
    return BuiltEngine(Precision.INT8, quantised, GraphEngine(quantised, threads=threads))


def fp16(model: onnx.ModelProto, *, threads: int) -> BuiltEngine:
    """The graph with float16 weights; inputs and outputs keep their types.

    Raises:
        VersionError: the tool can't convert it.
    """
    from onnxruntime.transformers.float16 import (  # noqa: PLC0415  # slow, and seldom asked for
        convert_float_to_float16,
    )

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        half = convert_float_to_float16(copy, keep_io_types=True)
    except Exception as error:  # the tool raises many kinds
        raise VersionError(f"the graph can't be made fp16: {error}") from error
    return BuiltEngine(Precision.FP16, half, GraphEngine(half, threads=threads))


def slower(candidate: GraphEngine, standard: GraphEngine, texts: TokenisedTexts) -> str:
    """Why the candidate isn't worth it, in words; empty if it is clearly faster.

    The times go only to the log: the words become part of a manifest, and converting a version
    twice shall give one package.

    By the processor time of a batch of 8 rows of 64 tokens, the least of runs that take turns: by
    the clock, whatever else the machine does would choose, and two equal versions could get two
    precisions, of which a rollout rolls back the slower one.
    """
    feed = _batch(texts)
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(_ROUNDS + 1):
        for engine, spent in zip((candidate, standard), times, strict=True):
            begun = time.process_time()
            engine.run(feed)
            if turn:  # the first run warms up
                spent.append(time.process_time() - begun)
    mine, theirs = (1000 * min(spent) for spent in times)
    log.info("int8 beside fp32, by processor time", extra={"int8_ms": mine, "fp32_ms": theirs})
    if mine <= theirs * _FASTER:
        return ""
    return f"int8 was not clearly faster than fp32 for {_BATCH} texts of {_LENGTH} tokens"


def spread_indexes(texts: TokenisedTexts, count: int) -> Sequence[int]:
    """Indexes of at most ``count`` texts, evenly over all lengths."""
    order = sorted(range(len(texts)), key=lambda index: texts.encoded.tokens[index])
    if len(order) <= count:
        return order
    return [order[place] for place in np.linspace(0, len(order) - 1, count).astype(int)]


def _batch(texts: TokenisedTexts) -> Feed:
    """Real tokens, repeated to full rows: time depends only on the shape."""
    length = min(_LENGTH, texts.buckets[-1])
    ids = np.concatenate([np.asarray(row) for row in texts.encoded.ids])
    return texts.padder.pad(np.resize(ids, (_BATCH, length)).tolist(), length)
