"""No wait while the loop keeps up; when it does not, in rotation, and nobody is lost."""

import asyncio
from time import monotonic

from gateway_world import loop_turns

from gateway.admission.request_scheduler import RequestScheduler
from gateway.batching.lag import LoopLag


def work(seconds: float) -> None:
    """Keeps the processor, as tokenising does."""
    end = monotonic() + seconds
    while monotonic() < end:
        pass


async def request(
    scheduler: RequestScheduler, endpoint: str, order: list[str], seconds: float
) -> None:
    if not scheduler.try_now():
        await scheduler.wait(endpoint)
    order.append(endpoint)
    work(seconds)


async def test_a_lone_request_waits_for_nobody() -> None:
    scheduler = RequestScheduler()
    assert scheduler.try_now()
    await loop_turns()
    assert scheduler.try_now()
    assert scheduler.wait_seconds("a") == 0.0


async def test_what_is_too_much_for_one_turn_of_the_loop_waits_and_is_done() -> None:
    scheduler, order = RequestScheduler(), list[str]()
    tasks = [asyncio.create_task(request(scheduler, "a", order, 0.002)) for _ in range(20)]
    await asyncio.sleep(0)
    assert 1 <= len(order) < 20
    assert scheduler.waiting == 20 - len(order)
    assert scheduler.wait_seconds("a") > 0
    await asyncio.gather(*tasks)
    assert len(order) == 20
    assert scheduler.waiting == 0


async def test_something_else_gets_through_while_requests_wait() -> None:
    scheduler, order = RequestScheduler(), list[str]()
    tasks = [asyncio.create_task(request(scheduler, "a", order, 0.002)) for _ in range(40)]
    await asyncio.sleep(0)
    before = len(order)
    for _ in range(3):
        await asyncio.sleep(0)  # an answer that comes in
    assert before < len(order) < 40
    await asyncio.gather(*tasks)


async def test_a_quiet_endpoint_is_not_behind_all_of_a_busy_one() -> None:
    scheduler, order = RequestScheduler(), list[str]()
    busy = [asyncio.create_task(request(scheduler, "busy", order, 0.002)) for _ in range(30)]
    await asyncio.sleep(0)
    quiet = asyncio.create_task(request(scheduler, "quiet", order, 0))
    await asyncio.sleep(0)
    assert scheduler.wait_seconds("quiet") < scheduler.wait_seconds("busy")
    await asyncio.gather(*busy, quiet)
    assert order.index("quiet") < 15


async def test_whoever_gives_up_is_passed_over() -> None:
    scheduler, order = RequestScheduler(), list[str]()
    tasks = [asyncio.create_task(request(scheduler, "a", order, 0.002)) for _ in range(20)]
    await asyncio.sleep(0)
    begun = len(order)
    for task in tasks[-5:]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(order) == 15 > begun
    assert scheduler.waiting == 0
    assert scheduler.try_now()


async def test_those_that_come_one_by_one_are_let_come_before_more_work_begins() -> None:
    """Each comes two scheduler of the loop after the one before it, as gRPC hands them over."""
    scheduler, order, most = RequestScheduler(), list[str](), 0

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
        await loop_turns(2)
    await asyncio.gather(*tasks)
    assert len(order) == 40
    assert most >= 10  # so many were known to wait, not one or two
    async with asyncio.timeout(60):
        while not scheduler.try_now(
            serial_arrivals=True
        ):  # after a quiet moment they begin at once again
            await loop_turns(1)


async def test_a_pause_for_others_ends_though_they_never_stop_coming() -> None:
    scheduler, done = RequestScheduler(), asyncio.Event()

    async def one() -> None:
        if not scheduler.try_now(serial_arrivals=True):
            await scheduler.wait("a")
        work(0.002)

    async def keep_coming() -> None:
        while not done.is_set():
            scheduler.try_now(serial_arrivals=True)
            await asyncio.sleep(0)

    others = asyncio.create_task(keep_coming())
    async with asyncio.timeout(60):
        await asyncio.gather(*(one() for _ in range(20)))
    done.set()
    await others
    assert scheduler.waiting == 0


async def test_everybody_may_give_up() -> None:
    scheduler, order = RequestScheduler(), list[str]()
    tasks = [asyncio.create_task(request(scheduler, "a", order, 0.006)) for _ in range(10)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop_turns()
    assert scheduler.waiting == 0
    await request(scheduler, "a", order, 0)


async def test_the_loops_lag_is_what_it_was_held_up() -> None:
    lag = LoopLag()
    assert lag.seconds() == 0.0
    lag.start()
    work(0.05)
    assert lag.seconds() >= 0.03
    await loop_turns()
    assert lag.seconds() >= 0.03
    lag.close()
    assert lag.seconds() == 0.0


async def test_a_long_turn_of_the_loop_is_remembered_for_a_while() -> None:
    lag = LoopLag()
    assert lag.iteration_seconds == 0.0
    lag.start()
    work(0.05)
    await loop_turns()
    first = lag.iteration_seconds
    assert first >= 0.03
    async with asyncio.timeout(60):
        while lag.iteration_seconds >= first / 4:
            await loop_turns(1)
    lag.close()
