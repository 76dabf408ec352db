"""A loader whose models leave when nobody asks, and come back: against a Triton in memory."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from loader_harness import LoaderHarness, names, status
from no_devices import NoDevices
from registry_fakes import endpoint, ref

from contracts.loading import LoaderReport, WakeAnswer
from registry.errors import TritonRefusedError
from registry.loading.loader import Loader
from registry.loading.room import Room
from registry.stores.endpoints import EndpointStore

STABLE, OTHER = ref("2", "b"), ref("3", "c")
NAME = STABLE.triton_model
HOUR = 3600.0


class Asked:
    """``Demand`` in memory."""

    def __init__(self) -> None:
        self.counts: dict[str, int | None] = {}
        self.refuses = False

    async def requests(self) -> Mapping[str, int | None]:
        if self.refuses:
            raise TritonRefusedError("no statistics here")
        return dict(self.counts)


class Sleepers(LoaderHarness):
    """A loader that lets models leave after an hour."""

    def __init__(self, folder: Path) -> None:
        self.asked = Asked()
        super().__init__(folder)
        self.options = replace(self.options, idle_seconds=HOUR, wake_address="l:1", wake_key="k")
        self.loader = self.new_loader()

    def new_loader(self, endpoints: EndpointStore | None = None) -> Loader:
        return Loader(
            self.options,
            endpoints=endpoints or self.endpoints,
            packages=self.packages,
            triton=self.triton,
            placement=self.placement,
            reports=self.reports,
            demand=self.asked,
            now=lambda: self.time,
            devices=NoDevices(),
        )

    async def serving(self) -> LoaderReport:
        self.asked.counts = {NAME: 0}
        return await self.serve(STABLE, stable=STABLE)

    async def after(self, seconds: float, *, asleep: float | None = None) -> LoaderReport:
        """So much later, with what the controller wrote by then."""
        self.time += seconds
        served = status(STABLE, stable=STABLE)
        self.endpoints.show(served.model_copy(update={"asleep": asleep}))
        return await self.settle()

    async def left(self) -> LoaderReport:
        """The model has left."""
        await self.serving()
        await self.after(HOUR, asleep=1.0)
        await self.after(10.0, asleep=1.0)
        return await self.after(0.0, asleep=1.0)


@pytest.fixture
def sleepers(tmp_path: Path) -> Sleepers:
    return Sleepers(tmp_path)


async def test_what_nobody_asks_for_is_called_idle_and_stays_until_the_status_has_it_sleep(
    sleepers: Sleepers,
) -> None:
    report = await sleepers.serving()
    assert report.idle == ()
    assert (report.wake_address, report.wake_key) == ("l:1", "k")
    report = await sleepers.after(HOUR)
    assert report.idle == (STABLE.package,)
    report = await sleepers.after(1000 * HOUR)
    assert names(report) == ["2"]
    assert sleepers.triton.models == {NAME}


async def test_it_leaves_after_gateways_have_read_that_and_its_files_stay(
    sleepers: Sleepers,
) -> None:
    await sleepers.serving()
    report = await sleepers.after(HOUR, asleep=1.0)
    assert names(report) == ["2"]
    await sleepers.after(10.0, asleep=1.0)
    report = await sleepers.after(0.0, asleep=1.0)
    assert report.loaded == ()
    assert list(report.asleep) == [STABLE.package]
    assert report.ready  # it lacks nothing
    assert sleepers.loader.unready() == ""
    assert sleepers.loader.fault() == ""
    assert sleepers.packages.forgotten == []
    assert sleepers.placement.removed == [NAME]


async def test_a_caller_in_the_last_moment_keeps_it(sleepers: Sleepers) -> None:
    await sleepers.serving()
    await sleepers.after(HOUR, asleep=1.0)
    sleepers.asked.counts = {NAME: 1}  # not looked at before it would leave
    report = await sleepers.after(10.0, asleep=1.0)
    assert names(report) == ["2"]
    assert report.idle == ()


async def test_it_comes_back_by_one_load_and_is_not_measured_again(sleepers: Sleepers) -> None:
    before = (await sleepers.serving()).loaded
    await sleepers.left()
    assert sleepers.loader.wake(NAME) is WakeAnswer.COMING
    report = await sleepers.after(0.0, asleep=1.0)
    assert report.loaded == before
    assert sleepers.loader.wake(NAME) is WakeAnswer.HELD
    assert sleepers.triton.loads() == [NAME, NAME]
    # And stays for as long as it did before, whatever the status says meanwhile.
    report = await sleepers.after(HOUR - 1, asleep=1.0)
    assert names(report) == ["2"]
    assert report.asleep == {}


async def test_it_comes_back_where_the_status_has_it_wake(sleepers: Sleepers) -> None:
    await sleepers.left()
    assert names(await sleepers.after(0.0, asleep=None)) == ["2"]


async def test_a_loader_that_was_killed_in_a_wake_lets_it_sleep_until_it_is_asked_again(
    sleepers: Sleepers,
) -> None:
    await sleepers.left()
    assert sleepers.loader.wake(NAME) is WakeAnswer.COMING
    sleepers.loader = sleepers.new_loader()
    assert (await sleepers.after(0.0, asleep=1.0)).loaded == ()
    assert sleepers.loader.wake(NAME) is WakeAnswer.COMING
    assert names(await sleepers.after(0.0, asleep=1.0)) == ["2"]


async def test_what_a_killed_loader_has_loaded_is_taken_up_by_the_next_one(
    sleepers: Sleepers,
) -> None:
    await sleepers.left()
    sleepers.triton.models.add(NAME)  # the killed one's load went on in Triton
    sleepers.loader = sleepers.new_loader()
    assert names(await sleepers.after(0.0, asleep=1.0)) == ["2"]
    await sleepers.after(HOUR, asleep=1.0)
    await sleepers.after(10.0, asleep=1.0)
    assert (await sleepers.after(0.0, asleep=1.0)).loaded == ()


class TwoSleepers(Sleepers):
    """Two models of which the Triton has room for one: the other one sleeps."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.options = replace(self.options, room=Room(memory_bytes=1_000_000_000))
        self.loader = self.new_loader()
        self.packages.sizes = {STABLE.package: 400_000_000, OTHER.package: 400_000_000}

    async def with_asleep(self, *, stable: bool, other: bool) -> LoaderReport:
        """After the controller wrote which of the two sleeps."""
        for name, package, sleeps in (("e", STABLE, stable), ("f", OTHER, other)):
            served = status(package, stable=package)
            shown = served.model_copy(update={"asleep": 1.0 if sleeps else None})
            known = self.endpoints.get(name) or endpoint(name=name)
            self.endpoints.put(known.model_copy(update={"status": shown}))
        return await self.settle()

    async def full(self) -> LoaderReport:
        """The first sleeps, and the other one has come since and is asked for."""
        await self.left()
        self.asked.counts = {OTHER.triton_model: 0}
        return await self.with_asleep(stable=True, other=False)


async def test_what_comes_back_and_does_not_fit_ends_no_triton_and_waits_for_room(
    tmp_path: Path,
) -> None:
    sleepers = TwoSleepers(tmp_path)
    assert names(await sleepers.full()) == ["3"]
    assert sleepers.loader.wake(NAME) is WakeAnswer.COMING
    report = await sleepers.settle()
    assert names(report) == ["3"]
    assert [failure.reason for failure in report.failed] == [
        "it needs some 800 MB of memory, and 1 other packages take some 800 MB of 1.0 GB"
    ]
    assert report.ready  # for the other one's callers
    assert sleepers.loader.unready() == ""
    assert sleepers.loader.wake(NAME) is WakeAnswer.NO_ROOM
    # The other one leaves while callers still ask for the first.
    sleepers.time += HOUR
    for _ in range(2):
        assert sleepers.loader.wake(NAME) is WakeAnswer.NO_ROOM
        await sleepers.with_asleep(stable=True, other=True)
        sleepers.time += 10.0
    assert names(await sleepers.with_asleep(stable=True, other=True)) == ["2"]
    assert sleepers.loader.wake(NAME) is WakeAnswer.HELD


async def test_what_nobody_waits_for_any_more_is_not_tried_and_no_failure(tmp_path: Path) -> None:
    sleepers = TwoSleepers(tmp_path)
    await sleepers.full()
    sleepers.loader.wake(NAME)
    assert (await sleepers.settle()).failed
    sleepers.time += HOUR
    sleepers.asked.counts = {OTHER.triton_model: 1}
    assert (await sleepers.with_asleep(stable=True, other=False)).failed == ()
    assert sleepers.loader.wake(NAME) is WakeAnswer.COMING


async def test_a_restarted_triton_gets_back_what_is_awake_alone(sleepers: Sleepers) -> None:
    await sleepers.left()
    assert (await sleepers.restart_triton()).loaded == ()
    sleepers.loader.wake(NAME)
    await sleepers.settle()
    assert names(await sleepers.restart_triton()) == ["2"]


async def test_while_triton_is_unloading_it_a_caller_is_told_to_ask_again(
    sleepers: Sleepers,
) -> None:
    await sleepers.serving()
    told = []
    unload = sleepers.triton.unload

    async def meanwhile(name: str) -> None:
        told.append(sleepers.loader.wake(name))
        await asyncio.sleep(0)
        await unload(name)

    sleepers.triton.unload = meanwhile  # type: ignore[method-assign]
    await sleepers.after(HOUR, asleep=1.0)
    await sleepers.after(10.0, asleep=1.0)
    assert told == [WakeAnswer.LEAVING]
    # And it comes back, as somebody asked.
    assert names(await sleepers.after(0.0, asleep=1.0)) == ["2"]


async def test_where_triton_does_not_count_nothing_leaves(sleepers: Sleepers) -> None:
    sleepers.asked.refuses = True
    await sleepers.serving()
    for _ in range(3):
        report = await sleepers.after(HOUR, asleep=1.0)
    assert names(report) == ["2"]
    assert report.idle == ()


async def test_it_knows_stable_versions_alone(sleepers: Sleepers) -> None:
    await sleepers.serving()
    assert sleepers.loader.wake("another") is WakeAnswer.UNKNOWN


async def test_without_the_setting_a_status_that_says_asleep_unloads_nothing(
    tmp_path: Path,
) -> None:
    harness = LoaderHarness(tmp_path)
    await harness.serve(STABLE, stable=STABLE)
    served = status(STABLE, stable=STABLE).model_copy(update={"asleep": 1.0})
    harness.endpoints.show(served)
    harness.time += 1000 * HOUR
    report = await harness.settle()
    assert names(report) == ["2"]
    assert (report.idle, report.wake_address) == ((), "")
