"""A conversion's folder goes with it, also where its controller was killed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conversion_template import request
from registry_fakes import KEYS

from registry.conversions.staging import EVERY_SECONDS, STAGING, StagingFolders, staging_url

CONVERSION_SECONDS = 2100.0
NEWER = b"a key that came by rotation" * 2


class Cleaning:
    """A controller that cleans a store, and waits that end when a test says so."""

    def __init__(self, folder: Path) -> None:
        self.store = folder
        self.staging = StagingFolders(folder.as_uri(), (NEWER, *KEYS))
        self.waits: asyncio.Queue[float] = asyncio.Queue()
        self._over = asyncio.Semaphore(0)
        self.task: asyncio.Task[None] | None = None

    async def _wait(self, seconds: float) -> None:
        self.waits.put_nowait(seconds)
        await self._over.acquire()

    async def start(self) -> float:
        """The controller starts, and looks; returns the first wait."""
        self.task = asyncio.create_task(self.staging.clean(CONVERSION_SECONDS, wait=self._wait))
        return await self._next_wait()

    async def _next_wait(self) -> float:
        async with asyncio.timeout(60):
            return await self.waits.get()

    async def look(self) -> float:
        """Lets a wait end; returns the next one."""
        self._over.release()
        return await self._next_wait()

    def leave(self, version: str, key: bytes = KEYS[0]) -> str:
        """What a conversion has written so far; returns its folder's URL."""
        asked = request(version).model_copy(update={"store_url": self.store.as_uri()})
        url = staging_url(asked, key)
        package = Path(url.removeprefix("file://")) / "package"
        package.mkdir(parents=True)
        (package / "model.onnx").write_bytes(b"half a graph")
        return url

    @property
    def left(self) -> set[str]:
        return {path.as_uri() for path in (self.store / STAGING).iterdir()}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / STAGING).mkdir()
    return tmp_path


@pytest.fixture
async def cleaning(store: Path) -> AsyncIterator[Cleaning]:
    made = Cleaning(store)
    yield made
    assert made.task is not None
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


async def test_folders_of_a_controller_that_was_killed_go_once_its_conversions_have_ended(
    cleaning: Cleaning,
) -> None:
    first, second = cleaning.leave("1"), cleaning.leave("2")
    assert await cleaning.start() == CONVERSION_SECONDS
    assert cleaning.left == {first, second}
    assert await cleaning.look() == EVERY_SECONDS
    assert cleaning.left == set()


async def test_a_folder_that_is_used_again_stays(cleaning: Cleaning) -> None:
    left, found_again = cleaning.leave("1"), cleaning.leave("2")
    await cleaning.start()
    with cleaning.staging.hold(found_again):  # its Job goes on, and is watched by this controller
        await cleaning.look()
        assert cleaning.left == {found_again}
    await cleaning.look()
    assert cleaning.left == set()
    assert left != found_again


async def test_a_folder_that_came_between_two_looks_waits_for_the_next(cleaning: Cleaning) -> None:
    await cleaning.start()
    url = cleaning.leave("1")
    await cleaning.look()
    assert cleaning.left == {url}
    await cleaning.look()
    assert cleaning.left == set()


async def test_what_is_another_controllers_or_nobodys_stays(cleaning: Cleaning) -> None:
    nobodys = cleaning.store / STAGING / "of-somebody-else"
    nobodys.mkdir()
    others = cleaning.leave("1", b"the key of another installation")
    cleaning.leave("1", NEWER)
    await cleaning.start()
    await cleaning.look()
    assert cleaning.left == {nobodys.as_uri(), others}


async def test_a_store_that_can_not_be_asked_is_asked_again(cleaning: Cleaning) -> None:
    staging, aside = cleaning.store / STAGING, cleaning.store / "aside"
    cleaning.leave("1")
    staging.rename(aside)
    staging.write_bytes(b"no folder")
    await cleaning.start()
    await cleaning.look()
    staging.unlink()
    aside.rename(staging)
    await cleaning.look()
    assert len(cleaning.left) == 1
    await cleaning.look()
    assert cleaning.left == set()
