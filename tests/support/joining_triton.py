"""A Triton with a packed engine, in simulated time: it joins what all gateways have sent.

It gives each row its first token and the sum of its tokens, computed on the joined rows and taken
apart again: an answer that went to another row shows.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from gateway_world import FakeStream
from numpy.typing import NDArray

from contracts.tasks import INPUT_IDS, ROW_STARTS
from gateway.engine.protocol import (
    EngineBusyError,
    EngineModelError,
    EngineTimeoutError,
    EngineUnavailableError,
    Prompt,
    Work,
)

RUNS_ON_THE_WAY = 2
_MODULUS = 1 << 20  # sums below it are exact as float32


def values_of(ids: NDArray[np.int64]) -> list[float]:
    """What one row is answered."""
    return [float(ids[0]), float(ids.sum() % _MODULUS)]


@dataclass(eq=False)
class _Asked:
    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    answer: "asyncio.Future[NDArray[np.float32]]"


@dataclass
class JoiningTriton:
    """See the module.

    Attributes:
        seconds: of a run, by its tokens.
        most_tokens: of a run; a message alone may have more.
        held_tokens: of all that is held; more is refused as busy.
        chance: of the times that messages take to come and to go.
        here: whether anybody listens.
        bad: first tokens of rows that the model fails at, and what is joined with them.
    """

    seconds: Callable[[int], float] = lambda tokens: 0.0002 + 1e-7 * tokens
    most_tokens: int = 16_384
    held_tokens: int = 1 << 30
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    here: bool = True
    bad: frozenset[int] = frozenset()
    messages: int = 0
    joined: int = 0  # messages that were not alone in their run
    refused: int = 0
    computed: float = 0.0  # seconds
    received: list[tuple[float, list[int]]] = field(default_factory=list)
    watched: bool = False  # whether ``received`` gets the first tokens of rows, and when they came
    _waiting: deque[_Asked] = field(default_factory=deque)
    _held: int = 0
    _room: int = RUNS_ON_THE_WAY
    _free_at: float = 0.0

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        """See ``Engine``."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(0.0001 + 0.0002 * self.chance.random())
                asked = self._take(work, loop)
                values = await asked.answer
                await asyncio.sleep(0.0001 + 0.0002 * self.chance.random())
                return values
        except TimeoutError as error:
            raise EngineTimeoutError("no answer in time") from error

    def _take(self, work: Work, loop: asyncio.AbstractEventLoop) -> _Asked:
        if not self.here:
            raise EngineUnavailableError("away")
        ids = work.tensors[INPUT_IDS].astype(np.int64)
        starts = work.tensors[ROW_STARTS].astype(np.int64)
        if self._held and self._held + len(ids) > self.held_tokens:
            self.refused += 1
            raise EngineBusyError("queue is full")
        self.messages += 1
        if self.watched:
            self.received.append((loop.time(), ids[starts[:-1]].tolist()))
        asked = _Asked(ids, starts, loop.create_future())
        self._held += len(ids)
        self._waiting.append(asked)
        self._begin(loop)
        return asked

    def die(self) -> None:
        """Is gone, with all that it holds."""
        self.here = False
        for each in self._waiting:
            if not each.answer.done():
                each.answer.set_exception(EngineUnavailableError("it died"))
        self._waiting.clear()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._room and self._waiting:
            members = [self._waiting.popleft()]
            tokens = len(members[0].ids)
            while self._waiting and tokens + len(self._waiting[0].ids) <= self.most_tokens:
                tokens += len(self._waiting[0].ids)
                members.append(self._waiting.popleft())
            self.joined += len(members) if len(members) > 1 else 0
            self._room -= 1
            took = self.seconds(tokens)
            self.computed += took
            self._free_at = max(self._free_at, loop.time()) + took
            loop.call_at(self._free_at, self._end, loop, members)

    def _end(self, loop: asyncio.AbstractEventLoop, members: list[_Asked]) -> None:
        self._room += 1
        ids = np.concatenate([each.ids for each in members])
        ends = np.cumsum([len(each.ids) for each in members])
        begins = np.concatenate(
            [
                each.starts[:-1] + end - len(each.ids)
                for each, end in zip(members, ends, strict=True)
            ]
        )
        sums = np.add.reduceat(ids, begins) % _MODULUS
        values = np.stack([ids[begins], sums], axis=1).astype(np.float32)
        failed = bool(self.bad) and not self.bad.isdisjoint(ids[begins].tolist())
        rows = np.cumsum([len(each.starts) - 1 for each in members])[:-1]
        for each, part in zip(members, np.split(values, rows), strict=True):
            self._held -= len(each.ids)
            if each.answer.done():
                continue
            if not self.here:
                each.answer.set_exception(EngineUnavailableError("it died"))
            elif failed and not self.bad.isdisjoint(each.ids[each.starts[:-1]].tolist()):
                each.answer.set_exception(EngineModelError("odd row"))
            else:
                each.answer.set_result(part)
        self._begin(loop)

    def generate(self, prompt: Prompt, timeout_seconds: float) -> FakeStream:
        """See ``Engine``; it writes nothing."""
        raise NotImplementedError

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        """See ``Engine``."""
        return self.here

    async def close(self) -> None:
        """See ``Engine``."""
