"""A loop that stands still is seen from outside of it."""

import asyncio

from service.loop_heartbeat import LoopHeartbeat


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_loop_that_turns_has_no_fault() -> None:
    clock = Clock()
    heartbeat = LoopHeartbeat(60, clock=clock)
    clock.now += 61  # before its task began
    task = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0)
    assert heartbeat.fault() == ""
    task.cancel()


async def test_a_loop_that_stands_still_says_for_how_long() -> None:
    clock = Clock()
    heartbeat = LoopHeartbeat(60, clock=clock)
    clock.now += 60
    assert heartbeat.fault() == ""
    clock.now += 5
    assert heartbeat.fault() == "the loop has not come round for 65 s"


async def test_a_loop_without_an_event_loop_says_by_itself_that_it_has_turned() -> None:
    clock = Clock()
    heartbeat = LoopHeartbeat(60, clock=clock)
    clock.now += 65
    heartbeat.beat()
    assert heartbeat.fault() == ""
