"""The engine alone behind Triton: milliseconds of batches of many sizes, and where it saturates."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import httpx

from bench.peers import with_triton
from bench.peers.subjects import Site
from contracts.manifest import Manifest
from registry.loading import warmup
from registry.loading.triton_client import GrpcTriton

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (16, 32, 64, 128, 256, 512)
SMALL_ROWS, SMALL_TOKENS = (1, 4), (16, 64)
SATURATED = 0.95  # of the most tokens a second
_FEWEST_RUNS = 3
_CALL_SECONDS = 120.0


@dataclass(frozen=True)
class Point:
    """A batch of rows of so many tokens each, and the median milliseconds from call to answer."""

    rows: int
    tokens: int
    milliseconds: float

    @property
    def batch_tokens(self) -> int:
        """Tokens of the whole batch."""
        return self.rows * self.tokens

    @property
    def rows_per_second(self) -> float:
        """Of one batch after the other."""
        return 1000 * self.rows / self.milliseconds

    @property
    def tokens_per_second(self) -> float:
        """Of one batch after the other."""
        return 1000 * self.batch_tokens / self.milliseconds


def grid(*, small: bool = False) -> list[tuple[int, int]]:
    """(rows, tokens) of each batch that is measured."""
    rows, tokens = (SMALL_ROWS, SMALL_TOKENS) if small else (ROWS, TOKENS)
    return [(count, length) for length in tokens for count in rows]


def saturation(points: Sequence[Point]) -> Point:
    """The batch of fewest tokens whose tokens a second are 95 % of the most of any batch."""
    least = SATURATED * max(point.tokens_per_second for point in points)
    enough = [point for point in points if point.tokens_per_second >= least]
    return min(enough, key=lambda point: (point.batch_tokens, point.milliseconds))


def measure(
    site: Site, batches: Sequence[tuple[int, int]], seconds: float
) -> tuple[list[Point], dict[str, object]]:
    """Each batch for so many seconds, and what Triton says of itself and how it runs the model."""
    manifest = site.model.manifest
    with with_triton.engine(site, max(rows for rows, _ in batches)) as server:
        url = f"http://127.0.0.1:{server.http_port}/v2"
        version = httpx.get(url, trust_env=False).json()["version"]
        found = _measured(server.grpc, manifest, batches, seconds, gpu=site.gpu)
        points, told = asyncio.run(found)
        return points, {"Triton": version, **told}


async def _measured(
    grpc: str, manifest: Manifest, batches: Sequence[tuple[int, int]], seconds: float, *, gpu: bool
) -> tuple[list[Point], dict[str, object]]:
    triton = GrpcTriton(grpc, call_seconds=10.0, load_seconds=_CALL_SECONDS)
    try:
        name = manifest.ref().triton_model
        running = (await triton.held([name]))[name]
        if running.on_gpu != gpu:
            found, asked = ("GPU", "CPU")[:: 1 if running.on_gpu else -1]
            raise RuntimeError(f"Triton put the model on the {found} and not on the {asked}")
        points = [
            Point(rows, tokens, await _milliseconds(triton, manifest, rows, tokens, seconds))
            for rows, tokens in batches
        ]
    finally:
        await triton.close()
    return points, {"backend": running.backend, "instances": running.instances}


async def _milliseconds(
    triton: GrpcTriton, manifest: Manifest, rows: int, tokens: int, seconds: float
) -> float:
    """The median of batches one after the other; the first, slow on every engine, not counted."""
    name, tensors = manifest.ref().triton_model, warmup.batch(manifest, tokens, rows)
    await triton.infer(name, tensors)
    taken: list[float] = []
    while sum(taken) < seconds or len(taken) < _FEWEST_RUNS:
        began = time.perf_counter()
        await triton.infer(name, tensors)
        taken.append(time.perf_counter() - began)
    return 1000 * median(taken)
