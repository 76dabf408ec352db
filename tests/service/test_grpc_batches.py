"""Batches of operations of gRPC: freed once the core is done with them, awaited or not."""

import asyncio
from typing import Any

import pytest

from service.grpc_batches import freeing


class Core:
    """A library that hands batches to a core, which completes them when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.freed: list[tuple[str, ...]] = []

    async def execute_batch(self, call: str, operations: tuple[str, ...], loop: Any) -> None:
        if call == "closed":
            raise OSError("the core refuses it")
        future = loop.create_future()
        self.begun.append(future)
        await future
        self.freed.append(operations)
        if operations == ("broken",):
            raise ValueError("it can't be read")


async def begin(core: Core, *operations: str) -> "asyncio.Task[None]":
    execute_batch = freeing(core.execute_batch)
    loop = asyncio.get_running_loop()
    task = loop.create_task(execute_batch("call", operations, loop))
    await asyncio.sleep(0)
    return task


async def test_a_batch_that_succeeds_is_freed_and_awaited() -> None:
    core = Core()
    task = await begin(core, "read")
    assert not task.done()
    core.begun[0].set_result(None)
    await task
    assert core.freed == [("read",)]


async def test_a_batch_that_fails_is_freed_and_its_failure_told() -> None:
    core = Core()
    task = await begin(core, "send", "close")
    core.begun[0].set_exception(OSError("the caller has gone"))
    assert core.freed == [("send", "close")]
    with pytest.raises(OSError, match="has gone"):
        await task


@pytest.mark.parametrize("failure", [None, OSError("the caller has gone")])
async def test_a_batch_is_freed_that_nobody_awaits_any_more(failure: OSError | None) -> None:
    core = Core()
    task = await begin(core, "read")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not core.begun[0].cancelled()  # or the library would not complete it
    assert core.freed == []  # the core may still write to it
    if failure is None:
        core.begun[0].set_result(None)
    else:
        core.begun[0].set_exception(failure)
    assert core.freed == [("read",)]


async def test_a_batch_whose_awaiter_is_cancelled_in_the_same_turn_is_freed() -> None:
    core = Core()
    task = await begin(core, "read")
    core.begun[0].set_result(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert core.freed == [("read",)]


async def test_what_goes_wrong_as_a_batch_is_read_is_told() -> None:
    core = Core()
    task = await begin(core, "broken")
    core.begun[0].set_result(None)
    with pytest.raises(ValueError, match="can't be read"):
        await task


async def test_what_the_core_refuses_is_told() -> None:
    execute_batch = freeing(Core().execute_batch)
    with pytest.raises(OSError, match="refuses"):
        await execute_batch("closed", (), asyncio.get_running_loop())


async def test_a_completion_that_another_loop_sees_is_passed_on_to_the_calls_own() -> None:
    core = Core()
    task = await begin(core, "read")
    seen: list[asyncio.AbstractEventLoop] = []

    def complete() -> None:
        seen.append(asyncio.get_running_loop())
        core.begun[0].set_result(None)

    async def elsewhere() -> None:
        core.begun[0].call_soon_threadsafe(complete)

    await asyncio.to_thread(asyncio.run, elsewhere())
    await task
    assert seen == [asyncio.get_running_loop()]
    assert core.freed == [("read",)]
