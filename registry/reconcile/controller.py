"""Brings registered versions into service: the reconcile loop.

Each pass observes every endpoint's surroundings (MLflow, the store, the conversions that run, the
loaders' reports). ``plan`` and then the rollout decide the next status, which is written once,
against the revision that was read. Events only wake the loop. It keeps no state that it needs:
killed at any instant, the next start goes on from the statuses.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace

from contracts.ceilings import NO_CEILINGS, Ceilings
from contracts.endpoint import EndpointSpec, EndpointStatus, Metadata, ModelEndpoint, Phase
from contracts.loading import LoaderReport
from contracts.model import endpoint_name
from registry import metrics
from registry.conversions.index import ConversionIndex
from registry.conversions.messages import Conditions, ConversionRequest, Failed
from registry.conversions.running import ConversionJobs
from registry.errors import EndpointConflictError, RegistryError
from registry.mlflow.projection import alias_refusals, projection
from registry.mlflow.watch import SourceWatch
from registry.packages.store import StoreError
from registry.reconcile.heartbeats import HeartbeatTracker, HeartbeatWriter
from registry.reconcile.observer import Observer
from registry.reconcile.plan import Decision, Observed, plan
from registry.reconcile.rollouts import Rollouts, Surroundings, surroundings
from registry.stores.endpoints import EndpointStore
from registry.stores.reports import Reports

log = logging.getLogger(__name__)

_CREATE_RETRY_SECONDS = 30.0  # an endpoint whose creation was refused


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """How the controller works, and what it asks of conversions."""

    tracking_uri: str
    store_url: str
    tick_seconds: float = 0.25
    loader_silence_seconds: float = 15.0
    keep_seconds: float = 600.0
    auto_endpoints: bool = False
    alias_models: tuple[str, ...] = ()
    ceilings: Ceilings = NO_CEILINGS
    conditions: Conditions = field(default_factory=Conditions)


class Controller:
    """One loop, one owner of everything below. ``changed`` wakes it before its next tick."""

    def __init__(
        self,
        options: ControllerOptions,
        *,
        endpoints: EndpointStore,
        source: SourceWatch,
        index: ConversionIndex,
        reports: Reports,
        jobs: ConversionJobs,
        rollouts: Rollouts,
        changed: asyncio.Event,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._endpoints = endpoints
        self._source = source
        self._reports = reports
        self._jobs = jobs
        self._rollouts = rollouts
        self._changed = changed
        self._now = now
        self._observer = Observer(options.conditions, index=index, jobs=jobs, now=now)
        self._heartbeats = HeartbeatTracker(options.loader_silence_seconds)
        self._create_at: dict[str, float] = {}

    async def run(
        self,
        stop: asyncio.Event,
        heartbeat: HeartbeatWriter | None = None,
        *,
        after_pass: Callable[[], None] = lambda: None,
    ) -> None:
        """Passes until told to stop; nothing that is away ends it."""
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._source.run(), name="source"),
                tasks.create_task(_wake_at(stop, self._changed), name="stop"),
            ]
            if heartbeat is not None:
                beside.append(tasks.create_task(heartbeat.run(), name="heartbeat"))
            while not stop.is_set():
                self._changed.clear()
                await self._safe_pass(heartbeat)
                after_pass()
                try:
                    async with asyncio.timeout(self._options.tick_seconds):
                        await self._changed.wait()
                except TimeoutError:
                    continue
            for task in beside:
                task.cancel()
        await self._jobs.close()

    async def step(self) -> frozenset[str]:
        """One pass over all endpoints.

        Returns:
            Names of those that could not be reconciled: nobody would roll a candidate of theirs
            back now.

        Raises:
            OSError: endpoints or reports can't be read.
        """
        endpoints = await asyncio.to_thread(self._endpoints.list)
        if self._options.auto_endpoints:
            await self._create_missing(endpoints)
        reports = await asyncio.to_thread(self._reports.list)
        loaders = self._heartbeats.alive(
            reports, self._now(), disconnected=self._reports.disconnected
        )
        notes = alias_refusals(endpoints, self._options.alias_models)
        failed = {key for key, word in self._jobs.states.items() if isinstance(word, Failed)}
        outcomes = [
            await self._reconcile(endpoint, loaders, notes.get(endpoint.name, ""))
            for endpoint in endpoints
        ]
        self._jobs.keep_only(outcome.options for outcome in outcomes if outcome.options)
        # Those that every endpoint has seen, and every one that wants them has on record.
        for noted in failed - {item.options for item in outcomes if not item.written}:
            self._jobs.forget(noted)
        seen = [outcome.endpoint for outcome in outcomes]
        metrics.BLOCKED.set(sum(1 for item in seen if _is_blocked(item.status)))
        wanted = projection(seen, self._options.alias_models)
        self._source.follow({item.spec.model for item in seen}, wanted)
        unattended = {item.endpoint.name for item in outcomes if not item.attended}
        return self._endpoints.unreadable | unattended

    async def _safe_pass(self, heartbeat: HeartbeatWriter | None) -> None:
        try:
            unattended = await self.step()
        except (RegistryError, StoreError, OSError) as error:
            metrics.PASSES.labels("cut short").inc()
            log.warning("a pass was cut short: %s", error)
        else:
            metrics.PASSES.labels("whole").inc()
            if heartbeat is not None:
                heartbeat.pass_ended(unattended)

    async def _create_missing(self, endpoints: tuple[ModelEndpoint, ...]) -> None:
        models = self._source.snapshot.models if self._source.snapshot else {}
        taken = self._endpoints.unreadable
        for missing in missing_endpoints(models, endpoints, taken=taken):
            endpoint = self._options.ceilings.bounded_endpoint(missing)
            if self._now() >= self._create_at.get(endpoint.name, 0.0):
                await self._create(endpoint)

    async def _create(self, endpoint: ModelEndpoint) -> None:
        """Creates it; a refusal (a quota, an admission policy) must not hold up the others."""
        try:
            await asyncio.to_thread(self._endpoints.put, endpoint)
        except (RegistryError, OSError) as error:
            self._create_at[endpoint.name] = self._now() + _CREATE_RETRY_SECONDS
            log.warning("the endpoint %s can't be made: %s", endpoint.name, error)
            return
        self._create_at.pop(endpoint.name, None)
        log.info("made the endpoint %s for %s", endpoint.name, endpoint.spec.model)
        self._changed.set()

    # One endpoint

    async def _reconcile(
        self, endpoint: ModelEndpoint, loaders: tuple[LoaderReport, ...], note: str
    ) -> "_Outcome":
        """Observe, plan, write, act; a conflict leaves it for later."""
        now, keep = self._now(), self._options.keep_seconds
        snapshot = self._source.snapshot
        ceilings = self._options.ceilings
        refused = ceilings.over(endpoint.spec)
        seen, target = await self._observer.observe(endpoint, snapshot, loaders)
        seen = replace(seen, refused=refused)
        options = target.options if target else ""
        decision = plan(endpoint.spec, endpoint.status, seen, now, keep_seconds=keep)
        notes = (*((note,) if note else ()), *refused)
        status = decision.status.model_copy(update={"notes": notes, "refused": refused})
        bounded = ceilings.bounded(endpoint.spec)
        planned = endpoint.model_copy(update={"status": status, "spec": bounded})
        routed = frozenset(route.ref for route in endpoint.status.routes)
        around = surroundings(loaders, target.number if target else None, routed)
        advanced, held = await self._advanced(planned, around, now)
        following = with_generation(endpoint.status, advanced.status)
        written = advanced.model_copy(update={"status": following, "spec": endpoint.spec})
        try:
            await self._write(endpoint, written)
        except EndpointConflictError as error:
            log.info("planned on an old revision, once more: %s", error)
            return _Outcome(endpoint, options, written=False)
        except (RegistryError, OSError) as error:  # this one must not hold up the others
            log.warning("the endpoint %s can't be written: %s", endpoint.name, error)
            return _Outcome(endpoint, options, written=False, attended=False)
        if decision.convert is not None:
            self._jobs.start(decision.convert.options, self._request(endpoint, decision, seen))
        return _Outcome(written, options, attended=not held)

    async def _advanced(
        self, planned: ModelEndpoint, around: Surroundings, now: float
    ) -> tuple[ModelEndpoint, bool]:
        """With its rollout's next step, and whether a fault in there holds this endpoint alone."""
        try:
            advanced = await asyncio.to_thread(self._rollouts.advance, planned, around, now)
        except Exception as error:
            metrics.ROLLOUT_FAULTS.labels(planned.name).inc()
            log.exception("the rollout of %s can't go on and holds", planned.name)
            note = f"the rollout stays where it is: its reconcile step failed with {error!r}"
            return planned.model_copy(update={"status": _noted(planned.status, note)}), True
        return advanced, False

    async def _write(self, before: ModelEndpoint, after: ModelEndpoint) -> None:
        if after == before:
            return
        await asyncio.to_thread(self._endpoints.put, after)
        _log_transitions(after.name, before.status, after.status)
        self._changed.set()

    def _request(
        self, endpoint: ModelEndpoint, decision: Decision, seen: Observed
    ) -> ConversionRequest:
        version = decision.convert.number if decision.convert else ""
        return ConversionRequest(
            tracking_uri=self._options.tracking_uri,
            model=endpoint.spec.model,
            version=version,
            store_url=self._options.store_url,
            serving=endpoint.spec.serving.of_package(),
            task=endpoint.spec.task,
            stable=seen.stable,
            **asdict(self._options.conditions),
            work_dir="",
        )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one endpoint's pass leaves: the endpoint as it is now, and the conversion it wants."""

    endpoint: ModelEndpoint
    options: str
    written: bool = True
    attended: bool = True  # false: nobody would take its candidate back now


def missing_endpoints(
    models: Iterable[str],
    endpoints: Iterable[ModelEndpoint],
    *,
    taken: frozenset[str] = frozenset(),
) -> tuple[ModelEndpoint, ...]:
    """An endpoint with defaults for each model that no endpoint serves.

    Args:
        models: names of registered models.
        endpoints: all that exist and can be read.
        taken: names of endpoints that exist besides.

    Returns:
        The new endpoints. Of two models whose names give the same endpoint name, the first in
        order gets it; the other needs an endpoint that someone writes.
    """
    existing = tuple(endpoints)
    served = {endpoint.spec.model for endpoint in existing}
    names = {endpoint.name for endpoint in existing} | taken
    made = []
    for model in sorted(set(models) - served):
        name = endpoint_name(model)
        if name not in names:
            names.add(name)
            made.append(ModelEndpoint(metadata=Metadata(name=name), spec=EndpointSpec(model=model)))
    return tuple(made)


def with_generation(before: EndpointStatus, after: EndpointStatus) -> EndpointStatus:
    """With the next generation where what gateways and loaders must follow has changed.

    It is about the spec that was read, which is news where the stored one is about an earlier spec.
    """
    changed = _followed(before) != _followed(after)
    update = {"generation": before.generation + changed, "outdated": False}
    return after.model_copy(update=update)


def _followed(status: EndpointStatus) -> tuple[object, ...]:
    salt = status.rollout.id if status.rollout else ""
    return status.routes, status.packages, salt


def _noted(status: EndpointStatus, note: str) -> EndpointStatus:
    return status.model_copy(update={"notes": (*status.notes, note)})


def _is_blocked(status: EndpointStatus) -> bool:
    return status.candidate is not None and status.candidate.phase is Phase.BLOCKED


def _log_transitions(name: str, before: EndpointStatus, after: EndpointStatus) -> None:
    if after.stable is not None and after.stable != before.stable:
        metrics.PROMOTIONS.labels(name).inc()
        log.info("%s now serves version %s", name, after.stable.version)
    known = {(line.at, line.version, line.phase) for line in before.history}
    for line in after.history:
        if (line.at, line.version, line.phase) not in known:
            log.info(
                "%s: version %s is %s",
                name,
                line.version,
                line.phase.value,
                extra={"reason": line.reason, "by": line.by},
            )


async def _wake_at(stop: asyncio.Event, changed: asyncio.Event) -> None:
    await stop.wait()
    changed.set()
