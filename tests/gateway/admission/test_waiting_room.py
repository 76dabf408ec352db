"""Callers wait within bounds, each by its own deadline, and nothing that they wait for is lost."""

import asyncio
from time import monotonic

import pytest
from gateway_world import loop_turns

from gateway.admission.waiting_room import WaitingRoom
from gateway.errors import DeadlineExceededError, OverloadedError


def later() -> float:
    return monotonic() + 60


async def seated(room: WaitingRoom, callers: int) -> None:
    await loop_turns()
    assert room.callers == callers


async def test_all_who_wait_get_what_comes() -> None:
    room, until = WaitingRoom("it"), asyncio.get_running_loop().create_future()
    waiting = [asyncio.create_task(room.wait(until, 10, later())) for _ in range(3)]
    await seated(room, 3)
    assert room.bytes == 30
    until.set_result("it")
    assert await asyncio.gather(*waiting) == ["it"] * 3
    assert (room.callers, room.bytes) == (0, 0)


async def test_all_who_wait_get_the_error() -> None:
    room, until = WaitingRoom("it"), asyncio.get_running_loop().create_future()
    waiting = [asyncio.create_task(room.wait(until, 1, later())) for _ in range(2)]
    await seated(room, 2)
    until.set_exception(KeyError("lost"))
    assert all(
        isinstance(each, KeyError)
        for each in await asyncio.gather(*waiting, return_exceptions=True)
    )


@pytest.mark.parametrize(("callers", "size"), [(2, 10_000), (10_000, 20)])
async def test_who_finds_no_place_is_refused_at_once(callers: int, size: int) -> None:
    room, until = WaitingRoom("it", callers, size), asyncio.get_running_loop().create_future()
    waiting = [asyncio.create_task(room.wait(until, 10, later())) for _ in range(2)]
    await seated(room, 2)
    with pytest.raises(OverloadedError, match="wait for it") as refused:
        await room.wait(until, 10, later())
    assert refused.value.retry_after_seconds
    until.set_result("it")
    await asyncio.gather(*waiting)
    assert await room.wait(until, 10, later()) == "it"


async def test_one_who_holds_more_than_all_may_may_wait_alone() -> None:
    room, until = WaitingRoom("it", most_bytes=1), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(room.wait(until, 10, later()))
    await seated(room, 1)
    until.set_result("it")
    assert await waiting == "it"


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    room, until = WaitingRoom("it"), asyncio.get_running_loop().create_future()
    patient = asyncio.create_task(room.wait(until, 1, later()))
    gone = asyncio.create_task(room.wait(until, 1, later()))
    await seated(room, 2)
    gone.cancel()
    with pytest.raises(DeadlineExceededError):
        await room.wait(until, 1, monotonic())
    await seated(room, 1)
    until.set_result("it")
    assert await patient == "it"
