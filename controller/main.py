"""The controller's process: ``python -P -m controller.main --help``.

Reads the environment once, here, builds the parts of registry, rollout and statistics, and keeps
one loop going until SIGTERM. Triton and the gateways go on without it.
"""

import asyncio
import hmac
import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import REGISTRY

from controller.garbage_collection import GarbageCollection
from controller.metrics import RolloutCollector
from controller.rollouts import JoinedRollouts, PackageProfiles
from controller.settings import ControllerSettings
from controller.store_renewal import StoreRenewal
from registry.conversions import job_manifest
from registry.conversions.export_environment import (
    CommandExportEnvironment,
    ExportEnvironment,
    ExportingLauncher,
)
from registry.conversions.index import KEY_FILE, ConversionIndex
from registry.conversions.job_launcher import STUCK_SECONDS, JobLauncher, JobOptions
from registry.conversions.job_manifest import BadTemplateError
from registry.conversions.launcher import ConversionLauncher, SubprocessLauncher, SubprocessOptions
from registry.conversions.messages import Conditions
from registry.conversions.publication import PublishingLauncher
from registry.conversions.running import ConversionJobs
from registry.conversions.staging import StagingFolders
from registry.errors import SourceUnavailableError
from registry.mlflow.client import MlflowConnection
from registry.mlflow.model_registry import MlflowRegistry
from registry.mlflow.projection import ShownRollout
from registry.mlflow.watch import SourceWatch
from registry.mlflow.webhook import WebhookEntry, WebhookListener
from registry.mlflow.workspaces import WorkspaceWatches
from registry.mlflow.write_back import WriteBack
from registry.packages.store import PackageStore, StoreError, StoreUnavailableError
from registry.packages.store_mark import StoreMark, StoreTakenError
from registry.pyfunc.process import PyfuncLimits
from registry.reconcile.controller import Controller, ControllerOptions
from registry.reconcile.heartbeats import HeartbeatWriter
from registry.reconcile.release_claim import EndpointsTakenError, ReleaseClaim
from registry.reconcile.rollouts import Rollouts
from registry.stores import opening
from registry.stores.endpoints import EndpointStore
from registry.stores.heartbeats import Heartbeats, show_beat
from rollout.judge import WindowsJudge
from service import flags, logs, pages
from service.allocator import return_freed_memory
from service.cluster import access
from service.cluster.errors import AccessError
from service.kafka import KafkaAddress, KafkaLoginError
from service.key_files import HexKeyFileError, make_key_file, read_keys
from service.loop_heartbeat import LoopHeartbeat
from service.steady_clock import API_SERVER, SteadyClock
from stats.reading.published import KafkaEventLogEnds
from stats.reading.reader import WindowsReader
from stats.reading.record_log import KafkaRecordLog

log = logging.getLogger(__name__)

_EXPORT_SECONDS = 1800.0
# A pass over all endpoints: every call in it has a deadline, so that one this long never ends.
_PASS_SECONDS = 600.0
# Calls that block, each with a deadline: more than endpoints are reconciled at a time.
_THREADS = 32


@dataclass(frozen=True, slots=True)
class _Loops:
    """The heartbeats of the event loop and of the passes over all endpoints."""

    events: LoopHeartbeat = field(default_factory=LoopHeartbeat)
    passes: LoopHeartbeat = field(default_factory=lambda: LoopHeartbeat(_PASS_SECONDS))

    def fault(self) -> str:
        """Why the process should be restarted; empty if it should not."""
        if fault := self.passes.fault():
            return f"no pass over the endpoints has come to its end: {fault}"
        return self.events.fault()


@dataclass(frozen=True, slots=True)
class _Release:
    """Whose the store and the endpoints are, and where its controller beats."""

    keys: tuple[bytes, ...]
    heartbeats: Heartbeats
    claim: ReleaseClaim
    mark: StoreMark


def main() -> int:
    """Runs until SIGTERM or SIGINT."""
    return_freed_memory(os.environ)
    settings = flags.parse(ControllerSettings, sys.argv[1:], os.environ, program="controller.main")
    logs.configure("controller", settings.log_level)
    log.info("the controller starts")
    environment, clock = dict(os.environ), SteadyClock(witness=API_SERVER)
    try:
        endpoints = opening.whole_endpoints(settings.endpoints, environment)
        launcher = _launcher(settings, environment)
        keys = _index_keys(settings)
        release = _release(settings, environment, keys, clock)
        webhook_secrets = _webhook_secrets(settings)
        kafka = KafkaAddress.of(settings.kafka_bootstrap, login=settings.kafka_login)
        # Before the loop: its import takes seconds.
        mlflow = [
            MlflowConnection(
                settings.mlflow_uri,
                timeout_seconds=settings.mlflow_timeout_seconds,
                sources=settings.mlflow_sources,
                workspace=workspace,
            )
            for workspace in settings.mlflow_workspaces or ("",)
        ]
    except (
        AccessError,
        BadTemplateError,
        EndpointsTakenError,
        KafkaLoginError,
        HexKeyFileError,
        SourceUnavailableError,
        StoreTakenError,
    ) as error:
        log.error("%s", error)
        return 1
    loops = _Loops()
    if settings.metrics_port:
        REGISTRY.register(RolloutCollector(endpoints.list))
        pages.serve(settings.metrics_host, settings.metrics_port, {"/livez": loops.fault})
    statistics = WindowsReader(
        lambda: KafkaRecordLog(kafka, None, settings.windows_topic),
        KafkaEventLogEnds(kafka, settings.predictions_topic),
        clock=clock,
    )
    try:
        asyncio.run(
            _run(
                settings,
                environment,
                endpoints,
                launcher,
                release=release,
                mlflow=mlflow,
                webhook_secrets=webhook_secrets,
                statistics=statistics,
                loops=loops,
                clock=clock,
            )
        )
    except StoreUnavailableError as error:
        log.error("%s", error)
        return 1
    return 0


async def _run(
    settings: ControllerSettings,
    environment: Mapping[str, str],
    endpoints: EndpointStore,
    launcher: ConversionLauncher,
    *,
    release: _Release,
    mlflow: Sequence[MlflowConnection],
    webhook_secrets: Sequence[str],
    statistics: WindowsReader,
    loops: "_Loops",
    clock: SteadyClock,
) -> None:
    stop, changed = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = PackageStore(settings.store_url, check_mounted=release.mark.check_mounted)
    keys = release.keys
    rollouts = JoinedRollouts(WindowsJudge(PackageProfiles(store)), statistics)
    source = _source(settings, mlflow, rollouts, changed)
    staging = StagingFolders(settings.store_url, keys)
    publishing = PublishingLauncher(
        launcher,
        store,
        staging=staging,
        keys=keys,
        registered=source.find_version,
        work_dir=settings.work_dir,
    )
    publishing.clean()
    jobs = ConversionJobs(publishing, most=settings.conversions, changed=changed)
    controller = Controller(
        _options(settings),
        endpoints=endpoints,
        source=source,
        index=ConversionIndex(settings.store_url, store, keys),
        reports=opening.reports(settings.reports, environment, costs=False),
        jobs=jobs,
        rollouts=rollouts,
        changed=changed,
        now=clock,
    )
    collection = GarbageCollection(
        settings.keep_packages,
        store,
        lambda: opening.endpoints(settings.endpoints, environment, watch=False),
        lambda: bool(jobs.states),
        foreign=release.mark.claim,
        prove=controller.prove,
    )
    statistics.start()
    beside = [
        asyncio.create_task(loops.events.run(), name="heartbeat"),
        asyncio.create_task(collection.run(), name="garbage-collection"),
        asyncio.create_task(StoreRenewal(release.mark.claim, stop.set).run(), name="store-mark"),
        asyncio.create_task(staging.clean(_outliving_seconds(settings)), name="staging"),
    ]
    if settings.webhook_port and settings.webhook_url:
        entry = WebhookEntry(settings.webhook_url, webhook_secrets[0])
        beside += [asyncio.create_task(entry.keep(it), name="webhook-entry") for it in mlflow]
    try:
        heartbeat = HeartbeatWriter(
            release.heartbeats, claim=release.claim, on_taken=stop.set, now=clock
        )
        async with _webhook(settings, webhook_secrets, source):
            await controller.run(stop, heartbeat, after_pass=loops.passes.beat)
    finally:
        for task in beside:
            task.cancel()
        statistics.close()


@asynccontextmanager
async def _webhook(
    settings: ControllerSettings, secrets: Sequence[str], source: WorkspaceWatches
) -> AsyncIterator[None]:
    """Listens to webhooks within the block, if there is a port for them."""
    if not settings.webhook_port:
        yield
        return
    listener = WebhookListener(secrets, source.announce)
    async with await listener.serve(settings.webhook_port, host=settings.webhook_host):
        yield


def _source(
    settings: ControllerSettings,
    mlflow: Sequence[MlflowConnection],
    rollouts: Rollouts,
    changed: asyncio.Event,
) -> WorkspaceWatches:
    async def render(evidence: ShownRollout) -> Mapping[str, bytes]:
        return await asyncio.to_thread(rollouts.evidence, evidence.endpoint, evidence.state)

    def watch(connection: MlflowConnection) -> SourceWatch:
        registry = MlflowRegistry(connection)
        return SourceWatch(
            registry,
            WriteBack(registry, registry, render),
            poll_seconds=settings.poll_seconds,
            poll_with_webhooks_seconds=settings.poll_with_webhooks_seconds,
            workspace=connection.workspace,
            changed=changed,
        )

    return WorkspaceWatches({each.workspace: watch(each) for each in mlflow})


def _options(settings: ControllerSettings) -> ControllerOptions:
    return ControllerOptions(
        tracking_uri=settings.mlflow_uri,
        store_url=settings.store_url,
        tick_seconds=settings.tick_seconds,
        loader_silence_seconds=settings.loader_silence_seconds,
        keep_seconds=settings.keep_seconds,
        auto_endpoints=settings.auto_endpoints,
        alias_models=settings.alias_models,
        ceilings=settings.ceilings,
        conditions=Conditions(
            threads=settings.conversion_threads,
            allow_pickle=settings.allow_pickle,
            allow_remote_code=settings.allow_remote_code,
            sources=settings.mlflow_sources,
            model_code=settings.model_code,
            pyfunc=_pyfunc_limits(settings),
        ),
    )


def _pyfunc_limits(settings: ControllerSettings) -> PyfuncLimits | None:
    if not settings.pyfunc:
        return None
    return PyfuncLimits(megabytes=settings.pyfunc_megabytes, closed_off=settings.pyfunc_closed_off)


def _check_mark(mark: StoreMark) -> None:
    """Marks the package store; one that is away is looked at again before anything is removed.

    Raises:
        StoreTakenError: another release has it.
    """
    try:
        refused = mark.claim()
    except StoreError as error:
        log.warning("whose the package store is can't be seen yet: %s", error)
        return
    if refused:
        raise StoreTakenError(refused)


def _release(
    settings: ControllerSettings,
    environment: Mapping[str, str],
    keys: tuple[bytes, ...],
    clock: SteadyClock,
) -> _Release:
    """This release, if it may have the endpoints and the package store.

    Raises:
        EndpointsTakenError: another release's controller looks after them.
        StoreTakenError: another release has it.
    """
    heartbeats = opening.heartbeats(settings.endpoints, environment)
    # What has no release's name in it was marked before it had one.
    named = (hmac.digest(key, settings.release.encode(), "sha256") for key in keys)
    marking = (*named, *keys) if settings.release else keys
    claim = ReleaseClaim(heartbeats, marking, settings.endpoints)
    if refused := claim.refusal(time.sleep):
        raise EndpointsTakenError(refused)
    show_beat(heartbeats)  # two answers of the API server tell its time, by which the mark is
    owner = f"the controller of {settings.endpoints} on {socket.gethostname()}"
    mark = StoreMark(settings.store_url, marking, owner=owner, now=clock)
    _check_mark(mark)
    return _Release(keys, heartbeats, claim, mark)


def _index_keys(settings: ControllerSettings) -> tuple[bytes, ...]:
    """The keys that sign the index of conversions; raises ``HexKeyFileError``."""
    if settings.index_key_file:
        return read_keys(Path(settings.index_key_file))
    file = settings.work_dir / KEY_FILE
    try:
        make_key_file(file)
    except OSError as error:
        raise HexKeyFileError(f"{file} can't be made: {error}") from error
    return read_keys(file)


def _webhook_secrets(settings: ControllerSettings) -> tuple[str, ...]:
    """What MLflow may sign its webhooks with; raises ``HexKeyFileError``."""
    if not settings.webhook_port:
        return ()
    if settings.webhook_secret_file:
        return tuple(key.hex() for key in read_keys(Path(settings.webhook_secret_file)))
    if not settings.webhook_secret:
        raise HexKeyFileError("A webhook needs a secret: set --webhook-secret-file.")
    return (settings.webhook_secret,)


def _launcher(settings: ControllerSettings, environment: Mapping[str, str]) -> ConversionLauncher:
    if settings.conversion_job_template:
        return _jobs(settings, environment)
    launcher = SubprocessLauncher(
        SubprocessOptions(
            work_dir=settings.work_dir,
            environment=environment,
            timeout_seconds=settings.conversion_timeout_seconds,
            memory_bytes=settings.conversion_memory_megabytes << 20,
        )
    )
    launcher.clean()
    export: ExportEnvironment | None = None
    if settings.export_command:
        argv = tuple(shlex.split(settings.export_command))
        export = CommandExportEnvironment(argv, environment, timeout_seconds=_EXPORT_SECONDS)
    return ExportingLauncher(launcher, export)


def _outliving_seconds(settings: ControllerSettings) -> float:
    """So long a conversion may go on when its controller is gone."""
    if not settings.conversion_job_template:
        return 0.0  # the launcher ended them all
    return settings.conversion_timeout_seconds + STUCK_SECONDS


def _jobs(settings: ControllerSettings, environment: Mapping[str, str]) -> JobLauncher:
    if not access.in_cluster(settings.endpoints):
        raise BadTemplateError("conversions are Jobs only where the endpoints lie in a cluster")
    opened = access.open_namespace(settings.endpoints, environment)
    file = Path(settings.conversion_job_template)
    try:
        template = job_manifest.template(file.read_text(encoding="utf-8"))
    except (OSError, BadTemplateError) as error:
        raise BadTemplateError(f"the conversion's template {file}: {error}") from error
    options = JobOptions(
        opened.name,
        template,
        owner=opening.own_pod(environment),
        timeout_seconds=settings.conversion_timeout_seconds,
    )
    return JobLauncher(opened.client, options)


if __name__ == "__main__":
    sys.exit(main())
