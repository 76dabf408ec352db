"""The controller's passes with everything around it in memory, but the store of packages."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from controller_house import House
from registry_fakes import ScriptedRollouts, endpoint

from contracts.endpoint import AliasVersion, Arm, EndpointSpec, ModelEndpoint, Phase, Route
from contracts.rollout import Outcome, RolloutState
from registry.conversions import ConversionIndex, options_digest
from registry.errors import SourceUnavailableError
from registry.rollouts import Surroundings


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.jobs.close()


async def test_a_registered_version_is_converted_loaded_and_served(house: House) -> None:
    ref = await house.serve("1")
    status = house.endpoints.list()[0].status
    assert [line.phase for line in status.history] == [
        Phase.CONVERTING,
        Phase.LOADING,
        Phase.SERVING,
    ]
    assert house.registry.listed["m"][0].tags["headrace.e.verdict"] == "Promoted"
    assert ref in status.packages


async def test_the_second_conversion_is_told_what_callers_rely_on(house: House) -> None:
    await house.serve("1")
    house.registry.register("m", "2")
    await house.settle()
    request = house.launcher.requests[-1]
    assert request.version == "2"
    assert request.stable is not None
    assert request.stable.labels == ("no", "yes")


async def test_a_version_at_fault_says_why_in_mlflow_and_is_not_retried(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    await house.fail("model.pkl is a pickle", by_version=True)
    await house.settle()
    house.time += 1e6
    status = await house.settle()
    assert status.rejected[0].reason == "model.pkl is a pickle"
    assert house.registry.listed["m"][0].tags == {
        "headrace.e.verdict": "Rejected",
        "headrace.e.reason": "model.pkl is a pickle",
        "headrace.e.phase": "Rejected",
    }
    assert len(house.launcher.requests) == 1


async def test_a_status_about_an_earlier_spec_is_written_once_though_nothing_else_changed(
    house: House,
) -> None:
    await house.serve("1")
    before = house.endpoints.list()[0]
    house.endpoints.show(before.status.model_copy(update={"outdated": True}))
    assert await house.settle() == before.status
    after = house.endpoints.list()[0]
    assert int(after.metadata.revision) == int(before.metadata.revision) + 2


async def test_a_fault_of_the_environment_is_retried_when_its_time_has_come(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    await house.fail("no space left", by_version=False)
    status = await house.settle()
    assert status.candidate is not None
    assert status.candidate.phase is Phase.BLOCKED
    assert len(house.launcher.requests) == 1
    house.time += 5.0
    await house.settle()
    assert len(house.launcher.requests) == 2


async def test_a_restart_after_publishing_does_not_convert_again(house: House) -> None:
    ref = await house.converted("1")
    await house.controller.step()
    await house.restart()
    status = await house.settle()
    assert house.launcher.requests == []
    assert ref in status.packages
    house.load(ref)
    assert (await house.settle()).stable == ref


async def test_a_restart_in_the_middle_of_a_conversion_converts_again(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    await house.restart()
    await house.settle()
    assert len(house.launcher.requests) == 1


async def test_an_endpoint_made_anew_takes_the_package_that_is_there(house: House) -> None:
    ref = await house.serve("1")
    house.endpoints.delete("e")
    house.endpoints.put(endpoint())
    assert (await house.settle()).stable == ref
    assert len(house.launcher.requests) == 1


async def test_mlflow_away_changes_nothing_and_its_verdicts_are_made_up_later(house: House) -> None:
    ref = await house.converted("1")
    house.registry.down = True
    house.registry.told.clear()
    house.load(ref)
    status = await house.settle()
    assert status.stable == ref
    assert house.registry.told == []
    house.registry.down = False
    await house.settle()
    assert house.registry.listed["m"][0].tags["headrace.e.verdict"] == "Promoted"
    assert house.registry.aliases == {"m": {"champion": "1"}}


async def test_a_restart_with_mlflow_away_leaves_what_serves(house: House) -> None:
    ref = await house.serve("1")
    house.registry.down = True
    await house.restart()
    assert (await house.settle()).stable == ref


async def test_a_silent_loader_is_not_waited_for_and_not_believed(house: House) -> None:
    house.load()
    ref = await house.converted("1")
    house.time += 16.0
    status = await house.settle()
    assert status.candidate is not None
    assert "no loader has given a sign of life" in status.candidate.reason
    house.load(ref)
    assert (await house.settle()).stable == ref


async def test_loaders_that_can_not_reach_us_are_not_taken_for_silent(house: House) -> None:
    house.load()
    house.reports.deaf = True
    await house.converted("1")
    house.time += 100.0
    status = await house.settle()
    assert status.candidate is not None
    assert "no loader has given a sign of life" not in status.candidate.reason


async def test_a_loader_whose_clock_is_behind_is_believed(house: House) -> None:
    ref = await house.converted("1")
    house.load(ref)
    (report,) = house.reports.list()
    house.reports.put(report.model_copy(update={"at": report.at - 30.0}))
    assert (await house.settle()).stable == ref


async def test_a_conflict_is_planned_anew_on_what_was_read(house: House) -> None:
    house.registry.register("m", "1")
    await house.watch.round()
    house.endpoints.conflicts = 1
    await house.controller.step()
    assert house.launcher.requests == []
    await house.settle()
    assert len(house.launcher.requests) == 1


async def test_a_newer_version_ends_the_conversion_of_the_older(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    house.registry.register("m", "2")
    await house.settle()
    await house.settle()
    assert house.launcher.cancelled == 1
    assert house.launcher.requests[-1].version == "2"


async def test_two_endpoints_of_one_model_share_a_conversion(house: House) -> None:
    house.endpoints.put(endpoint(name="second"))
    ref = await house.converted("1")
    house.load(ref)
    await house.settle()
    assert [item.status.stable for item in house.endpoints.list()] == [ref, ref]
    assert len(house.launcher.requests) == 1


async def test_two_endpoints_of_one_model_share_a_rejection(house: House) -> None:
    house.endpoints.put(endpoint(name="second"))
    house.registry.register("m", "1")
    await house.settle()
    house.changed.clear()
    await house.fail("a pickle", by_version=True)
    await house.settle()
    assert all(item.status.rejected for item in house.endpoints.list())
    assert len(house.launcher.requests) == 1


async def test_with_auto_endpoints_registering_is_all_it_takes(tmp_path: Path) -> None:
    house = House(tmp_path, auto=True)
    house.registry.register("My_Model", "1")
    await house.watch.round()
    await house.controller.step()
    await house.settle()
    (made,) = house.endpoints.list()
    assert (made.name, made.spec.model) == ("my-model", "My_Model")
    assert house.launcher.requests[0].model == "My_Model"
    await house.jobs.close()


async def test_endpoints_that_can_not_be_read_end_no_loop(house: House) -> None:
    house.endpoints.broken = True
    stop = asyncio.Event()
    running = asyncio.create_task(house.controller.run(stop))
    house.registry.register("m", "1")
    await house.changed.wait()
    house.endpoints.broken = False
    while not house.launcher.requests:  # noqa: ASYNC110 - the loop's own ticks
        await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(running, 60)
    assert house.launcher.cancelled == 1


async def test_a_second_version_waits_loaded_for_its_rollout(house: House) -> None:
    stable = await house.serve("1")
    ref = await house.prepare("2")
    status = await house.settle()
    assert status.stable == stable
    assert status.candidate is not None
    assert (status.candidate.phase, status.candidate.ref) == (Phase.LOADED, ref)
    assert house.rollouts.around == Surroundings(frozenset({stable, ref}), {}, "2")


async def test_a_rollouts_step_and_the_plan_are_one_write_and_one_generation(house: House) -> None:
    stable = await house.serve("1")
    ref = await house.prepare("2")
    before = house.endpoints.list()[0]
    routes = (
        Route(arm=Arm.STABLE, ref=stable, weight=95),
        Route(arm=Arm.CANARY, ref=ref, weight=5),
    )
    house.rollouts.next_status = lambda status: status.model_copy(update={"routes": routes})
    await house.controller.step()
    (after,) = house.endpoints.list()
    assert after.status.routes == routes
    assert after.status.generation == before.status.generation + 1
    assert int(after.metadata.revision) == int(before.metadata.revision) + 1
    await house.settle()
    assert house.endpoints.list()[0] == after


async def test_a_rollouts_id_is_a_new_generation_for_it_salts_the_split(house: House) -> None:
    stable = await house.serve("1")
    ref = await house.prepare("2")
    await house.settle()
    before = house.endpoints.list()[0].status.generation
    state = RolloutState(id="r1", candidate=ref, stable=stable, began=1.0, step_began=1.0)
    house.rollouts.next_status = lambda status: status.model_copy(update={"rollout": state})
    assert (await house.settle()).generation == before + 1
    judged = state.model_copy(update={"looked_through": 5.0})
    house.rollouts.next_status = lambda status: status.model_copy(update={"rollout": judged})
    assert (await house.settle()).generation == before + 1


async def test_an_answered_command_leaves_in_the_same_write(house: House) -> None:
    await house.serve("1")
    (stored,) = house.endpoints.list()
    metadata = stored.metadata.model_copy(update={"annotations": {"a": "x", "b": "y"}})
    stored = house.endpoints.put(stored.model_copy(update={"metadata": metadata}))
    house.rollouts.answers = frozenset({"a"})
    await house.controller.step()
    (after,) = house.endpoints.list()
    assert after.metadata.annotations == {"b": "y"}
    assert int(after.metadata.revision) == int(stored.metadata.revision) + 1


async def test_a_rollout_that_breaks_holds_its_endpoint_and_no_other(house: House) -> None:
    class BrokenAtE(ScriptedRollouts):
        def advance(
            self, endpoint: ModelEndpoint, around: Surroundings, now: float
        ) -> ModelEndpoint:
            if endpoint.name == "e":
                raise ValueError("evidence of another age")
            return super().advance(endpoint, around, now)

    await house.serve("1")
    house.rollouts = BrokenAtE()
    await house.restart()
    house.endpoints.put(endpoint(name="second"))
    status = await house.settle()
    assert "evidence of another age" in status.notes[0]
    assert status.stable is not None
    assert house.endpoints.list()[1].status.stable == status.stable
    house.rollouts = ScriptedRollouts()
    await house.restart()
    assert (await house.settle()).notes == ()


async def test_a_verdicts_evidence_goes_into_the_run_that_made_the_version(house: House) -> None:
    stable = await house.serve("1")
    ref = await house.prepare("2", run_id="run2")
    ended = RolloutState(
        id="r1", candidate=ref, stable=stable, began=1.0, step_began=1.0, ended_at=9.0,
        outcome=Outcome.ROLLED_BACK, reason="errors",
    )  # fmt: skip
    house.rollouts.next_status = lambda status: status.model_copy(update={"last_rollout": ended})
    house.artifacts.fault = SourceUnavailableError("the store of artifacts is away")
    await house.settle()
    assert house.artifacts.files == {}
    house.artifacts.fault = None
    await house.settle()
    assert set(house.artifacts.files) == {
        "run2/headrace/e/v2/evidence.json",
        "run2/headrace/e/v2/report.html",
    }
    tags = house.registry.listed["m"][0].tags
    assert tags["headrace.e.evidence"] == "runs:/run2/headrace/e/v2"


async def test_an_alias_that_the_endpoint_follows_is_never_moved_and_the_status_says_so(
    house: House,
) -> None:
    (stored,) = house.endpoints.list()
    spec = EndpointSpec(model="m", version=AliasVersion(alias="champion"))
    house.endpoints.put(stored.model_copy(update={"spec": spec}))
    house.registry.aliases = {"m": {"champion": "1"}}
    await house.serve("1")
    house.registry.aliases = {"m": {"champion": "7"}}
    status = await house.settle()
    assert house.registry.aliases == {"m": {"champion": "7"}}
    assert "because the endpoint follows it" in status.notes[0]


def asked_for(house: House, instances: int | None) -> None:
    """The spec asks for so many copies from now on."""
    stored = house.endpoints.list()[0]
    serving = stored.spec.serving.model_copy(update={"instances": instances})
    spec = stored.spec.model_copy(update={"serving": serving})
    house.endpoints.put(stored.model_copy(update={"spec": spec}))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (None, 2), (2, None), (4, 1)])
async def test_other_copies_of_the_version_that_serves_convert_nothing_and_begin_no_rollout(
    house: House, before: int | None, after: int | None
) -> None:
    asked_for(house, before)
    await house.serve("1")
    status = house.endpoints.list()[0].status
    converted = len(house.launcher.requests)
    asked_for(house, after)
    assert await house.settle() == status
    assert len(house.launcher.requests) == converted


async def test_other_copies_during_a_conversion_do_not_begin_it_anew(house: House) -> None:
    house.registry.register("m", "1")
    await house.settle()
    asked_for(house, 3)
    await house.settle()
    assert len(house.launcher.requests) == 1
    assert house.launcher.cancelled == 0


@pytest.mark.parametrize("other", [False, True])
async def test_a_package_that_an_earlier_release_made_for_more_copies_goes_on_serving(
    house: House, other: bool
) -> None:
    """``other``: the same version was also converted for one copy, before that was changed."""
    asked_for(house, 2)
    served = await house.serve("1")
    spec = house.endpoints.list()[0].spec
    version = house.registry.listed["m"][0]
    digest = partial(
        options_digest, spec, version, threads=1, allow_pickle=False, allow_remote_code=False
    )
    index = ConversionIndex(house.options.store_url, house.store)
    index.put(digest(instances=2), served)
    (house.folder / "store" / "index" / f"{digest()}.json").unlink()
    if other:
        index.put(digest(), house.publish("1", labels=("no", "maybe")))
    await house.restart()
    assert (await house.settle()).stable == served
    asked_for(house, 3)
    status = await house.settle()
    assert (status.stable, status.candidate) == (served, None)
    assert house.launcher.requests == []
