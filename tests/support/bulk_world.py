"""Interactive and bulk calls before the batchers of some gateways, in SIMULATED time.

Batchers, schedules, replicas and shares are the gateway's own; the engines take the time of a cost
and compute one batch after the other, whosever it is. Callers are simulated, on a ``SteppedLoop``.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from echo_engine import EchoEngine, SimulatedCost
from gateway_world import model_of
from loop_clocks import SteppedLoop

from gateway.batching.batcher import Batcher
from gateway.batching.bulk import BulkShare
from gateway.engine.fleet import Fleet
from gateway.errors import DeadlineExceededError
from gateway.packages import ServedModel
from gateway.state.bulk_reports import EVERY_SECONDS
from preprocess.encoder import EncodedTexts

CPU = SimulatedCost(0.001, 50e-6)  # 1.8 ms for 16 tokens, 7.4 ms for 128
ACCELERATOR = SimulatedCost(0.001, 1.2e-6)
BUCKETS = (16, 32, 64, 128)
LENGTHS = (8, 14, 20, 28, 30, 40, 50, 64, 100, 128)
BULK_TEXTS = 4
BULK_CALLS = 4


class Meter:
    """Counts nothing."""

    def batch_finished(self, *_: object) -> None: ...

    def batch_split(self, *_: object) -> None: ...

    def texts_failed(self, *_: object) -> None: ...


@dataclass(frozen=True)
class Setting:
    """What there is.

    Attributes:
        cost: of the engines.
        tritons: how many.
        gateways: which share the callers.
        apart: bulk calls ask for another package than interactive ones, on the same Tritons.
        short_seconds: see ``BulkShare``.
        instances: of each Triton; what they compute takes its time from one device all the same.
        bulk_texts: of a bulk call.
        bulk_calls: on their way at once, of each gateway.
        bursts: interactive calls come nine times as often in every other second.
        spread: of interactive calls over the gateways, by weight; empty: evenly.
    """

    cost: SimulatedCost = CPU
    tritons: int = 1
    gateways: int = 1
    apart: bool = False
    packed: bool = False
    short_seconds: float = 0.0
    instances: int = 1
    bulk_texts: int = BULK_TEXTS
    bulk_calls: int = BULK_CALLS
    bursts: bool = False
    spread: tuple[float, ...] = ()


@dataclass
class Outcome:
    """Seconds that interactive calls took, and texts of bulk calls that were answered."""

    waits: list[float] = field(default_factory=list)
    bulk_texts: int = 0
    bulk_late: int = 0
    ended: float = 0.0

    @property
    def p99(self) -> float:
        return sorted(self.waits)[int(0.99 * len(self.waits))]


def encoded(tokens: Sequence[int]) -> EncodedTexts:
    """Texts of so many tokens each."""
    rows = len(tokens)
    return EncodedTexts(
        ids=[[7] * count for count in tokens],
        type_ids=None,
        tokens=list(tokens),
        words=[1] * rows,
        unk=[0] * rows,
        truncated=[False] * rows,
    )


def interactive_seconds(setting: Setting) -> float:
    """Mean engine seconds of an interactive text by itself."""
    edges = [next(edge for edge in BUCKETS if edge >= each) for each in LENGTHS]
    cost = setting.cost
    return sum(cost.batch_seconds + cost.padded_token_seconds * each for each in edges) / len(edges)


class World:
    """Gateways before Tritons."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.random = random.Random(seed)
        self.bulk_random = random.Random(seed + 1)  # so that both rounds have the same callers
        self.setting = setting
        self.outcome = Outcome()
        self.engines = {f"t{n}:1": EchoEngine(2, setting.cost) for n in range(setting.tritons)}
        self.interactive: list[Batcher] = []
        self.bulk: list[Batcher] = []
        self.fillers: list[asyncio.Task[None]] = []
        self.shares: list[BulkShare] = []
        for _ in range(setting.gateways):
            fleet = Fleet(self.engines.__getitem__, ahead=2)
            fleet.set_addresses(self.engines)
            share = BulkShare(setting.short_seconds)
            share.gateways = setting.gateways
            share.tell = partial(self._tell, share)
            self.shares.append(share)
            first = self._batcher(fleet, share, self._model("1"))
            self.interactive.append(first)
            self.bulk.append(
                self._batcher(fleet, share, self._model("2")) if setting.apart else first
            )

    def _model(self, version: str) -> ServedModel:
        return model_of(version, max_batch_size=32, buckets=BUCKETS, packed=self.setting.packed)

    def _batcher(self, fleet: Fleet, share: BulkShare, model: ServedModel) -> Batcher:
        batcher = Batcher(model, fleet, Meter(), share=share, clock=self.loop.time)
        batcher.connect(fleet.replicas(model.name, self.setting.instances, batcher.wake))
        for replica in batcher.replicas:
            replica.breaker.succeed()
        return batcher

    def _tell(self, share: BulkShare) -> None:
        """Has all others hear a gateway's report, as over UDP."""
        for other in self.shares:
            if other is not share:
                other.hear(self.loop.time(), id(share), share.report(self.loop.time()))

    async def exchange(self) -> None:
        """Has each gateway hear the others' reports again and again."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            for share in self.shares:
                self._tell(share)

    def ask_in_bulk(self) -> None:
        """Keeps bulk calls of each gateway on their way from now on."""
        self.fillers.append(self.loop.create_task(self.exchange()))
        for batcher in self.bulk:
            for _ in range(self.setting.bulk_calls):
                self.fillers.append(self.loop.create_task(self.fill(batcher)))

    async def ask_interactively(self, rate: float, calls: int) -> None:
        """Calls of one text at random moments, ``rate`` a second, spread over the gateways."""
        tasks = []
        due = self.loop.time()
        for _ in range(calls):
            now = 1.0 if not self.setting.bursts else 1.8 if int(due) % 2 else 0.2
            due += self.random.expovariate(now * rate)
            await asyncio.sleep(due - self.loop.time())
            tokens, batcher = self.random.choice(LENGTHS), self.random.choice(self.interactive)
            if self.setting.spread:
                (batcher,) = self.random.choices(self.interactive, self.setting.spread)
            tasks.append(self.loop.create_task(self._ask(tokens, batcher)))
        await asyncio.gather(*tasks)

    async def _ask(self, tokens: int, batcher: Batcher) -> None:
        began = self.loop.time()
        job = batcher.submit(encoded([tokens]), "e", began + 60.0)
        await job.future
        took = self.loop.time() - began
        self.outcome.waits.append(took)
        batcher.share.note_answer(self.loop.time(), "e", took, job.delay)

    async def fill(self, batcher: Batcher, seconds: float = 60.0) -> None:
        """One caller's bulk calls, one after the other, for ever."""
        while True:
            tokens = self.bulk_random.choices(LENGTHS, k=self.setting.bulk_texts)
            deadline = self.loop.time() + seconds
            try:
                await batcher.submit(encoded(tokens), "bulk", deadline, bulk=True).future
            except DeadlineExceededError:
                self.outcome.bulk_late += 1
            else:
                self.outcome.bulk_texts += self.setting.bulk_texts


@asynccontextmanager
async def world_of(setting: Setting, seed: int = 1) -> AsyncIterator[World]:
    """Ends what callers wait for and lets batches in flight end, at the end."""
    world = World(setting, seed)
    yield world
    for filler in world.fillers:
        filler.cancel()
    await asyncio.gather(*world.fillers, return_exceptions=True)
    for batcher in (*world.interactive, *world.bulk):
        await batcher.settle()


async def _beside(setting: Setting, load: float, calls: int, seed: int, *, bulk: bool) -> Outcome:
    rate = load * setting.tritons / interactive_seconds(setting)
    async with world_of(setting, seed) as world:
        began = world.loop.time()
        if bulk:
            world.ask_in_bulk()
        await world.ask_interactively(rate, calls)
        world.outcome.ended = world.loop.time() - began
    return world.outcome


def beside(
    setting: Setting, load: float, *, bulk: bool, calls: int = 4000, seed: int = 1
) -> Outcome:
    """Interactive calls that keep the engines busy for this share of the time, and bulk calls."""
    return on_steps(_beside(setting, load, calls, seed, bulk=bulk))


def on_steps(work: Coroutine[object, object, Outcome]) -> Outcome:
    """What comes of it in simulated time."""
    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        return runner.run(work)
