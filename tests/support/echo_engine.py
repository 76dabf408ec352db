"""An engine without a model, and the gateway's process on it.

It answers at once with values that depend only on the row's tokens. With a ``SimulatedCost`` each
batch first takes the time of an accelerator, with a fixed cost for each batch and a cost for each
padded token, one batch after the other.

As a program it takes the seconds of a batch and the gateway's flags, of which ``--triton-grpc``
names the engine.
"""

import asyncio
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.tasks import ROW_STARTS
from gateway.engine.protocol import Ending, Prompt, TokenChunk, Work
from gateway.main import main


@dataclass(frozen=True, slots=True)
class SimulatedCost:
    """Seconds that a batch takes; fitted to published figures of a data-centre GPU."""

    batch_seconds: float = 0.001
    padded_token_seconds: float = 1.2e-6


class EchoEngine:
    """Answers every model; ``width`` is the number of values a row gets."""

    def __init__(self, width: int, cost: SimulatedCost | None = None) -> None:
        self._width = width
        self._cost = cost
        self._free_at = 0.0

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        """Values in [-1, 1) from each row's tokens; padding does not enter."""
        ids = next(iter(work.tensors.values()))
        if self._cost is not None:
            await self._occupy(self._cost, ids.size)
        starts = work.tensors.get(ROW_STARTS)
        if starts is None:
            sums = ids.sum(axis=1, dtype=np.int64)
        else:
            sums = np.add.reduceat(ids, starts[:-1], dtype=np.int64)
        seed = sums[:, None] + np.arange(self._width)
        values: NDArray[np.float32] = ((seed * 7919) % 2003 / 1001.5 - 1).astype(np.float32)
        return values

    def generate(self, prompt: Prompt, timeout_seconds: float) -> "EchoStream":
        """The prompt again, and again."""
        return EchoStream(prompt)

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        """Always."""
        return True

    async def close(self) -> None:
        """Does nothing."""

    def occupy(self, seconds: float) -> None:
        """Works for others for so long from now on."""
        self._free_at = asyncio.get_running_loop().time() + seconds

    async def _occupy(self, cost: SimulatedCost, padded_tokens: int) -> None:
        loop = asyncio.get_running_loop()
        seconds = cost.batch_seconds + cost.padded_token_seconds * padded_tokens
        self._free_at = max(self._free_at, loop.time()) + seconds
        # The loop's timers may wake up to a millisecond late; the engine's own clock does not
        # drift by it, since the next batch starts at ``free_at``.
        await asyncio.sleep(max(0.0, self._free_at - loop.time()))


class EchoStream:
    """Tokens of a prompt, in their order, one at a time."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._count = 0

    async def next(self) -> TokenChunk:
        """The next token."""
        await asyncio.sleep(0)
        ids = self._prompt.ids
        token = ids[self._count % len(ids)]
        self._count += 1
        return TokenChunk([token], Ending.AT_LIMIT if self._count >= self._prompt.most else None)

    def close(self) -> None:
        """Does nothing."""


if __name__ == "__main__":
    seconds = float(sys.argv[1])
    taken = SimulatedCost(seconds) if seconds else None
    sys.exit(main(sys.argv[2:], connect=lambda _: EchoEngine(2, taken)))
