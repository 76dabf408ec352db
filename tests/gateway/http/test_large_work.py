"""Large work leaves the event loop free, is bounded, and ends with its process."""

import asyncio
import threading

import pytest

from gateway.errors import OverloadedError
from gateway.http.large_work import LargeWork


async def done(large: LargeWork) -> None:
    """Returns when all work is done."""
    async with asyncio.timeout(60):
        while large.waiting:  # noqa: ASYNC110 - the threads tell nobody else
            await asyncio.sleep(0.001)


async def test_work_is_done_in_a_thread_and_gives_what_it_gives() -> None:
    large = LargeWork()
    assert await large.do(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await large.do(lambda: 1 // 0)
    large.close()


async def test_who_comes_when_too_much_waits_is_refused_and_others_are_not() -> None:
    large, go_on = LargeWork(most_waiting=3), threading.Event()
    tasks = [asyncio.create_task(large.do(go_on.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="large requests") as refused:
        await large.do(lambda: None)
    assert refused.value.retry_after_seconds
    go_on.set()
    assert await asyncio.gather(*tasks) == [True] * 3
    await done(large)
    assert await large.do(lambda: 1) == 1
    large.close()


async def test_work_whose_caller_is_gone_counts_until_it_is_done() -> None:
    large, go_on, began = LargeWork(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait()

    task = asyncio.create_task(large.do(work))
    await asyncio.to_thread(began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert large.waiting == 1
    go_on.set()
    await done(large)
    large.close()
