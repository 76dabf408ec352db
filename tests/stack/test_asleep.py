"""A model that nobody asks for, on a local stack of its own: with flags, controller and all."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rolling_stack import register, spec
from running_stack import EXAMPLE_ENDPOINT, RunningStack, running_stack
from waiting import until

from contracts.endpoint import EndpointStatus
from contracts.loading import LoaderReport
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports

# Its stack is its own, which takes minutes to start on a busy machine.
pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[RunningStack]:
    flags = ("--window-seconds=1", "--idle-seconds=60")
    with running_stack(tmp_path / "home", *flags, gateways=2, tritons=2) as running:
        running.until_answers(EXAMPLE_ENDPOINT)
        running.apply(spec())
        yield running


def status(stack: RunningStack) -> EndpointStatus:
    found = FileEndpointStore(stack.home / "endpoints").get(EXAMPLE_ENDPOINT)
    assert found is not None
    return found.status


def reports(stack: RunningStack) -> tuple[LoaderReport, ...]:
    return FileReports(stack.home / "reports").list()


def holders(stack: RunningStack) -> int:
    """Tritons that hold the stable version."""
    stable = status(stack).stable
    return sum(any(held.ref == stable for held in one.loaded) for one in reports(stack))


def until_left(stack: RunningStack) -> None:
    """Waits until the model sleeps and no Triton holds it."""

    def left() -> bool:
        told = [one.asleep for one in reports(stack)]
        return status(stack).asleep is not None and len(told) == 2 and all(told)

    until("the model has left both Tritons", 600, left)


async def first_callers(stack: RunningStack) -> list[httpx.Response]:
    """Some of each gateway, all at once."""
    async with httpx.AsyncClient(timeout=300) as client:
        urls = [f"{each.url}/endpoints/{EXAMPLE_ENDPOINT}" for each in stack.gateways] * 4
        asked = (client.post(url, json={"inputs": "a good film"}) for url in urls)
        return await asyncio.gather(*asked)


def test_it_leaves_comes_back_for_callers_and_is_there_before_a_rollouts_first_step(
    stack: RunningStack,
) -> None:
    until_left(stack)
    said = stack.command("status").stdout
    assert "asleep for" in said, said
    assert all(
        httpx.get(f"{each.operations_url}/readyz", timeout=60).is_success for each in stack.gateways
    )
    began = time.monotonic()
    answers = asyncio.run(first_callers(stack))
    print(f"the first callers waited {time.monotonic() - began:.1f} s")
    assert [each.status_code for each in answers] == [200] * 8, answers[0].text
    until("awake, and held by both", 300, lambda: holders(stack) == 2)
    until("the status says so", 300, lambda: status(stack).asleep is None)

    until_left(stack)
    number = register(stack, "better")

    def begun() -> bool:
        found = status(stack)
        return any(route.ref.version == number for route in found.routes)

    until("the rollout's first step", 600, begun)
    assert holders(stack) == 2
    assert status(stack).asleep is None
