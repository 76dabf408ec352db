"""The controller's passes with everything around it in memory, but the store of packages."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from controller_harness import ControllerHarness
from registry_fakes import candidate_of, endpoint, report

from contracts.ceilings import Ceilings
from contracts.endpoint import (
    AliasVersion,
    Arm,
    EndpointSpec,
    Guardrail,
    Phase,
    PinnedVersion,
    Route,
    WaitsFor,
)
from contracts.loading import FailureCause, LoadFailure
from contracts.model import ModelRef
from contracts.rollout import (
    Outcome,
    RolloutSpec,
    RolloutState,
    ShadowStep,
    Strategy,
    WeightStep,
)
from contracts.status_events import new_lines
from contracts.tasks import Task
from registry.errors import SourceUnavailableError
from registry.mlflow.watch import SECOND_LOOK_SECONDS
from registry.reconcile.rollouts import Surroundings
from registry.stores.cluster_shown import conditions


async def test_a_registered_version_is_converted_loaded_and_served(
    harness: ControllerHarness,
) -> None:
    ref = await harness.serve("1")
    status = harness.endpoints.list()[0].status
    assert [line.phase for line in status.history] == [
        Phase.CONVERTING,
        Phase.LOADING,
        Phase.SERVING,
    ]
    assert harness.registry.listed["m"][0].tags["headrace.e.verdict"] == "Promoted"
    assert ref in status.packages


async def test_a_version_that_no_triton_holds_any_more_says_so_until_one_does(
    harness: ControllerHarness,
) -> None:
    ref = await harness.serve("1")
    assert harness.endpoints.list()[0].status.waits == ()
    away = LoadFailure(ref=ref, reason="refused", by_version=False, cause=FailureCause.AWAY)
    harness.reports.put(report(at=harness.time, failed=(away,)))
    status = await harness.settle()
    said = "no Triton of the pool default holds version 1"
    assert conditions(status, (), 1, 0.0)[0]["message"] == status.unserved == said
    assert [wait.what for wait in status.waits] == [f"{said}: refused"]
    assert harness.registry.listed["m"][0].tags["headrace.e.waits"].startswith(said)
    harness.load(ref)
    assert (await harness.settle()).waits == ()


async def test_a_version_at_fault_says_why_in_mlflow_and_is_not_retried(
    harness: ControllerHarness,
) -> None:
    await harness.failed("1", "model.pkl is a pickle", by_version=True)
    await harness.settle()
    harness.time += 1e6
    status = await harness.settle()
    assert status.rejected[0].reason == "model.pkl is a pickle"
    assert harness.registry.listed["m"][0].tags == {
        "headrace.e.verdict": "Rejected",
        "headrace.e.reason": "model.pkl is a pickle",
        "headrace.e.phase": "Rejected",
        "headrace.e.waits": "model.pkl is a pickle, since 1970-01-01 00:16:40 UTC; to do: register "
        "a better version, or have it tried again: headrace rollout retry e 1",
    }
    assert len(harness.launcher.requests) == 1


async def test_a_status_about_an_earlier_spec_is_written_once_though_nothing_else_changed(
    harness: ControllerHarness,
) -> None:
    await harness.serve("1")
    before = harness.endpoints.list()[0]
    harness.endpoints.show(before.status.model_copy(update={"outdated": True}))
    assert await harness.settle() == before.status
    after = harness.endpoints.list()[0]
    assert int(after.metadata.revision) == int(before.metadata.revision) + 2


async def test_a_fault_of_the_environment_is_retried_when_its_time_has_come(
    harness: ControllerHarness,
) -> None:
    await harness.failed("1", "no space left", by_version=False)
    status = await harness.settle()
    assert candidate_of(status).phase is Phase.BLOCKED
    assert len(harness.launcher.requests) == 1
    harness.time += 5.0
    await harness.settle()
    assert len(harness.launcher.requests) == 2


async def test_a_restart_after_publishing_does_not_convert_again(
    harness: ControllerHarness,
) -> None:
    ref = await harness.converted("1")
    await harness.controller.step()
    await harness.restart()
    status = await harness.settle()
    assert harness.launcher.requests == []
    assert ref in status.packages
    harness.load(ref)
    assert (await harness.settle()).stable == ref


async def test_a_restart_in_the_middle_of_a_conversion_converts_again(
    harness: ControllerHarness,
) -> None:
    harness.registry.register("m", "1")
    await harness.settle()
    await harness.restart()
    await harness.settle()
    assert len(harness.launcher.requests) == 1


async def test_mlflow_away_changes_nothing_and_its_verdicts_are_made_up_later(
    harness: ControllerHarness,
) -> None:
    ref = await harness.converted("1")
    harness.registry.down = True
    harness.registry.told.clear()
    harness.load(ref)
    status = await harness.settle()
    assert status.stable == ref
    assert harness.registry.told == []
    harness.registry.down = False
    await harness.settle()
    assert harness.registry.listed["m"][0].tags["headrace.e.verdict"] == "Promoted"
    assert harness.registry.aliases == {"m": {"champion": "1"}}


async def test_a_silent_loader_is_not_waited_for_and_not_believed(
    harness: ControllerHarness,
) -> None:
    harness.load()
    ref = await harness.converted("1")
    harness.time += 16.0
    status = await harness.settle()
    assert "no loader has given a sign of life" in candidate_of(status).reason
    harness.load(ref)
    assert (await harness.settle()).stable == ref


async def test_loaders_that_can_not_reach_us_are_not_taken_for_silent(
    harness: ControllerHarness,
) -> None:
    harness.load()
    harness.reports.disconnected = True
    await harness.converted("1")
    harness.time += 100.0
    status = await harness.settle()
    assert "no loader has given a sign of life" not in candidate_of(status).reason


async def test_a_newer_version_ends_the_conversion_of_the_older(harness: ControllerHarness) -> None:
    harness.load(await harness.converted("1"))
    await harness.settle()
    for number in ("2", "3"):
        harness.registry.register("m", number)
        await harness.settle()
        await harness.settle()
    assert harness.launcher.cancelled == 1
    assert harness.launcher.requests[-1].version == "3"


async def test_a_first_version_is_served_though_newer_ones_are_registered_while_it_is_converted(
    harness: ControllerHarness,
) -> None:
    harness.registry.register("m", "1")
    await harness.settle()
    for number in ("2", "3"):
        harness.registry.register("m", number)
        await harness.settle()
    assert harness.launcher.cancelled == 0
    assert [request.version for request in harness.launcher.requests] == ["1"]


async def test_conversions_start_in_the_order_of_waiting_and_a_newer_version_keeps_the_place(
    harness: ControllerHarness,
) -> None:
    for model in ("second", "first"):  # passes look in this order
        harness.endpoints.put(endpoint(name=model, spec=EndpointSpec(model=model)))
    for model, number in (("m", "1"), ("first", "1"), ("second", "1"), ("first", "2")):
        harness.registry.register(model, number)
        await harness.settle()
    statuses = {each.name: each.status for each in harness.endpoints.list()}
    running = "waits for the conversion of m version 1 to end"
    assert candidate_of(statuses["first"]).reason == running
    assert candidate_of(statuses["second"]).reason == f"{running}; 1 more waiting before it"
    harness.changed.clear()
    await harness.fail("a pickle", by_version=True)
    await harness.settle()
    asked = [(each.model, each.version) for each in harness.launcher.requests]
    assert asked == [("m", "1"), ("first", "2")]


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        (EndpointSpec(model="typo"), "MLflow has no registered model typo"),
        (EndpointSpec(model="m", version=PinnedVersion(pin="7")), "MLflow has no version 7 of m"),
        (
            EndpointSpec(model="m", version=AliasVersion(alias="prod")),
            "MLflow's model m has no alias",
        ),
    ],
)
async def test_an_endpoint_that_names_what_mlflow_lacks_says_so(
    harness: ControllerHarness, spec: EndpointSpec, note: str
) -> None:
    harness.registry.register("m", "1")
    harness.endpoints.put(endpoint(name="odd", spec=spec))
    await harness.settle()
    found = harness.endpoints.get("odd")
    assert found is not None
    assert [each for each in found.status.waits if each.what.startswith(note)]


async def test_an_endpoint_of_a_workspace_that_is_not_followed_says_so(
    harness: ControllerHarness,
) -> None:
    harness.registry.register("m", "1")
    harness.endpoints.put(endpoint(name="odd", spec=EndpointSpec(model="team-a/m")))
    await harness.settle()
    found = harness.endpoints.get("odd")
    assert found is not None
    said = [each.what for each in found.status.waits]
    assert [each for each in said if "does not follow MLflow's workspace team-a" in each]
    assert not [each for each in said if "has no registered model" in each]


async def test_a_version_that_serves_and_was_deleted_in_mlflow_goes_on_and_says_so(
    harness: ControllerHarness,
) -> None:
    harness.load(await harness.converted("1"))
    await harness.settle()
    harness.registry.delete("m", "1")
    await harness.settle()
    harness.later_seconds += SECOND_LOOK_SECONDS
    status = await harness.settle()
    assert status.stable is not None
    (said,) = [each for each in status.waits if each.cause is WaitsFor.LOST_VERSION]
    assert said.what == "version 1 serves and is not in MLflow any more"


@pytest.mark.parametrize("serves", [True, False])
async def test_a_version_that_mlflow_lost_while_it_was_converted_is_told_of_everywhere(
    harness: ControllerHarness, caplog: pytest.LogCaptureFixture, *, serves: bool
) -> None:
    caplog.set_level("INFO")
    if serves:
        await harness.serve("1")
    harness.registry.register("m", "2")
    before = await harness.settle()
    assert candidate_of(before).phase is Phase.CONVERTING
    harness.registry.delete("m", "2")
    await harness.settle()
    harness.later_seconds += SECOND_LOOK_SECONDS
    status = await harness.settle()
    assert status.candidate is None
    why = "MLflow's model m has no version 2 any more: dropped while it was converted"
    assert (status.history[-1].version, status.history[-1].reason) == ("2", why)
    assert f"version 2 is not brought in: {why}" in status.notes
    assert [line.reason for line in new_lines(before, status)] == [why]
    assert why in {getattr(record, "reason", "") for record in caplog.records}
    harness.registry.register("m", "3")
    status = await harness.settle()
    assert candidate_of(status).version == "3"
    assert not any("version 2" in note for note in status.notes)


@pytest.mark.parametrize("version", [PinnedVersion(pin="1"), AliasVersion(alias="prod")])
async def test_what_a_serving_endpoint_names_and_mlflow_lost_is_said_and_what_serves_goes_on(
    harness: ControllerHarness, version: PinnedVersion | AliasVersion
) -> None:
    (stored,) = harness.endpoints.list()
    harness.registry.aliases = {"m": {"prod": "1"}}
    spec = EndpointSpec(model="m", version=version)
    harness.endpoints.put(stored.model_copy(update={"spec": spec}))
    await harness.serve("1")
    harness.registry.register("m", "2")
    harness.registry.delete("m", "1")
    harness.registry.aliases["m"].pop("prod")
    await harness.settle()
    harness.later_seconds += SECOND_LOOK_SECONDS
    status = await harness.settle()
    assert status.stable is not None
    is_pinned = isinstance(version, PinnedVersion)
    cause = WaitsFor.PINNED_VERSION if is_pinned else WaitsFor.ALIAS
    (said,) = [each.what for each in status.waits if each.cause is cause]
    assert ("no version 1" if is_pinned else "no alias prod") in said
    assert said.endswith("version 1 goes on serving")


async def test_a_model_that_was_deleted_and_registered_again_is_followed_from_its_first_version(
    harness: ControllerHarness,
) -> None:
    for number in ("1", "2"):
        harness.load(await harness.converted(number))
        await harness.settle()
    harness.endpoints.put(
        harness.endpoints.list()[0].model_copy(
            update={"spec": EndpointSpec(model="m", rollout=RolloutSpec(strategy=Strategy.DIRECT))}
        )
    )
    before = (await harness.settle()).stable
    assert before is not None
    assert before.version == "2"
    harness.registry.recreate("m")
    harness.registry.register("m", "1", identity="another")
    await harness.settle()
    harness.later_seconds += SECOND_LOOK_SECONDS
    status = await harness.settle()
    assert candidate_of(status).version == "1"
    new = await harness.convert("1")
    harness.load(before, new)
    status = await harness.settle()
    assert status.stable == new
    harness.registry.register("m", "2", identity="another, too")
    assert candidate_of(await harness.settle()).version == "2"


async def test_two_endpoints_of_one_model_share_a_conversion(harness: ControllerHarness) -> None:
    harness.endpoints.put(endpoint(name="second"))
    ref = await harness.converted("1")
    harness.load(ref)
    await harness.settle()
    assert [item.status.stable for item in harness.endpoints.list()] == [ref, ref]
    assert len(harness.launcher.requests) == 1


async def test_two_endpoints_of_one_model_share_a_rejection(harness: ControllerHarness) -> None:
    harness.endpoints.put(endpoint(name="second"))
    await harness.failed("1", "a pickle", by_version=True)
    await harness.settle()
    assert all(item.status.rejected for item in harness.endpoints.list())
    assert len(harness.launcher.requests) == 1


async def test_with_auto_endpoints_registering_is_all_it_takes(tmp_path: Path) -> None:
    harness = ControllerHarness(tmp_path, auto=True)
    harness.registry.register("My_Model", "1")
    await harness.watch.round()
    await harness.controller.step()
    await harness.settle()
    (made,) = harness.endpoints.list()
    assert (made.name, made.spec.model) == ("my-model", "My_Model")
    assert harness.launcher.requests[0].model == "My_Model"
    await harness.jobs.close()


async def test_endpoints_that_can_not_be_read_end_no_loop(harness: ControllerHarness) -> None:
    harness.endpoints.broken = True
    stop = asyncio.Event()
    running = asyncio.create_task(harness.controller.run(stop))
    harness.registry.register("m", "1")
    await harness.changed.wait()
    harness.endpoints.broken = False
    while not harness.launcher.requests:  # noqa: ASYNC110 - the loop's own ticks
        await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(running, 60)
    assert harness.launcher.cancelled == 1


async def test_a_second_version_waits_loaded_for_its_rollout(harness: ControllerHarness) -> None:
    stable = await harness.serve("1")
    ref = await harness.prepare("2")
    status = await harness.settle()
    assert status.stable == stable
    assert (candidate_of(status).phase, candidate_of(status).ref) == (Phase.LOADED, ref)
    assert harness.rollouts.around == Surroundings(frozenset({stable, ref}), {}, "2")


async def test_a_rollouts_step_and_the_plan_are_one_write_and_one_generation(
    harness: ControllerHarness,
) -> None:
    stable = await harness.serve("1")
    ref = await harness.prepare("2")
    before = harness.endpoints.list()[0]
    routes = (
        Route(arm=Arm.STABLE, ref=stable, weight=95),
        Route(arm=Arm.CANARY, ref=ref, weight=5),
    )
    harness.rollouts.next_status = lambda status: status.model_copy(update={"routes": routes})
    await harness.controller.step()
    (after,) = harness.endpoints.list()
    assert after.status.routes == routes
    assert after.status.generation == before.status.generation + 1
    assert int(after.metadata.revision) == int(before.metadata.revision) + 1
    await harness.settle()
    assert harness.endpoints.list()[0] == after


async def test_a_rollouts_id_is_a_new_generation_for_it_salts_the_split(
    harness: ControllerHarness,
) -> None:
    stable = await harness.serve("1")
    ref = await harness.prepare("2")
    await harness.settle()
    before = harness.endpoints.list()[0].status.generation
    state = RolloutState(id="r1", candidate=ref, stable=stable, began=1.0, step_began=1.0)
    harness.rollouts.next_status = lambda status: status.model_copy(update={"rollout": state})
    assert (await harness.settle()).generation == before + 1
    judged = state.model_copy(update={"looked_through": 5.0})
    harness.rollouts.next_status = lambda status: status.model_copy(update={"rollout": judged})
    assert (await harness.settle()).generation == before + 1


async def test_an_answered_command_leaves_in_the_same_write(harness: ControllerHarness) -> None:
    await harness.serve("1")
    (stored,) = harness.endpoints.list()
    metadata = stored.metadata.model_copy(update={"annotations": {"a": "x", "b": "y"}})
    stored = harness.endpoints.put(stored.model_copy(update={"metadata": metadata}))
    harness.rollouts.answers = frozenset({"a"})
    await harness.controller.step()
    (after,) = harness.endpoints.list()
    assert after.metadata.annotations == {"b": "y"}
    assert int(after.metadata.revision) == int(stored.metadata.revision) + 1


async def test_a_rollout_that_breaks_holds_its_endpoint_and_no_other(
    harness: ControllerHarness,
) -> None:
    await harness.serve("1")
    harness.rollouts.breaks_at = "e"
    harness.endpoints.put(endpoint(name="second"))
    status = await harness.settle()
    assert status.waits[0].cause is WaitsFor.FAULT
    assert "evidence of another age" in status.waits[0].what
    assert status.stable is not None
    assert harness.endpoints.list()[1].status.stable == status.stable
    harness.rollouts.breaks_at = ""
    assert (await harness.settle()).waits == ()


async def test_a_verdicts_evidence_goes_into_the_run_that_made_the_version(
    harness: ControllerHarness,
) -> None:
    stable = await harness.serve("1")
    ref = await harness.prepare("2", run_id="run2")
    ended = RolloutState(
        id="r1", candidate=ref, stable=stable, began=1.0, step_began=1.0, ended_at=9.0,
        outcome=Outcome.ROLLED_BACK, reason="errors",
    )  # fmt: skip
    harness.rollouts.next_status = lambda status: status.model_copy(update={"last_rollout": ended})
    harness.artifacts.fault = SourceUnavailableError("the store of artifacts is away")
    await harness.settle()
    assert harness.artifacts.files == {}
    harness.artifacts.fault = None
    await harness.settle()
    assert set(harness.artifacts.files) == {
        "run2/headrace/e/v2/evidence.json",
        "run2/headrace/e/v2/report.html",
    }
    tags = harness.registry.listed["m"][0].tags
    assert tags["headrace.e.evidence"] == "runs:/run2/headrace/e/v2"


async def test_an_alias_that_the_endpoint_follows_is_never_moved_and_the_status_says_so(
    harness: ControllerHarness,
) -> None:
    (stored,) = harness.endpoints.list()
    spec = EndpointSpec(model="m", version=AliasVersion(alias="champion"))
    harness.endpoints.put(stored.model_copy(update={"spec": spec}))
    harness.registry.aliases = {"m": {"champion": "1"}}
    await harness.serve("1")
    harness.registry.aliases = {"m": {"champion": "7"}}
    status = await harness.settle()
    assert harness.registry.aliases == {"m": {"champion": "7"}}
    assert "because the endpoint follows it" in status.notes[0]


async def test_a_second_endpoint_on_a_model_does_not_take_over_its_alias_and_says_so(
    harness: ControllerHarness,
) -> None:
    await harness.serve("1")
    assert harness.registry.aliases == {"m": {"champion": "1"}}
    pinned = EndpointSpec(model="m", version=PinnedVersion(pin="1"))
    harness.endpoints.put(endpoint(name="before-e", spec=pinned))
    await harness.settle()
    second = harness.endpoints.get("before-e")
    assert second is not None
    assert "champion of m is not moved on promotion, because the endpoint e" in " ".join(
        second.status.notes
    )
    harness.endpoints.delete("e")
    await harness.settle()
    after = harness.endpoints.get("before-e")
    assert after is not None
    assert (after.status.moves, after.status.notes) == ("m@champion", ())


@pytest.mark.parametrize(("before", "after"), [(1, 2), (None, 2), (2, None), (4, 1)])
async def test_other_copies_of_the_version_that_serves_convert_nothing_and_begin_no_rollout(
    harness: ControllerHarness, before: int | None, after: int | None
) -> None:
    harness.endpoints.ask_for(before)
    await harness.serve("1")
    status = harness.endpoints.list()[0].status
    converted = len(harness.launcher.requests)
    harness.endpoints.ask_for(after)
    assert await harness.settle() == status
    assert len(harness.launcher.requests) == converted


async def test_other_copies_during_a_conversion_do_not_begin_it_anew(
    harness: ControllerHarness,
) -> None:
    harness.registry.register("m", "1")
    await harness.settle()
    harness.endpoints.ask_for(3)
    await harness.settle()
    assert len(harness.launcher.requests) == 1
    assert harness.launcher.cancelled == 0


async def test_above_a_ceiling_what_serves_goes_on_and_no_further_version_is_taken(
    tmp_path: Path,
) -> None:
    harness = ControllerHarness(tmp_path)
    harness.options = replace(harness.options, ceilings=Ceilings({"instances": 2}))
    harness.start()
    stable = await harness.serve("1")
    harness.endpoints.ask_for(3)
    harness.registry.register("m", "2")
    status = await harness.settle()
    sentence = "spec.serving.instances is 3, above the operator's ceiling of 2"
    assert status.refused == (sentence,)
    assert sentence in status.notes
    assert status.stable == stable
    assert status.candidate is not None
    assert (status.candidate.version, status.candidate.phase) == ("2", Phase.BLOCKED)
    assert sentence in status.candidate.reason
    assert harness.jobs.states == {}
    assert harness.endpoints.list()[0].spec.serving.instances == 3  # the wish is its author's
    harness.endpoints.ask_for(2)
    status = await harness.settle()
    assert status.refused == ()
    await harness.convert("2")
    status = await harness.settle()
    assert status.candidate is not None
    assert status.candidate.phase is Phase.LOADING


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("toxic", "spec.guardrail.labels: the model has no label toxic; it has no, yes"),
        ("yes", ""),
    ],
)
async def test_a_guardrail_whose_labels_the_stable_version_lacks_is_told_and_stops_nothing(
    harness: ControllerHarness, label: str, why: str
) -> None:
    stable = await harness.serve("1")
    stored = harness.endpoints.list()[0]
    rules = Guardrail(labels={label: 0.5})
    spec = stored.spec.model_copy(update={"guardrail": rules})
    harness.endpoints.put(stored.model_copy(update={"spec": spec}))
    status = await harness.settle()
    assert (status.unguarded, status.notes) == (why, (why,) if why else ())
    assert status.stable == stable
    harness.endpoints.put(harness.endpoints.list()[0].model_copy(update={"spec": stored.spec}))
    assert (await harness.settle()).unguarded == ""


async def test_a_rollout_that_goes_on_is_led_within_the_ceilings(tmp_path: Path) -> None:
    harness = ControllerHarness(tmp_path)
    harness.options = replace(harness.options, ceilings=Ceilings({"shadowPercent": 20}))
    harness.start()
    await harness.controller.step()
    assert harness.rollouts.spec is not None
    assert harness.rollouts.spec.rollout.steps[0] == ShadowStep(shadow=20)
    assert harness.endpoints.list()[0].spec.rollout.steps[0] == ShadowStep(shadow=100)


@pytest.mark.parametrize("strategy", [Strategy.CANARY, Strategy.CUTOVER, Strategy.SHADOW])
async def test_a_shadow_that_no_step_names_copies_no_more_than_the_ceiling(
    tmp_path: Path, strategy: Strategy
) -> None:
    harness = ControllerHarness(tmp_path)
    harness.options = replace(harness.options, ceilings=Ceilings({"shadowPercent": 20}))
    harness.start()
    stored = harness.endpoints.list()[0]
    rollout = RolloutSpec(strategy=strategy, steps=(WeightStep(weight=50),))
    changed = {"task": Task.TEXT_EMBEDDING, "rollout": rollout}
    asked = stored.spec.model_copy(update=changed)
    harness.endpoints.put(stored.model_copy(update={"spec": asked}))
    await harness.serve("1")
    await harness.prepare("2")
    await harness.settle()
    assert harness.rollouts.spec is not None
    assert harness.rollouts.spec.rollout.planned == (ShadowStep(shadow=20),)
    assert harness.endpoints.list()[0].spec.rollout == rollout


async def test_an_endpoint_that_headrace_makes_asks_for_no_more_than_the_ceilings(
    tmp_path: Path,
) -> None:
    harness = ControllerHarness(tmp_path, auto=True)
    harness.options = replace(harness.options, ceilings=Ceilings({"maxBatchSize": 16}))
    harness.start()
    harness.registry.register("m", "1")
    status = await harness.settle()
    assert harness.endpoints.list()[0].spec.serving.max_batch_size == 16
    assert status.refused == ()


async def test_an_endpoint_moves_to_another_pool_once_its_tritons_hold_it(
    harness: ControllerHarness,
) -> None:
    ref = await harness.serve("1")
    (stored,) = harness.endpoints.list()
    spec = stored.spec.model_copy(update={"pool": "gpu"})
    harness.endpoints.put(stored.model_copy(update={"spec": spec}))
    status = await harness.settle()
    assert (status.pool, status.next_pool, status.stable) == ("default", "gpu", ref)
    assert "no Triton of the pool gpu has given a sign of life" in status.notes[0]

    gpu = report(loader="g", at=harness.time).model_copy(update={"pool": "gpu"})
    harness.reports.put(gpu)
    status = await harness.settle()
    assert (status.pool, status.next_pool, status.notes) == ("default", "gpu", ())
    harness.reports.put(gpu.model_copy(update={"loaded": report(ref).loaded}))
    generation = status.generation
    status = await harness.settle()
    assert (status.pool, status.next_pool, status.stable) == ("gpu", "", ref)
    assert status.generation > generation

    # From now on the pool's Tritons alone count: a version that others hold is not loaded.
    second = await harness.converted("2")
    harness.load(ref, second)
    await harness.settle()
    assert candidate_of(harness.endpoints.list()[0].status).phase is Phase.LOADING


async def test_an_endpoint_of_a_pool_that_is_not_allowed_is_refused_and_not_moved(
    harness: ControllerHarness,
) -> None:
    ref = await harness.serve("1")
    harness.options = replace(harness.options, ceilings=Ceilings(pools=("default", "cpu")))
    await harness.restart()
    (stored,) = harness.endpoints.list()
    spec = stored.spec.model_copy(update={"pool": "gpu"})
    harness.endpoints.put(stored.model_copy(update={"spec": spec}))
    held = report(ref, loader="g", at=harness.time).model_copy(update={"pool": "gpu"})
    harness.reports.put(held)
    status = await harness.settle()
    assert status.refused == ("spec.pool is gpu, and the operator allows only default, cpu",)
    assert (status.pool, status.next_pool, status.stable) == ("default", "", ref)


async def test_two_tritons_load_a_candidate_one_after_the_other(
    harness: ControllerHarness,
) -> None:
    def tell(*held: ModelRef, loader: str) -> None:
        harness.reports.put(report(*held, loader=loader, at=harness.time))

    tell(loader="one")
    tell(loader="two")
    ref = await harness.converted("1")
    status = await harness.settle()
    assert (candidate_of(status).phase, status.loading) == (Phase.LOADING, ("one",))
    tell(ref, loader="one")
    status = await harness.settle()
    assert (candidate_of(status).phase, status.loading) == (Phase.LOADING, ())
    tell(ref, loader="two")
    assert (await harness.settle()).stable == ref
