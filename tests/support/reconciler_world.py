"""A reconciler with everything around it in memory, and a test's hands on all of it."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from queue import SimpleQueue
from time import monotonic
from typing import Generic, TypeVar

from gateway_world import FakeEngine

from contracts.ceilings import NO_CEILINGS, Ceilings
from contracts.controller import ControllerBeat
from contracts.endpoint import ModelEndpoint
from contracts.loading import CostPoint, LoadedModel, LoaderReport
from contracts.model import DEFAULT_POOL, ModelRef
from gateway.engine.fleet import Fleet
from gateway.inference.serving import Serving
from gateway.packages import PackageError, ServedModel
from gateway.state.kept import Keeper
from gateway.state.reconcile import Reconciler
from gateway.state.sources import Sources
from gateway.telemetry.metrics import Metrics
from gateway.tokenising.on_demand import OnDemand

T = TypeVar("T")


class ScriptedSource(Generic[T]):
    """A source that says what it is told to say."""

    def __init__(self, *objects: T, silent: bool = False) -> None:
        self.queue: asyncio.Queue[tuple[T, ...]] = asyncio.Queue()
        self.bugs: list[Exception] = []
        if not silent:
            self.say(*objects)

    def say(self, *objects: T) -> None:
        self.queue.put_nowait(objects)

    async def watch(self) -> AsyncGenerator[tuple[T, ...], None]:
        while True:
            said = await self.queue.get()
            if self.bugs:
                raise self.bugs.pop()
            yield said


class FakePackages:
    """A store that may be away."""

    def __init__(self, *models: ServedModel) -> None:
        self.models = {model.ref.package: model for model in models}
        self.bugs: dict[str, Exception] = {}
        self.hangs = threading.Event()  # cleared: nothing comes back until it is set
        self.hangs.set()
        self.tries = 0
        self.forgotten: SimpleQueue[ModelRef] = SimpleQueue()

    def forget(self, ref: ModelRef) -> None:
        self.forgotten.put(ref)

    def open(self, ref: ModelRef) -> ServedModel:
        self.tries += 1
        self.hangs.wait(20)
        if ref.package in self.bugs:
            raise self.bugs[ref.package]
        model = self.models.get(ref.package)
        if model is None:
            raise PackageError("the store is away")
        return model


class World:
    """A reconciler and all that it is told."""

    def __init__(
        self,
        shelf: FakePackages,
        *endpoints: ModelEndpoint,
        static: bool = True,
        keeper: Keeper | None = None,
        silent: bool = False,
        ceilings: Ceilings = NO_CEILINGS,
        tokenisers: OnDemand | None = None,
    ) -> None:
        self.shelf = shelf
        self.engines: dict[str, FakeEngine] = {}
        self.endpoints = ScriptedSource(*endpoints, silent=silent)
        self.reports: ScriptedSource[LoaderReport] = ScriptedSource(silent=silent)
        self.beats: ScriptedSource[ControllerBeat] = ScriptedSource(silent=silent)
        self.states: list[Serving] = []
        self.ahead = 0.0  # seconds that the reconciler's clock is ahead of time
        self._changed = asyncio.Event()
        self.reconciler = Reconciler(
            sources=Sources(self.endpoints, self.reports, self.beats, keeper),
            packages=shelf,
            fleet=Fleet(self._connect, ahead=2),
            addresses=("static:1",) if static else (),
            meter=Metrics(),
            serve=self._serve,
            ceilings=ceilings,
            tokenisers=tokenisers,
            clock=lambda: monotonic() + self.ahead,
            now=self.now,
        )

    def now(self) -> float:
        """Unix time, as the reconciler takes it."""
        return time.time() + self.ahead

    def _connect(self, address: str) -> FakeEngine:
        return self.engines.setdefault(address, FakeEngine())

    def _serve(self, state: Serving) -> None:
        self.states.append(state)
        self._changed.set()

    async def until(self, condition: Callable[[Serving], bool]) -> Serving:
        """The first state for which a condition holds; every change makes a state."""
        while not (self.states and condition(self.states[-1])):
            self._changed.clear()
            await self._changed.wait()
        return self.states[-1]

    async def until_stable(self, model: ServedModel) -> Serving:
        """The first state whose stable version is this one and serves."""

        def serves(state: Serving) -> bool:
            routes = state.table.endpoints.get("sentiment")
            stable = routes.stable if routes is not None else None
            batcher = state.batchers.get(DEFAULT_POOL, {}).get(model.ref.package)
            return (
                stable is not None
                and stable.model is model
                and batcher is not None
                and batcher.serves
            )

        return await self.until(serves)


@asynccontextmanager
async def world_of(
    shelf: FakePackages,
    *endpoints: ModelEndpoint,
    static: bool = True,
    keeper: Keeper | None = None,
    silent: bool = False,
    ceilings: Ceilings = NO_CEILINGS,
    tokenisers: OnDemand | None = None,
) -> AsyncIterator[World]:
    """A reconciler that runs; where it is ``silent``, no source has told anything yet."""
    world = World(
        shelf,
        *endpoints,
        static=static,
        keeper=keeper,
        silent=silent,
        ceilings=ceilings,
        tokenisers=tokenisers,
    )
    world.reconciler.start()
    async with asyncio.timeout(60):
        yield world
    await world.reconciler.close()
    assert all(engine.closed.is_set() for engine in world.engines.values())


def report_of(
    address: str, *refs: ModelRef, costs: tuple[CostPoint, ...] = (), instances: int = 0
) -> LoaderReport:
    """A loader's report of what its Triton holds."""
    loaded = tuple(LoadedModel(ref=ref, costs=costs, instances=instances) for ref in refs)
    return LoaderReport(loader=address[0], triton_grpc=address, at=0, ready=True, loaded=loaded)
