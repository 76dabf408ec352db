"""The controller's process: ``python -P -m headrace.controller --help``.

Reads the environment once, here, builds the parts of registry, rollout and statistics, and keeps
one loop going until SIGTERM. Triton and the gateways go on without it.
"""

import asyncio
import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping

from prometheus_client import REGISTRY, start_http_server

from headrace.controller.metrics import RolloutCollector
from headrace.controller.rollouts import JoinedRollouts, PackageProfiles
from headrace.controller.settings import ControllerSettings
from registry.controller import Controller, ControllerOptions
from registry.conversions import ConversionIndex
from registry.credentials import mlflow_authorization
from registry.endpoint_store import FileEndpointStore
from registry.export_environment import (
    CommandExportEnvironment,
    ExportEnvironment,
    ExportingLauncher,
    NoExportEnvironment,
)
from registry.jobs import ConversionJobs
from registry.launcher import SubprocessLauncher, SubprocessOptions
from registry.mlflow_artifacts import MlflowArtifacts
from registry.mlflow_rest import MlflowRest
from registry.mlflow_source import MlflowRegistry
from registry.projection import EvidenceOf
from registry.reports import FileReports
from registry.rollouts import Rollouts
from registry.source_watch import SourceWatch
from registry.store import PackageStore
from registry.webhook import WebhookListener
from registry.write_back import WriteBack
from rollout.judge import Judge
from service import flags, logs
from stats.reader import WindowsReader

log = logging.getLogger(__name__)

_EXPORT_SECONDS = 1800.0
_CONVERSIONS = 1  # at a time


def main() -> int:
    """Runs until SIGTERM or SIGINT."""
    settings = flags.parse(
        ControllerSettings, sys.argv[1:], os.environ, program="headrace.controller"
    )
    logs.configure("controller", settings.log_level)
    log.info("the controller starts")
    if settings.metrics_port:
        REGISTRY.register(RolloutCollector(FileEndpointStore(settings.endpoints_dir).list))
        start_http_server(settings.metrics_port, addr="127.0.0.1")
    asyncio.run(_run(settings, dict(os.environ)))
    return 0


async def _run(settings: ControllerSettings, environment: Mapping[str, str]) -> None:
    stop, changed = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = PackageStore(settings.store_url)
    statistics = WindowsReader(settings.kafka_bootstrap)
    rollouts = JoinedRollouts(Judge(PackageProfiles(store)), statistics)
    source = _source(settings, environment, rollouts, changed)
    controller = Controller(
        _options(settings),
        endpoints=FileEndpointStore(settings.endpoints_dir),
        source=source,
        index=ConversionIndex(settings.store_url, store),
        reports=FileReports(settings.reports_dir),
        jobs=ConversionJobs(_launcher(settings, environment), most=_CONVERSIONS, changed=changed),
        rollouts=rollouts,
        changed=changed,
    )
    statistics.start()
    try:
        await _until(stop, settings, controller, source)
    finally:
        statistics.close()


async def _until(
    stop: asyncio.Event, settings: ControllerSettings, controller: Controller, source: SourceWatch
) -> None:
    if not settings.webhook_port:
        await controller.run(stop)
        return
    listener = WebhookListener(settings.webhook_secret, source.wake)
    async with await listener.serve(settings.webhook_port):
        await controller.run(stop)


def _source(
    settings: ControllerSettings,
    environment: Mapping[str, str],
    rollouts: Rollouts,
    changed: asyncio.Event,
) -> SourceWatch:
    rest = MlflowRest(
        settings.mlflow_uri,
        authorization=mlflow_authorization(environment),
        timeout_seconds=settings.mlflow_timeout_seconds,
    )

    async def render(evidence: EvidenceOf) -> Mapping[str, bytes]:
        return await asyncio.to_thread(rollouts.evidence, evidence.endpoint, evidence.state)

    registry = MlflowRegistry(rest)
    artifacts = MlflowArtifacts(rest, timeout_seconds=settings.mlflow_timeout_seconds)
    write_back = WriteBack(registry, artifacts, render)
    return SourceWatch(registry, write_back, poll_seconds=settings.poll_seconds, changed=changed)


def _options(settings: ControllerSettings) -> ControllerOptions:
    return ControllerOptions(
        tracking_uri=settings.mlflow_uri,
        store_url=settings.store_url,
        tick_seconds=settings.tick_seconds,
        loader_silence_seconds=settings.loader_silence_seconds,
        keep_seconds=settings.keep_seconds,
        threads=settings.conversion_threads,
        auto_endpoints=settings.auto_endpoints,
        allow_pickle=settings.allow_pickle,
        allow_remote_code=settings.allow_remote_code,
    )


def _launcher(settings: ControllerSettings, environment: Mapping[str, str]) -> ExportingLauncher:
    launcher = SubprocessLauncher(
        SubprocessOptions(
            work_dir=settings.work_dir,
            environment=environment,
            timeout_seconds=settings.conversion_timeout_seconds,
            memory_bytes=settings.conversion_memory_megabytes << 20,
        )
    )
    launcher.clean()
    export: ExportEnvironment = NoExportEnvironment()
    if settings.export_command:
        argv = tuple(shlex.split(settings.export_command))
        export = CommandExportEnvironment(argv, environment, timeout_seconds=_EXPORT_SECONDS)
    return ExportingLauncher(launcher, export)
