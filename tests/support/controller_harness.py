"""A controller with everything around it in memory, but the store of packages."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from registry_fakes import (
    KEYS,
    FakeRegistry,
    MemoryArtifacts,
    MemoryEndpoints,
    MemoryReports,
    ScriptedLauncher,
    ScriptedRollouts,
    endpoint,
    manifest,
    packed,
    report,
)

from contracts.endpoint import EndpointStatus
from contracts.model import ModelRef
from registry.conversions.index import ConversionIndex
from registry.conversions.messages import ConversionFailure, PublishedPackage
from registry.conversions.running import ConversionJobs
from registry.errors import SourceUnavailableError
from registry.mlflow.projection import ShownRollout
from registry.mlflow.watch import SourceWatch
from registry.mlflow.workspaces import WorkspaceWatches
from registry.mlflow.write_back import WriteBack
from registry.packages.store import PackageStore
from registry.reconcile.controller import Controller, ControllerOptions


class ControllerHarness:
    """A controller and its surroundings. ``restart`` is a ``kill -9`` and a new start."""

    def __init__(self, folder: Path, *, auto: bool = False) -> None:
        self.folder = folder
        self.time = 1000.0
        self.later_seconds = 0.0  # of the clock by which MLflow is asked
        self.registry = FakeRegistry()
        self.endpoints = MemoryEndpoints(*([] if auto else [endpoint()]))
        self.reports = MemoryReports()
        self.artifacts = MemoryArtifacts()
        self.rollouts = ScriptedRollouts()
        self.options = ControllerOptions(
            tracking_uri="http://mlflow",
            store_url=(folder / "store").as_uri(),
            auto_endpoints=auto,
            alias_models=("*",),
        )
        self.store = PackageStore(self.options.store_url)
        self.start()

    def start(self) -> None:
        self.changed = asyncio.Event()
        self.launcher = ScriptedLauncher()
        self.jobs = ConversionJobs(self.launcher, most=1, changed=self.changed)
        write_back = WriteBack(self.registry, self.artifacts, self.render)
        self.watch = SourceWatch(
            self.registry,
            write_back,
            poll_seconds=60.0,
            changed=self.changed,
            clock=lambda: time.monotonic() + self.later_seconds,
        )
        self.controller = Controller(
            self.options,
            endpoints=self.endpoints,
            source=WorkspaceWatches({"": self.watch}),
            index=ConversionIndex(self.options.store_url, self.store, KEYS),
            reports=self.reports,
            jobs=self.jobs,
            rollouts=self.rollouts,
            changed=self.changed,
            now=lambda: self.time,
        )

    async def render(self, evidence: ShownRollout) -> Mapping[str, bytes]:
        return self.rollouts.evidence(evidence.endpoint, evidence.state)

    async def restart(self) -> None:
        await self.jobs.close()
        self.start()

    async def settle(self) -> EndpointStatus:
        """Rounds and passes until three in a row change nothing."""
        quiet = 0
        while quiet < 3:
            before = self.endpoints.list()
            with contextlib.suppress(SourceUnavailableError):
                await self.watch.round()
            await self.controller.step()
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.endpoints.list() == before else 0
        return self.endpoints.list()[0].status

    def publish(self, number: str, *, labels: tuple[str, ...] = ("no", "yes")) -> ModelRef:
        """What a conversion leaves in the store."""
        files = packed(self.folder / "source").files
        made = manifest(number, labels=labels).model_copy(update={"files": files})
        return self.store.publish(self.folder / "source", made)

    async def convert(self, number: str) -> ModelRef:
        """The running conversion ends well."""
        ref = self.publish(number)
        self.launcher.end(PublishedPackage(ref=ref))
        await self.settle_jobs()
        return ref

    async def converted(self, number: str, *, run_id: str = "") -> ModelRef:
        """Registers a version, whose conversion ends well."""
        self.registry.register("m", number, run_id=run_id)
        await self.settle()
        self.changed.clear()
        return await self.convert(number)

    async def failed(self, number: str, reason: str, *, by_version: bool) -> None:
        """Registers a version, whose conversion fails."""
        self.registry.register("m", number)
        await self.settle()
        self.changed.clear()
        await self.fail(reason, by_version=by_version)

    async def fail(self, reason: str, *, by_version: bool) -> None:
        self.launcher.end(ConversionFailure(reason=reason, by_version=by_version))
        await self.settle_jobs()

    async def settle_jobs(self) -> None:
        await self.changed.wait()
        self.changed.clear()

    def load(self, *refs: ModelRef) -> None:
        """The loader holds these, from now on."""
        self.reports.put(report(*refs, at=self.time))

    async def prepare(self, number: str, *, run_id: str = "") -> ModelRef:
        """Registers a further version and brings it into Triton."""
        ref = await self.converted(number, run_id=run_id)
        await self.settle()
        self.load(*self.endpoints.list()[0].status.packages)
        return ref

    async def serve(self, number: str) -> ModelRef:
        """Registers a version and brings it all the way."""
        ref = await self.converted(number)
        await self.settle()
        self.load(ref)
        status = await self.settle()
        assert status.stable == ref
        return ref
