"""Reconciles what is served with the endpoint objects: opens packages, replaces the snapshot.

One task does it, woken by any change of endpoints, reports, opened packages or replicas, and once a
second in any case, so that a lost wake-up only causes a delay. A package is opened before a routing
table refers to it. One that can't be opened is tried again with back-off, and the old table stays
in use meanwhile. No request runs through this module.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic

from contracts.backoff import Backoff
from contracts.ceilings import NO_CEILINGS, Ceilings
from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from contracts.tasks import Task
from gateway.batching.batcher import Batcher, BatchMeter
from gateway.batching.bulk import BulkShare
from gateway.batching.lag import LoopLag
from gateway.calls import EndpointView
from gateway.engine.fleet import Fleet
from gateway.inference.serving import Serving
from gateway.packages import PackageError, PackageSource, ServedModel
from gateway.routing.routes import EndpointRoutes, RoutingTable, build_table
from gateway.state.controller_heartbeat import ControllerHeartbeat, has_candidate, withheld
from gateway.state.sources import Sources
from gateway.state.waking import Waking
from gateway.tokenising.on_demand import OnDemand

log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_OPENED_AT_ONCE = 4
_PAUSES = Backoff(0.25, 10.0)

# A gateway that can't open a package is not ready for so long, because it may replace one that has
# the package open, and a store that restarts is back by then. It does not wait longer, because a
# missing package must not keep other endpoints from being served.
GRACE_SECONDS = 60.0

# For so long a gateway that keeps nothing waits for reports, where it was given Tritons' addresses.
_WAIT_SECONDS = 5.0


@dataclass(slots=True)
class _Inputs:
    """The last objects of the sources."""

    endpoints: tuple[ModelEndpoint, ...] | None = None
    reports: tuple[LoaderReport, ...] = ()
    reported: bool = False  # whether the reports are from their source, not from the file
    kept_at: float | None = None  # unix time of the file; None if endpoints are from their source
    waited: bool = False  # for both to be told by their sources


@dataclass(slots=True)
class LoadBackoff:
    """A package that is being opened, or waits for its next try."""

    task: asyncio.Task[None] | None = None
    failures: int = 0
    retry_at: float = 0.0
    failing_since: float | None = None

    def put_off(self, now: float) -> float:
        """Counts a failure; returns the seconds until the next try."""
        self.failures += 1
        pause = _PAUSES.after(self.failures)
        self.retry_at = now + pause
        if self.failing_since is None:
            self.failing_since = now
        return pause

    def overdue(self, now: float) -> bool:
        """Whether it has failed for so long that the gateway does not wait for it."""
        return self.failing_since is not None and now - self.failing_since >= GRACE_SECONDS


CORDONED = "(cordoned)"  # no pool's name
_PoolPackage = tuple[str, str]  # a pool of Tritons, and a package id


class Reconciler:
    """Owns the batchers and the fleet's addresses.

    Args:
        sources: of endpoints, loaders' reports and the controller's heartbeat.
        packages: opens packages.
        fleet: the Tritons.
        addresses: Tritons that are used besides those that loaders report.
        meter: counts the batchers' batches.
        serve: takes each new snapshot.
        ceilings: no endpoint gets more than these, whatever it asks for.
        tokenisers: those that have a process of their own; None if none has.
        waking: is told what sleeps and what serves; None if nothing is waited for.
        clock: seconds, monotonic.
        now: unix time, seconds.
    """

    def __init__(
        self,
        *,
        sources: Sources,
        packages: PackageSource,
        fleet: Fleet,
        addresses: tuple[str, ...],
        meter: BatchMeter,
        serve: Callable[[Serving], None],
        ceilings: Ceilings = NO_CEILINGS,
        tokenisers: OnDemand | None = None,
        waking: Waking | None = None,
        bulk: BulkShare | None = None,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sources = sources
        self._packages = packages
        self._fleet = fleet
        self._addresses = addresses
        self._meter = meter
        self._serve = serve
        self._ceilings = ceilings
        self._tokenisers = tokenisers
        if tokenisers is not None:
            tokenisers.on_change = self._wake_up
        self._waking = waking
        self._clock = clock
        self._now = now
        self._heartbeat = ControllerHeartbeat(clock())
        self._withheld: Mapping[str, float] = {}
        self._lag = LoopLag()
        self._bulk = bulk or BulkShare()
        self._inputs = _Inputs()
        self._followed: tuple[LoaderReport, ...] | None = None
        self._opened: dict[str, ServedModel] = {}
        self._opening: dict[str, LoadBackoff] = {}
        # Separate threads: a store that hangs must not block those that decompress bodies.
        self._threads = ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="packages")
        self._batchers: dict[_PoolPackage, Batcher] = {}
        self._table = RoutingTable()
        self._served: Serving | None = None
        self._failing_since: float | None = None  # unix time
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def batchers(self) -> tuple[Batcher, ...]:
        """All batchers, including those of packages that are about to be closed."""
        return tuple(self._batchers.values())

    @property
    def withheld(self) -> Mapping[str, bool]:
        """Each endpoint, and whether its candidate is withheld, as the controller is silent."""
        return {name: name in self._withheld for name in self._table.endpoints}

    @property
    def silent_seconds(self) -> float:
        """Seconds since the controller's last heartbeat."""
        return self._heartbeat.silent_seconds(self._clock())

    @property
    def kept_seconds(self) -> float:
        """Age of the endpoints that are served; 0 if they are as their source tells.

        They are old if they were read from the kept file, or a bug keeps newer ones out.
        """
        old = (self._inputs.kept_at, self._failing_since)
        return max((max(0.0, self._now() - at) for at in old if at is not None), default=0.0)

    def start(self) -> None:
        """Begins to watch; ``close`` ends it."""
        self._fleet.start()
        self._lag.start()
        self._tasks = [
            asyncio.create_task(self._watch(self._watch_endpoints)),
            asyncio.create_task(self._watch(self._watch_reports)),
            asyncio.create_task(self._watch(self._watch_beats)),
            asyncio.create_task(self._wait_for_sources()),
            asyncio.create_task(self._run()),
        ]
        keeper = self._sources.keeper
        if keeper is not None:
            self._tasks.append(asyncio.create_task(self._watch(keeper.run)))

    async def close(self) -> None:
        """Stops watching, waits for batches in flight and closes the fleet."""
        opening = [entry.task for entry in self._opening.values() if entry.task is not None]
        self._lag.close()
        for task in (*self._tasks, *opening):
            task.cancel()
        await asyncio.gather(*self._tasks, *opening, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for batcher in self.batchers:
            await batcher.settle()
        await self._fleet.close()

    async def _watch(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Follows a source without end, even after a bug in it."""
        while True:
            try:
                await follow()
            except Exception:
                log.exception("a bug: a watch ended and is started again")
            await asyncio.sleep(_TICK_SECONDS)

    async def _watch_endpoints(self) -> None:
        async for endpoints in self._sources.endpoints.watch():
            if self._inputs.kept_at is not None:
                log.info("the endpoints' source answers: what was kept is not needed any more")
            self._inputs.endpoints, self._inputs.kept_at = self._bounded(endpoints), None
            self._keep()

    def _bounded(self, endpoints: Iterable[ModelEndpoint]) -> tuple[ModelEndpoint, ...]:
        """Within the operator's ceilings, also before the controller has seen them."""
        return tuple(map(self._ceilings.bounded_endpoint, endpoints))

    async def _watch_reports(self) -> None:
        async for reports in self._sources.reports.watch():
            self._inputs.reports, self._inputs.reported = reports, True
            self._keep()

    async def _watch_beats(self) -> None:
        async for beats in self._sources.beats.watch():
            for beat in beats:
                self._heartbeat.take(beat, self._clock(), self._now())
            self._wake.set()

    def _keep(self) -> None:
        """Has endpoints and reports kept, once both are from their sources."""
        inputs, keeper = self._inputs, self._sources.keeper
        own = inputs.endpoints is not None and inputs.kept_at is None and inputs.reported
        if keeper is not None and own:
            keeper.note(inputs.endpoints or (), inputs.reports)
        self._wake.set()

    async def _wait_for_sources(self) -> None:
        """Serves what was kept of endpoints and reports if a source has not answered in time."""
        keeper, inputs = self._sources.keeper, self._inputs
        await asyncio.sleep(_WAIT_SECONDS if keeper is None else keeper.pace.wait_seconds)
        kept = None
        if keeper is not None and (inputs.endpoints is None or not inputs.reported):
            kept = await asyncio.to_thread(keeper.read)
        inputs.waited = True
        if kept is not None and not inputs.reported:
            inputs.reports = kept.reports
        if kept is not None and inputs.endpoints is None:
            inputs.endpoints, inputs.kept_at = self._bounded(kept.endpoints), kept.kept_at
            log.warning(
                "the endpoints' source does not answer", extra={"instead": self._kept_note()}
            )
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                self.reconcile()
            except Exception as error:
                # The old table stays in use; the next pass may succeed.
                log.exception("a bug: the routing table could not be renewed")
                self._tell_of_bug(error)
            else:
                self._failing_since = None
            # Not ``wait_for``: before Python 3.12 it loses a cancellation that meets a wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()

    def reconcile(self) -> None:
        """One pass: compares what is served with what should be served."""
        endpoints = self._inputs.endpoints
        if endpoints is None:
            return
        pools = _pools_of_tritons(self._inputs.reports)
        moved = self._fleet.set_addresses(pools.keys() | set(self._addresses), pools)
        wanted = {(pool, ref.package): ref for pool, ref in _refs(endpoints)}
        for ref in {ref.package: ref for ref in wanted.values()}.values():
            self._open(ref)
        if self._waking is not None:
            self._waking.follow(_asleep(endpoints), self._inputs.reports)
        for key in wanted.keys() - self._batchers.keys():
            model = self._opened.get(key[1])
            if model is not None:
                batcher = Batcher(model, self._fleet, self._meter, self._lag, self._bulk)
                self._batchers[key] = batcher
                moved = True
        if moved:
            for (pool, _), batcher in self._batchers.items():
                self._connect(batcher, pool)
        if moved or self._inputs.reports is not self._followed:
            self._follow_reports()
        self._withhold(endpoints)
        ready = self._tended(endpoints)
        table = build_table(endpoints, ready, self._table, self._serves, self._withheld)
        changed = _summary(table) != _summary(self._table)
        self._table = table
        self._retire(wanted)
        views = {name: _view(routes) for name, routes in table.endpoints.items()}
        complete = self._complete(endpoints)
        self._served = Serving(table, self.by_pool(), views, complete, tuple(self._notes()))
        self._serve(self._served)
        if changed:
            log.info("routing table renewed", extra={"routes": _summary(table)})

    def _tell_of_bug(self, error: Exception) -> None:
        if self._failing_since is None:
            self._failing_since = self._now()
        note = (
            f"The endpoints are as they were at {_time(self._failing_since)}: a bug in the gateway "
            f"keeps what was changed since from its callers: {error!r}. Please report it with the "
            "gateway's log."
        )
        served = self._served or Serving(self._table, self.by_pool(), {})
        self._serve(replace(served, notes=(note, *served.notes)))

    def _wake_up(self) -> None:
        self._wake.set()

    def _tended(self, endpoints: Iterable[ModelEndpoint]) -> Mapping[str, ServedModel]:
        """Has tokenisers opened ahead of callers; returns the packages that may have any.

        A stable version may: its first caller waits until its tokeniser is open. One that callers
        are being moved to may not before it is, so that no rollout is judged by that.
        """
        tokenisers, opened = self._tokenisers, self._opened
        if tokenisers is None:
            return opened
        compared: list[set[str]] = []  # no caller of these may wait
        moved_to: set[str] = set()
        settled: set[str] = set()
        for endpoint in endpoints:
            stable = endpoint.status.stable
            old = self._table.endpoints.get(endpoint.name)
            before = old.stable if old is not None else None
            refs = {route.ref.package for route in endpoint.status.routes}
            if len(refs) > 1 or endpoint.status.rollout is not None:
                compared.append(refs)
            moved_to |= refs
            if stable is not None:
                stays = before is None or before.model.ref.package == stable.package
                settled.update([stable.package] if stays else [])
        alone = moved_to - settled - {package for group in compared for package in group}
        tokenisers.tend(
            opened.values(),
            [opened[package] for package in sorted(alone) if package in opened],
            [[opened[package] for package in group if package in opened] for group in compared],
        )
        waits = {
            package
            for package in alone
            if package in opened and not tokenisers.is_open(opened[package])
        }
        for group in compared:
            if not all(tokenisers.stays_open(opened[each]) for each in group if each in opened):
                waits |= group - settled
        return {
            package: model
            for package, model in opened.items()
            if package not in waits and not tokenisers.fails(model)
        }

    def by_pool(self) -> dict[str, dict[str, Batcher]]:
        """All batchers, by pool of Tritons and by package id."""
        found: dict[str, dict[str, Batcher]] = {}
        for (pool, package), batcher in self._batchers.items():
            found.setdefault(pool, {})[package] = batcher
        return found

    def _withhold(self, endpoints: tuple[ModelEndpoint, ...]) -> None:
        """Determines which candidates get no callers, because the controller is silent."""
        now = self._clock()
        held = dict(withheld(endpoints, self._heartbeat, now))
        if self._inputs.kept_at is not None:  # the rollout may have ended since
            silent = self._heartbeat.silent_seconds
            held = {e.name: silent(now, e.name) for e in endpoints if has_candidate(e)}
        for name in held.keys() - self._withheld.keys():
            fields = {"endpoint": name, "silent_seconds": round(held[name])}
            log.warning(
                "no sign of the controller: stable takes the candidate's callers", extra=fields
            )
        for name in self._withheld.keys() - held.keys():
            log.info("callers go as the status says again", extra={"endpoint": name})
        self._withheld = held

    def _notes(self) -> Iterable[str]:
        """Notes for operators on what is served, in sentences."""
        if self._tokenisers is not None:
            yield from self._tokenisers.notes()
        if self._inputs.kept_at is not None:
            yield self._kept_note()
            return
        if not self._knows_tritons():
            yield "Loaders' reports, which tell of the Tritons, have not been read yet."
        elif self._inputs.reports and not self._inputs.reported:
            yield (
                "The Tritons are those of which this gateway was told before it started: loaders' "
                "reports can't be read."
            )
        for name, seconds in sorted(self._withheld.items()):
            yield (
                f"{name}: the stable version takes the candidate's callers, because the controller "
                f"has given no sign for {seconds:.0f} s."
            )

    def _kept_note(self) -> str:
        return (
            f"The endpoints are as they were at {_time(self._inputs.kept_at or 0.0)}: their source "
            "has not answered since this gateway started. Candidates get no callers until it does."
        )

    def _open(self, ref: ModelRef) -> None:
        if ref.package in self._opened:
            return
        opening = self._opening.setdefault(ref.package, LoadBackoff())
        if opening.task is None and self._clock() >= opening.retry_at:
            opening.task = asyncio.create_task(self._open_package(ref, opening))

    async def _open_package(self, ref: ModelRef, opening: LoadBackoff) -> None:
        loop = asyncio.get_running_loop()
        try:
            model = await loop.run_in_executor(self._threads, self._packages.open, ref)
        except PackageError as error:
            fields = {"model": ref.triton_model, "reason": str(error)}
            pause = opening.put_off(self._clock())
            log.warning("package can't be opened", extra={**fields, "retry_seconds": pause})
        except Exception:
            opening.put_off(self._clock())
            log.exception("a bug: opening a package failed", extra={"model": ref.triton_model})
        else:
            self._opened[ref.package] = model
            del self._opening[ref.package]
        finally:
            opening.task = None
            self._wake.set()

    def _connect(self, batcher: Batcher, pool: str) -> None:
        model = batcher.model

        def on_change() -> None:
            self._wake.set()
            batcher.wake()
            if self._waking is not None:
                self._waking.serves(pool, model.name)

        batcher.connect(self._fleet.replicas(model.name, model.at_once, on_change, pool))

    def _follow_reports(self) -> None:
        """Takes over what loaders say of their Tritons, where that or the Tritons changed."""
        self._followed = self._inputs.reports
        reported = {
            report.triton_grpc: frozenset(model.ref.triton_model for model in report.loaded)
            for report in self._followed
        }
        self._fleet.set_reported(reported, asyncio.get_running_loop().time())
        self._resize()
        self._seed()

    def _resize(self) -> None:
        """Tells batchers how many batches each Triton runs at once, as its loader reports it."""
        now = asyncio.get_running_loop().time()
        for report in self._inputs.reports:
            for loaded in report.loaded:
                name = loaded.ref.triton_model
                batcher = self._batchers.get((report.pool, loaded.ref.package))
                if batcher is None or not loaded.instances:
                    continue
                instances = loaded.instances * batcher.model.at_once
                if self._fleet.resize(report.triton_grpc, name, instances, now):
                    batcher.wake()

    def _seed(self) -> None:
        """Gives batchers the costs that each loader measured on its own Triton."""
        for report in self._inputs.reports:
            for loaded in report.loaded:
                batcher = self._batchers.get((report.pool, loaded.ref.package))
                if batcher is not None and loaded.costs:
                    batcher.cost.seed(report.triton_grpc, loaded.costs)

    def _serves(self, pool: str, ref: ModelRef) -> bool:
        batcher = self._batchers.get((pool, ref.package))
        return batcher is not None and batcher.serves

    def _complete(self, endpoints: Iterable[ModelEndpoint]) -> bool:
        """Whether what should be served is there; see ``Serving``.

        Stable versions' packages may be overdue where others are open. A gateway that can serve
        nothing is never complete. Otherwise it would replace an old gateway that can still serve.
        """
        now = self._clock()
        stable = {e.status.stable.package for e in endpoints if e.status.stable is not None}
        missing = stable - self._opened.keys()
        away = {package for package, opening in self._opening.items() if opening.overdue(now)}
        opened = not missing or (missing < stable and missing <= away)
        return opened and (not stable or self._asked_tritons(endpoints))

    def _asked_tritons(self, endpoints: Iterable[ModelEndpoint]) -> bool:
        """Whether each stable version is served, or no Triton is left to be asked for it.

        A gateway that got callers before would refuse them though a Triton serves what they ask
        for. One that is away was asked, and keeps nobody waiting.
        """
        if not self._knows_tritons():
            return False
        for endpoint in endpoints:
            status = endpoint.status
            if status.stable is None or status.asleep is not None:
                continue
            found = (self._batchers.get((pool, status.stable.package)) for pool in status.pools)
            batchers = [batcher for batcher in found if batcher is not None]
            if not any(batcher.serves for batcher in batchers):
                replicas = [replica for batcher in batchers for replica in batcher.replicas]
                if not all(map(self._fleet.has_asked, replicas)):
                    return False
        return True

    def _knows_tritons(self) -> bool:
        """Whether it was told which Tritons there are, or has waited and knows of some."""
        inputs = self._inputs
        return inputs.reported or (inputs.waited and bool(inputs.reports or self._addresses))

    def _retire(self, wanted: Mapping[_PoolPackage, ModelRef]) -> None:
        """Ends batchers that are no longer needed, after their last batch, and closes packages."""
        needed = wanted.keys() | {
            (routes.pool, model.ref.package)
            for routes in self._table.endpoints.values()
            for model in routes.models()
        }
        for key in [key for key in self._batchers if key not in needed]:
            pool, batcher = key[0], self._batchers[key]
            if batcher.idle:
                del self._batchers[key]
                self._fleet.forget(batcher.model.name, pool)
        in_use = {package for _, package in needed | self._batchers.keys()}
        for package in [package for package in self._opened if package not in in_use]:
            # Its endpoint may have been deleted while it was being opened.
            self._threads.submit(self._packages.forget, self._opened.pop(package).ref)
        for package in [package for package in self._opening if package not in in_use]:
            if self._opening[package].task is None:
                del self._opening[package]


def _asleep(endpoints: Iterable[ModelEndpoint]) -> set[tuple[str, str]]:
    """Pools and models of stable versions that Tritons need not hold, by Triton's names."""
    asleep: set[tuple[str, str]] = set()
    awake: set[tuple[str, str]] = set()
    for endpoint in endpoints:
        status, stable = endpoint.status, endpoint.status.stable
        if stable is not None:
            found = awake if status.asleep is None else asleep
            found.add((status.pool, stable.triton_model))
    return asleep - awake


def _pools_of_tritons(reports: Iterable[LoaderReport]) -> dict[str, str]:
    """The pool of each Triton, by address; where two loaders tell of one, the last that did.

    One that is out of service belongs to none.
    """
    return {
        report.triton_grpc: CORDONED if report.cordoned else report.pool
        for report in sorted(reports, key=lambda one: one.at)
    }


def _refs(endpoints: Iterable[ModelEndpoint]) -> Iterable[tuple[str, ModelRef]]:
    """All packages with their pools, stable versions first: a restarted gateway serves soon."""
    statuses = [endpoint.status for endpoint in endpoints]
    for status in statuses:
        if status.stable is not None:
            pools = (pool for pool in status.pools if status.stable in status.held_in(pool))
            yield from ((pool, status.stable) for pool in pools)
    for status in statuses:
        yield from ((pool, ref) for pool in status.pools for ref in status.held_in(pool))


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


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
            max_tokens_in_flight=limits.max_tokens_in_flight,
            timeout_seconds=limits.timeout_seconds,
            ready=False,
            unserved=status.unserved,
            requests_per_second_per_key=limits.requests_per_second_per_key,
            guardrail=endpoint.spec.guardrail,
        )
    manifest = stable.model.manifest
    held = (*(target.model for target in routes.targets), *routes.versions.values())
    others = {each.ref for each in held} - {stable.model.ref}
    return EndpointView(
        name=endpoint.name,
        task=manifest.task,
        refs=(stable.model.ref, *sorted(others, key=lambda ref: (ref.version, ref.package))),
        labels=manifest.labels,
        dimension=manifest.dimension,
        max_tokens=manifest.tokenizer.max_tokens,
        max_texts=limits.max_texts_per_request,
        max_tokens_in_flight=limits.max_tokens_in_flight,
        timeout_seconds=limits.timeout_seconds,
        ready=True,  # as ``ServedEndpoints`` finds it when asked
        rows=manifest.max_batch_size,
        multi_label=manifest.multi_label,
        prompts=tuple(manifest.tokenizer.prompts),
        has_ranges=manifest.ranges is not None,
        features=manifest.features,
        metadata={"model": endpoint.spec.model, "precision": manifest.precision.value},
        unserved=status.unserved,
        asleep=status.asleep is not None,
        requests_per_second_per_key=limits.requests_per_second_per_key,
        guardrail=endpoint.spec.guardrail,
        other_dimensions=tuple(sorted({each.manifest.dimension or 0 for each in held})),
    )


def _summary(table: RoutingTable) -> dict[str, list[str]]:
    """The routes as texts, for the log; they change whenever the version of any caller does."""
    return {name: list(_target_texts(entry)) for name, entry in table.endpoints.items()}


def _target_texts(routes: EndpointRoutes) -> Iterable[str]:
    weights = {(route.arm, route.ref): route.weight for route in routes.endpoint.status.routes}
    shadows = () if routes.shadow is None else (routes.shadow.target,)
    for target in (*routes.targets, *shadows):
        weight = weights.get((target.arm, target.model.ref))
        shown = weight is not None and not routes.withheld
        yield f"{target.arm} {target.model.name}" + (f" {weight:g} %" if shown else "")
