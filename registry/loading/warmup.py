"""Runs a model that was just loaded on every row length, and measures what batches cost.

The first run of a shape is slow on every engine, so no caller should be the one who pays for it;
and the gateway's batcher needs to know what a batch of so many rows costs on the engine at hand. It
never judges a model by its speed.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.loading import CostPoint
from contracts.manifest import Manifest
from contracts.tasks import ATTENTION_MASK, INPUT_IDS, MAX_TOKENS
from contracts.tensors import Datatype
from registry.errors import TritonRefusedError

Tensors = Mapping[str, NDArray[np.number]]
Answered = Awaitable[tuple[int, int]]  # rows and bytes
Infer = Callable[[Tensors], Answered]

_RUNS = 3  # measured, after one that is not
_USUAL_TOKENS = 64  # of a text: divisions of the cores are compared by rows of this length
_LONG_BATCH_SECONDS = 0.01  # so long that sending it does not count
_ROUND_BATCHES = 2  # for each copy
_ENOUGH_SECONDS = 0.5  # of one comparison
_FIRST_SIZES = (1, 8)  # what a batcher needs most, before the budget ends


def points(buckets: Sequence[int], max_batch_size: int) -> tuple[tuple[int, int], ...]:
    """(bucket, batch) in the order in which they are worth knowing.

    One row of every bucket comes first, then batches of 8, then the other powers of two and the
    largest batch, each over all buckets.

    >>> points((16, 32), 4)
    ((16, 1), (32, 1), (16, 2), (32, 2), (16, 4), (32, 4))
    """
    sizes = {1, max_batch_size}
    size = 2
    while size < max_batch_size:
        sizes.add(size)
        size *= 2
    order = sorted(sizes, key=lambda rows: (rows not in _FIRST_SIZES, rows))
    return tuple((bucket, rows) for rows in order for bucket in buckets)


async def warm_up(infer: Infer, manifest: Manifest, copies: int = 1) -> None:
    """Runs one row of every bucket, for a model whose costs are known already.

    On as many copies of the model as run at once, likewise in ``measure``.

    Raises:
        TritonRefusedError: the model fails, or answers with nothing.
        TritonUnavailableError: Triton went away.
    """
    for bucket in manifest.length_buckets:
        await _on_each(infer, batch(manifest, bucket, 1), 1, copies)


async def measure(
    infer: Infer,
    manifest: Manifest,
    *,
    copies: int = 1,
    budget_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[CostPoint, ...]:
    """Warms every bucket up and measures as many batch shapes as the budget allows.

    One row of each bucket is run whatever it takes. A shape that would not fit into what is left
    of the budget, by what smaller ones took, is left out.

    Raises:
        TritonRefusedError: the model fails, or answers with nothing.
        TritonUnavailableError: Triton went away.
    """
    if copies > 1:
        await warm_up(infer, manifest, copies)
    started = clock()
    per_token: dict[int, float] = {}  # seconds, by bucket
    costs = []
    # Prompts are read one by one, whatever is stepped together after that.
    most = 1 if manifest.generation else manifest.max_batch_size
    for bucket, rows in points(manifest.length_buckets, most):
        left = budget_seconds - (clock() - started)
        expected = per_token.get(bucket, 0.0) * bucket * rows
        if rows > 1 and expected * 2 > left:
            continue
        seconds = await _median(infer, batch(manifest, bucket, rows), rows, left, clock)
        per_token[bucket] = seconds / (bucket * rows)
        costs.append(CostPoint(bucket=bucket, batch=rows, milliseconds=max(seconds, 1e-6) * 1e3))
    return tuple(sorted(costs, key=lambda cost: (cost.bucket, cost.batch)))


async def usual_rows(
    infer: Infer, manifest: Manifest, clock: Callable[[], float] = time.monotonic
) -> int:
    """Rows of ordinary length that take an engine so long that all else does not count.

    Raises:
        TritonRefusedError, TritonUnavailableError: as ``measure``.
    """
    rows = 1
    while True:
        tensors = batch(manifest, _usual_bucket(manifest), rows)
        await _run(infer, tensors, rows)
        before = clock()
        await _run(infer, tensors, rows)
        if clock() - before >= _LONG_BATCH_SECONDS or 2 * rows > manifest.max_batch_size:
            return rows
        rows *= 2


async def throughput(
    infer: Infer,
    manifest: Manifest,
    *,
    copies: int,
    rows: int,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Rows a second while every copy is busy with batches of so many rows: the best of some rounds.

    Raises:
        TritonRefusedError, TritonUnavailableError: as ``measure``.
    """
    tensors = batch(manifest, _usual_bucket(manifest), rows)
    await _on_each(infer, tensors, rows, copies)
    began, best = clock(), 0.0
    for _ in range(_RUNS):
        before = clock()
        await asyncio.gather(*(_some(infer, tensors, rows, _ROUND_BATCHES) for _ in range(copies)))
        seconds = max(clock() - before, 1e-9)
        best = max(best, copies * _ROUND_BATCHES * rows / seconds)
        if clock() - began > _ENOUGH_SECONDS:
            break
    return best


def _usual_bucket(manifest: Manifest) -> int:
    longer = [bucket for bucket in manifest.length_buckets if bucket >= _USUAL_TOKENS]
    return min(longer, default=max(manifest.length_buckets))


def batch(manifest: Manifest, bucket: int, rows: int) -> dict[str, NDArray[np.number]]:
    """Full rows of ordinary tokens: ``[rows, bucket]`` for each of the graph's inputs.

    Of a model of tables rows of zeros, ``[rows, features]``; of a pyfunc, which may refuse zeros,
    the row that its package names. Of one that generates, one prompt ``[bucket - 1]``, after which
    there is room for a token.
    """
    if manifest.pyfunc:
        (spec,) = manifest.inputs
        return {spec.name: np.tile(np.array(manifest.pyfunc.example, np.float64), (rows, 1))}
    if manifest.features:
        (spec,) = manifest.inputs
        return {spec.name: np.zeros((rows, *spec.shape[1:]), np.float64)}
    if manifest.generation:
        ids = np.arange(bucket - 1, dtype=np.int64) % manifest.tokenizer.vocabulary
        return {INPUT_IDS: ids, MAX_TOKENS: np.ones(1, np.int32)}
    tensors: dict[str, NDArray[np.number]] = {}
    for spec in manifest.inputs:
        dtype = np.int32 if spec.datatype is Datatype.INT32 else np.int64
        array: NDArray[np.number] = np.zeros((rows, bucket), dtype)
        if spec.name == INPUT_IDS:
            array[:] = np.arange(bucket) % manifest.tokenizer.vocabulary
        elif spec.name == ATTENTION_MASK:
            array[:] = 1
        tensors[spec.name] = array
    return tensors


async def _median(
    infer: Infer,
    tensors: Tensors,
    rows: int,
    left: float,
    clock: Callable[[], float],
) -> float:
    """Seconds of one batch: the median of some runs after a first, or the first if it is long."""
    taken: list[float] = []
    for _ in range(1 + _RUNS):
        before = clock()
        await _run(infer, tensors, rows)
        taken.append(clock() - before)
        if sum(taken) + taken[-1] > left:
            break
    return statistics.median(taken[1:] or taken)


async def _on_each(infer: Infer, tensors: Tensors, rows: int, copies: int) -> None:
    """A batch at the same time for each copy: Triton gives each to one that is free."""
    await asyncio.gather(*(_run(infer, tensors, rows) for _ in range(copies)))


async def _some(infer: Infer, tensors: Tensors, rows: int, batches: int) -> None:
    for _ in range(batches):
        await _run(infer, tensors, rows)


async def _run(infer: Infer, tensors: Tensors, rows: int) -> None:
    answered, size = await infer(tensors)
    if answered != rows or size == 0:
        raise TritonRefusedError(f"{rows} rows were answered with {answered} of {size} bytes")
