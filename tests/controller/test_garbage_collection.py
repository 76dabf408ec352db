"""When the controller removes packages, and when it does not."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from registry_fakes import MemoryEndpoints, MemoryPackages, endpoint, manifest, packed

from contracts.endpoint import EndpointStatus
from contracts.manifest import Manifest
from contracts.model import ModelRef
from controller.garbage_collection import (
    EVERY_SECONDS,
    FIRST_SECONDS,
    MOST_PROVEN,
    GarbageCollection,
)
from registry.packages.store import PackageStore
from registry.packages.store_mark import StoreMark

VERSIONS = [manifest(str(number)) for number in range(1, 5)]


class Days:
    """Waits that end when a test says so."""

    def __init__(self) -> None:
        self.waits: asyncio.Queue[float] = asyncio.Queue()
        self._over = asyncio.Semaphore(0)

    async def wait(self, seconds: float) -> None:
        self.waits.put_nowait(seconds)
        await self._over.acquire()

    async def end_one(self) -> float:
        """Lets a wait end; returns the next one, which begins after the look between them."""
        self._over.release()
        return await self.waits.get()


class Packages(MemoryPackages):
    """A store that says when it is asked, and can be held there."""

    def __init__(self, *manifests: Manifest) -> None:
        super().__init__(*manifests)
        self.asked = threading.Event()
        self.free = threading.Event()
        self.free.set()
        self.fault: Exception | None = None

    def manifest(self, package: str) -> Manifest:
        self.asked.set()
        self.free.wait()
        if self.fault is not None:
            raise self.fault
        return super().manifest(package)

    @property
    def versions(self) -> set[str]:
        return {item.version for item in self.held.values()}


class World:
    """A collection that keeps one package, and what is around it."""

    def __init__(self, keep: int = 1) -> None:
        self.days = Days()
        self.store = Packages(*VERSIONS)
        self.endpoints = MemoryEndpoints(endpoint())
        self.converting = False
        self.proved: list[ModelRef] = []
        self.task = asyncio.create_task(self.collecting(keep).run())

    def collecting(self, keep: int) -> GarbageCollection:
        return GarbageCollection(
            keep,
            self.store,
            self.open,
            lambda: self.converting,
            foreign=lambda: "",
            prove=self.prove,
            wait=self.days.wait,
        )

    async def prove(self, ref: ModelRef) -> None:
        self.proved.append(ref)

    def open(self) -> MemoryEndpoints:
        return self.endpoints

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.days.end_one()

    async def look_that_hangs(self) -> asyncio.Task[None]:
        """A look that waits for the store's list until the store is ``free``."""
        self.store.asked.clear()
        self.store.free.clear()
        looking = asyncio.create_task(self.look())
        await asyncio.to_thread(self.store.asked.wait)
        return looking


async def prove_none(ref: ModelRef) -> None:
    """Reads nothing."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.days.waits.get()
    yield made
    made.store.free.set()
    made.task.cancel()


async def test_told_to_keep_none_it_never_removes_any_but_has_named_ones_read() -> None:
    world = World(keep=0)
    await world.days.waits.get()
    world.endpoints.show(EndpointStatus(packages=(VERSIONS[1].ref(),)))
    await world.look(3)
    assert len(world.store.held) == len(VERSIONS)
    assert world.proved == [VERSIONS[1].ref()] * 3
    world.task.cancel()


async def test_what_endpoints_name_is_read_a_part_at_a_time_one_after_the_other(
    world: World,
) -> None:
    refs = {manifest(str(number)).ref() for number in range(1, MOST_PROVEN + 3)}
    world.endpoints.show(EndpointStatus(packages=tuple(refs)))
    await world.look()
    assert len(set(world.proved)) == len(world.proved) == MOST_PROVEN
    await world.look()
    assert len(world.proved) == len(refs)
    assert set(world.proved) == refs
    await world.look()
    assert world.proved[len(refs) :] == world.proved[:MOST_PROVEN]


async def test_it_waits_before_its_first_two_looks_and_a_day_before_each_other() -> None:
    world = World()
    waits = [await world.days.waits.get()] + [await world.days.end_one() for _ in range(3)]
    assert waits == [FIRST_SECONDS, FIRST_SECONDS, EVERY_SECONDS, EVERY_SECONDS]
    world.task.cancel()


async def test_what_two_looks_find_needless_is_removed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await world.look()
    assert len(world.store.held) == len(VERSIONS)
    await world.look()
    assert world.store.versions == {"4"}
    assert VERSIONS[0].package_id() in caplog.text


async def test_what_an_endpoint_names_stays(world: World) -> None:
    world.endpoints.show(EndpointStatus(packages=(VERSIONS[1].ref(),)))
    await world.look(3)
    assert world.store.versions == {"2", "4"}


async def test_a_package_that_is_published_just_now_stays_until_its_endpoint_names_it(
    world: World,
) -> None:
    await world.look()
    pinned = manifest("0")
    world.store.held[pinned.package_id()] = pinned
    await world.look()
    assert world.store.versions == {"0", "4"}
    world.endpoints.show(EndpointStatus(packages=(pinned.ref(),)))
    await world.look()
    assert world.store.versions == {"0", "4"}


async def test_a_package_that_is_named_while_the_others_are_listed_stays(world: World) -> None:
    await world.look()
    looking = await world.look_that_hangs()
    world.endpoints.show(EndpointStatus(packages=(VERSIONS[0].ref(),)))
    world.store.free.set()
    await looking
    assert world.store.versions == {"1", "4"}


async def test_nothing_is_removed_while_a_conversion_may_publish_it_again(world: World) -> None:
    world.converting = True
    await world.look(2)
    assert len(world.store.held) == len(VERSIONS)
    world.converting = False
    await world.look()
    assert world.store.versions == {"4"}


async def test_nothing_is_removed_while_an_endpoint_can_not_be_read(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.endpoints.unreadable = frozenset({"other"})
    await world.look(3)
    assert len(world.store.held) == len(VERSIONS)
    assert "other" in caplog.text
    world.endpoints.unreadable = frozenset()
    await world.look(2)
    assert world.store.versions == {"4"}


async def test_nothing_is_removed_while_the_endpoints_are_away_or_none(world: World) -> None:
    world.endpoints.broken = True
    await world.look(2)
    world.endpoints.broken = False
    world.endpoints.delete("e")
    await world.look(2)
    assert len(world.store.held) == len(VERSIONS)


async def test_a_store_that_is_away_is_tried_again_the_next_time(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.look()
    world.store.away = True
    await world.look()
    assert "the store is away" in caplog.text
    world.store.away = False
    await world.look()
    assert world.store.versions == {"4"}


async def test_an_unexpected_error_does_not_end_it(world: World) -> None:
    world.store.fault = RuntimeError("nobody thought of this")
    await world.look(2)
    world.store.fault = None
    await world.look(2)
    assert world.store.versions == {"4"}


async def test_when_it_is_cancelled_it_ends_and_removes_no_more(world: World) -> None:
    await world.look()
    looking = await world.look_that_hangs()
    world.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await world.task
    looking.cancel()
    world.store.free.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert len(world.store.held) == len(VERSIONS)


async def test_nothing_is_removed_from_a_store_that_another_release_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two releases with one store, each of which knows its own endpoints only."""
    url = str(tmp_path / "store")
    store = PackageStore(url)
    for version in ("1", "2"):
        store.publish(tmp_path / version, packed(tmp_path / version, version=version))
    ours, theirs = StoreMark(url, [b"a" * 32]), StoreMark(url, [b"b" * 32])
    assert ours.claim() == ""
    days = Days()
    collection = GarbageCollection(
        1,
        store,
        lambda: MemoryEndpoints(endpoint()),
        lambda: False,
        foreign=theirs.claim,
        prove=prove_none,
        wait=days.wait,
    )
    task = asyncio.create_task(collection.run())
    await days.waits.get()
    for _ in range(3):
        await days.end_one()
    task.cancel()
    assert len(store.packages()) == 2
    assert "another release" in caplog.text


async def test_what_killed_ones_left_behind_is_removed_after_two_looks(tmp_path: Path) -> None:
    store = PackageStore(str(tmp_path / "store"))
    ref = store.publish(tmp_path / "made", packed(tmp_path / "made"))
    (tmp_path / "store" / ".aside-x").mkdir()
    days = Days()
    collection = GarbageCollection(
        1,
        store,
        lambda: MemoryEndpoints(endpoint()),
        lambda: False,
        foreign=lambda: "",
        prove=prove_none,
        wait=days.wait,
    )
    task = asyncio.create_task(collection.run())
    await days.waits.get()
    await days.end_one()
    assert store.leftovers()
    await days.end_one()
    task.cancel()
    assert not store.leftovers()
    assert store.packages() == [ref.package]
