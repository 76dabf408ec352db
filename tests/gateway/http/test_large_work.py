"""Large work leaves the event loop free, is bounded, and ends with its process."""

import asyncio
import os
import sys
import threading
import weakref
from functools import partial
from time import thread_time

import pytest

from gateway.errors import DeadlineExceededError, OverloadedError
from gateway.http.large_work import LargeWork
from gateway.request_context import RequestContext


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


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no priority of its own there")
async def test_the_event_loop_has_a_processor_first_where_both_want_it() -> None:
    large = LargeWork()
    of_the_loop = os.getpriority(os.PRIO_PROCESS, 0)
    assert await large.do(lambda: os.nice(0)) == min(19, of_the_loop + 5)
    assert os.getpriority(os.PRIO_PROCESS, 0) == of_the_loop
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


def caller(name: str) -> RequestContext:
    return RequestContext("id", 0.0, 0.0, caller=name)


async def test_who_is_gone_before_its_work_begins_leaves_nothing_in_the_queue() -> None:
    large, go_on = LargeWork(), threading.Event()
    busy = [asyncio.create_task(large.do(go_on.wait)) for _ in range(2)]
    body = Body()
    kept = weakref.ref(body)
    gone = asyncio.create_task(large.do(body.read))
    await asyncio.sleep(0)
    del body
    assert large.waiting == 3
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    del gone
    assert large.waiting == 2
    assert kept() is None, "the queue holds the body of a caller that is gone"
    go_on.set()
    await asyncio.gather(*busy)
    large.close()


async def test_keys_take_turns() -> None:
    large, go_on = LargeWork(), threading.Event()
    order: list[str] = []
    busy = [asyncio.create_task(large.do(go_on.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    tasks = [
        asyncio.create_task(large.do(partial(order.append, name), caller(name)))
        for name in ("many", "many", "many", "many", "few")
    ]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*busy, *tasks)
    assert order.index("few") == 1
    large.close()


async def test_one_key_takes_not_all_places() -> None:
    large, go_on = LargeWork(most_waiting=10), threading.Event()
    tasks = [asyncio.create_task(large.do(go_on.wait, caller("many"))) for _ in range(20)]
    await asyncio.sleep(0)
    assert large.waiting == 8
    tasks.append(asyncio.create_task(large.do(go_on.wait, caller("few"))))
    await asyncio.sleep(0)
    assert large.waiting == 9
    go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in results[:20]].count(OverloadedError) == 12
    assert results[20] is True
    await done(large)
    large.close()


async def test_a_caller_that_is_gone_is_charged_for_what_was_begun() -> None:
    large, go_on, began = LargeWork(), threading.Event(), threading.Event()
    spent: list[tuple[str | None, float]] = []
    large.spend = lambda context, seconds: spent.append((context.caller, seconds))

    def work() -> None:
        began.set()
        go_on.wait()
        until = thread_time() + 0.002
        while thread_time() < until:
            pass

    task = asyncio.create_task(large.do(work, caller("rude")))
    await asyncio.to_thread(began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await done(large)
    assert [name for name, _ in spent] == ["rude"]
    assert spent[0][1] >= 0.002
    large.close()


async def test_a_deadline_that_passes_in_the_queue_refuses_the_request_and_forgets_its_body() -> (
    None
):
    large, go_on, body = LargeWork(), threading.Event(), Body()
    kept = weakref.ref(body)
    busy = [asyncio.create_task(large.do(go_on.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    now = asyncio.get_running_loop().time()
    late = RequestContext("id", 0.0, now - 10.0, timeout_seconds=10.0)
    waiting = asyncio.create_task(large.do(body.read, late))
    del body
    with pytest.raises(DeadlineExceededError):
        await waiting
    del waiting
    assert large.waiting == 2
    assert kept() is None, "the queue holds the body of a request that was refused"
    go_on.set()
    await asyncio.gather(*busy)
    await done(large)
    large.close()


async def test_work_that_began_before_the_deadline_is_finished() -> None:
    large, go_on, began = LargeWork(), threading.Event(), threading.Event()

    def work() -> int:
        began.set()
        go_on.wait()
        return 1

    now = asyncio.get_running_loop().time()
    late = RequestContext("id", 0.0, now - 10.0, timeout_seconds=10.0)
    task = asyncio.create_task(large.do(work, late))
    await asyncio.to_thread(began.wait)
    go_on.set()
    assert await task == 1
    large.close()


async def test_what_waits_for_a_thread_ends_with_the_process() -> None:
    large, go_on = LargeWork(), threading.Event()
    busy = asyncio.create_task(large.do(go_on.wait))
    waiting = asyncio.create_task(large.do(lambda: None))
    await asyncio.sleep(0)
    large.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await busy


class Body:
    """What can be referred to weakly."""

    def read(self) -> None:
        """Nothing."""
