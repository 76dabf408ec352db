"""Work is measured step by step until it is handed over, and goes on as it would unmeasured."""

import asyncio
import gc
import weakref
from collections.abc import Coroutine
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.work_time import measured
from gateway.request_context import RequestContext


class Steps:
    """Keeps what was spent."""

    def __init__(self) -> None:
        self.context = RequestContext("r", 0.0, 0.0)
        self.seconds: list[float] = []

    def of(self, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        async def run() -> Any:
            return await measured(work, self.context, self._spent)

        return run()

    def _spent(self, context: RequestContext, seconds: float) -> None:
        assert context is self.context
        self.seconds.append(seconds)


def busy(seconds: float) -> None:
    until = thread_time() + seconds
    while thread_time() < until:
        pass


async def test_what_others_do_while_it_waits_is_not_its_own() -> None:
    steps, others = Steps(), asyncio.Event()

    async def work() -> str:
        busy(0.002)
        await others.wait()
        busy(0.002)
        return "done"

    async def other() -> None:
        busy(0.05)
        others.set()

    answer, _ = await asyncio.gather(steps.of(work()), other())
    assert answer == "done"
    assert len(steps.seconds) == 2
    assert min(steps.seconds) >= 0.002
    assert sum(steps.seconds) < 0.05


async def test_from_its_handing_over_it_is_not_measured() -> None:
    steps = Steps()

    async def work() -> int:
        await asyncio.sleep(0)
        steps.context.handed_over = True
        for _ in range(5):
            await asyncio.sleep(0)
        return 7

    assert await steps.of(work()) == 7
    assert len(steps.seconds) == 2


@pytest.mark.parametrize("handed_over", [True, False])
async def test_who_cancels_it_is_heard_and_it_may_go_on(*, handed_over: bool) -> None:
    steps, begun = Steps(), asyncio.Event()

    async def work() -> str:
        steps.context.handed_over = handed_over
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            await asyncio.sleep(0)
            return str(cancelled.args)
        return ""

    task = asyncio.create_task(steps.of(work()))
    await begun.wait()
    task.cancel("why")
    assert await task == "('why',)"


@pytest.mark.parametrize("cancelled", [True, False])
async def test_an_error_leaves_nothing_for_the_garbage_collector(*, cancelled: bool) -> None:
    class Held:
        """Something that only the frame of the work refers to."""

    seen: list[weakref.ref[Held]] = []

    async def failing() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        await asyncio.sleep(0 if not cancelled else 60)
        raise RuntimeError("it fails")

    async def once() -> None:
        task = asyncio.create_task(Steps().of(failing()))
        await asyncio.sleep(0)
        if cancelled:
            task.cancel()
        await asyncio.wait([task])
        assert cancelled or task.exception() is not None

    gc.disable()
    try:
        await once()
        assert seen[0]() is None
    finally:
        gc.enable()


@given(st.lists(st.sampled_from(["wait", "fail", "hand over"]), max_size=8))
def test_it_gives_what_it_would_give_unmeasured(actions: list[str]) -> None:
    async def work(steps: Steps) -> list[str]:
        done = []
        for action in actions:
            if action == "wait":
                await asyncio.sleep(0)
            elif action == "hand over":
                steps.context.handed_over = True
            else:
                try:
                    async with asyncio.timeout(0):
                        await asyncio.Event().wait()
                except TimeoutError:
                    done.append("late")
            done.append(action)
        return done

    async def both() -> None:
        steps = Steps()
        assert await steps.of(work(steps)) == await work(Steps())

    asyncio.run(both())
