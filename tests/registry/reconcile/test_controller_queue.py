"""Many endpoints: none waits for another whose reconcile hangs, and those at rest cost nothing."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from controller_harness import ControllerHarness
from registry_fakes import MemoryEndpoints, ScriptedRollouts, endpoint, ref

from contracts.endpoint import TENANT, EndpointStatus, Metadata, ModelEndpoint, Route
from contracts.rollout import RolloutState

SERVES = EndpointStatus(routes=(Route.all_callers(ref("1")),), packages=(ref("1"),))
ROLLS = SERVES.model_copy(
    update={
        "rollout": RolloutState(
            id="r", candidate=ref("2", "b"), stable=ref("1"), began=0, step_began=0
        )
    }
)
NOW = 0.0  # seconds that a pass waits for endpoints that take long


def of_tenant(name: str, tenant: str = "", status: EndpointStatus = SERVES) -> ModelEndpoint:
    annotations = {TENANT: tenant} if tenant else {}
    made = endpoint(status, name=name)
    return made.model_copy(update={"metadata": Metadata(name=name, annotations=annotations)})


class HangingRollouts(ScriptedRollouts):
    """Notes which endpoints it advances; those of ``hangs`` wait until they may go on."""

    def __init__(self, *hangs: str) -> None:
        super().__init__()
        self.hangs = hangs
        self.may_go_on = threading.Event()
        self.advanced: list[str] = []

    def advance(self, endpoint: ModelEndpoint, *arguments: object) -> ModelEndpoint:
        self.advanced.append(endpoint.name)
        if endpoint.name.startswith(self.hangs):
            self.may_go_on.wait(60)
        return super().advance(endpoint, *arguments)  # type: ignore[arg-type]


class Made:
    def __init__(self, folder: Path, rollouts: HangingRollouts, *endpoints: ModelEndpoint) -> None:
        self.harness = ControllerHarness(folder)
        self.harness.endpoints = MemoryEndpoints(*endpoints)
        self.harness.rollouts = self.rollouts = rollouts
        self.start()

    def start(self, **options: object) -> None:
        self.harness.options = replace(self.harness.options, **options)  # type: ignore[arg-type]
        self.harness.start()

    def heartbeat(self, seconds: float) -> None:
        """Loaders give a sign of life so much later, and have nothing new to tell."""
        self.harness.reports.stored = {
            name: each.model_copy(update={"at": each.at + seconds})
            for name, each in self.harness.reports.stored.items()
        }

    async def advanced(self) -> list[str]:
        """Those that one pass reconciles, apart from those that hang."""
        self.rollouts.advanced.clear()
        await self.harness.controller.step(patience_seconds=30.0)
        return sorted(self.rollouts.advanced)

    async def until_advanced(self, name: str) -> None:
        """Passes, none of which waits, until an endpoint had its turn."""
        while name not in self.rollouts.advanced:
            await self.harness.controller.step(patience_seconds=NOW)
            await asyncio.sleep(0)


@pytest.fixture
async def hanging(tmp_path: Path) -> AsyncIterator[Made]:
    """Eight endpoints of one tenant whose rollouts hang, and a rollout of another tenant."""
    hanging = [of_tenant(f"hangs-{n}", "large", ROLLS) for n in range(8)]
    made = Made(tmp_path, HangingRollouts("hangs"), *hanging, of_tenant("late", "small", ROLLS))
    yield made
    made.rollouts.may_go_on.set()
    with suppress(asyncio.CancelledError):
        await made.harness.controller.step()
    await made.harness.jobs.close()


async def test_a_rollback_never_waits_for_a_neighbours_reconcile(hanging: Made) -> None:
    await hanging.until_advanced("late")
    assert len([name for name in hanging.rollouts.advanced if name != "late"]) <= 4
    hanging.rollouts.advanced.clear()
    hanging.rollouts.closed += 1.0
    await hanging.until_advanced("late")  # and again, while they still hang
    assert hanging.rollouts.advanced == ["late"]


async def test_a_reconcile_has_a_deadline_after_which_nobody_is_said_to_look_after_it(
    hanging: Made,
) -> None:
    hanging.start(deadline_seconds=0.001)
    unattended = await hanging.harness.controller.step()
    assert {f"hangs-{n}" for n in range(8)} <= unattended


async def test_endpoints_at_rest_are_looked_at_now_and_then_and_when_something_changed(
    tmp_path: Path,
) -> None:
    made = Made(tmp_path, HangingRollouts("none"), of_tenant("a"), of_tenant("b"), of_tenant("c"))
    harness = made.harness
    harness.load(ref("1"))
    while await made.advanced():
        pass
    harness.endpoints.ask_for(2, "b")
    assert await made.advanced() == ["b"]
    while await made.advanced():
        pass
    harness.load(ref("1"), ref("2", "b"))
    assert await made.advanced() == ["a", "b", "c"]
    while await made.advanced():
        pass
    made.heartbeat(2.0)
    assert await made.advanced() == []  # a heartbeat is no news
    harness.time += 10.0
    harness.load(ref("1"), ref("2", "b"))
    assert await made.advanced() == ["a", "b", "c"]
    await harness.jobs.close()


async def test_many_at_rest_are_looked_at_a_few_at_a_time_and_none_is_forgotten(
    tmp_path: Path,
) -> None:
    endpoints = [of_tenant(f"e-{number}") for number in range(90)]
    made = Made(tmp_path, HangingRollouts("none"), *endpoints)
    made.start(looks_a_second=3.0)
    made.harness.load(ref("1"))
    while await made.advanced():
        pass
    looked: list[str] = []
    for _ in range(30):
        made.harness.time += 1.0
        made.heartbeat(1.0)
        found = await made.advanced()
        assert len(found) <= 15
        looked += found
    assert set(looked) == {each.name for each in endpoints}
    assert len(looked) < 2 * len(endpoints)
    await made.harness.jobs.close()


async def test_rollouts_are_looked_at_when_windows_close_and_every_second(tmp_path: Path) -> None:
    rolling = [of_tenant("r", "", ROLLS), of_tenant("s", "", ROLLS)]
    made = Made(tmp_path, HangingRollouts("none"), of_tenant("at-rest"), *rolling)
    while await made.advanced():
        pass
    made.rollouts.closed += 0.5  # no window ends between whole seconds
    assert await made.advanced() == []
    made.rollouts.closed += 0.5
    assert await made.advanced() == ["r", "s"]
    assert await made.advanced() == []
    made.harness.time += 1.0
    assert await made.advanced() == ["r", "s"]
    assert await made.advanced() == []
    made.harness.endpoints.ask_for(3, "s")
    assert "s" in await made.advanced()
    await made.harness.jobs.close()


async def test_a_window_that_closes_while_a_rollout_is_judged_is_not_missed(tmp_path: Path) -> None:
    made = Made(tmp_path, HangingRollouts("none"), of_tenant("r", "", ROLLS))
    while await made.advanced():
        pass

    def closes_meanwhile(status: EndpointStatus) -> EndpointStatus:
        made.rollouts.next_status = lambda status: status
        made.rollouts.closed += 1.0
        return status

    made.rollouts.next_status = closes_meanwhile
    made.rollouts.closed += 1.0
    assert await made.advanced() == ["r"]
    assert await made.advanced() == ["r"]
    assert await made.advanced() == []
    await made.harness.jobs.close()
