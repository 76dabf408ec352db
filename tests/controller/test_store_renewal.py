"""The controller renews its mark in the package store, and ends once another release has it."""

import asyncio
from pathlib import Path

import pytest

from controller.store_renewal import RETRY_SECONDS, StoreRenewal
from registry.packages.store import StoreUnavailableError
from registry.packages.store_mark import RENEW_SECONDS, StoreMark, free, read_facts

OURS, THEIRS = b"a" * 32, b"c" * 32


class Renewing:
    """A renewal whose pauses end when a test says so, and whose store may be away."""

    def __init__(self, url: str) -> None:
        self.time, self.away = 1000.0, False
        self.mark = StoreMark(url, [OURS], now=lambda: self.time)
        self.waits: asyncio.Queue[float] = asyncio.Queue()
        self.taken = asyncio.Event()
        self._over = asyncio.Semaphore(0)
        self.task = asyncio.create_task(
            StoreRenewal(self.claim, self.taken.set, wait=self._wait).run()
        )

    def claim(self) -> str:
        if self.away:
            raise StoreUnavailableError("the store is away")
        return self.mark.claim()

    async def _wait(self, seconds: float) -> None:
        self.waits.put_nowait(seconds)
        await self._over.acquire()

    def pause_ends(self, seconds: float) -> None:
        self.time += seconds
        self._over.release()


async def test_the_mark_is_renewed_and_a_store_that_is_away_meanwhile_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = str(tmp_path / "store")
    renewing = Renewing(url)
    renewing.away = True  # as the controller starts: it asks again soon
    assert await renewing.waits.get() == RETRY_SECONDS
    renewing.away = False
    renewing.pause_ends(RETRY_SECONDS)
    assert await renewing.waits.get() == RENEW_SECONDS
    since = renewing.time
    renewing.pause_ends(RENEW_SECONDS)
    assert await renewing.waits.get() == RENEW_SECONDS
    facts = read_facts(url)
    assert facts is not None
    assert (facts.since, facts.seen) == (since, since + RENEW_SECONDS)
    assert "the store is away" in caplog.text
    assert not renewing.taken.is_set()
    renewing.task.cancel()


async def test_a_store_that_another_release_has_by_now_ends_the_controller_with_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = str(tmp_path / "store")
    renewing = Renewing(url)
    await renewing.waits.get()
    free(url)
    assert StoreMark(url, [THEIRS], owner="theirs", now=lambda: renewing.time).claim() == ""
    renewing.pause_ends(RENEW_SECONDS)
    await renewing.task
    assert renewing.taken.is_set()
    assert "belongs to another release of Headrace (theirs" in caplog.text
    facts = read_facts(url)
    assert facts is not None
    assert facts.owner == "theirs"  # nothing was written over
