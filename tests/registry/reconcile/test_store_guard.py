"""Questions to a store that hangs, fails or is slow."""

import asyncio
import threading

import pytest

from registry.packages.store import PackageMissingError, StoreUnavailableError
from registry.reconcile.store_guard import StoreTimeoutGuard


class Clock:
    time = 1000.0

    def __call__(self) -> float:
        return self.time


class Store:
    """Answers when it is told to, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        self.error: Exception | None = None

    def ask(self, what: str) -> str:
        self.asked.append(what)
        self.answers.wait(60)
        if self.error is not None:
            raise self.error
        return what


async def _answered(store_guard: StoreTimeoutGuard, store: Store) -> None:
    """Lets the question that hangs come to its end."""
    store.answers.set()
    await asyncio.gather(*store_guard.late.values(), return_exceptions=True)
    await asyncio.sleep(0)


async def test_an_answer_in_time_is_given() -> None:
    store = Store()
    store.answers.set()
    assert await StoreTimeoutGuard(Clock()).ask("a", lambda: store.ask("a")) == "a"


async def test_while_a_question_hangs_no_other_is_asked_and_its_answer_is_kept() -> None:
    store_guard, store = StoreTimeoutGuard(Clock(), seconds=0.0), Store()
    for key in ("a", "b", "a"):
        with pytest.raises(StoreUnavailableError, match="has not answered"):
            await store_guard.ask(key, lambda: store.ask("a"))
    await _answered(store_guard, store)
    assert await store_guard.ask("a", lambda: store.ask("again")) == "a"
    assert store.asked == ["a"]


async def test_after_a_failure_nothing_is_asked_for_a_while() -> None:
    clock, store = Clock(), Store()
    store_guard = StoreTimeoutGuard(clock, pause_seconds=15.0)
    store.answers.set()
    store.error = StoreUnavailableError("connection refused")
    for key in ("a", "a", "b"):
        with pytest.raises(StoreUnavailableError, match="connection refused"):
            await store_guard.ask(key, lambda: store.ask("a"))
    assert store.asked == ["a"]
    clock.time += 15.0
    store.error = None
    assert await store_guard.ask("a", lambda: store.ask("a")) == "a"


async def test_a_failure_that_comes_late_is_remembered_too() -> None:
    store_guard, store = StoreTimeoutGuard(Clock(), seconds=0.0), Store()
    store.error = StoreUnavailableError("timed out")
    with pytest.raises(StoreUnavailableError, match="has not answered"):
        await store_guard.ask("a", lambda: store.ask("a"))
    await _answered(store_guard, store)
    for key in ("a", "b"):
        with pytest.raises(StoreUnavailableError, match="timed out"):
            await store_guard.ask(key, lambda: store.ask("again"))
    assert store.asked == ["a"]
    assert not store_guard.late


async def test_a_package_that_is_missing_is_an_answer() -> None:
    store_guard, store = StoreTimeoutGuard(Clock()), Store()
    store.answers.set()
    store.error = PackageMissingError("no such package")
    for _ in range(2):
        with pytest.raises(PackageMissingError):
            await store_guard.ask("a", lambda: store.ask("a"))
    assert len(store.asked) == 2
