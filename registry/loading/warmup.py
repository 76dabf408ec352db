"""Runs a model that was just loaded on every row length, and measures what batches cost.

The first run of a shape is slow on every engine, so no caller should be the one who pays for it;
and the gateway's batcher needs to know what a batch of each size costs on the engine at hand. A
packed engine has no shapes: it costs what the tokens of a batch cost, and has captured its own
graphs before it says that it is loaded. It never judges a model by its speed.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.loading import CostPoint
from contracts.manifest import EngineKind, Manifest
from contracts.tasks import (
    ATTENTION_MASK,
    ENGINE_OUTPUT,
    INPUT_IDS,
    MAX_TOKENS,
    ROW_STARTS,
    TOKEN_TYPE_IDS,
)
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
PACKED_TOKENS = (64, 256, 1024, 4096, 16_384)  # of a whole batch
_PACKED_ROW = 48  # tokens of its rows, on average
_FIRST_SIZES = (1, 8)  # what a batcher needs most, before the budget ends


def points(
    buckets: Sequence[int], max_batch_size: int, row_buckets: Sequence[int] = ()
) -> tuple[tuple[int, int], ...]:
    """(bucket, batch) in the order in which they are worth knowing.

    One row of every bucket comes first, then batches of 8, then the other powers of two and the
    largest batch, each over all buckets. Of an engine that fills batches up to ``row_buckets``
    these are the sizes.

    >>> points((16, 32), 4)
    ((16, 1), (32, 1), (16, 2), (32, 2), (16, 4), (32, 4))
    """
    sizes = {1, max_batch_size, *row_buckets}
    size = 2
    while size < max_batch_size and not row_buckets:
        sizes.add(size)
        size *= 2
    order = sorted(sizes, key=lambda rows: (rows not in _FIRST_SIZES, rows))
    return tuple((bucket, rows) for rows in order for bucket in buckets)


async def warm_up(infer: Infer, manifest: Manifest, copies: int = 1) -> None:
    """Runs one row of every bucket, for a model whose costs are known already.

    On as many copies of the model as run at once, as ``measure`` does.

    Raises:
        TritonRefusedError: the model fails, or answers with nothing.
        TritonUnavailableError: Triton went away.
    """
    for bucket in _buckets(manifest)[:1] if _is_packed(manifest) else manifest.length_buckets:
        await _on_each(infer, manifest, batch(manifest, bucket, 1), copies)


async def measure(
    infer: Infer,
    manifest: Manifest,
    *,
    copies: int = 1,
    budget_seconds: float,
    on_gpu: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[CostPoint, ...]:
    """Warms every bucket up and measures as many batch shapes as the budget allows.

    One row of each bucket is run whatever it takes. A shape that would not fit into what is left
    of the budget, by what smaller ones took, is left out. On a GPU every shape that a gateway may
    send is run twice at least, for what the first run compiles would be taken for its cost, and a
    caller would wait for what was left out.

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
    packed_engine = _is_packed(manifest)
    most = 1 if manifest.generation or packed_engine else manifest.max_batch_size
    buckets = _buckets(manifest)
    twice = on_gpu and not packed_engine
    filled = () if manifest.fixed is None else manifest.fixed.rows
    for bucket, rows in points(buckets, most, filled):
        left = budget_seconds - (clock() - started)
        rate = min(per_token.values(), default=0.0) if packed_engine else per_token.get(bucket, 0.0)
        if not twice and (rows > 1 or packed_engine) and rate * bucket * rows * 2 > left:
            continue
        tensors = batch(manifest, bucket, rows)
        seconds = await _median(infer, manifest, tensors, left, clock, least=1 + twice)
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
        await _run(infer, manifest, tensors)
        before = clock()
        await _run(infer, manifest, tensors)
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
    """Rows a second while every copy is busy with batches of this size: the best of some rounds.

    Raises:
        TritonRefusedError, TritonUnavailableError: as ``measure``.
    """
    tensors = batch(manifest, _usual_bucket(manifest), rows)
    await _on_each(infer, manifest, tensors, copies)
    began, best = clock(), 0.0
    for _ in range(_RUNS):
        before = clock()
        await asyncio.gather(
            *(_some(infer, manifest, tensors, _ROUND_BATCHES) for _ in range(copies))
        )
        seconds = max(clock() - before, 1e-9)
        best = max(best, copies * _ROUND_BATCHES * rows / seconds)
        if clock() - began > _ENOUGH_SECONDS:
            break
    return best


def _usual_bucket(manifest: Manifest) -> int:
    longer = [bucket for bucket in manifest.length_buckets if bucket >= _USUAL_TOKENS]
    return min(longer, default=max(manifest.length_buckets))


def _is_packed(manifest: Manifest) -> bool:
    return manifest.engine is EngineKind.PACKED


def _buckets(manifest: Manifest) -> tuple[int, ...]:
    """Lengths of rows; of a packed engine tokens of batches, as large as a gateway may send."""
    if not _is_packed(manifest):
        return manifest.length_buckets
    most = manifest.max_batch_size * manifest.length_buckets[-1]
    within = tuple(tokens for tokens in PACKED_TOKENS if tokens <= most)
    return within or (most,)


def packed_lengths(tokens: int, longest: int) -> list[int]:
    """Lengths of rows with this number of tokens altogether, short and long ones in turn.

    >>> packed_lengths(100, 512), packed_lengths(7, 4)
    ([25, 75], [3, 4])
    """
    count = max(-(-tokens // longest), tokens // _PACKED_ROW, 1)
    mean, more = divmod(tokens, count)
    lengths = [mean + (row >= count - more) for row in range(count)]
    for row in range(0, count - 1, 2):
        moved = min(lengths[row] // 2, longest - lengths[row + 1])
        lengths[row] -= moved
        lengths[row + 1] += moved
    return lengths


def pack_batch(manifest: Manifest, tokens: int) -> dict[str, NDArray[np.number]]:
    """A batch of this number of tokens, as the packed engine takes it (``contracts.tasks``)."""
    starts = np.cumsum([0, *packed_lengths(tokens, manifest.length_buckets[-1])])
    tensors: dict[str, NDArray[np.number]] = {
        INPUT_IDS: np.arange(tokens, dtype=np.int32) % np.int32(manifest.tokenizer.vocabulary),
        ROW_STARTS: starts.astype(np.int32),
    }
    if manifest.packed is not None and manifest.packed.type_ids:
        tensors[TOKEN_TYPE_IDS] = np.zeros(tokens, np.uint8)
    return tensors


def batch(manifest: Manifest, bucket: int, rows: int) -> dict[str, NDArray[np.number]]:
    """Full rows of ordinary tokens: ``[rows, bucket]`` for each of the graph's inputs.

    Of a packed engine rows of many lengths that have ``bucket`` tokens altogether.

    Of a model of tables rows of zeros, ``[rows, features]``; of a pyfunc, which may refuse zeros,
    the row that its package names. Of one that generates, one prompt ``[bucket - 1]``, after which
    there is room for a token.
    """
    if _is_packed(manifest):
        return pack_batch(manifest, bucket)
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
    manifest: Manifest,
    tensors: Tensors,
    left: float,
    clock: Callable[[], float],
    *,
    least: int,
) -> float:
    """Seconds of one batch: the median of some runs after a first, or the first if it is long.

    It is run ``least`` times at least.
    """
    taken: list[float] = []
    for _ in range(1 + _RUNS):
        before = clock()
        await _run(infer, manifest, tensors)
        taken.append(clock() - before)
        if len(taken) >= least and sum(taken) + taken[-1] > left:
            break
    return statistics.median(taken[1:] or taken)


async def _on_each(infer: Infer, manifest: Manifest, tensors: Tensors, copies: int) -> None:
    await asyncio.gather(*(_run(infer, manifest, tensors) for _ in range(copies)))


async def _some(infer: Infer, manifest: Manifest, tensors: Tensors, batches: int) -> None:
    for _ in range(batches):
        await _run(infer, manifest, tensors)


async def _run(infer: Infer, manifest: Manifest, tensors: Tensors) -> None:
    rows = _answers(manifest, tensors)
    answered, size = await infer(tensors)
    if answered != rows or size == 0:
        raise TritonRefusedError(f"{rows} rows were answered with {answered} of {size} bytes")


def _answers(manifest: Manifest, tensors: Tensors) -> int:
    """Rows that the answer to a batch has: a packed engine may have one for each token."""
    if not _is_packed(manifest):
        return 1 if manifest.generation else len(next(iter(tensors.values())))
    for_tokens = len(ENGINE_OUTPUT[manifest.task].shape) > 2
    return len(tensors[INPUT_IDS]) if for_tokens else len(tensors[ROW_STARTS]) - 1
