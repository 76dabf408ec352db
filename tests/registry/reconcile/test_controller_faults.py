"""What fails for one endpoint, or around all of them, holds up no other endpoint."""

import asyncio
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from controller_harness import ControllerHarness
from registry_fakes import MemoryEndpoints, candidate_of, endpoint, ref, refusal, report

from contracts.endpoint import (
    Arm,
    EndpointSpec,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Route,
    WaitsFor,
)
from contracts.loading import LoadFailure, Trouble, WitnessAnswer
from contracts.model import ModelRef
from contracts.rollout import RolloutState
from registry import metrics
from registry.conversions.messages import ConversionFailure, PublishedPackage
from registry.errors import EndpointConflictError, EndpointUnreadableError
from registry.reconcile.heartbeats import HeartbeatWriter
from registry.stores.heartbeats import FileHeartbeats
from service.cluster.errors import ApiRefusedError, ApiUnavailableError, ObjectTooLargeError


class RefusingEndpoints(MemoryEndpoints):
    """Will not write those in ``refuses``, and counts how often it was asked to."""

    def __init__(self, *endpoints: ModelEndpoint, error: Exception) -> None:
        self.error = error
        self.refuses: set[str] = set()
        self.refused = 0
        super().__init__(*endpoints)

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        if endpoint.name in self.refuses:
            self.refused += 1
            raise self.error
        return super().put(endpoint)


@pytest.mark.parametrize("error", [OSError("exceeded quota"), EndpointConflictError("just made")])
async def test_an_auto_endpoint_that_is_refused_holds_up_no_other(
    tmp_path: Path, error: Exception
) -> None:
    harness = ControllerHarness(tmp_path, auto=True)
    harness.endpoints = refusing = RefusingEndpoints(error=error)
    refusing.refuses = {"a"}
    harness.start()
    harness.registry.register("a", "1")
    harness.registry.register("m", "1")
    await harness.watch.round()
    await harness.settle()
    await harness.settle()
    assert [item.name for item in harness.endpoints.list()] == ["m"]
    assert harness.launcher.requests[0].model == "m"
    assert refusing.refused == 1
    refusing.refuses = set()
    harness.time += 30.0
    await harness.settle()
    assert {item.name for item in harness.endpoints.list()} == {"a", "m"}
    await harness.jobs.close()


async def test_of_two_models_with_one_name_both_are_served_and_their_endpoints_say_so(
    tmp_path: Path,
) -> None:
    harness = ControllerHarness(tmp_path, auto=True)
    harness.start()
    for model in ("My Model_v1 (EN)", "my-model-v1-en"):
        harness.registry.register(model, "1")
        await harness.watch.round()
        await harness.settle()
    await harness.settle()
    by_model = {item.spec.model: item for item in harness.endpoints.list()}
    first, second = by_model["My Model_v1 (EN)"], by_model["my-model-v1-en"]
    assert first.name == "my-model-v1-en"
    assert f"ask {second.name}" in " ".join(first.status.notes)
    assert "the endpoint my-model-v1-en answers with the model My Model_v1 (EN)" in " ".join(
        second.status.notes
    )
    await harness.jobs.close()


async def test_an_endpoint_whose_file_broke_holds_up_no_other(harness: ControllerHarness) -> None:
    broken = EndpointUnreadableError("e.json: not JSON")
    harness.endpoints = refusing = RefusingEndpoints(
        endpoint(), endpoint(name="second"), error=broken
    )
    refusing.refuses = {"e"}
    harness.start()
    harness.registry.register("m", "1")
    await harness.settle()
    assert harness.endpoints.list()[1].status.candidate is not None


async def test_a_mistake_of_headraces_own_at_one_endpoint_is_said_there_and_holds_up_no_other(
    harness: ControllerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("before", "zuletzt"):
        harness.endpoints.put(endpoint(name=name, spec=EndpointSpec(model="odd")))
    harness.start()
    harness.registry.register("m", "1")
    harness.registry.register("odd", "one")  # is no number, which a plan relies on
    await harness.controller.step()
    await harness.watch.round()
    since = harness.time
    for _ in range(3):
        assert await harness.controller.step() == {"before", "zuletzt"}
        harness.time += 1.0
    fine, *odd = sorted(harness.endpoints.list(), key=lambda each: each.spec.model)
    assert candidate_of(fine.status).phase is Phase.CONVERTING
    for each in odd:
        wait = each.status.waits[0]
        assert (wait.cause, wait.since) == (WaitsFor.FAULT, since)
        assert "invalid literal for int()" in wait.what
    assert sum("stays as it is" in each.message for each in caplog.records) == 2  # once each
    for each in odd:
        harness.endpoints.put(each.model_copy(update={"spec": EndpointSpec(model="m")}))
    assert await harness.controller.step() == frozenset()
    assert WaitsFor.FAULT not in {
        wait.cause for each in harness.endpoints.list() for wait in each.status.waits
    }


async def test_an_endpoint_that_can_not_be_reconciled_gives_up_its_place_among_those_that_wait(
    harness: ControllerHarness,
) -> None:
    for model in ("odd", "next"):
        harness.endpoints.put(endpoint(name=model, spec=EndpointSpec(model=model)))
    for model in ("m", "odd", "next"):
        harness.registry.register(model, "1")
        await harness.settle()
    harness.registry.register("odd", "one")  # is no number, which a plan relies on
    await harness.settle()
    harness.changed.clear()
    await harness.fail("a pickle", by_version=True)
    await harness.settle()
    assert [each.model for each in harness.launcher.requests] == ["m", "next"]


async def test_an_endpoint_whose_reconcile_never_ends_says_so(harness: ControllerHarness) -> None:
    may_end = threading.Event()
    harness.rollouts.next_status = lambda status: (may_end.wait(60), status)[1]
    harness.options = replace(harness.options, deadline_seconds=0.01)
    harness.start()
    try:
        assert await harness.controller.step() == {"e"}
    finally:
        may_end.set()
    (wait,) = harness.endpoints.list()[0].status.waits
    assert wait.cause is WaitsFor.FAULT
    assert "it took more than 0.01 s" in wait.what


async def test_a_conflict_waits_for_the_next_tick_and_leaves_nobody_without_care(
    harness: ControllerHarness,
) -> None:
    harness.registry.register("m", "1")
    await harness.watch.round()
    harness.endpoints.conflicts = 1
    harness.changed.clear()
    assert await harness.controller.step() == frozenset()
    assert not harness.changed.is_set()
    assert harness.launcher.requests == []
    await harness.settle()
    assert len(harness.launcher.requests) == 1


@pytest.mark.parametrize("model", ["m", "n"])
async def test_a_failed_conversion_is_noted_once_while_another_endpoint_can_not_be_written(
    harness: ControllerHarness, model: str
) -> None:
    second = endpoint(name="second", spec=EndpointSpec(model=model))
    harness.endpoints = refusing = RefusingEndpoints(
        endpoint(), second, error=EndpointConflictError("stale")
    )
    harness.start()
    refusing.refuses = {"second"}
    harness.registry.register("n", "1")
    await harness.failed("1", "no space left", by_version=False)
    for _ in range(3):
        await harness.controller.step()
    (first, _) = harness.endpoints.list()
    assert candidate_of(first.status).phase is Phase.BLOCKED
    assert candidate_of(first.status).attempts == 1


async def test_a_conversion_that_fails_while_a_pass_is_on_is_noted_by_the_next(
    harness: ControllerHarness,
) -> None:
    harness.registry.register("m", "1")
    await harness.settle()
    harness.changed.clear()
    loop = asyncio.get_running_loop()

    def fail_now(status: EndpointStatus) -> EndpointStatus:
        harness.rollouts.next_status = lambda status: status
        failing = harness.fail("no space left", by_version=False)
        asyncio.run_coroutine_threadsafe(failing, loop).result(60)
        return status

    harness.rollouts.next_status = fail_now
    await harness.controller.step()
    assert any(isinstance(word, ConversionFailure) for word in harness.jobs.states.values())
    status = await harness.settle()
    assert candidate_of(status).reason == "no space left"
    assert len(harness.launcher.requests) == 1


async def test_a_stable_version_whose_package_is_gone_is_converted_anew(
    harness: ControllerHarness,
) -> None:
    ref = await harness.serve("1")
    harness.store.delete(ref.package)
    harness.registry.register("m", "2")
    await harness.restart()
    await harness.settle()
    assert [request.version for request in harness.launcher.requests] == ["1"]
    harness.changed.clear()
    assert await harness.convert("1") == ref
    await harness.settle()
    harness.time += 2.0
    status = await harness.settle()
    assert status.stable == ref
    assert harness.launcher.requests[-1].version == "2"
    assert harness.launcher.requests[-1].stable is not None


async def test_a_stable_version_whose_package_is_gone_is_replaced_by_the_one_made_anew(
    harness: ControllerHarness,
) -> None:
    ref = await harness.serve("1")
    harness.store.delete(ref.package)
    await harness.restart()
    await harness.settle()
    harness.changed.clear()
    anew = harness.publish("1", labels=("no", "surely"))
    harness.launcher.end(PublishedPackage(ref=anew))
    await harness.settle_jobs()
    status = await harness.settle()
    assert (candidate_of(status).phase, candidate_of(status).ref) == (Phase.LOADING, anew)
    assert status.stable == ref
    assert len(harness.launcher.requests) == 1


async def test_a_pass_names_the_endpoints_that_nobody_looks_after(
    harness: ControllerHarness,
) -> None:
    harness.endpoints = refusing = RefusingEndpoints(
        *(endpoint(name=name) for name in ("broken", "fine", "refused")),
        error=OSError("request is too large"),
    )
    harness.rollouts.breaks_at = "broken"
    harness.start()
    harness.registry.register("m", "1")
    await harness.watch.round()
    refusing.refuses = {"refused"}
    refusing.unreadable = frozenset({"unreadable"})
    assert await harness.controller.step() == {"broken", "refused", "unreadable"}
    refusing.refuses, refusing.unreadable = set(), frozenset()
    harness.rollouts.breaks_at = ""
    assert await harness.controller.step() == frozenset()


async def test_heartbeats_are_written_only_while_passes_are_whole(
    harness: ControllerHarness, tmp_path: Path
) -> None:
    harness.endpoints.broken = True
    (tmp_path / "endpoints").mkdir()
    place, stop = FileHeartbeats(tmp_path / "endpoints"), asyncio.Event()
    heartbeat = HeartbeatWriter(place, every_seconds=0.001)
    running = asyncio.create_task(harness.controller.run(stop, heartbeat))
    async with asyncio.timeout(60):
        while harness.endpoints.asked < 3:  # noqa: ASYNC110 - the loop's own ticks
            await asyncio.sleep(0.01)
        assert place.get() is None
        harness.endpoints.broken = False
        while (sign := place.get()) is None or sign.count < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        stop.set()
        await running


@pytest.mark.parametrize("is_too_large", [True, False])
async def test_a_candidates_callers_go_back_where_its_status_is_refused(
    harness: ControllerHarness, *, is_too_large: bool
) -> None:
    old, new = ref("1"), ref("2", "b")
    error: OSError = ObjectTooLargeError("etcdserver: request is too large", 500)
    if not is_too_large:
        error = ApiUnavailableError("it does not answer")
    state = RolloutState(id="r", candidate=new, stable=old, began=0, step_began=0)
    canary = (Route(arm=Arm.STABLE, ref=old, weight=50), Route(arm=Arm.CANARY, ref=new, weight=50))
    status = EndpointStatus(routes=canary, packages=(old, new), rollout=state)
    harness.endpoints = refusing = RefusingRollouts(endpoint(status), error=error)
    harness.rollouts.next_status = lambda status: status.model_copy(
        update={"rollout": state.model_copy(update={"evidence": {"much": "of it"}})}
    )
    harness.start()
    unattended = await harness.controller.step()
    (found,) = refusing.list()
    if is_too_large:
        assert found.status.routes == (Route.all_callers(old),)
        assert found.status.generation == status.generation + 1
        assert "too large" in found.status.history[-1].reason
        assert unattended == frozenset()
    else:  # nothing is known to be wrong with the rollout, and gateways withhold it in time
        assert found.status.routes == canary
        assert unattended == {"e"}


async def test_a_refusal_that_passes_ends_no_rollout(harness: ControllerHarness) -> None:
    old, new = ref("1"), ref("2", "b")
    state = RolloutState(id="r", candidate=new, stable=old, began=0, step_began=0)
    status = EndpointStatus(routes=(Route.all_callers(old),), packages=(old, new), rollout=state)
    error = ApiRefusedError("endpointrecords is forbidden", 403)
    harness.endpoints = refusing = RefusingRollouts(endpoint(status), error=error)
    more = state.model_copy(update={"evidence": {"much": "of it"}})
    harness.rollouts.next_status = lambda status: status.model_copy(update={"rollout": more})
    harness.start()
    for _ in range(3):
        assert await harness.controller.step() == {"e"}
        harness.time += 10.0
    assert refusing.list()[0].status.rollout == state
    harness.time += 60.0
    assert await harness.controller.step() == frozenset()
    assert refusing.list()[0].status.rollout is None


class RefusingRollouts(MemoryEndpoints):
    """Will not write a status with evidence."""

    def __init__(self, *endpoints: ModelEndpoint, error: Exception) -> None:
        self.error = error
        super().__init__(*endpoints)

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        state = endpoint.status.rollout
        if state is not None and state.evidence:
            raise self.error
        return super().put(endpoint)


SICK = "CUDA failure 214: uncorrectable ECC error encountered ; GPU=0"


def say(harness: ControllerHarness, *held: ModelRef, failed: LoadFailure | None = None) -> None:
    """Three loaders hold these, but for the third, which may fail."""
    failures = () if failed is None else (failed,)
    for name in ("t0", "t1", "t2"):
        mine = name == "t2" and failed is not None
        loaded = held[:1] if mine else held
        harness.reports.put(
            report(*loaded, loader=name, at=harness.time, failed=failures if mine else ())
        )


async def test_a_sick_triton_is_cordoned_and_named_while_versions_go_on(
    harness: ControllerHarness,
) -> None:
    ref = await harness.converted("1")
    await harness.settle()
    say(harness, ref)
    await harness.settle()
    new = await harness.converted("2")
    await harness.settle()
    told = refusal(new, SICK, by_version=False, witness=WitnessAnswer.REFUSED)
    say(harness, ref, new, failed=told)
    status = await harness.settle()
    assert candidate_of(status).phase is Phase.LOADED
    assert not status.rejected
    assert status.cordoned == ("t2",)
    (said,) = [each.what for each in status.waits if each.cause is WaitsFor.SICK_TRITON]
    assert "t2 is out of service" in said
    assert SICK in said
    assert sick_series() == {("default", "t2")}
    say(harness, ref, new)
    status = await harness.settle()
    assert not status.cordoned
    assert WaitsFor.SICK_TRITON not in {each.cause for each in status.waits}
    assert not sick_series()


async def test_a_triton_that_fails_inferences_is_cordoned_until_it_answers_again(
    harness: ControllerHarness,
) -> None:
    ref = await harness.converted("1")
    await harness.settle()
    say(harness, ref)
    await harness.settle()
    trouble = Trouble(ref=ref, reason=f"{ref.triton_model} answers with NaN", fails=True)
    found = report(ref, loader="t2", at=harness.time).model_copy(update={"troubles": (trouble,)})
    harness.reports.put(found)
    status = await harness.settle()
    assert status.cordoned == ("t2",)
    (said,) = [each.what for each in status.waits if each.cause is WaitsFor.SICK_TRITON]
    assert "NaN" in said
    assert sick_series() == {("default", "t2")}
    say(harness, ref)
    assert not (await harness.settle()).cordoned
    assert not sick_series()


async def test_a_dead_triton_beside_a_live_loader_is_named_and_new_versions_go_on(
    harness: ControllerHarness,
) -> None:
    ref = await harness.converted("1")
    await harness.settle()
    say(harness, ref)
    await harness.settle()
    new = await harness.converted("2")
    await harness.settle()
    say(harness, ref, new)
    dead = report(loader="t2", at=harness.time, ready=False)
    harness.reports.put(dead)  # as while it starts
    assert candidate_of(await harness.settle()).phase is Phase.LOADING
    harness.reports.put(dead.model_copy(update={"silent": True}))
    status = await harness.settle()
    assert candidate_of(status).phase is Phase.LOADED
    (said,) = [each.what for each in status.waits if each.cause is WaitsFor.SICK_TRITON]
    assert "t2 is out of service until it is well again: it has not answered" in said
    assert sick_series() == {("default", "t2")}
    say(harness, ref, new)
    assert WaitsFor.SICK_TRITON not in {each.cause for each in (await harness.settle()).waits}


def sick_series() -> set[tuple[str, str]]:
    (metric,) = metrics.SICK_TRITONS.collect()
    return {(each.labels["pool"], each.labels["loader"]) for each in metric.samples}


async def test_an_endpoint_whose_status_can_be_written_in_no_way_holds_up_no_other(
    harness: ControllerHarness,
) -> None:
    harness.endpoints = refusing = RefusingEndpoints(
        endpoint(), endpoint(name="second"), error=ValueError("no JSON")
    )
    refusing.refuses = {"e"}
    harness.start()
    harness.registry.register("m", "1")
    await harness.watch.round()
    assert await harness.controller.step() == {"e"}
    assert harness.endpoints.list()[1].status != EndpointStatus()


async def test_an_api_server_that_is_away_is_told_until_it_answers(
    harness: ControllerHarness,
) -> None:
    for away in (True, False):
        harness.reports.disconnected = harness.endpoints.broken = away
        with pytest.raises(OSError, match="away") if away else nullcontext():
            await harness.controller.step()  # which may never have listed what there is
        (family,) = metrics.KUBERNETES_AWAY.collect()
        assert [sample.value for sample in family.samples] == [float(away)]
