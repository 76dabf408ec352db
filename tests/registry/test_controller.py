"""The controller's passes with everything around it in memory, but the store of packages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from registry_fakes import (
    FakeRegistry,
    MemoryEndpoints,
    MemoryReports,
    ScriptedLauncher,
    endpoint,
    manifest,
)

from contracts.endpoint import EndpointStatus, Phase
from contracts.loading import LoadedModel, LoaderReport
from contracts.manifest import MODEL_ONNX, PackageFile
from contracts.model import ModelRef
from registry.controller import Controller, ControllerOptions
from registry.conversions import ConversionIndex
from registry.errors import SourceUnavailableError
from registry.job import Failed, Published
from registry.jobs import ConversionJobs
from registry.source_watch import SourceWatch
from registry.store import PackageStore, digest


class House:
    """A controller and its surroundings. ``restart`` is a ``kill -9`` and a new start."""

    def __init__(self, folder: Path, *, auto: bool = False) -> None:
        self.folder = folder
        self.time = 1000.0
        self.registry = FakeRegistry()
        self.endpoints = MemoryEndpoints(*([] if auto else [endpoint()]))
        self.reports = MemoryReports()
        self.options = ControllerOptions(
            tracking_uri="http://mlflow",
            store_url=(folder / "store").as_uri(),
            auto_endpoints=auto,
        )
        self.store = PackageStore(self.options.store_url)
        self.start()

    def start(self) -> None:
        self.changed = asyncio.Event()
        self.launcher = ScriptedLauncher()
        self.jobs = ConversionJobs(self.launcher, most=1, changed=self.changed)
        self.watch = SourceWatch(self.registry, poll_seconds=60.0, changed=self.changed)
        self.controller = Controller(
            self.options,
            endpoints=self.endpoints,
            source=self.watch,
            index=ConversionIndex(self.options.store_url, self.store),
            reports=self.reports,
            jobs=self.jobs,
            changed=self.changed,
            now=lambda: self.time,
        )

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
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        (source / MODEL_ONNX).write_bytes(b"graph")
        proof = PackageFile(sha256=digest(source / MODEL_ONNX), bytes=5)
        made = manifest(number, labels=labels).model_copy(update={"files": {MODEL_ONNX: proof}})
        return self.store.publish(source, made)

    async def convert(self, number: str) -> ModelRef:
        """The running conversion ends well."""
        ref = self.publish(number)
        self.launcher.end(Published(ref=ref))
        await self.settle_jobs()
        return ref

    async def fail(self, reason: str, *, by_version: bool) -> None:
        self.launcher.end(Failed(reason=reason, by_version=by_version))
        await self.settle_jobs()

    async def settle_jobs(self) -> None:
        await self.changed.wait()
        self.changed.clear()

    def load(self, *refs: ModelRef) -> None:
        """The loader holds these, from now on."""
        self.reports.put(
            LoaderReport(
                loader="l",
                triton_grpc="t:1",
                at=self.time,
                ready=True,
                loaded=tuple(LoadedModel(ref=item) for item in refs),
            )
        )

    async def serve(self, number: str) -> ModelRef:
        """Registers a version and brings it all the way."""
        self.registry.register("m", number)
        self.changed.clear()
        await self.settle()
        self.changed.clear()
        ref = await self.convert(number)
        await self.settle()
        self.load(ref)
        status = await self.settle()
        assert status.stable == ref
        return ref


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.jobs.close()


async def test_a_registered_version_is_converted_loaded_and_served(house: House) -> None:
    ref = await house.serve("1")
    status = house.endpoints.list()[0].status
    assert [line.phase for line in status.history] == [
        Phase.CONVERTING,
        Phase.LOADING,
        Phase.SERVING,
    ]
    assert house.registry.listed["m"][0].tags["headrace.e.verdict"] == "Promoted"
    assert ref in status.packages


async def test_the_second_conversion_is_told_what_callers_rely_on(house: House) -> None:
    await house.serve("1")
    house.registry.register("m", "2")
    await house.settle()
    request = house.launcher.requests[-1]
    assert request.version == "2"
    assert request.stable is not None
    assert request.stable.labels == ("no", "yes")


async def test_a_version_at_fault_says_why_in_mlflow_and_is_not_retried(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    await house.fail("model.pkl is a pickle", by_version=True)
    await house.settle()
    house.time += 1e6
    status = await house.settle()
    assert status.rejected[0].reason == "model.pkl is a pickle"
    assert house.registry.listed["m"][0].tags == {
        "headrace.e.verdict": "Rejected",
        "headrace.e.reason": "model.pkl is a pickle",
    }
    assert len(house.launcher.requests) == 1


async def test_a_fault_of_the_environment_is_retried_when_its_time_has_come(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    await house.fail("no space left", by_version=False)
    status = await house.settle()
    assert status.candidate is not None
    assert status.candidate.phase is Phase.BLOCKED
    assert len(house.launcher.requests) == 1
    house.time += 5.0
    await house.settle()
    assert len(house.launcher.requests) == 2


async def test_a_restart_after_publishing_does_not_convert_again(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    ref = await house.convert("1")
    await house.controller.step()
    await house.restart()
    status = await house.settle()
    assert house.launcher.requests == []
    assert ref in status.packages
    house.load(ref)
    assert (await house.settle()).stable == ref


async def test_a_restart_in_the_middle_of_a_conversion_converts_again(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    await house.restart()
    await house.settle()
    assert len(house.launcher.requests) == 1


async def test_an_endpoint_made_anew_takes_the_package_that_is_there(house: House) -> None:
    ref = await house.serve("1")
    house.endpoints.delete("e")
    house.endpoints.put(endpoint())
    assert (await house.settle()).stable == ref
    assert len(house.launcher.requests) == 1


async def test_mlflow_away_changes_nothing_and_its_verdicts_are_made_up_later(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    ref = await house.convert("1")
    house.registry.down = True
    house.load(ref)
    status = await house.settle()
    assert status.stable == ref
    assert house.registry.told == []
    house.registry.down = False
    await house.settle()
    assert house.registry.listed["m"][0].tags["headrace.e.verdict"] == "Promoted"


async def test_a_restart_with_mlflow_away_leaves_what_serves(house: House) -> None:
    ref = await house.serve("1")
    house.registry.down = True
    await house.restart()
    assert (await house.settle()).stable == ref


async def test_a_silent_loader_is_not_waited_for_and_not_believed(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    ref = await house.convert("1")
    house.load(ref)
    house.time += 16.0
    status = await house.settle()
    assert status.stable is None
    house.load(ref)
    assert (await house.settle()).stable == ref


async def test_a_conflict_is_planned_anew_on_what_was_read(house: House) -> None:
    house.registry.register("m", "1")
    await house.watch.round()
    house.endpoints.conflicts = 1
    await house.controller.step()
    assert house.launcher.requests == []
    await house.settle()
    assert len(house.launcher.requests) == 1


async def test_a_newer_version_ends_the_conversion_of_the_older(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.registry.register("m", "2")
    await house.settle()
    await house.settle()
    assert house.launcher.cancelled == 1
    assert house.launcher.requests[-1].version == "2"


async def test_two_endpoints_of_one_model_share_a_conversion(house: House) -> None:
    house.endpoints.put(endpoint(name="second"))
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    ref = await house.convert("1")
    house.load(ref)
    await house.settle()
    assert [item.status.stable for item in house.endpoints.list()] == [ref, ref]
    assert len(house.launcher.requests) == 1


async def test_two_endpoints_of_one_model_share_a_rejection(house: House) -> None:
    house.endpoints.put(endpoint(name="second"))
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    await house.fail("a pickle", by_version=True)
    await house.settle()
    assert all(item.status.rejected for item in house.endpoints.list())
    assert len(house.launcher.requests) == 1


async def test_with_auto_endpoints_registering_is_all_it_takes(tmp_path: Path) -> None:
    house = House(tmp_path, auto=True)
    house.registry.register("My_Model", "1")
    await house.watch.round()
    await house.controller.step()
    await house.settle()
    (made,) = house.endpoints.list()
    assert (made.name, made.spec.model) == ("my-model", "My_Model")
    assert house.launcher.requests[0].model == "My_Model"
    await house.jobs.close()


async def test_endpoints_that_can_not_be_read_end_no_loop(house: House) -> None:
    house.endpoints.broken = True
    stop = asyncio.Event()
    running = asyncio.create_task(house.controller.run(stop))
    house.registry.register("m", "1")
    await house.changed.wait()
    house.endpoints.broken = False
    while not house.launcher.requests:  # noqa: ASYNC110 - the loop's own ticks
        await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(running, 10)
    assert house.launcher.cancelled == 1
