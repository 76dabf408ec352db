"""What a gateway serves while those who tell it what to serve are away: API server, controller."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gateway_world import endpoint_of, model_of
from reconciler_world import FakePackages, World, report_of, world_of

from contracts.controller import ControllerBeat
from contracts.endpoint import ModelEndpoint
from gateway.inference.serving import Serving
from gateway.state.kept import Keeper, KeeperPace, SavedState

pytestmark = pytest.mark.slow

ONE, TWO = model_of("1"), model_of("2")
PATIENCE = 300.0


def keeper_of(folder: Path, *, at: float = 1e9) -> Keeper:
    pace = KeeperPace(wait_seconds=0.0, pause_seconds=0.01)
    return Keeper(folder / "last-told.json", "kubernetes://models", pace, now=lambda: at)


def canary(name: str = "sentiment") -> ModelEndpoint:
    return endpoint_of(ONE.ref, canary=TWO.ref, weight=50, rollout="r", name=name)


def versions(state: Serving, name: str = "sentiment") -> set[str]:
    """Of those who answer a hundred callers."""
    routes = state.table.endpoints.get(name)
    if routes is None or not routes.targets:
        return set()
    return {routes.choose(f"caller-{number}").model.ref.version for number in range(100)}


def beat(count: int, *, at: float) -> ControllerBeat:
    return ControllerBeat(instance="a", count=count, at=at)


@asynccontextmanager
async def restarted_alone(folder: Path) -> AsyncIterator[World]:
    """A gateway that no source has told anything yet; two Tritons are where they were."""
    keeper = keeper_of(folder)
    async with world_of(FakePackages(ONE, TWO), static=False, keeper=keeper, silent=True) as world:
        yield world


async def until_kept(folder: Path, condition: Callable[[SavedState], bool]) -> None:
    while (kept := keeper_of(folder).read()) is None or not condition(kept):  # noqa: ASYNC110
        await asyncio.sleep(0.005)  # a file says nothing


async def keep(folder: Path, *endpoints: ModelEndpoint) -> None:
    """As a gateway before it left it."""
    reports = [report_of(address, ONE.ref, TWO.ref) for address in ("t1:1", "t2:1")]
    keeper = keeper_of(folder)
    async with world_of(FakePackages(ONE, TWO), *endpoints, static=False, keeper=keeper) as world:
        world.reports.say(*reports)
        await until_kept(folder, lambda kept: bool(kept.reports))


async def test_a_gateway_that_starts_without_its_api_server_serves_what_it_served_last(
    tmp_path: Path,
) -> None:
    await keep(tmp_path, endpoint_of(ONE.ref), endpoint_of(TWO.ref, name="other"))
    async with restarted_alone(tmp_path) as world:
        state = await world.until_stable(ONE)
        await world.until(lambda state: state.complete)
        assert (versions(state), versions(state, "other")) == ({"1"}, {"2"})
        assert set(world.engines) == {"t1:1", "t2:1"}


async def test_it_says_that_they_are_old_until_the_source_answers(tmp_path: Path) -> None:
    await keep(tmp_path, endpoint_of(ONE.ref))
    async with restarted_alone(tmp_path) as world:
        state = await world.until_stable(ONE)
        assert "as they were at 2001-09-09T01:46:40+00:00" in state.notes[0]
        assert world.reconciler.kept_seconds > 0
        world.endpoints.say(endpoint_of(TWO.ref))
        state = await world.until_stable(TWO)
        assert ["can't be read" in note for note in state.notes] == [True]  # of the reports
        assert world.reconciler.kept_seconds == 0
        world.reports.say(report_of("t1:1", TWO.ref))
        await world.until(lambda state: state.notes == ())


async def test_what_was_kept_is_never_kept_anew_and_gives_way_to_what_is_told(
    tmp_path: Path,
) -> None:
    await keep(tmp_path, endpoint_of(ONE.ref))
    before = (tmp_path / "last-told.json").read_bytes()
    async with restarted_alone(tmp_path) as world:
        await world.until_stable(ONE)
        world.reports.say(report_of("t3:1", ONE.ref))  # one of two watches is back
        await world.until(lambda _: "t3:1" in world.engines)
        assert (tmp_path / "last-told.json").read_bytes() == before
        world.endpoints.say(endpoint_of(TWO.ref))
        await world.until_stable(TWO)
        await until_kept(tmp_path, lambda kept: kept.endpoints == (endpoint_of(TWO.ref),))


async def test_tritons_are_those_that_were_kept_while_only_endpoints_are_told(
    tmp_path: Path,
) -> None:
    await keep(tmp_path, endpoint_of(ONE.ref))
    async with restarted_alone(tmp_path) as world:
        world.endpoints.say(endpoint_of(TWO.ref))
        state = await world.until(lambda state: state.complete)
        assert set(world.engines) == {"t1:1", "t2:1"}
        assert versions(state) == {"2"}
        assert "can't be read" in state.notes[0]
        world.reports.say(report_of("t1:1", TWO.ref))
        await world.until(lambda state: state.notes == ())


async def test_a_source_that_answers_is_never_overruled_by_what_was_kept(tmp_path: Path) -> None:
    await keep(tmp_path, endpoint_of(ONE.ref))
    keeper = keeper_of(tmp_path)
    async with world_of(FakePackages(ONE, TWO), endpoint_of(TWO.ref), keeper=keeper) as world:
        await world.until_stable(TWO)
        assert world.reconciler.kept_seconds == 0
        assert all(versions(state) <= {"2"} for state in world.states if not state.notes)


async def test_a_candidate_of_kept_endpoints_gets_nobody_until_the_source_answers(
    tmp_path: Path,
) -> None:
    await keep(tmp_path, canary())
    async with restarted_alone(tmp_path) as world:
        state = await world.until_stable(ONE)
        assert versions(state) == {"1"}
        world.endpoints.say(canary())
        await world.until(lambda state: versions(state) == {"1", "2"})


async def given_to_both(world: World) -> None:
    await world.until(lambda state: versions(state) == versions(state, "other") == {"1", "2"})


async def test_a_silent_controller_costs_candidates_their_callers_and_a_sign_gives_them_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with world_of(FakePackages(ONE, TWO), canary(), canary("other")) as world:
        world.beats.say(beat(1, at=world.now()))
        await given_to_both(world)
        assert world.reconciler.withheld == {"sentiment": False, "other": False}

        world.ahead = PATIENCE + 10
        state = await world.until(
            lambda state: versions(state) == {"1"} == versions(state, "other")
        )
        assert world.reconciler.withheld == {"sentiment": True, "other": True}
        assert world.reconciler.silent_seconds > PATIENCE
        assert [note.split(":")[0] for note in state.notes] == ["other", "sentiment"]
        assert "the controller has given no sign for" in state.notes[0]

        world.beats.say(beat(2, at=world.now()))
        await given_to_both(world)
        assert world.states[-1].notes == ()
    told = [record.message for record in caplog.records]
    assert sum("no sign of the controller" in message for message in told) == 2
    assert sum("as the status says again" in message for message in told) == 2


@pytest.mark.parametrize(
    "endpoint",
    [endpoint_of(ONE.ref), endpoint_of(ONE.ref, control=TWO.ref, weight=50, rollout="r")],
    ids=["stable alone", "bake"],
)
async def test_without_a_candidate_a_gateway_that_was_restarted_serves_without_a_controller(
    endpoint: ModelEndpoint,
) -> None:
    async with world_of(FakePackages(ONE, TWO), endpoint) as world:
        before = versions(await world.until_stable(ONE))
        world.ahead = 1e6
        seen = len(world.states)
        world.endpoints.say(endpoint)
        state = await world.until(lambda _: len(world.states) > seen)
        assert versions(state) == before
        assert state.notes == ()
