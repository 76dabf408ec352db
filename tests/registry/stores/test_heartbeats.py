"""The controller's sign of life: where it lies, and that it is given only while passes end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes

from contracts.controller import ControllerBeat
from registry.reconcile.heartbeats import HeartbeatWriter
from registry.stores.heartbeats import FileHeartbeats, Heartbeats, KubernetesHeartbeats
from service.cluster import leases


def in_files(stack: ExitStack, folder: Path) -> Heartbeats:
    del stack
    return FileHeartbeats(folder)


def in_a_cluster(stack: ExitStack, folder: Path) -> Heartbeats:
    del folder
    return KubernetesHeartbeats(stack.enter_context(fake_kubernetes()).client(), NAMESPACE)


@pytest.fixture(params=[in_files, in_a_cluster], ids=["files", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Heartbeats]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path)


def sign(count: int, *unattended: str, instance: str = "a") -> ControllerBeat:
    return ControllerBeat(instance=instance, count=count, at=1.25, unattended=unattended)


class Noted:
    """Keeps every sign, and takes none where it is told to."""

    def __init__(self) -> None:
        self.signs: asyncio.Queue[ControllerBeat] = asyncio.Queue()
        self.refusals: asyncio.Queue[None] = asyncio.Queue()
        self.refuses = False
        self._loop = asyncio.get_running_loop()

    def put(self, beat: ControllerBeat) -> None:
        if self.refuses:
            self._loop.call_soon_threadsafe(self.refusals.put_nowait, None)
            raise OSError("no space left")
        self._loop.call_soon_threadsafe(self.signs.put_nowait, beat)

    def get(self) -> ControllerBeat | None:
        return None


@asynccontextmanager
async def beating(heart: HeartbeatWriter) -> AsyncIterator[None]:
    task = asyncio.create_task(heart.beat())
    try:
        async with asyncio.timeout(60):
            yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_the_last_sign_is_there_and_no_other(place: Heartbeats) -> None:
    assert place.get() is None
    for given in (sign(1), sign(2, "one", "two"), sign(1, instance="b")):
        place.put(given)
        assert place.get() == given


def test_a_sign_that_a_newer_controller_wrote_is_still_one(tmp_path: Path) -> None:
    place = FileHeartbeats(tmp_path)
    place.put(sign(1))
    (file,) = (tmp_path / ".controller").iterdir()
    file.write_text(file.read_text().replace('"count":1', '"count":2,"of_tomorrow":{"a":1}'))
    assert place.get() == sign(2)


def test_a_folder_of_endpoints_that_is_away_does_not_come_back_empty(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileHeartbeats(tmp_path / "endpoints").put(sign(1))
    assert not (tmp_path / "endpoints").exists()


def test_gateways_watch_the_lease_by_its_label() -> None:
    with fake_kubernetes() as fake:
        KubernetesHeartbeats(fake.client(), NAMESPACE).put(sign(3, "one"))
        collection = leases.beats(NAMESPACE)
        items, _ = fake.client().list(collection)
        (item,) = items
        assert leases.read_beat(item) == sign(3, "one")
        assert item["metadata"]["labels"] == {"headrace.dev/beat": "controller"}
        with pytest.raises(ValueError, match="JSON"):
            leases.read_beat({"metadata": {"name": "another"}})


async def test_the_first_sign_comes_with_the_first_pass_and_none_without() -> None:
    place = Noted()
    heart = HeartbeatWriter(place, every_seconds=0.001, now=lambda: 7.0)
    async with beating(heart):
        heart.passed(("lost", "found"))
        first = await place.signs.get()
        assert (first.count, first.at, first.unattended) == (1, 7.0, ("found", "lost"))
        second = asyncio.ensure_future(place.signs.get())
        done, _ = await asyncio.wait((second,), timeout=0.05)
        assert not done
        heart.passed(())
        assert ((await second).count, second.result().unattended) == (2, ())


async def test_each_start_of_a_controller_has_signs_of_its_own() -> None:
    place = Noted()
    given = []
    for _ in range(2):
        heart = HeartbeatWriter(place, every_seconds=0.001)
        async with beating(heart):
            heart.passed(())
            given.append(await place.signs.get())
    assert given[0].instance != given[1].instance


async def test_a_sign_that_can_not_be_written_is_told_once_and_the_next_one_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Noted()
    place.refuses = True
    heart = HeartbeatWriter(place, every_seconds=0.001)
    async with beating(heart):
        for _ in range(3):
            heart.passed(())
            await place.refusals.get()
        place.refuses = False
        heart.passed(())
        assert (await place.signs.get()).count == 4
    assert len([r for r in caplog.records if "sign of life can't be written" in r.message]) == 1
