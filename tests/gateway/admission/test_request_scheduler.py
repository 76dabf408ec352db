"""No wait while the loop keeps up; when it does not, in rotation, and nobody is lost."""

import asyncio

import pytest
from gateway_world import loop_turns
from loop_clocks import SteppedLoop, runs_on

from gateway.admission.request_scheduler import RequestScheduler
from gateway.batching.lag import LoopLag


def loop() -> SteppedLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, SteppedLoop)
    return running


def work(seconds: float) -> None:
    """Keeps the processor, as tokenising does."""
    loop().work(seconds)


def scheduler_of_the_loop() -> RequestScheduler:
    return RequestScheduler(loop().time)


async def request(
    scheduler: RequestScheduler, endpoint: str, order: list[str], seconds: float
) -> None:
    if not scheduler.try_now():
        await scheduler.wait(endpoint)
    order.append(endpoint)
    work(seconds)


@runs_on(SteppedLoop)
async def test_a_lone_request_waits_for_nobody() -> None:
    scheduler = scheduler_of_the_loop()
    assert scheduler.try_now()
    await loop_turns()
    assert scheduler.try_now()
    assert scheduler.wait_seconds("a") == 0.0


@runs_on(SteppedLoop)
async def test_what_is_too_much_for_one_turn_of_the_loop_waits_and_is_done() -> None:
    scheduler, order = scheduler_of_the_loop(), list[str]()
    tasks = [asyncio.create_task(request(scheduler, "a", order, 0.002)) for _ in range(20)]
    await asyncio.sleep(0)
    assert 1 <= len(order) < 20
    assert scheduler.waiting == 20 - len(order)
    assert scheduler.wait_seconds("a") > 0
    await asyncio.gather(*tasks)
    assert len(order) == 20
    assert scheduler.waiting == 0


@runs_on(SteppedLoop)
async def test_something_else_gets_through_while_requests_wait() -> None:
    scheduler, order = scheduler_of_the_loop(), list[str]()
    tasks = [asyncio.create_task(request(scheduler, "a", order, 0.002)) for _ in range(40)]
    await asyncio.sleep(0)
    before = len(order)
    for _ in range(3):
        await asyncio.sleep(0)  # an answer that comes in
    assert before < len(order) < 40
    await asyncio.gather(*tasks)


@runs_on(SteppedLoop)
async def test_a_quiet_endpoint_is_not_behind_all_of_a_busy_one() -> None:
    scheduler, order = scheduler_of_the_loop(), list[str]()
    busy = [asyncio.create_task(request(scheduler, "busy", order, 0.002)) for _ in range(30)]
    await asyncio.sleep(0)
    quiet = asyncio.create_task(request(scheduler, "quiet", order, 0))
    await asyncio.sleep(0)
    assert scheduler.wait_seconds("quiet") < scheduler.wait_seconds("busy")
    await asyncio.gather(*busy, quiet)
    assert order.index("quiet") < 15


@runs_on(SteppedLoop)
async def test_whoever_gives_up_is_passed_over() -> None:
    scheduler, order = scheduler_of_the_loop(), list[str]()
    tasks = [asyncio.create_task(request(scheduler, "a", order, 0.002)) for _ in range(20)]
    await asyncio.sleep(0)
    begun = len(order)
    for task in tasks[-5:]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(order) == 15 > begun
    assert scheduler.waiting == 0
    assert scheduler.try_now()


@runs_on(SteppedLoop)
async def test_those_that_come_one_by_one_are_let_come_before_more_work_begins() -> None:
    """Each comes two turns of the loop after the one before it, as gRPC hands them over."""
    scheduler, order, most = scheduler_of_the_loop(), list[str](), 0

    async def one() -> None:
        nonlocal most
        if not scheduler.try_now(serial_arrivals=True):
            most = max(most, scheduler.waiting + 1)
            await scheduler.wait("a")
        order.append("a")
        work(0.002)

    tasks = []
    for _ in range(40):
        tasks.append(asyncio.create_task(one()))
        work(0.0001)
        await loop_turns(2)
    await asyncio.gather(*tasks)
    assert len(order) == 40
    assert most >= 10  # so many were known to wait, not one or two
    await asyncio.sleep(0.01)
    assert scheduler.try_now(serial_arrivals=True)  # after a quiet moment they begin at once again


@runs_on(SteppedLoop)
async def test_a_pause_for_others_ends_though_they_never_stop_coming() -> None:
    scheduler, done = scheduler_of_the_loop(), asyncio.Event()

    async def one() -> None:
        if not scheduler.try_now(serial_arrivals=True):
            await scheduler.wait("a")
        work(0.002)

    async def keep_coming() -> None:
        while not done.is_set():
            scheduler.try_now(serial_arrivals=True)
            work(0.0001)
            await asyncio.sleep(0)

    others = asyncio.create_task(keep_coming())
    await asyncio.gather(*(one() for _ in range(20)))
    done.set()
    await others
    assert scheduler.waiting == 0


@runs_on(SteppedLoop)
async def test_everybody_may_give_up() -> None:
    scheduler, order = scheduler_of_the_loop(), list[str]()
    tasks = [asyncio.create_task(request(scheduler, "a", order, 0.006)) for _ in range(10)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop_turns()
    assert scheduler.waiting == 0
    await request(scheduler, "a", order, 0)


@runs_on(SteppedLoop)
async def test_the_loops_lag_is_what_it_was_held_up() -> None:
    lag = LoopLag(loop().time)
    assert lag.seconds() == 0.0
    lag.start()
    work(0.05)
    assert lag.seconds() == pytest.approx(0.04)  # it was due after 0.01
    await loop_turns()
    assert lag.seconds() == pytest.approx(0.04)
    lag.close()
    assert lag.seconds() == 0.0


@runs_on(SteppedLoop)
async def test_a_long_turn_of_the_loop_is_remembered_for_a_while() -> None:
    lag = LoopLag(loop().time)
    assert lag.iteration_seconds == 0.0
    lag.start()
    work(0.05)
    await loop_turns()
    assert lag.iteration_seconds == pytest.approx(0.04)
    await asyncio.sleep(0.1)
    assert 0 < lag.iteration_seconds < 0.04 / 4
    lag.close()


@runs_on(SteppedLoop)
async def test_who_comes_between_a_turn_and_its_begin_does_not_overtake_it() -> None:
    """Some come in each iteration of the loop, before and after the one that grants turns."""
    scheduler, came, began = scheduler_of_the_loop(), list[int](), list[int]()

    async def one() -> None:
        number = len(came)
        came.append(number)
        if not scheduler.try_now():
            await scheduler.wait("a")
        began.append(number)
        work(0.002)

    first = [asyncio.create_task(one()) for _ in range(10)]
    later = []
    for _ in range(40):
        later.append(asyncio.create_task(one()))
        await asyncio.sleep(0)
    await asyncio.gather(*first, *later)
    assert began == came == list(range(50))


@runs_on(SteppedLoop)
async def test_bulk_requests_wait_for_all_others_and_nobody_for_them() -> None:
    scheduler, order = scheduler_of_the_loop(), list[str]()

    async def bulk() -> None:
        await scheduler.wait("bulk", bulk=True)
        order.append("bulk")

    waiting = [asyncio.create_task(bulk()) for _ in range(3)]
    others = [asyncio.create_task(request(scheduler, "a", order, 0.002)) for _ in range(9)]
    await asyncio.sleep(0)
    assert scheduler.waiting_bulk == 3
    assert scheduler.waiting == 9 - len(order) > 0
    waiting.pop().cancel()
    await asyncio.gather(*waiting, *others)
    assert order == ["a"] * 9 + ["bulk"] * 2
    assert scheduler.waiting_bulk == 0
