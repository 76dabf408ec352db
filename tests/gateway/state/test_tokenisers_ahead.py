"""Nobody is sent to a version before its tokeniser can answer; a first caller may have to wait."""

import asyncio
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from gateway_world import endpoint_of, loop_turns, model_of
from lazy_tokenisers import Shelf, ThreadSpawner, on_demand
from reconciler_world import FakePackages, world_of

from contracts.endpoint import Arm
from gateway.errors import ModelUnavailableError
from gateway.inference.serving import Serving
from gateway.packages import ServedModel
from gateway.tokenising.on_demand import OnDemand
from preprocess.tokeniser_process.messages import Encode

pytestmark = pytest.mark.slow


def arms(state: Serving) -> set[Arm]:
    routes = state.table.endpoints["sentiment"]
    found = {target.arm for target in routes.targets}
    return found if routes.shadow is None else found | {Arm.SHADOW}


def of_tables(version: str) -> ServedModel:
    """A package whose manifest names no tokeniser."""
    model = model_of(version)
    return replace(model, manifest=model.manifest.model_copy(update={"files": {}}))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


async def test_a_stable_version_is_served_before_its_tokeniser_is_open(shelf: Shelf) -> None:
    one, spawner = shelf.model("1"), ThreadSpawner()
    async with (
        on_demand(shelf, spawner) as owner,
        world_of(FakePackages(one), endpoint_of(one.ref), tokenisers=owner) as world,
    ):
        await world.until_stable(one)
        await world.until(lambda state: state.complete)
        assert not owner.is_open(one)
        assert spawner.started == 0


async def test_versions_without_a_tokeniser_are_rolled_out_too(shelf: Shelf) -> None:
    one, two = (of_tables(version) for version in ("1", "2"))
    async with (
        on_demand(shelf, ThreadSpawner()) as owner,
        world_of(FakePackages(one, two), endpoint_of(one.ref), tokenisers=owner) as world,
    ):
        await world.until_stable(one)
        world.endpoints.say(endpoint_of(one.ref, canary=two.ref, weight=50, rollout="r"))
        await world.until(lambda state: arms(state) == {Arm.STABLE, Arm.CANARY})


async def test_a_bug_that_keeps_new_routes_out_is_told_until_it_does_no_more(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, bugs = shelf.model("1"), shelf.model("2"), [KeyError("a mistake")]

    def stays_open(model: ServedModel) -> bool:
        if bugs:
            raise bugs[0]
        return OnDemand.stays_open(owner, model)

    async with (
        on_demand(shelf, ThreadSpawner()) as owner,
        world_of(FakePackages(one, two), endpoint_of(one.ref), tokenisers=owner) as world,
    ):
        await world.until_stable(one)
        assert (world.states[-1].notes, world.reconciler.kept_seconds) == ((), 0)
        monkeypatch.setattr(owner, "stays_open", stays_open)
        world.endpoints.say(endpoint_of(one.ref, canary=two.ref, weight=50, rollout="r"))
        state = await world.until(lambda state: any("a mistake" in each for each in state.notes))
        assert arms(state) == {Arm.STABLE}
        assert world.reconciler.kept_seconds > 0
        bugs.clear()
        await world.until(lambda state: arms(state) == {Arm.STABLE, Arm.CANARY})
        assert (world.states[-1].notes, world.reconciler.kept_seconds) == ((), 0)


@pytest.mark.parametrize("arm", [Arm.CANARY, Arm.SHADOW])
async def test_a_candidate_gets_no_caller_before_its_tokeniser_is_open(
    shelf: Shelf, arm: Arm
) -> None:
    one, two, spawner = shelf.model("1"), shelf.model("2"), ThreadSpawner()
    async with (
        on_demand(shelf, spawner) as owner,
        world_of(FakePackages(one, two), endpoint_of(one.ref), tokenisers=owner) as world,
    ):
        await world.until_stable(one)
        spawner.go_on.clear()
        of_arm = {arm.value: two.ref}
        world.endpoints.say(endpoint_of(one.ref, **of_arm, weight=50, rollout="r"))  # type: ignore[arg-type]
        await world.until(lambda _: len(world.reconciler.batchers) == 2)
        await spawner.asked_for.wait()
        world.reconciler.reconcile()
        assert arms(world.states[-1]) == {Arm.STABLE}
        spawner.go_on.set()
        await world.until(lambda state: arm in arms(state))
        assert owner.is_open(two)
        assert all(arm not in arms(state) or owner.is_open(two) for state in world.states[-1:])


async def test_a_candidate_gets_no_caller_before_both_tokenisers_stay_open(shelf: Shelf) -> None:
    one, two, spawner = shelf.model("1"), shelf.model("2"), ThreadSpawner()
    packages = [one.ref, two.ref]
    before = endpoint_of(one.ref, packages=packages)
    async with (
        on_demand(shelf, spawner) as owner,
        world_of(FakePackages(one, two), before, tokenisers=owner) as world,
    ):
        await world.until(lambda _: len(world.reconciler.batchers) == 2)
        await owner.ask(two, Encode(["w1"]), 2, monotonic() + 60)
        spawner.asked_for.clear()
        spawner.go_on.clear()
        world.endpoints.say(endpoint_of(one.ref, canary=two.ref, weight=50, rollout="r"))
        await spawner.asked_for.wait()
        world.reconciler.reconcile()
        assert owner.is_open(two)
        assert arms(world.states[-1]) == {Arm.STABLE}
        spawner.go_on.set()
        await world.until(lambda state: Arm.CANARY in arms(state))
        assert owner.stays_open(one)


async def test_the_old_version_answers_until_the_new_ones_tokeniser_is_open(shelf: Shelf) -> None:
    one, two, spawner = shelf.model("1"), shelf.model("2"), ThreadSpawner()
    async with (
        on_demand(shelf, spawner) as owner,
        world_of(FakePackages(one, two), endpoint_of(one.ref), tokenisers=owner) as world,
    ):
        await world.until_stable(one)
        spawner.go_on.clear()
        world.endpoints.say(endpoint_of(two.ref, packages=[one.ref, two.ref]))
        await spawner.asked_for.wait()
        world.reconciler.reconcile()
        assert world.states[-1].table["sentiment"].choose("x").model is one
        spawner.go_on.set()
        await world.until_stable(two)
        assert owner.is_open(two)


async def test_a_candidate_whose_tokeniser_can_not_be_opened_gets_no_caller(shelf: Shelf) -> None:
    one, two, spawner = shelf.model("1"), shelf.model("2"), ThreadSpawner()
    async with (
        on_demand(shelf, spawner) as owner,
        world_of(FakePackages(one, two), endpoint_of(one.ref), tokenisers=owner) as world,
    ):
        await world.until_stable(one)
        await owner.ask(one, Encode(["w1"]), 2, monotonic() + 60)
        spawner.away = True
        world.endpoints.say(endpoint_of(one.ref, canary=two.ref, weight=50, rollout="r"))
        await world.until(lambda state: owner.fails(two) and bool(state.notes))
        assert arms(world.states[-1]) == {Arm.STABLE}
        assert "no process can be started" in world.states[-1].notes[0]
        spawner.away = False
        await world.until(lambda state: Arm.CANARY in arms(state))


async def test_a_stable_version_whose_tokeniser_can_not_be_opened_is_served_once_it_can(
    shelf: Shelf,
) -> None:
    one, spawner = shelf.model("1"), ThreadSpawner()
    async with (
        on_demand(shelf, spawner) as owner,
        world_of(FakePackages(one), endpoint_of(one.ref), tokenisers=owner) as world,
    ):
        await world.until_stable(one)
        spawner.away = True
        with pytest.raises(ModelUnavailableError):
            await owner.ask(one, Encode(["w1"]), 2, monotonic() + 60)
        await world.until(lambda state: not state.table.endpoints["sentiment"].targets)
        spawner.away = False
        await world.until_stable(one)


async def test_a_gateway_alone_stalls_no_other(tmp_path: Path) -> None:
    """Two gateways, one of which can start no process: the other one answers all the while."""
    shelves = Shelf(tmp_path / "a"), Shelf(tmp_path / "b")
    spawners = ThreadSpawner(), ThreadSpawner()
    models = [shelf.model("1") for shelf in shelves]
    spawners[0].away = True
    async with on_demand(shelves[0], spawners[0]) as one, on_demand(shelves[1], spawners[1]) as two:
        for _ in range(3):
            refused, answered = await asyncio.gather(
                one.ask(models[0], Encode(["w1"]), 2, monotonic() + 60),
                two.ask(models[1], Encode(["w1"]), 2, monotonic() + 60),
                return_exceptions=True,
            )
            assert isinstance(refused, ModelUnavailableError)
            assert not isinstance(answered, BaseException)
            await loop_turns()
