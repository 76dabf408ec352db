"""What the observer says of versions while the store answers, hangs or is away."""

import asyncio
import threading
from collections.abc import Collection
from dataclasses import replace

from reachable import count_reachable
from registry_fakes import FakeRegistry, ScriptedLauncher, endpoint, ref

from contracts.endpoint import Arm, EndpointStatus, Route, ServingOptions
from contracts.model import ModelRef
from contracts.tasks import Task
from registry.conversions.index import ConversionIndex
from registry.conversions.messages import (
    Conditions,
    ConversionRequest,
    Package,
    PublishedPackage,
    Signature,
)
from registry.conversions.running import ConversionJobs
from registry.mlflow.model_registry import MlflowSnapshot
from registry.packages.store import PackageMissingError, StoreUnavailableError
from registry.reconcile.observer import EndpointObserver
from registry.reconcile.store_guard import StoreTimeoutGuard

CLASSIFIER = Signature(task=Task.TEXT_CLASSIFICATION, labels=("no", "yes"))
STABLE = EndpointStatus(routes=(Route(arm=Arm.STABLE, ref=ref("1", "a"), weight=100),))


class FakeIndex(ConversionIndex):
    """One package for every question, which it counts; none is listed while ``missing``."""

    def __init__(self) -> None:
        self.asked = 0
        self.missing = False
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()

    def get(self, options: str, named: Collection[ModelRef] = ()) -> Package | None:
        missing = self.missing
        package = self._answer()
        return None if missing else package

    def put(self, options: str, ref: ModelRef) -> Package:
        return self._answer()

    def signature(self, ref: ModelRef) -> Signature:
        return self._answer().signature

    def _answer(self) -> Package:
        self.asked += 1
        self.answers.wait(60)
        if self.error is not None:
            raise self.error
        return Package(ref("1", "a"), CLASSIFIER)


class ObserverHarness:
    def __init__(self, *, seconds: float = 60.0, most_known: int = 100) -> None:
        self.time = 1000.0
        self.index = FakeIndex()
        self.registry = FakeRegistry()
        self.registry.register("m", "1")
        self.launcher, self.changed = ScriptedLauncher(), asyncio.Event()
        self.jobs = ConversionJobs(self.launcher, most=1, changed=self.changed)
        self.store_guard = StoreTimeoutGuard(lambda: self.time, seconds=seconds)
        self.observer = EndpointObserver(
            Conditions(),
            index=self.index,
            jobs=self.jobs,
            now=lambda: self.time,
            store_guard=self.store_guard,
            most_known=most_known,
        )

    async def observe(self, status: EndpointStatus = STABLE, name: str = "e") -> tuple[str, int]:
        """The fault, and how many packages are seen."""
        models = {model.name: model for model in await self.registry.models()}
        snapshot = MlflowSnapshot(models, {"m": await self.registry.versions("m")})
        seen, self.target = await self.observer.observe(endpoint(status, name=name), snapshot)
        return seen.fault, len(seen.packages)


async def test_a_store_that_is_away_is_asked_once_for_all_endpoints_and_passes() -> None:
    harness = ObserverHarness()
    harness.index.error = StoreUnavailableError("connection refused")
    for name in ("e", "second", "e"):
        assert await harness.observe(name=name) == ("connection refused", 0)
    assert harness.index.asked == 1
    harness.time += 15.0
    harness.index.error = None
    assert await harness.observe() == ("", 1)


async def test_a_store_that_hangs_is_waited_for_by_no_pass_and_seen_when_it_answers() -> None:
    harness = ObserverHarness(seconds=0.0)
    harness.index.answers.clear()
    fresh = EndpointStatus()
    for name in ("e", "second"):
        fault, packages = await harness.observe(fresh, name)
        assert "has not answered" in fault
        assert packages == 0
    harness.index.answers.set()
    await asyncio.gather(*harness.store_guard.late.values())
    assert await harness.observe(fresh) == ("", 1)
    assert harness.index.asked == 1


async def test_what_the_store_said_before_a_conversion_ended_does_not_hide_its_package() -> None:
    harness, fresh = ObserverHarness(seconds=0.0), EndpointStatus()
    harness.index.missing = True
    harness.index.answers.clear()
    assert "has not answered" in (await harness.observe(fresh))[0]
    harness.index.answers.set()
    await asyncio.gather(*harness.store_guard.late.values())  # it says later that there is none
    assert harness.target is not None
    request = ConversionRequest(
        model="m", version="1", tracking_uri="http://m", store_url="file:///s",
        serving=ServingOptions(), work_dir="/w",
    )  # fmt: skip
    harness.jobs.start(harness.target.options, request)
    await asyncio.sleep(0)
    harness.launcher.end(PublishedPackage(ref=ref("1", "a")))
    await harness.changed.wait()
    harness.index.missing = False
    await harness.observe(fresh)
    await asyncio.gather(*harness.store_guard.late.values())
    assert await harness.observe(fresh) == ("", 1)
    harness.time += 60.0
    assert await harness.observe(fresh) == ("", 1)


async def test_a_package_that_was_seen_is_gone_on_with_while_the_store_is_away() -> None:
    harness = ObserverHarness()
    assert await harness.observe() == ("", 1)
    harness.time += 60.0
    harness.index.error = StoreUnavailableError("connection refused")
    assert await harness.observe() == ("", 1)


async def test_a_stable_version_without_a_package_is_no_fault_of_the_store() -> None:
    harness = ObserverHarness()
    harness.index.error = PackageMissingError("no such package")
    models = {model.name: model for model in await harness.registry.models()}
    seen, _ = await harness.observer.observe(endpoint(STABLE), MlflowSnapshot(models, {}))
    assert (seen.stable_gone, seen.fault) == (True, "")


async def test_what_is_kept_of_versions_is_bounded_however_many_come_and_go() -> None:
    harness = ObserverHarness(most_known=20)
    counts = []
    for number in range(2, 60):
        routes = (Route(arm=Arm.STABLE, ref=ref(str(number - 1), f"{number:x}"), weight=100),)
        harness.registry.register("m", str(number))
        harness.registry.delete("m", str(number - 1))
        assert await harness.observe(EndpointStatus(routes=routes)) == ("", 1)
        counts.append(count_reachable(harness.observer))
    # Threads and the like come and go; each version that stayed would be seven objects more.
    assert max(counts[20:]) < max(counts[:20]) + 70
    assert counts[8] > counts[0]  # it keeps something


async def test_a_tag_of_a_version_claims_the_space_of_its_vectors() -> None:
    harness = ObserverHarness()
    (version,) = harness.registry.listed["m"]
    for value, claims in (("same", True), ("cutover", False), ("", False)):
        tagged = replace(version, tags={"headrace.space": value})
        models = {model.name: model for model in await harness.registry.models()}
        snapshot = MlflowSnapshot(models, {"m": (tagged,)})
        seen, target = await harness.observer.observe(endpoint(STABLE, name="e"), snapshot)
        assert seen.versions == (target,)
        assert target is not None
        assert target.claims_space is claims
