"""Brings registered versions into service: the reconcile loop.

Each endpoint's reconcile observes its surroundings (MLflow, the store, the conversions that run,
the loaders' reports). ``plan`` and then the rollout decide the next status, which is written once,
against the revision that was read. Events only wake the loop. It keeps no state that it needs:
killed at any instant, the next start goes on from the statuses.

A pass looks which endpoints have work: those on their way, those about which something changed, and
now and then every one. They wait in a queue, fair to tenants and rollouts first, and a few are
reconciled at a time, each with a deadline. One that takes long goes on while further passes look
after the others.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import is_
from zlib import crc32

from contracts.ceilings import NO_CEILINGS, Ceilings
from contracts.endpoint import EndpointStatus, ModelEndpoint, Phase
from contracts.loading import DeviceKind
from contracts.model import ModelRef
from contracts.rollout import COMMAND_PREFIX
from contracts.status_events import left_last, new_lines
from contracts.tasks import MARKED
from contracts.waiting import describe_with_time, new_waits
from preprocess.tasks import HEADS
from registry import metrics
from registry.conversions.index import ConversionIndex
from registry.conversions.messages import Conditions, ConversionFailure, ConversionRequest
from registry.conversions.running import ConversionJobs
from registry.errors import EndpointConflictError, RegistryError
from registry.mlflow.model_registry import RegisteredModel, RegisteredVersion
from registry.mlflow.projection import alias_refusals, moved_alias, projection
from registry.mlflow.workspaces import WorkspaceWatches
from registry.packages.store import StoreError
from registry.reconcile import pools, sleep
from registry.reconcile.auto_endpoints import missing_endpoints, name_notes
from registry.reconcile.heartbeats import HeartbeatTracker, HeartbeatWriter
from registry.reconcile.observer import EndpointObserver
from registry.reconcile.plan import ENDED, NextPool, ObservedState, PlanDecision, is_crossing, plan
from registry.reconcile.rollouts import HeldPackages, Rollouts, Surroundings
from registry.reconcile.waits import list_waits, with_fault
from registry.reconcile.work_queue import WorkQueue
from registry.stores.endpoints import EndpointStore
from registry.stores.reports import Reports
from service.cluster.errors import ApiRefusedError, ObjectTooLargeError

log = logging.getLogger(__name__)

_CREATE_RETRY_SECONDS = 30.0  # an endpoint whose creation was refused
_MOST_LOGGED = 1000  # characters of what is waited for
_REFUSAL_SECONDS = 60.0  # of a status, before its rollout ends; one that is too large never fits
_TELL_SECONDS = 5.0  # for the status of an endpoint that could not be reconciled
_PATIENCE_SECONDS = 1.0  # that a pass waits for endpoints that take long


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """How the controller works, and what it asks of conversions."""

    tracking_uri: str
    store_url: str
    tick_seconds: float = 0.25
    loader_silence_seconds: float = 15.0
    keep_seconds: float = 600.0
    at_once: int = 8  # endpoints that are reconciled at a time
    deadline_seconds: float = 30.0  # of one reconcile
    # At a rollout about which nothing changed, not even a window closed: time may end a step.
    rollout_look_seconds: float = 1.0
    # At an endpoint about which nothing changed, at most; of many, this many of them a second.
    look_again_seconds: float = 10.0
    looks_a_second: float = 30.0
    overdue_seconds: float = 60.0  # without a reconcile: nobody looks after the endpoint
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
        source: WorkspaceWatches,
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
        self._observer = EndpointObserver(options.conditions, index=index, jobs=jobs, now=now)
        self._heartbeats = HeartbeatTracker(options.loader_silence_seconds)
        self._held = HeldPackages()
        self._create_at: dict[str, float] = {}
        self._queue = WorkQueue(options.at_once, max(1, options.at_once // 2))
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._listed: dict[str, ModelEndpoint] = {}
        self._notes: dict[str, tuple[str, ...]] = {}
        self._moves: dict[str, str] = {}  # the alias that an endpoint moves
        self._outcomes: dict[str, _Outcome] = {}
        self._refused_since: dict[str, float] = {}  # endpoints with a rollout, by our clock
        self._projected: tuple[ModelEndpoint, ...] | None = None

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
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._options.tick_seconds):
                        await self._changed.wait()
            for task in beside:
                task.cancel()
        for reconcile in self._tasks:
            reconcile.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._jobs.close()

    async def step(self, *, patience_seconds: float | None = None) -> frozenset[str]:
        """One pass over all endpoints.

        Args:
            patience_seconds: endpoints that take longer go on beside the next pass, and those about
                which nothing changed are left out; None: reconciles every one, and waits for all.

        Returns:
            Names of those that could not be reconciled: nobody would roll a candidate of theirs
            back now.

        Raises:
            OSError: endpoints or reports can't be read.
        """
        metrics.KUBERNETES_AWAY.set(self._reports.disconnected)  # before what fails meanwhile
        endpoints = await asyncio.to_thread(self._endpoints.list)
        await asyncio.to_thread(self._endpoints.tell_refused)
        if self._options.auto_endpoints:
            await self._create_missing(endpoints)
        reports = await asyncio.to_thread(self._reports.list)
        now = self._now()
        alive = self._heartbeats.alive(reports, now, disconnected=self._reports.disconnected)
        self._held.take(alive, self._heartbeats.absent())
        self._count_sick()
        self._observer.note_damaged(self._held.list_damaged())
        self._take(endpoints)
        failed = {
            key for key, word in self._jobs.states.items() if isinstance(word, ConversionFailure)
        }
        for endpoint in endpoints:
            if patience_seconds is None or self._has_work(endpoint, now):
                urgent = is_urgent(endpoint)
                self._queue.add(endpoint.name, endpoint.tenant, urgent=urgent)
        await self._work(patience_seconds)
        self._settle_jobs(failed)
        self._project()
        metrics.WAITING.set(self._queue.waiting + len(self._queue.running))
        return self._endpoints.unreadable | self._list_unattended(self._now())

    async def prove(self, ref: ModelRef) -> None:
        """Reads a package in the store; a damaged or missing one is converted again."""
        await self._observer.prove(ref)

    def _count_sick(self) -> None:
        """Counts the Tritons that refuse what is good; one that is well again leaves no series."""
        metrics.SICK_TRITONS.clear()
        for pool in self._held.pools:
            for loader in self._held.of(pool).verdicts.sick:
                metrics.SICK_TRITONS.labels(pool, loader).set(1)

    def _take(self, endpoints: tuple[ModelEndpoint, ...]) -> None:
        listed = {endpoint.name: endpoint for endpoint in endpoints}
        for gone in self._listed.keys() - listed.keys():
            self._queue.drop(gone)
            self._outcomes.pop(gone, None)
            self._refused_since.pop(gone, None)
            self._observer.forget(gone)
        if listed.keys() != self._listed.keys() or any(
            listed[name] is not known for name, known in self._listed.items()
        ):
            refusals = alias_refusals(endpoints, self._options.alias_models)
            self._moves = {
                endpoint.name: moved_alias(endpoint)
                for endpoint in endpoints
                if endpoint.name not in refusals
            }
            every = refusals, name_notes(endpoints)
            self._notes = {
                name: tuple(notes[name] for notes in every if notes.get(name)) for name in listed
            }
        self._listed = listed

    def _has_work(self, endpoint: ModelEndpoint, now: float) -> bool:
        last = self._outcomes.get(endpoint.name)
        if last is None or last.seen is None or not last.written:
            return True
        if last.seen.endpoint is not endpoint or self._is_due(endpoint, last, now):
            return True
        if any(key.startswith(COMMAND_PREFIX) for key in endpoint.metadata.annotations):
            return True
        return last.options in self._jobs.states or last.seen != self._reconcile_inputs(endpoint)

    def _is_due(self, endpoint: ModelEndpoint, last: "_Outcome", now: float) -> bool:
        """Whether time alone, or traffic, may have changed something."""
        rolls = endpoint.status.rollout is not None
        if is_under_way(endpoint.status) and not rolls:
            return True
        name = endpoint.name
        seconds = self._options.rollout_look_seconds if rolls else self._look_again_seconds(name)
        if now - last.at >= seconds or now < last.at:
            return True
        return rolls and self._closed_through(endpoint) != last.closed_through

    def _look_again_seconds(self, name: str) -> float:
        """Half of the longest time at least, by the name: or all would be due in one pass."""
        longest = max(
            self._options.look_again_seconds, len(self._listed) / self._options.looks_a_second
        )
        return longest * (1 - crc32(name.encode()) / 2**33)

    def _closed_through(self, endpoint: ModelEndpoint) -> int:
        """Windows end at whole seconds: while this is the same, there are none to be judged."""
        return int(self._rollouts.closed_through(endpoint))

    def _reconcile_inputs(self, endpoint: ModelEndpoint) -> "_ReconcileInputs":
        model = endpoint.spec.model
        snapshot = self._source.snapshot_of(model)
        return _ReconcileInputs(
            endpoint,
            self._revisions(endpoint),
            snapshot is not None,
            snapshot.models.get(model) if snapshot else None,
            snapshot.versions.get(model) if snapshot else None,
            self._notes.get(endpoint.name, ()),
        )

    def _revisions(self, endpoint: ModelEndpoint) -> tuple[int, ...]:
        """Of what the Tritons hold on which the endpoint may be placed."""
        pools = (*endpoint.status.pools, endpoint.spec.pool)
        return tuple(self._held.of(pool).revision for pool in pools)

    async def _work(self, patience_seconds: float | None) -> None:
        """Reconciles what waits, a few at a time, until nothing does or patience ends."""
        began = time.monotonic()
        while True:
            while (name := self._queue.take()) is not None:
                self._tasks[asyncio.create_task(self._try_reconcile(self._listed[name]))] = name
            if not self._tasks:
                return
            left = None
            if patience_seconds is not None:
                left = max(0.0, began + patience_seconds - time.monotonic())
            done, _ = await asyncio.wait(
                self._tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                self._queue.finish(self._tasks.pop(task))
                task.result()
            if not done and left is not None:
                return

    async def _try_reconcile(self, endpoint: ModelEndpoint) -> None:
        """One reconcile within its deadline; what came of it is on record for the pass."""
        seen, began = self._reconcile_inputs(endpoint), time.monotonic()
        closed_through = self._closed_through(endpoint)
        try:
            async with asyncio.timeout(self._options.deadline_seconds):
                outcome = await self._reconcile(endpoint)
        except Exception as error:  # noqa: BLE001 - logged there, and it holds only this endpoint
            await self._tell_fault(endpoint, error)
            known, states = self._outcomes.get(endpoint.name), self._jobs.states
            # A conversion that runs goes on; a place among those that wait holds up others.
            options = known.options if known and known.options in states else ""
            outcome = _Outcome(endpoint, options, written=False, attended=False)
        metrics.RECONCILE_SECONDS.observe(time.monotonic() - began)
        if outcome.written:
            self._refused_since.pop(endpoint.name, None)
        if endpoint.name in self._listed:
            changed = outcome.endpoint is not endpoint
            self._outcomes[endpoint.name] = replace(
                outcome,
                at=self._now(),
                seen=None if changed else seen,
                closed_through=closed_through,
            )

    async def _tell_fault(self, endpoint: ModelEndpoint, error: Exception) -> None:
        """Tells why an endpoint can't be reconciled; in its status what may last."""
        is_late = isinstance(error, TimeoutError)
        if isinstance(error, RegistryError | StoreError | OSError) and not is_late:
            log.warning("the endpoint %s could not be reconciled: %s", endpoint.name, error)
            return
        late = f"it took more than {self._options.deadline_seconds:g} s" if is_late else ""
        waits = with_fault(
            endpoint.status.waits, self._note_fault(endpoint, error, late), self._now()
        )
        if waits == endpoint.status.waits:
            return
        status = endpoint.status.model_copy(update={"waits": waits})
        try:
            async with asyncio.timeout(_TELL_SECONDS):
                await self._write(endpoint, endpoint.model_copy(update={"status": status}))
        except Exception as refused:  # noqa: BLE001 - what failed may be the writing itself
            log.warning("the endpoint %s can't say so: %r", endpoint.name, refused)

    def _note_fault(self, endpoint: ModelEndpoint, error: Exception, what: str = "") -> str:
        """What holds an endpoint, in words; it is counted, and logged once."""
        metrics.ROLLOUT_FAULTS.labels(endpoint.name).inc()
        said = f"Headrace can't go on with it: {what or repr(error)}"[:_MOST_LOGGED]
        if all(wait.what != said for wait in endpoint.status.waits):
            log.error("the endpoint %s stays as it is", endpoint.name, exc_info=error)
        return said

    def _settle_jobs(self, failed: set[str]) -> None:
        """Ends conversions that nobody wants, and forgets failures that are on record."""
        outcomes = self._outcomes
        self._jobs.end_pass()
        if len(outcomes) < len(self._listed):
            return  # who has not been reconciled yet may want any
        self._jobs.keep_only(
            {name: each.options for name, each in outcomes.items() if each.options}
        )
        # Those that every endpoint has seen, and every one that wants them has on record.
        pending = {outcome.options for outcome in outcomes.values() if not outcome.written}
        waiting = {
            self._outcomes[name].options for name in self._queue.running if name in self._outcomes
        }
        for noted in failed - pending - waiting:
            self._jobs.forget(noted)

    def _project(self) -> None:
        """Tells the write-back what MLflow should say, if that is new."""
        seen = tuple(
            self._outcomes[name].endpoint if name in self._outcomes else endpoint
            for name, endpoint in self._listed.items()
        )
        known = self._projected
        if known is not None and len(known) == len(seen) and all(map(is_, known, seen)):
            return
        metrics.BLOCKED.set(sum(1 for item in seen if _is_blocked(item.status)))
        wanted = projection(seen, self._options.alias_models)
        self._source.follow({item.spec.model for item in seen}, wanted)
        self._projected = seen

    def _list_unattended(self, now: float) -> frozenset[str]:
        """Endpoints whose last reconcile failed, and rollouts that have long waited for one."""
        long_ago = now - self._options.overdue_seconds
        return frozenset(
            name
            for name, endpoint in self._listed.items()
            if not self._is_attended(endpoint, self._outcomes.get(name), long_ago)
        )

    @staticmethod
    def _is_attended(endpoint: ModelEndpoint, last: "_Outcome | None", long_ago: float) -> bool:
        if endpoint.status.rollout is not None and (last is None or last.at < long_ago):
            return False
        return last is None or last.attended

    async def _safe_pass(self, heartbeat: HeartbeatWriter | None) -> None:
        try:
            unattended = await self.step(patience_seconds=_PATIENCE_SECONDS)
        except (RegistryError, StoreError, OSError) as error:
            metrics.PASSES.labels("cut short").inc()
            log.warning("a pass was cut short: %s", error)
        else:
            metrics.PASSES.labels("whole").inc()
            if heartbeat is not None:
                heartbeat.pass_ended(unattended)

    async def _create_missing(self, endpoints: tuple[ModelEndpoint, ...]) -> None:
        taken = self._endpoints.unreadable
        for missing in missing_endpoints(self._source.models(), endpoints, taken=taken):
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

    async def _reconcile(self, endpoint: ModelEndpoint) -> "_Outcome":
        """Observe, plan, write, act; a conflict leaves it for later."""
        now, keep = self._now(), self._options.keep_seconds
        snapshot, held = self._source.snapshot_of(endpoint.spec.model), self._held
        ceilings = self._options.ceilings
        refused = ceilings.list_excesses(endpoint.spec)
        place = partial(
            pools.place_endpoint, endpoint.spec, endpoint.status, held, refused=bool(refused)
        )
        device, crossing = (
            pools.device_of(endpoint.spec, endpoint.status, held, refused=bool(refused)),
            pools.crossing_of(endpoint.spec, endpoint.status, held, refused=bool(refused)),
        )
        seen, target = await self._observer.observe(endpoint, snapshot, device, crossing)
        moved = None
        if seen.move is not None and is_crossing(endpoint.status, seen):
            package = seen.packages.get(seen.move.options)
            moved = None if package is None else package.ref
        elif seen.move is not None and endpoint.status.rollout is None:
            moved = endpoint.status.stable  # one package for all kinds of devices
        placed = place(crossing=crossing, moved=moved)
        pool, there = held.of(placed.pool), held.of(endpoint.spec.pool)
        seen = replace(
            seen,
            refused=refused,
            loaders=pool.loaders,
            absent=pool.absent,
            unserved="" if pool.loaders else placed.unserved,
            unsaid=pools.unsaid(placed, held),
            next_pool=NextPool(endpoint.spec.pool, there.loaders, there.everywhere, there.absent),
        )
        options = target.options if target else ""
        decision = plan(endpoint.spec, placed, seen, now, keep_seconds=keep)
        unguarded = _explain_unguarded(endpoint, seen)
        notes = (
            *self._notes.get(endpoint.name, ()),
            *([unguarded] if unguarded else ()),
            *refused,
            *filter(None, [left_last(decision.status)]),
            *pools.notes(decision.status, held),
            *pools.crossing_notes(endpoint.spec, decision.status, held, crossing, seen.move_fault),
        )
        moves = self._moves.get(endpoint.name, "")
        said = {"notes": notes, "refused": refused, "unguarded": unguarded, "moves": moves}
        status = decision.status.model_copy(update=said)
        planned = endpoint.model_copy(update={"status": status})
        rollout = {"rollout": planned.rollout_spec}  # with the steps that its strategy makes
        bounded = ceilings.bound(endpoint.spec.model_copy(update=rollout))
        planned = planned.model_copy(update={"spec": bounded})
        routed = frozenset(route.ref for route in endpoint.status.routes)
        around = pool.around(target.number if target else None, routed)
        advanced, fault = await self._advance(planned, around, now)
        status = sleep.note_sleep(bounded, advanced.status, held, now)
        waits = list_waits(
            bounded,
            status,
            seen,
            snapshot,
            sick=tuple(pools.sick_tritons(status, held)),
            fault=fault,
            before=endpoint.status.waits,
            now=now,
        )
        status = status.model_copy(update={"waits": waits})
        following = with_generation(endpoint.status, status)
        written = advanced.model_copy(update={"status": following, "spec": endpoint.spec})
        written = endpoint if written == endpoint else written
        try:
            await self._write(endpoint, written)
        except EndpointConflictError as error:
            log.info("planned on an old revision, once more: %s", error)
            return _Outcome(endpoint, options, written=False)
        except (RegistryError, OSError) as error:  # this one must not hold up the others
            log.warning("the endpoint %s can't be written: %s", endpoint.name, error)
            metrics.WRITES_REFUSED.labels(endpoint.name).inc()
            safe = await self._withdraw(endpoint, error, now)
            return _Outcome(safe or endpoint, options, written=False, attended=safe is not None)
        if decision.convert is not None:
            request = self._request(endpoint, decision, seen)
            self._jobs.start(decision.convert.options, request, endpoint.tenant)
        return _Outcome(written, options, attended=not fault)

    async def _withdraw(
        self, endpoint: ModelEndpoint, error: Exception, now: float
    ) -> ModelEndpoint | None:
        """The endpoint without its rollout, written if the API server refuses the whole status.

        Else its candidate would keep its callers, and nobody could roll it back.
        """
        if not isinstance(error, ApiRefusedError) or endpoint.status.rollout is None:
            return None
        since = self._refused_since.setdefault(endpoint.name, now)
        if not isinstance(error, ObjectTooLargeError) and now - since < _REFUSAL_SECONDS:
            return None  # of a server that starts, or while rights are changed
        reason = (
            f"its status was refused, so that it could not have been rolled back later: {error}"
        )
        ended = await asyncio.to_thread(self._rollouts.withdraw, endpoint, now, reason)
        status = with_generation(endpoint.status, ended.status)
        safe = endpoint.model_copy(update={"status": status})
        try:
            await self._write(endpoint, safe)
        except (RegistryError, OSError) as refused:
            log.warning("%s: its rollout can't be ended either: %s", endpoint.name, refused)
            return None
        return safe

    async def _advance(
        self, planned: ModelEndpoint, around: Surroundings, now: float
    ) -> tuple[ModelEndpoint, str]:
        """With its rollout's next step, and the fault in there that holds only this endpoint."""
        try:
            advanced = await asyncio.to_thread(self._rollouts.advance, planned, around, now)
        except Exception as error:  # noqa: BLE001 - logged there, and it holds only this endpoint
            return planned, self._note_fault(planned, error)
        return advanced, ""

    async def _write(self, before: ModelEndpoint, after: ModelEndpoint) -> None:
        if after is before:
            return
        await asyncio.to_thread(self._endpoints.put, after)
        _log_transitions(after.name, before.status, after.status)
        self._changed.set()

    def _request(
        self, endpoint: ModelEndpoint, decision: PlanDecision, seen: ObservedState
    ) -> ConversionRequest:
        target = decision.convert
        return ConversionRequest(
            tracking_uri=self._options.tracking_uri,
            model=endpoint.spec.model,
            version=target.number if target else "",
            store_url=self._options.store_url,
            serving=endpoint.spec.serving.of_package(),
            task=endpoint.spec.task,
            # Whether its vectors may be of another dimension is known once they have a space.
            stable=None if seen.stable is None else seen.stable.of_any_dimension(),
            device=target.device if target else DeviceKind.CPU,
            **asdict(self._options.conditions),
            work_dir="",
        )


@dataclass(frozen=True, slots=True)
class _ReconcileInputs:
    """What a reconcile went by: while it is the same, another one changes nothing for now."""

    endpoint: ModelEndpoint = field(compare=False)  # the same object, as sources keep them
    loaders: tuple[int, ...]  # revisions of what their Tritons hold
    is_read: bool  # MLflow was
    model: RegisteredModel | None
    versions: tuple[RegisteredVersion, ...] | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one endpoint's pass leaves: the endpoint as it is now, and the conversion it wants."""

    endpoint: ModelEndpoint
    options: str
    written: bool = True
    attended: bool = True  # false: nothing would roll its candidate back now
    at: float = 0.0  # unix time, seconds
    seen: _ReconcileInputs | None = None  # None: look again at once
    closed_through: int = 0  # unix seconds, of windows: later ones were not judged


def is_under_way(status: EndpointStatus) -> bool:
    """Whether a version is on its way, so that the passing of time may change something."""
    candidate = status.candidate
    return status.rollout is not None or (candidate is not None and candidate.phase not in ENDED)


def is_urgent(endpoint: ModelEndpoint) -> bool:
    """Whether callers may wait for it: a rollout goes on, or a person asked for something."""
    asked = any(key.startswith(COMMAND_PREFIX) for key in endpoint.metadata.annotations)
    return endpoint.status.rollout is not None or asked


def with_generation(before: EndpointStatus, after: EndpointStatus) -> EndpointStatus:
    """Raises the generation if what gateways and loaders must follow has changed.

    It is about the spec that was read, which is news if the stored one is about an earlier spec.
    """
    changed = _list_followed(before) != _list_followed(after)
    update = {"generation": before.generation + changed, "outdated": False}
    return after.model_copy(update=update)


def _list_followed(status: EndpointStatus) -> tuple[object, ...]:
    salt = status.rollout.id if status.rollout else ""
    held = status.packages, status.next_packages
    return status.routes, held, status.pools, status.loading, status.next_loading, salt


def _explain_unguarded(endpoint: ModelEndpoint, seen: ObservedState) -> str:
    """Why gateways refuse all callers of the guardrail: as far as stable's labels are known."""
    wanted, stable = endpoint.spec.guardrail, seen.stable
    if wanted is None or endpoint.status.stable is None:
        return ""
    if stable is None:
        return endpoint.status.unguarded
    head = HEADS[stable.task]
    if MARKED not in head.kinds:
        return f"spec.guardrail: {stable.task} finds no labels in texts"
    why = wanted.name_unknown(head.markable(stable.labels, tuple(wanted.labels)))
    return f"spec.guardrail.labels: {why}" if why else ""


def _is_blocked(status: EndpointStatus) -> bool:
    return status.candidate is not None and status.candidate.phase is Phase.BLOCKED


def _log_transitions(name: str, before: EndpointStatus, after: EndpointStatus) -> None:
    if after.stable is not None and after.stable != before.stable:
        metrics.PROMOTIONS.labels(name).inc()
        log.info("%s now serves version %s", name, after.stable.version)
    for line in new_lines(before, after):
        log.info(
            "%s: version %s is %s",
            name,
            line.version,
            line.phase.value,
            extra={"reason": line.reason, "by": line.by},
        )
    for wait in new_waits(before, after):
        log.info("%s: %s", name, describe_with_time(name, after, wait, _MOST_LOGGED))


async def _wake_at(stop: asyncio.Event, changed: asyncio.Event) -> None:
    await stop.wait()
    changed.set()
