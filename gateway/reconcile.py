"""Keeps what is served as the endpoint objects say: compares, opens packages, swaps the table.

One task, woken by any change of endpoints, reports, opened packages or replicas, and once a second
in any case: losing a wake-up changes nothing but the delay. A package is opened before a table
names it; one that can't be opened leaves the old table in use and is tried again with back-off.
Nothing here touches a request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from contracts.tasks import Task
from gateway.calls import EndpointView
from gateway.endpoints.protocol import EndpointSource, ReportSource
from gateway.fleet import Fleet
from gateway.handler import Serving
from gateway.lag import LoopLag
from gateway.lanes import BatchMeter, Lane
from gateway.opening import Opening
from gateway.packages import PackageError, PackageSource, ServedModel
from gateway.routing import EndpointRoutes, RoutingTable, build_table

log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_OPENED_AT_ONCE = 4


@dataclass(slots=True)
class _World:
    """What the sources said last."""

    endpoints: tuple[ModelEndpoint, ...] | None = None
    reports: tuple[LoaderReport, ...] = ()


class Reconciler:
    """Owns the lanes and the fleet's addresses.

    Args:
        endpoints: what is asked for.
        reports: which Tritons there are, and what batches cost there.
        packages: opens packages.
        fleet: the Tritons.
        addresses: Tritons that are there whatever reports say.
        meter: counts the lanes' batches.
        serve: takes each new state.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        endpoints: EndpointSource,
        reports: ReportSource,
        packages: PackageSource,
        fleet: Fleet,
        addresses: tuple[str, ...],
        meter: BatchMeter,
        serve: Callable[[Serving], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._endpoints = endpoints
        self._reports = reports
        self._packages = packages
        self._fleet = fleet
        self._addresses = addresses
        self._meter = meter
        self._serve = serve
        self._clock = clock
        self._lag = LoopLag()
        self._world = _World()
        self._opened: dict[str, ServedModel] = {}
        self._opening: dict[str, Opening] = {}
        # Of its own: a store that hangs must not take the threads that large bodies are read in.
        self._threads = ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="packages")
        self._lanes: dict[str, Lane] = {}
        self._table = RoutingTable()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """All lanes, those of packages on their way out included."""
        return tuple(self._lanes.values())

    def start(self) -> None:
        """Begins to watch; ``close`` ends it."""
        self._fleet.start()
        self._lag.start()
        self._tasks = [
            asyncio.create_task(self._watch(self._watch_endpoints)),
            asyncio.create_task(self._watch(self._watch_reports)),
            asyncio.create_task(self._run()),
        ]

    async def close(self) -> None:
        """Stops watching, lets batches in flight come back and closes the fleet."""
        opening = [entry.task for entry in self._opening.values() if entry.task is not None]
        self._lag.close()
        for task in (*self._tasks, *opening):
            task.cancel()
        await asyncio.gather(*self._tasks, *opening, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for lane in self.lanes:
            await lane.settle()
        await self._fleet.close()

    async def _watch(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Follows a source for ever: no mistake in one may leave this gateway deaf."""
        while True:
            try:
                await follow()
            except Exception:
                log.exception("a bug: a watch ended, and begins anew")
            await asyncio.sleep(_TICK_SECONDS)

    async def _watch_endpoints(self) -> None:
        async for endpoints in self._endpoints.watch():
            self._world.endpoints = endpoints
            self._wake.set()

    async def _watch_reports(self) -> None:
        async for reports in self._reports.watch():
            self._world.reports = reports
            self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                self.reconcile()
            except Exception:
                # The table in use goes on; the next look may see a world that can be served.
                log.exception("a bug: the routing table could not be renewed")
            # Not ``wait_for``: before Python 3.12 it loses a cancellation that meets a wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()

    def reconcile(self) -> None:
        """One comparison of what is with what should be."""
        endpoints = self._world.endpoints
        if endpoints is None:
            return
        reported = {report.triton_grpc for report in self._world.reports}
        moved = self._fleet.set_addresses(reported | set(self._addresses))
        wanted = {ref.package: ref for ref in _refs(endpoints)}
        for ref in wanted.values():
            self._open(ref)
        for package, model in self._opened.items():
            if package in wanted and package not in self._lanes:
                self._lanes[package] = Lane(model, self._fleet, self._meter, self._lag)
                moved = True
        if moved:
            for lane in self._lanes.values():
                self._connect(lane)
        self._resize()
        self._seed()
        table = build_table(endpoints, self._opened, self._table, self._serves)
        changed = _summary(table) != _summary(self._table)
        self._table = table
        self._retire(wanted)
        views = {name: _view(routes) for name, routes in table.endpoints.items()}
        self._serve(Serving(table, dict(self._lanes), views, self._complete(endpoints)))
        if changed:
            log.info("routing table renewed", extra={"routes": _summary(table)})

    def _open(self, ref: ModelRef) -> None:
        if ref.package in self._opened:
            return
        opening = self._opening.setdefault(ref.package, Opening())
        if opening.task is None and self._clock() >= opening.retry_at:
            opening.task = asyncio.create_task(self._open_package(ref, opening))

    async def _open_package(self, ref: ModelRef, opening: Opening) -> None:
        loop = asyncio.get_running_loop()
        try:
            model = await loop.run_in_executor(self._threads, self._packages.open, ref)
        except PackageError as error:
            told = {"model": ref.triton_model, "reason": str(error)}
            pause = opening.put_off(self._clock())
            log.warning("package can't be opened", extra={**told, "retry_seconds": pause})
        except Exception:
            opening.put_off(self._clock())
            log.exception("a bug: opening a package failed", extra={"model": ref.triton_model})
        else:
            self._opened[ref.package] = model
            del self._opening[ref.package]
        finally:
            opening.task = None
            self._wake.set()

    def _connect(self, lane: Lane) -> None:
        def on_change() -> None:
            self._wake.set()
            lane.wake()

        model = lane.model
        lane.connect(self._fleet.replicas(model.name, model.manifest.instances, on_change))

    def _resize(self) -> None:
        """Tells lanes how many batches each Triton runs at once, as its loader reports it."""
        now = asyncio.get_running_loop().time()
        for report in self._world.reports:
            for loaded in report.loaded:
                name, lane = loaded.ref.triton_model, self._lanes.get(loaded.ref.package)
                if lane is None or not loaded.instances:
                    continue
                if self._fleet.resize(report.triton_grpc, name, loaded.instances, now):
                    lane.wake()

    def _seed(self) -> None:
        """Gives lanes the costs that each loader measured on its own Triton."""
        for report in self._world.reports:
            for loaded in report.loaded:
                lane = self._lanes.get(loaded.ref.package)
                if lane is not None and loaded.costs:
                    lane.cost.seed(report.triton_grpc, loaded.costs)

    def _serves(self, ref: ModelRef) -> bool:
        lane = self._lanes.get(ref.package)
        return lane is not None and lane.serves

    def _complete(self, endpoints: Iterable[ModelEndpoint]) -> bool:
        """Whether each stable version's package is open, or some are and the others are long away.

        A gateway that can serve nothing at all is never complete: an old one may serve yet, and
        would be ended.
        """
        now = self._clock()
        stable = {e.status.stable.package for e in endpoints if e.status.stable is not None}
        missing = stable - self._opened.keys()
        away = {package for package, opening in self._opening.items() if opening.overdue(now)}
        return not missing or (missing < stable and missing <= away)

    def _retire(self, wanted: dict[str, ModelRef]) -> None:
        """Lets go of packages that nobody names, once their last batch is back."""
        needed = wanted.keys() | self._table.models().keys()
        for package in [package for package in self._opened if package not in needed]:
            # One whose endpoint went while it was being opened never had a lane.
            lane = self._lanes.get(package)
            if lane is None or lane.idle:
                model = self._opened.pop(package)
                self._fleet.forget(model.name)
                self._lanes.pop(package, None)
                self._threads.submit(self._packages.forget, model.ref)
        for package in [package for package in self._opening if package not in needed]:
            if self._opening[package].task is None:
                del self._opening[package]


def _refs(endpoints: Iterable[ModelEndpoint]) -> Iterable[ModelRef]:
    """Stable versions first, so that a restart serves as soon as it can."""
    statuses = [endpoint.status for endpoint in endpoints]
    for status in statuses:
        if status.stable is not None:
            yield status.stable
    for status in statuses:
        yield from (route.ref for route in status.routes)
        yield from status.packages


def _view(routes: EndpointRoutes) -> EndpointView:
    endpoint, stable = routes.endpoint, routes.stable
    limits = endpoint.spec.limits
    status = endpoint.status
    if stable is None:
        return EndpointView(
            name=endpoint.name,
            task=status.task or endpoint.spec.task or Task.TEXT_CLASSIFICATION,
            refs=(),
            labels=(),
            dimension=None,
            max_tokens=endpoint.spec.serving.max_tokens,
            max_texts=limits.max_texts_per_request,
            timeout_seconds=limits.timeout_seconds,
            ready=False,
        )
    manifest = stable.model.manifest
    others = {way.model.ref for way in routes.ways} | {m.ref for m in routes.versions.values()}
    others.discard(stable.model.ref)
    return EndpointView(
        name=endpoint.name,
        task=manifest.task,
        refs=(stable.model.ref, *sorted(others, key=lambda ref: (ref.version, ref.package))),
        labels=manifest.labels,
        dimension=manifest.dimension,
        max_tokens=manifest.tokenizer.max_tokens,
        max_texts=limits.max_texts_per_request,
        timeout_seconds=limits.timeout_seconds,
        ready=True,  # as the handler finds it when asked
        multi_label=manifest.multi_label,
        metadata={"model": endpoint.spec.model, "precision": manifest.precision.value},
    )


def _summary(table: RoutingTable) -> dict[str, list[str]]:
    """Who gets what, in words; it changes whenever any caller's way does."""
    return {name: list(_ways(entry)) for name, entry in table.endpoints.items()}


def _ways(routes: EndpointRoutes) -> Iterable[str]:
    weights = {(route.arm, route.ref): route.weight for route in routes.endpoint.status.routes}
    shadows = () if routes.shadow is None else (routes.shadow.way,)
    for way in (*routes.ways, *shadows):
        weight = weights.get((way.arm, way.model.ref))
        yield f"{way.arm} {way.model.name}" + ("" if weight is None else f" {weight:g} %")
