"""The whole of ``headrace up``, from an empty folder to a stack that answers, and its end.

It reads top to bottom: check the machine, claim the home, check the ports, fetch the parts, start
the processes, register the example, wait for answers, run until asked to stop. Whatever goes wrong
on the way, every process that was started is stopped.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from contracts.loading import Device
from headrace.errors import DownloadError, HeadraceError, StoppedError
from headrace.stack import answers, doctor, example, grafana, ports, provision, services, state
from headrace.stack.settings import LOOPBACK, StackSettings
from headrace.stack.state import GatewayRecord, Home, StackRecord, TritonRecord
from headrace.stack.supervisor import StartObserver, Supervisor
from registry.stores.reports import FileReports

_RECORD_SECONDS = 0.2
# How long a start waits for answers: of packages that are there, and of the example, which is
# converted first. What does not answer by then is said, and the stack runs.
_KNOWN_SECONDS = 30.0
_CONVERTED_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A stack that answers: ``serving`` endpoints do, ``unready`` ones with the reason do not.

    ``devices``: what each loader's Triton computes with, as far as it is known by now.
    ``grafana``: where dashboards are, or why not; empty if no Grafana is named.
    """

    settings: StackSettings
    seconds: float
    serving: tuple[str, ...]
    unready: dict[str, str]
    devices: tuple[Device | None, ...] = ()
    grafana: str = ""


class StartView(StartObserver, Protocol):
    """What a start-up shows; ``headrace.commands.steps`` draws it."""

    def step(self, name: str, done: str = "") -> AbstractContextManager[None]:
        """Times the block as one step; it counts as done unless the block raises."""

    def note(self, name: str, text: str) -> None:
        """Says what a step that runs is at."""


class StackRun:
    """One run of the local stack. ``announce`` is called once, when everything answers."""

    def __init__(
        self,
        settings: StackSettings,
        environment: Mapping[str, str],
        view: StartView,
        announce: Callable[[RunningStack], None],
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._view = view
        self._announce = announce
        self._supervisor: Supervisor | None = None
        self._signals = 0
        self._started = False

    async def run(self) -> None:
        """Starts the stack and keeps it running until SIGINT, SIGTERM or SIGHUP.

        A first signal stops the processes in order, a second one kills them.

        Raises:
            HeadraceError: the stack can't start or go on; nothing is left running.
            StoppedError: a signal came before the stack answered.
        """
        loop = asyncio.get_running_loop()
        life = asyncio.create_task(self._supervise_all(), name="stack")
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in signals:
            loop.add_signal_handler(number, self._on_signal, life)
        try:
            await life
        except asyncio.CancelledError:
            if not self._signals:
                raise
            if not self._started:
                raise StoppedError("Stopped before the stack had started.") from None
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _on_signal(self, life: "asyncio.Task[None]") -> None:
        self._signals += 1
        if self._signals == 1:
            life.cancel()
        elif self._supervisor is not None:
            self._supervisor.kill()

    async def _supervise_all(self) -> None:
        began = time.monotonic()
        settings = self._settings
        with self._view.step("machine"):
            for sentence in await asyncio.to_thread(doctor.require_fit, settings):
                self._view.note("machine", sentence)
        with state.claim_home(settings.home) as home:
            ports.require_free(settings.needed_ports(), settings.ports, settings.listens_on)
            await self._fetch()
            state.forget_other_loaders(home, {each.report for each in settings.loader_replicas})
            plan = services.plan(settings, home, self._environment)
            async with Supervisor(plan, home.logs, self._view) as supervisor:
                self._supervisor = supervisor
                try:
                    await supervisor.start()
                    serving, unready = await self._until_answers(home)
                    self._started = True
                    seconds = time.monotonic() - began
                    devices = _devices(settings, home)
                    there = await self._bring_dashboards()
                    self._announce(
                        RunningStack(settings, seconds, serving, unready, devices, there)
                    )
                    await self._keep(supervisor, home)
                finally:
                    home.stack_file.unlink(missing_ok=True)

    async def _fetch(self) -> None:
        settings = self._settings
        wanted = {} if settings.triton_grpc else {"triton": settings.parts_folder}
        wanted |= {} if settings.kafka_bootstrap else {"kafka": settings.parts_folder}
        if settings.device == "gpu" and not settings.triton_grpc:
            wanted["export"] = settings.cache  # torch, by which packed engines use the GPU

        async def fetch(part: str, folder: Path) -> None:
            step = f"get {part}"
            with self._view.step(step):
                await provision.fetch(part, folder, lambda line: self._view.note(step, line))

        try:
            async with asyncio.TaskGroup() as group:
                for part, folder in wanted.items():
                    group.create_task(fetch(part, folder))
        except* HeadraceError as errors:
            raise DownloadError(
                "\n".join(str(error) for error in errors.exceptions)
            ) from errors.exceptions[0]

    async def _until_answers(self, home: Home) -> tuple[tuple[str, ...], dict[str, str]]:
        """Registers the example in an empty registry and waits until what should answer does."""
        settings = self._settings
        expected = answers.list_served(home)
        within_seconds = _KNOWN_SECONDS
        if settings.example and await self._registry_is_empty():
            with self._view.step("example", f"registered in MLflow as {example.MODEL}"):
                await example.register(
                    example.command(settings.mlflow_url),
                    self._environment,
                    lambda text: self._view.note("example", text),
                    within_seconds=settings.start_within_seconds,
                )
            expected.add(example.ENDPOINT)
            within_seconds = _CONVERTED_SECONDS
        if not expected:
            return (), {}
        with self._view.step("answers"):
            unready = await answers.wait(
                [replica.url for replica in settings.gateway_replicas],
                home,
                expected,
                lambda text: self._view.note("answers", text),
                within_seconds=within_seconds,
            )
        return tuple(sorted(expected - unready.keys())), unready

    async def _bring_dashboards(self) -> str:
        if self._settings.grafana is None:
            return ""
        with self._view.step("grafana"):
            token = self._environment.get(grafana.TOKEN, "")
            return await grafana.bring_dashboards(self._settings.grafana, token)

    async def _registry_is_empty(self) -> bool:
        with self._view.step("registry", "asked for models"):
            return await example.registry_is_empty(
                self._settings.mlflow_url,
                lambda text: self._view.note("registry", text),
                self._settings.start_within_seconds,
            )

    async def _keep(self, supervisor: Supervisor, home: Home) -> None:
        """Runs until cancelled, and keeps the record of process ids true."""
        settings = self._settings
        started_at = time.time()
        running = asyncio.create_task(supervisor.run(), name="run")
        written: dict[str, int] = {}
        try:
            while not running.done():
                now = supervisor.pids
                if now != written:
                    record = record_of(settings, started_at, now)
                    written = now if state.wrote_record(home, record) else written
                await asyncio.wait([running], timeout=_RECORD_SECONDS)
            running.result()
        finally:
            running.cancel()


def _devices(settings: StackSettings, home: Home) -> tuple[Device | None, ...]:
    reports = {report.loader: report for report in FileReports(home.reports).list()}
    found = (reports.get(each.report) for each in settings.loader_replicas)
    return tuple(None if report is None else report.device for report in found)


def record_of(settings: StackSettings, started_at: float, services: dict[str, int]) -> StackRecord:
    """What the other commands are told of a stack; ``services``: process ids by name."""
    gateways = tuple(
        GatewayRecord(
            name=each.name, url=each.url, grpc=each.grpc, operations_url=each.operations_url
        )
        for each in settings.gateway_replicas
    )
    tritons = tuple(
        TritonRecord(
            name="triton" if each.triton is None else each.triton.name,
            grpc=each.triton_grpc,
            metrics_url="" if each.triton is None else each.triton.metrics_url,
            loader=each.name,
            loader_metrics_url=each.metrics_url,
            pool=each.pool,
        )
        for each in settings.loader_replicas
    )
    return StackRecord(
        pid=os.getpid(),
        started_at=started_at,
        gateway_url=settings.gateway_url,
        gateway_grpc=settings.gateway_grpc,
        mlflow_url=settings.mlflow_url,
        stats_url=settings.stats_url,
        kafka_bootstrap=settings.kafka_address,
        triton_grpc=settings.triton_address,
        package_store=settings.package_store or "",
        auto_endpoints=settings.auto_endpoints,
        gateways=gateways,
        tritons=tritons,
        services=services,
        pages={name: url for name, url in pages(settings).items() if name in services},
    )


def pages(settings: StackSettings) -> dict[str, str]:
    """Where each part says how it is. Kafka, which speaks no HTTP, is seen by what reads it."""
    ports = settings.ports
    found = {
        "mlflow": f"{settings.mlflow_url}/health",
        "controller": f"http://{LOOPBACK}:{ports.controller_metrics}/livez",
        "fold": f"http://{LOOPBACK}:{ports.fold_metrics}/livez",
        "stats": f"{settings.stats_url}/readyz",
    }
    for loader in settings.loader_replicas:
        here = f"http://{LOOPBACK}:{loader.metrics_port}"
        found[loader.name] = f"{here}/readyz"
        if loader.triton is not None:
            found[loader.triton.name] = (
                f"http://{LOOPBACK}:{loader.triton.http_port}/v2/health/ready"
            )
    return found | {
        each.name: f"{each.operations_url}/readyz" for each in settings.gateway_replicas
    }
