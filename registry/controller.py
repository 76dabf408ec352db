"""Brings registered versions into service: the registry's reconcile loop.

Run by ``registry.main``. Each pass observes every endpoint's surroundings (MLflow, the store, the
conversions that run, the loaders' reports), lets ``plan`` say what comes next, and writes that
against the revision that was read. Events only wake it. It holds nothing that it can't do without:
killed at any instant, the next start goes on from the statuses.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contracts.endpoint import EndpointSpec, ModelEndpoint, Phase
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from registry import auto_endpoints, metrics
from registry import plan as planning
from registry.conversions import ConversionIndex, options_digest
from registry.endpoint_store import EndpointStore
from registry.errors import EndpointConflictError, RegistryError
from registry.job import ConversionRequest, Failed, Progress, Published, Signature
from registry.jobs import ConversionJobs
from registry.mlflow_source import RegisteredVersion
from registry.observed import Decision, Observed, Package, Version
from registry.reports import Reports
from registry.source_watch import SourceWatch, Verdict
from registry.store import StoreError

log = logging.getLogger(__name__)

_Numbered = tuple[tuple[RegisteredVersion, ...], EndpointSpec, tuple[Version, ...]]
_LOOK_AGAIN_SECONDS = 60.0  # at an entry of the index that was there
_LOOK_FOR_SECONDS = 2.0  # at one that was not


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """How the controller works, and what it asks of conversions."""

    tracking_uri: str
    store_url: str
    tick_seconds: float = 0.25
    loader_silence_seconds: float = 15.0
    keep_seconds: float = 600.0
    threads: int = 1
    auto_endpoints: bool = False
    allow_pickle: bool = False
    allow_remote_code: bool = False


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
        changed: asyncio.Event,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._endpoints = endpoints
        self._source = source
        self._index = index
        self._reports = reports
        self._jobs = jobs
        self._changed = changed
        self._now = now
        self._known: dict[str, tuple[Package | None, float]] = {}
        self._signatures: dict[str, Signature] = {}
        self._numbered: dict[str, _Numbered] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Passes until told to stop; nothing that is away ends it."""
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._source.run(), name="source")
            waker = tasks.create_task(_wake_at(stop, self._changed), name="stop")
            while not stop.is_set():
                self._changed.clear()
                await self._safe_pass()
                try:
                    async with asyncio.timeout(self._options.tick_seconds):
                        await self._changed.wait()
                except TimeoutError:
                    continue
            watch.cancel()
            waker.cancel()
        await self._jobs.close()

    async def step(self) -> None:
        """One pass over all endpoints.

        Raises:
            OSError: endpoints or reports can't be read.
        """
        endpoints = await asyncio.to_thread(self._endpoints.list)
        if self._options.auto_endpoints:
            await self._make_missing(endpoints)
        reports = await asyncio.to_thread(self._reports.list)
        oldest = self._now() - self._options.loader_silence_seconds
        loaders = tuple(report for report in reports if report.at >= oldest)
        outcomes = [await self._reconcile(endpoint, loaders) for endpoint in endpoints]
        self._jobs.keep_only(outcome.options for outcome in outcomes if outcome.options)
        if all(outcome.written for outcome in outcomes):
            self._forget_failures()
        blocked = (outcome for outcome in outcomes if outcome.blocked)
        metrics.BLOCKED.set(sum(1 for _ in blocked))
        verdicts = [item for outcome in outcomes for item in outcome.verdicts]
        self._source.follow({endpoint.spec.model for endpoint in endpoints}, verdicts)

    async def _safe_pass(self) -> None:
        try:
            await self.step()
        except (RegistryError, StoreError, OSError) as error:
            metrics.PASSES.labels("cut short").inc()
            log.warning("a pass was cut short: %s", error)
        else:
            metrics.PASSES.labels("whole").inc()

    async def _make_missing(self, endpoints: tuple[ModelEndpoint, ...]) -> None:
        models = self._source.picture.models if self._source.picture else {}
        taken = self._endpoints.unreadable
        for endpoint in auto_endpoints.missing(models, endpoints, taken=taken):
            await asyncio.to_thread(self._endpoints.put, endpoint)
            log.info("made the endpoint %s for %s", endpoint.name, endpoint.spec.model)
            self._changed.set()

    # One endpoint

    async def _reconcile(
        self, endpoint: ModelEndpoint, loaders: tuple[LoaderReport, ...]
    ) -> "_Outcome":
        """Observe, plan, write, act; a conflict or a store that is away leaves it for later."""
        seen = Observed(self._versions(endpoint), self._aliases(endpoint), loaders=loaders)
        target = planning.chosen(endpoint.spec, endpoint.status, seen)
        options = target.options if target else ""
        seen = await self._look(endpoint, seen, options)
        decision = planning.plan(
            endpoint.spec,
            endpoint.status,
            seen,
            self._now(),
            keep_seconds=self._options.keep_seconds,
        )
        try:
            await self._write(endpoint, decision)
        except EndpointConflictError as error:
            log.info("planned on an old revision, once more: %s", error)
            self._changed.set()
            return _Outcome(options, written=False)
        if decision.convert is not None:
            self._jobs.start(decision.convert.options, self._request(endpoint, decision, seen))
        return _outcome(endpoint, decision, options)

    def _versions(self, endpoint: ModelEndpoint) -> tuple[Version, ...] | None:
        """The model's versions under the endpoint's options; None until they were read."""
        picture = self._source.picture
        model = endpoint.spec.model
        if picture is None or (model in picture.models and model not in picture.versions):
            return None
        found = picture.versions.get(model, ())
        kept = self._numbered.get(endpoint.name)
        if kept is None or kept[0] is not found or kept[1] != endpoint.spec:
            versions = tuple(self._version(endpoint, item) for item in found)
            kept = self._numbered[endpoint.name] = (found, endpoint.spec, versions)
        return kept[2]

    def _version(self, endpoint: ModelEndpoint, version: RegisteredVersion) -> Version:
        digest = options_digest(
            endpoint.spec,
            version,
            threads=self._options.threads,
            allow_pickle=self._options.allow_pickle,
            allow_remote_code=self._options.allow_remote_code,
        )
        return Version(version.number, digest)

    def _aliases(self, endpoint: ModelEndpoint) -> Mapping[str, str]:
        models = self._source.picture.models if self._source.picture else {}
        model = models.get(endpoint.spec.model)
        return model.aliases if model else {}

    async def _look(self, endpoint: ModelEndpoint, seen: Observed, options: str) -> Observed:
        """What is seen, with what the store and the running conversions say."""
        package, stable, fault = None, None, ""
        try:
            if options:
                package = await self._package(options)
            if endpoint.status.stable is not None:
                stable = await self._signature(endpoint.status.stable)
        except StoreError as error:
            fault = str(error)
        word = self._jobs.states.get(options)
        return Observed(
            versions=seen.versions,
            aliases=seen.aliases,
            packages={options: package} if package else {},
            jobs={options: word} if isinstance(word, Progress | Failed) else {},
            loaders=seen.loaders,
            stable=stable,
            fault=fault,
            busy=self._jobs.busy,
        )

    async def _package(self, options: str) -> Package | None:
        """The package of a version under these options, if it was converted before."""
        word = self._jobs.states.get(options)
        if isinstance(word, Published):
            package = await asyncio.to_thread(self._index.put, options, word.ref)
            self._known[options] = (package, self._now())
            self._jobs.forget(options)
            return package
        found, at = self._known.get(options, (None, 0.0))
        if self._now() - at >= (_LOOK_AGAIN_SECONDS if found else _LOOK_FOR_SECONDS):
            found = await asyncio.to_thread(self._index.get, options)
            self._known[options] = (found, self._now())
        return found

    async def _signature(self, ref: ModelRef) -> Signature:
        known = self._signatures.get(ref.package)
        if known is None:
            known = await asyncio.to_thread(self._index.signature, ref)
            self._signatures[ref.package] = known
        return known

    async def _write(self, endpoint: ModelEndpoint, decision: Decision) -> None:
        if decision.status == endpoint.status:
            return
        written = endpoint.model_copy(update={"status": decision.status})
        await asyncio.to_thread(self._endpoints.put, written)
        _tell_log(endpoint, decision)
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
            serving=endpoint.spec.serving,
            task=endpoint.spec.task,
            stable=seen.stable,
            allow_pickle=self._options.allow_pickle,
            allow_remote_code=self._options.allow_remote_code,
            threads=self._options.threads,
            work_dir="",
        )

    def _forget_failures(self) -> None:
        """Every endpoint has taken note of them."""
        failed = [key for key, word in self._jobs.states.items() if isinstance(word, Failed)]
        for options in failed:
            self._jobs.forget(options)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one endpoint's pass leaves for the others' sake."""

    options: str
    written: bool = True
    blocked: bool = False
    verdicts: tuple[Verdict, ...] = ()


def _outcome(endpoint: ModelEndpoint, decision: Decision, options: str) -> _Outcome:
    candidate = decision.status.candidate
    verdicts = tuple(
        Verdict(endpoint.name, endpoint.spec.model, version, verdict, reason)
        for version, (verdict, reason) in planning.verdicts(decision.status).items()
    )
    blocked = candidate is not None and candidate.phase is Phase.BLOCKED
    return _Outcome(options, blocked=blocked, verdicts=verdicts)


def _tell_log(endpoint: ModelEndpoint, decision: Decision) -> None:
    before, after = endpoint.status, decision.status
    if after.stable is not None and after.stable != before.stable:
        metrics.PROMOTIONS.labels(endpoint.name).inc()
        log.info("%s now serves version %s", endpoint.name, after.stable.version)
    known = {(line.at, line.version, line.phase) for line in before.history}
    for line in after.history:
        if (line.at, line.version, line.phase) not in known:
            log.info(
                "%s: version %s is %s",
                endpoint.name,
                line.version,
                line.phase.value,
                extra={"reason": line.reason},
            )


async def _wake_at(stop: asyncio.Event, changed: asyncio.Event) -> None:
    await stop.wait()
    changed.set()
