"""The loader's passes against a Triton in memory."""

import asyncio
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from loader_harness import FolderPackages, LoaderHarness, StoreAwayError, names, status
from registry_fakes import (
    FakeTriton,
    endpoint,
    ref,
)

from contracts.ceilings import Ceilings
from contracts.endpoint import EndpointSpec, EndpointStatus
from contracts.loading import FailureCause, LoaderReport
from contracts.manifest import PyfuncSpec
from contracts.model import ModelRef
from contracts.rollout import RolloutState
from registry.errors import (
    BackendMissingError,
    TritonLateError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.loading.room import Room
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore
from registry.reconcile.pools import next_loaders, place_endpoint
from registry.reconcile.rollouts import HeldPackages
from registry.stores.endpoints import FileEndpointStore

STABLE, CANDIDATE, OLD = ref("2", "b"), ref("3", "c"), ref("1", "a")


@pytest.fixture
def harness(tmp_path: Path) -> LoaderHarness:
    return LoaderHarness(tmp_path)


async def test_a_named_package_is_placed_loaded_and_measured(harness: LoaderHarness) -> None:
    report = await harness.serve(STABLE, stable=STABLE)
    assert report.ready
    assert names(report) == ["2"]
    assert harness.triton.models == {STABLE.triton_model}
    assert {cost.bucket for cost in report.loaded[0].costs} == {4, 8}
    assert all(cost.milliseconds > 0 for cost in report.loaded[0].costs)


@pytest.mark.parametrize("held", [False, True])
async def test_a_pyfunc_is_loaded_only_where_the_operator_lets_it(
    harness: LoaderHarness, *, held: bool
) -> None:
    harness.packages.pyfunc = PyfuncSpec(python="3.11", example=(1.0,), model_bytes=1, site_bytes=1)
    if held:  # by a Triton that outlived a loader with the setting on
        harness.triton.models.add(STABLE.triton_model)
    report = await harness.serve(STABLE, stable=STABLE)
    (failed,) = report.failed
    assert "triton.pyfunc.enabled" in failed.reason
    assert not failed.by_version
    assert not report.loaded
    assert not harness.triton.loads()


async def test_what_is_wrong_with_a_package_that_is_held_is_reported_while_it_is(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, stable=STABLE)
    harness.loader.note_trouble(STABLE, "x" * 1000)
    harness.loader.note_trouble(CANDIDATE, "it is not held")
    (trouble,) = (await harness.settle()).troubles
    assert (trouble.ref, trouble.reason) == (STABLE, "x" * 300)
    harness.loader.note_trouble(STABLE, "")
    assert not (await harness.settle()).troubles


async def test_what_was_wrong_with_a_package_is_not_reported_once_nobody_probes_it(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    harness.loader.note_trouble(CANDIDATE, "it answers with NaN", True)
    assert (await harness.settle()).troubles
    report = await harness.serve(STABLE, stable=STABLE)
    assert CANDIDATE.triton_model in harness.triton.models
    assert CANDIDATE not in harness.loader.others()
    assert not report.troubles


async def test_stable_packages_are_loaded_first(harness: LoaderHarness) -> None:
    await harness.serve(CANDIDATE, OLD, STABLE, stable=STABLE)
    assert harness.triton.loads()[0] == STABLE.triton_model


async def test_a_candidate_that_fails_leaves_the_triton_ready(harness: LoaderHarness) -> None:
    harness.triton.refuses[CANDIDATE.triton_model] = TritonRefusedError("Protobuf parsing failed")
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    assert report.ready
    assert [(item.ref, item.by_version) for item in report.failed] == [(CANDIDATE, True)]
    harness.time += 1e6
    await harness.settle()
    assert harness.triton.loads().count(CANDIDATE.triton_model) == 2  # for others may hold it


async def test_a_model_that_loads_and_fails_its_warm_up_is_a_failure(
    harness: LoaderHarness,
) -> None:
    harness.triton.fails[CANDIDATE.triton_model] = TritonRefusedError("engine: no such input")
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    assert names(report) == ["2"]
    assert "no such input" in report.failed[0].reason


async def test_a_fault_of_the_machine_is_tried_again(harness: LoaderHarness) -> None:
    harness.triton.refuses[CANDIDATE.triton_model] = TritonRefusedError("No module named 'x'")
    report = await harness.serve(CANDIDATE)
    assert not report.failed[0].by_version
    harness.triton.refuses.clear()
    harness.time += 1.0
    report = await harness.settle()
    assert names(report) == ["3"]
    assert report.failed == ()


async def test_a_model_without_a_process_is_loaded_anew_and_the_others_stay(
    harness: LoaderHarness,
) -> None:
    await serve_stable(harness, FIRST, OTHER)
    harness.triton.gone.add(FIRST.triton_model)
    harness.reports.stored.clear()
    harness.loader = harness.new_loader()  # which has never seen that it answers
    report = await harness.settle()
    assert [failure.ref for failure in report.failed] == [FIRST]
    assert harness.triton.models == {OTHER.triton_model}
    harness.time += 1.0
    report = await harness.settle()
    assert {model.ref for model in report.loaded} == {FIRST, OTHER}
    assert report.failed == ()
    assert harness.triton.loads().count(OTHER.triton_model) == 1


async def refusals(harness: LoaderHarness, seconds: int) -> list[int]:
    """Goes on for so many seconds; returns those in which the loader wants Triton restarted.

    Triton is restarted then, as its probe would.
    """
    restarts = []
    for second in range(0, seconds, 30):
        harness.time += 30.0
        await harness.settle()
        if harness.loader.fault():
            restarts.append(second)
            harness.triton.down = True
            await harness.settle()
            harness.triton.restart()
    return restarts


@pytest.mark.slow
@pytest.mark.parametrize("refusal", ["Failed to initialize Python stub", "stub process 'x' died"])
async def test_a_triton_that_lives_and_can_load_nothing_is_restarted_ever_more_seldom(
    harness: LoaderHarness, refusal: str
) -> None:
    for item in (FIRST, OTHER):
        harness.triton.refuses[item.triton_model] = TritonRefusedError(refusal)
    await serve_stable(harness, FIRST, OTHER)
    restarts = await refusals(harness, 3 * 3600)
    assert 60 <= restarts[0] <= 180
    waits = [later - earlier for earlier, later in pairwise(restarts)]
    assert waits == sorted(waits)
    assert 4 <= len(restarts) <= 8
    assert waits[-1] >= 3600
    harness.triton.refuses.clear()
    report = await harness.settle()
    harness.time += 3600.0
    report = await harness.settle()
    assert {model.ref for model in report.loaded} == {FIRST, OTHER}
    assert harness.loader.fault() == harness.loader.unready() == ""


async def test_why_triton_should_be_restarted_is_told(harness: LoaderHarness) -> None:
    harness.triton.refuses[FIRST.triton_model] = TritonRefusedError("Failed to start Stub process")
    await serve_stable(harness, FIRST)
    while not harness.loader.fault():
        harness.time += 10.0
        await harness.settle()
    assert harness.loader.unready() == harness.loader.fault()
    assert "refused every stable package" in harness.loader.fault()
    assert "Failed to start Stub process" in harness.loader.fault()


@pytest.mark.parametrize(
    "error",
    [
        TritonRefusedError("no such operator"),
        BackendMissingError("unable to find backend library"),
        StoreAwayError(),
    ],
)
async def test_what_a_restart_would_not_mend_asks_for_none(
    harness: LoaderHarness, error: Exception
) -> None:
    harness.triton.refuses[FIRST.triton_model] = error
    await serve_stable(harness, FIRST)
    assert await refusals(harness, 1500) == []


async def test_a_triton_that_holds_a_wanted_package_is_not_restarted_for_another(
    harness: LoaderHarness,
) -> None:
    harness.triton.refuses[OTHER.triton_model] = TritonRefusedError("Stub process")
    await serve_stable(harness, FIRST, OTHER)
    assert await refusals(harness, 1500) == []


async def test_a_candidate_that_can_not_be_loaded_restarts_no_triton(
    harness: LoaderHarness,
) -> None:
    harness.triton.refuses[CANDIDATE.triton_model] = TritonRefusedError("Stub process")
    await harness.serve(CANDIDATE)
    assert await refusals(harness, 1500) == []


async def test_nothing_is_said_of_packages_that_nobody_wants_any_more(
    harness: LoaderHarness,
) -> None:
    harness.triton.refuses[FIRST.triton_model] = TritonRefusedError("Stub process")
    await serve_stable(harness, FIRST)
    assert await refusals(harness, 60) == []
    harness.endpoints.delete(FIRST.model)
    assert await refusals(harness, 1000) == []


async def test_a_triton_that_never_answered_has_time_for_its_start(harness: LoaderHarness) -> None:
    harness.triton.down = True
    assert not (await harness.settle()).silent
    harness.time += 590.0
    assert not (await harness.settle()).silent
    harness.time += 10.0
    assert (await harness.settle()).silent


async def test_a_restarted_triton_gets_all_its_models_again(harness: LoaderHarness) -> None:
    before = await harness.serve(STABLE, OLD, stable=STABLE)
    harness.triton.down = True
    away = await harness.settle()
    assert not away.ready
    assert away.loaded == ()
    assert not away.silent
    harness.time += 120.0
    assert (await harness.settle()).silent
    after = await harness.restart_triton()
    assert after.ready
    assert not after.silent
    assert sorted(names(after)) == sorted(names(before))
    assert after.loaded[0].costs == before.loaded[0].costs


async def test_deaths_under_a_candidate_are_counted_across_a_killed_loader(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    await harness.restart_triton()
    harness.loader = harness.new_loader()
    report = await harness.restart_triton()
    assert names(report) == ["2"]
    assert report.failed[0].cause is FailureCause.CRASHED
    harness.loader = harness.new_loader()
    report = await harness.settle()
    assert names(report) == ["2"]
    assert report.failed[0].cause is FailureCause.CRASHED


async def test_a_candidate_is_not_blamed_on_a_triton_that_ends_as_often_without_it(
    harness: LoaderHarness,
) -> None:
    for _ in range(10):
        await harness.serve(STABLE, stable=STABLE)
        harness.time += 120.0
        await harness.settle()
        harness.triton.restart()
    await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    for _ in range(2):
        harness.time += 30.0
        await harness.settle()
        report = await harness.restart_triton()
        assert sorted(names(report)) == ["2", "3"]
    harness.loader = harness.new_loader()  # what was seen survives it
    for _ in range(8):
        harness.time += 1.0
        report = await harness.restart_triton()
    assert names(report) == ["2"]
    assert "while it held the version" in report.failed[0].reason


async def test_a_disk_that_takes_no_ledger_keeps_a_loader_from_nothing(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, stable=STABLE)
    ledger = harness.options.ledger_file
    ledger.unlink()
    ledger.mkdir()  # nothing can be put in its place
    harness.time += 60.0
    harness.endpoints.show(status(stable=STABLE))
    report = await harness.settle()
    assert (report.at, names(report), report.ready) == (harness.time, ["2"], True)


async def test_a_triton_that_ended_by_itself_is_told_with_its_time_and_one_in_order_is_not(
    harness: LoaderHarness,
) -> None:
    assert (await harness.serve(STABLE, stable=STABLE)).ended_at == 0.0
    harness.loader.leave()
    harness.loader = harness.new_loader()
    assert (await harness.restart_triton()).ended_at == 0.0
    harness.time += 100.0
    report = await harness.restart_triton()
    assert report.ended_at == harness.time
    assert names(report) == ["2"]


async def test_a_triton_that_is_started_anew_in_order_blames_nobody(harness: LoaderHarness) -> None:
    await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    for _ in range(3):
        harness.loader.leave()
        harness.loader = harness.new_loader()
        report = await harness.restart_triton()
    assert sorted(names(report)) == ["2", "3"]
    assert report.failed == ()
    assert sorted(names(await harness.restart_triton())) == ["2", "3"]
    assert (await harness.restart_triton()).failed[0].cause is FailureCause.CRASHED


async def test_a_load_that_takes_too_long_is_no_end_of_a_triton_that_goes_on(
    harness: LoaderHarness,
) -> None:
    late = TritonUnavailableError("Triton does not answer: Deadline Exceeded")
    harness.triton.refuses[CANDIDATE.triton_model] = late
    for _ in range(4):
        report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
        assert [each.cause for each in report.failed] == [FailureCause.REFUSED]
        assert not report.failed[0].by_version
        assert report.ready
        harness.time += 1e3
    assert names(report) == ["2"]
    assert report.failed[0].again  # with a witness between: other Tritons' word counts as well
    assert harness.triton.loads().count(CANDIDATE.triton_model) > 2


async def test_a_first_version_whose_loads_take_too_long_ended_no_triton_and_is_used_once_it_is_up(
    harness: LoaderHarness,
) -> None:
    late = TritonLateError("Triton does not answer: Deadline Exceeded")
    harness.triton.refuses[CANDIDATE.triton_model] = late
    for _ in range(3):
        report = await harness.serve(CANDIDATE)
        assert [each.cause for each in report.failed] == [FailureCause.REFUSED]
        harness.time += 1e3
    harness.triton.models.add(CANDIDATE.triton_model)  # behind the deadline
    report = await harness.settle()
    assert (names(report), report.failed) == (["3"], ())


async def test_a_stable_version_whose_load_took_too_long_is_asked_for_soon_again(
    harness: LoaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.serve(OLD, stable=OLD)
    moments = iter(range(0, 10**6, 120))
    monkeypatch.setattr("registry.loading.loader.time.monotonic", lambda: float(next(moments)))
    harness.triton.refuses[STABLE.triton_model] = TritonUnavailableError("Deadline Exceeded")
    await harness.serve(OLD, STABLE, stable=STABLE)
    del harness.triton.refuses[STABLE.triton_model]  # it came up behind the deadline
    harness.time += 61.0
    assert sorted(names(await harness.settle())) == ["1", "2"]


async def test_a_candidate_that_kills_triton_twice_is_not_loaded_a_third_time(
    harness: LoaderHarness,
) -> None:
    harness.triton.dies_on.add(CANDIDATE.triton_model)
    for _ in range(6):
        report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
        harness.time += 100.0
    assert harness.triton.loads().count(CANDIDATE.triton_model) == 2
    assert report.ready
    assert report.failed[0].cause is FailureCause.CRASHED


def rolling_out() -> EndpointStatus:
    """Others hold the candidate: its rollout has begun."""
    state = RolloutState(id="r", candidate=CANDIDATE, stable=STABLE, began=0.0, step_began=0.0)
    return status(STABLE, CANDIDATE, stable=STABLE).model_copy(update={"rollout": state})


async def test_a_candidate_under_whose_loads_triton_ended_is_tried_once_others_hold_it_ever_later(
    harness: LoaderHarness,
) -> None:
    harness.triton.dies_on.add(CANDIDATE.triton_model)
    tried, loads = list[float](), 2
    for _ in range(4):  # nobody holds it: two ends are enough
        await harness.serve(STABLE, CANDIDATE, stable=STABLE)
        harness.time += 50_000.0
    assert harness.triton.loads().count(CANDIDATE.triton_model) == loads
    harness.endpoints.show(rolling_out())
    began = harness.time
    while harness.time < began + 100_000.0:
        report = await harness.settle()
        if harness.triton.loads().count(CANDIDATE.triton_model) > loads:
            loads += 1
            tried.append(harness.time - began)
        harness.time += 600.0
    assert report.failed[0].cause is FailureCause.CRASHED
    assert tried[0] == 0.0
    assert 3 <= len(tried) <= 5
    assert all(later >= 2 * pause for pause, later in pairwise(b - a for a, b in pairwise(tried)))
    harness.triton.dies_on.clear()
    harness.time += 86_400.0
    report = await harness.settle()
    assert (sorted(names(report)), report.failed) == (["2", "3"], ())


async def test_a_candidate_that_triton_held_as_it_ended_again_and_again_is_not_tried_again(
    harness: LoaderHarness,
) -> None:
    harness.endpoints.show(rolling_out())
    await harness.settle()
    for _ in range(2):
        report = await harness.restart_triton()
    for _ in range(9):
        assert names(report) == ["2"]
        harness.time += 50_000.0
        report = await harness.settle()
    assert report.failed[0].cause is FailureCause.CRASHED


async def test_what_nobody_names_is_unloaded_after_ten_minutes_and_not_sooner(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, OLD, stable=STABLE)
    await harness.serve(STABLE, stable=STABLE)
    harness.time += 599.0
    await harness.settle()
    assert OLD.triton_model in harness.triton.models
    harness.time += 1.0
    report = await harness.settle()
    assert harness.triton.models == {STABLE.triton_model}
    assert names(report) == ["2"]
    assert harness.placement.removed == [OLD.triton_model]
    assert harness.packages.forgotten == [OLD]


async def test_models_of_others_are_never_unloaded(harness: LoaderHarness) -> None:
    harness.triton.models.add("somebody-elses")
    await harness.serve(STABLE, stable=STABLE)
    harness.time += 1e6
    await harness.settle()
    assert "somebody-elses" in harness.triton.models


@pytest.mark.parametrize("reported", [False, True])
async def test_a_loader_without_the_ledger_unloads_what_was_wanted_when_it_came(
    harness: LoaderHarness, reported: bool
) -> None:
    await harness.serve(STABLE, OLD, stable=STABLE)
    harness.options.ledger_file.unlink()
    if not reported:
        harness.reports.stored.clear()
    harness.loader = harness.new_loader()
    await harness.settle()
    await harness.serve(STABLE, stable=STABLE)
    harness.time += 600.0
    await harness.settle()
    assert harness.triton.models == {STABLE.triton_model}
    assert harness.triton.loads() == [STABLE.triton_model, OLD.triton_model]


async def test_a_restarted_loader_neither_reloads_nor_measures_what_triton_holds(
    harness: LoaderHarness,
) -> None:
    before = await harness.serve(STABLE, stable=STABLE)
    harness.triton.calls.clear()
    harness.loader = harness.new_loader()
    harness.reports.news.clear()
    stop = asyncio.Event()
    running = asyncio.create_task(harness.loader.run(stop))
    assert await asyncio.to_thread(harness.reports.news.wait, 10)
    stop.set()
    await running
    assert harness.reports.left == ["l"]
    assert harness.triton.loads() == []
    assert harness.reports.stored["l"].loaded == before.loaded


async def test_nothing_is_unloaded_while_an_endpoint_can_not_be_read(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, OLD, stable=STABLE)
    await harness.serve(STABLE, stable=STABLE)
    harness.endpoints.unreadable = frozenset({"broken"})
    harness.time += 1e6
    await harness.settle()
    assert OLD.triton_model in harness.triton.models


async def test_nothing_is_unloaded_before_endpoints_were_read_once(harness: LoaderHarness) -> None:
    await harness.serve(STABLE, stable=STABLE)
    harness.endpoints.broken = True
    harness.loader = harness.new_loader()
    for _ in range(2):
        await harness.settle()
        harness.time += 1e6
    assert harness.triton.models == {STABLE.triton_model}
    harness.endpoints.broken = False
    assert names(await harness.settle()) == ["2"]
    assert harness.triton.models == {STABLE.triton_model}


@pytest.mark.parametrize("instead", ["nothing", "a file"])
async def test_nothing_is_unloaded_while_the_endpoints_folder_is_away(
    harness: LoaderHarness, tmp_path: Path, instead: str
) -> None:
    folder = tmp_path / "endpoints"
    store = FileEndpointStore(folder)
    store.put(endpoint(status(STABLE, OLD, stable=STABLE)))
    store.put(endpoint(status(CANDIDATE, stable=CANDIDATE), name="other"))
    loader = harness.new_loader(store)
    while await loader.step():
        pass
    loaded = set(harness.triton.models)
    assert loaded == {item.triton_model for item in (STABLE, OLD, CANDIDATE)}
    folder.rename(tmp_path / "elsewhere")
    if instead == "a file":
        folder.write_text("what a broken mount may show")
    for _ in range(3):
        await loader.step()
        harness.time += 1e6
    assert harness.triton.models == loaded
    assert loader.unready() == ""
    assert len(names(harness.reports.stored["l"])) == 3


async def test_a_triton_without_the_native_backend_gets_the_python_one(
    harness: LoaderHarness,
) -> None:
    class OnlyPython(FakeTriton):
        async def load(self, name: str, overrides: object) -> None:
            if harness.placement.placed[-1][1] != "python":
                raise BackendMissingError("unable to find backend library")
            await super().load(name, {})

    harness.triton = OnlyPython()
    harness.loader = harness.new_loader()
    report = await harness.serve(STABLE, OLD, stable=STABLE)
    assert sorted(names(report)) == ["1", "2"]
    backends = [backend for _, backend in harness.placement.placed]
    assert backends == ["onnxruntime", "python", "python"]


async def test_a_triton_without_any_backend_is_a_fault_of_the_machine(
    harness: LoaderHarness,
) -> None:
    harness.options = replace(harness.options, backends=("onnxruntime",))
    harness.loader = harness.new_loader()
    harness.triton.refuses[STABLE.triton_model] = BackendMissingError(
        "unable to find backend library"
    )
    report = await harness.serve(STABLE, stable=STABLE)
    assert not report.ready
    assert not report.failed[0].by_version


async def test_the_report_is_written_only_for_news_and_as_a_sign_of_life(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, stable=STABLE)
    written = harness.reports.written
    await harness.settle()
    assert harness.reports.written == written
    harness.time += 2.0
    await harness.settle()
    assert harness.reports.written == written + 1


async def test_what_happens_during_a_long_load_is_reported_before_its_end(
    harness: LoaderHarness,
) -> None:
    async def report_after(seconds: float) -> LoaderReport:
        harness.reports.news.clear()
        harness.time += seconds
        assert await asyncio.to_thread(harness.reports.news.wait, 60)
        return harness.reports.stored["l"]

    harness.options = replace(harness.options, heartbeat_seconds=0.01)
    harness.loader = harness.new_loader()
    await harness.serve(STABLE, stable=STABLE)
    harness.triton.hangs_on.add(CANDIDATE.triton_model)
    coming = status(STABLE, CANDIDATE, stable=STABLE)
    harness.endpoints.show(coming)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.loader.run(asyncio.Event()))
        await harness.triton.hung.wait()
        assert (await report_after(1.0)).ready
        harness.loader.note_trouble(STABLE, "it answers with NaN", fails=True)
        assert (await report_after(1.0)).troubles[0].fails
        harness.endpoints.show(coming.model_copy(update={"cordoned": ("l",)}))
        report = await report_after(1.0)
        assert (report.cordoned, report.ready, names(report)) == (True, False, ["2"])
        assert "out of service" in harness.loader.unready()
        running.cancel()


async def test_a_store_that_hangs_at_one_loader_holds_up_no_other_and_nothing_else(
    harness: LoaderHarness, tmp_path: Path
) -> None:
    gives = threading.Event()
    store = PackageStore((tmp_path / "store").as_uri(), check_mounted=lambda: gives.wait(60))
    behind = LocalPackages(store, tmp_path / "local", silent_seconds=0.0)

    class HalfThere(FolderPackages):
        def fetch(self, ref: ModelRef) -> Path:
            return behind.fetch(ref) if ref == CANDIDATE else super().fetch(ref)

    harness.packages = HalfThere(tmp_path)
    harness.loader = harness.new_loader()
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    gives.set()
    assert (names(report), report.ready) == (["2"], True)
    assert report.failed[0].cause is FailureCause.AWAY
    assert "has given nothing for" in report.failed[0].reason
    others = (report.model_copy(update={"loader": name, "failed": ()}) for name in "ab")
    assert next_loaders((report, *others), {CANDIDATE}, ("l",)) == ("a", "l")


async def test_a_triton_is_ready_from_its_first_whole_set_of_stable_versions_on(
    harness: LoaderHarness,
) -> None:
    assert harness.loader.unready() == "Triton does not answer"
    harness.triton.refuses[STABLE.triton_model] = TritonRefusedError("Stub process is not healthy")
    await harness.serve(STABLE, stable=STABLE)
    assert "not loaded yet" in harness.loader.unready()
    harness.triton.refuses.clear()
    harness.time += 100.0
    await harness.settle()
    assert harness.loader.unready() == ""
    assert harness.loader.stable() == (STABLE,)
    harness.packages.away = True
    await harness.serve(STABLE, CANDIDATE, stable=CANDIDATE)
    assert harness.loader.unready() == ""


async def test_a_triton_that_lost_its_models_is_not_ready_before_it_has_them_again(
    harness: LoaderHarness,
) -> None:
    await harness.serve(STABLE, stable=STABLE)
    harness.packages.away = True
    harness.triton.restart()
    await harness.loader.step()
    assert "not loaded yet" in harness.loader.unready()
    harness.packages.away = False
    harness.time += 100.0
    await harness.settle()
    assert harness.loader.unready() == ""


async def test_a_loader_that_could_read_no_endpoints_yet_is_not_ready(
    harness: LoaderHarness,
) -> None:
    harness.endpoints.broken = True
    await harness.loader.step()
    assert harness.loader.unready()


async def serve_stable(harness: LoaderHarness, *stable: ModelRef) -> LoaderReport:
    """An endpoint for each of these."""
    for item in stable:
        if harness.endpoints.get(item.model) is None:
            harness.endpoints.put(endpoint(status(item, stable=item), name=item.model))
    return await harness.settle()


FIRST, OTHER, THIRD = ref("1", "1", "x"), ref("1", "2", "y"), ref("1", "3", "z")


async def test_a_stable_version_that_triton_refuses_keeps_a_new_triton_unready_for_a_minute(
    harness: LoaderHarness,
) -> None:
    harness.triton.refuses[OTHER.triton_model] = TritonRefusedError("no such operator")
    await serve_stable(harness, FIRST, OTHER, THIRD)
    for _ in range(6):
        assert OTHER.triton_model in harness.loader.unready()
        assert "no such operator" in harness.loader.unready()
        assert not harness.reports.stored["l"].ready
        harness.time += 10.0
        report = await harness.settle()
    assert harness.loader.unready() == ""
    assert report.ready
    assert {model.ref for model in report.loaded} == {FIRST, THIRD}
    assert [failure.ref for failure in report.failed] == [OTHER]
    assert harness.loader.stable() == (FIRST, THIRD)


async def test_a_triton_that_can_load_no_stable_version_never_becomes_ready(
    harness: LoaderHarness,
) -> None:
    for item in (FIRST, OTHER):
        harness.triton.refuses[item.triton_model] = TritonRefusedError("no such operator")
    await serve_stable(harness, FIRST, OTHER)
    harness.time += 1e6
    assert not (await harness.settle()).ready
    assert FIRST.triton_model in harness.loader.unready()
    assert OTHER.triton_model in harness.loader.unready()


async def test_a_store_that_is_away_is_waited_for_longer_than_a_version_that_is_refused(
    harness: LoaderHarness,
) -> None:
    await serve_stable(harness, FIRST)
    harness.packages.away = True
    harness.loader = harness.new_loader()
    await serve_stable(harness, FIRST, OTHER)
    harness.time += 599.0
    await harness.settle()
    assert harness.loader.unready()
    harness.time += 1.0
    await harness.settle()
    assert harness.loader.unready() == ""


async def test_a_version_that_was_not_tried_yet_is_waited_for(harness: LoaderHarness) -> None:
    harness.triton.refuses[OTHER.triton_model] = TritonRefusedError("no such operator")
    await serve_stable(harness, FIRST, OTHER, THIRD)
    harness.time += 60.0
    await harness.settle()
    harness.triton.restart()
    await harness.loader.step()
    assert THIRD.triton_model in harness.loader.unready()
    assert OTHER.triton_model not in harness.loader.unready()
    await harness.settle()
    assert harness.loader.unready() == ""


# How many copies


def instances(report: LoaderReport) -> dict[str, int]:
    return {model.ref.version: model.instances for model in report.loaded}


async def test_other_copies_are_run_in_place_at_once_and_measured_anew(
    harness: LoaderHarness,
) -> None:
    harness.endpoints.ask_for(1)
    before = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    assert instances(before) == {"2": 1, "3": 1}
    harness.triton.calls.clear()
    harness.triton.shapes.clear()
    harness.endpoints.ask_for(2)
    after = await harness.settle()
    assert instances(after) == {"2": 2, "3": 2}
    assert harness.triton.calls == [("load", STABLE.triton_model), ("load", CANDIDATE.triton_model)]
    assert [name for name, *_ in harness.placement.resized] == harness.triton.loads()
    assert {(name, rows) for name, (rows, _) in harness.triton.shapes} == {
        (ref.triton_model, rows) for ref in (STABLE, CANDIDATE) for rows in (1, 2, 4, 8)
    }
    assert len(harness.placement.placed) == 2
    assert after.ready


async def test_copies_that_stay_are_neither_loaded_nor_measured_again(
    harness: LoaderHarness,
) -> None:
    harness.endpoints.ask_for(3)
    await harness.serve(STABLE, stable=STABLE)
    harness.triton.calls.clear()
    harness.triton.shapes.clear()
    harness.loader = harness.new_loader()
    report = await harness.settle()
    assert instances(report) == {"2": 3}
    assert harness.triton.loads() == []
    assert harness.triton.shapes == []


async def test_copies_that_triton_refuses_leave_those_that_run_and_are_tried_again(
    harness: LoaderHarness,
) -> None:
    harness.endpoints.ask_for(2)
    await harness.serve(STABLE, stable=STABLE)
    harness.triton.most_copies = 2
    harness.endpoints.ask_for(5)
    report = await harness.settle()
    assert instances(report) == {"2": 2}
    assert report.ready
    assert [(item.ref, item.by_version) for item in report.failed] == [(STABLE, False)]
    assert "2 copies in place of 5" in report.failed[0].reason
    harness.triton.most_copies = 8
    harness.time += 1.0
    report = await harness.settle()
    assert (instances(report), report.failed) == ({"2": 5}, ())


async def test_copies_that_nobody_asks_for_any_more_are_no_failure(harness: LoaderHarness) -> None:
    harness.endpoints.ask_for(2)
    await harness.serve(STABLE, stable=STABLE)
    harness.triton.most_copies = 2
    harness.endpoints.ask_for(5)
    assert (await harness.settle()).failed
    harness.endpoints.ask_for(2)
    assert (await harness.settle()).failed == ()


async def test_a_package_of_two_endpoints_runs_as_many_copies_as_the_one_that_asks_for_more(
    harness: LoaderHarness,
) -> None:
    harness.endpoints.put(endpoint(status(STABLE, stable=STABLE), name="f"))
    harness.endpoints.ask_for(2)
    harness.endpoints.ask_for(4, name="f")
    assert instances(await harness.serve(STABLE, stable=STABLE)) == {"2": 4}
    harness.endpoints.ask_for(None, name="f")
    assert instances(await harness.settle()) == {"2": 2}


@pytest.mark.parametrize(("gpus", "running"), [(0, 4), (1, 1), (2, 2)])
async def test_copies_that_nobody_names_suit_the_machine(
    harness: LoaderHarness, gpus: int, running: int
) -> None:
    harness.triton.gpus = gpus
    harness.options = replace(harness.options, auto_instances=4)
    harness.loader = harness.new_loader()
    report = await harness.serve(STABLE, OLD, stable=STABLE)
    assert instances(report) == {"2": running, "1": running}
    harness.endpoints.ask_for(3)
    assert instances(await harness.settle()) == dict.fromkeys(("2", "1"), 3 * max(1, gpus))


async def test_a_triton_that_dies_while_copies_are_added_gets_them_after_its_return(
    harness: LoaderHarness,
) -> None:
    harness.endpoints.ask_for(1)
    await harness.serve(STABLE, stable=STABLE)
    harness.triton.dies_on.add(STABLE.triton_model)
    harness.endpoints.ask_for(2)
    assert not (await harness.settle()).ready
    harness.triton.dies_on.clear()
    harness.time += 1.0
    assert instances(await harness.settle()) == {"2": 2}


async def test_no_more_copies_run_than_the_operator_lets_any_endpoint_have(
    harness: LoaderHarness,
) -> None:
    harness.options = replace(harness.options, ceilings=Ceilings({"instances": 2}))
    harness.loader = harness.new_loader()
    harness.endpoints.ask_for(5)
    assert instances(await harness.serve(STABLE, stable=STABLE)) == {"2": 2}


async def test_two_loaders_of_two_pools_hold_their_own_endpoints_versions_alone(
    tmp_path: Path,
) -> None:
    one, two = LoaderHarness(tmp_path / "one"), LoaderHarness(tmp_path / "two")
    two.options = replace(two.options, pool="gpu")
    two.loader = two.new_loader()
    for harness in (one, two):
        harness.endpoints.show(status(OLD, STABLE, stable=STABLE))
        of_gpu = status(CANDIDATE, stable=CANDIDATE).model_copy(update={"pool": "gpu"})
        harness.endpoints.put(endpoint(of_gpu, name="other"))
    first, second = await one.settle(), await two.settle()
    assert (first.pool, sorted(names(first))) == ("default", ["1", "2"])
    assert (second.pool, names(second), second.ready) == ("gpu", ["3"], True)


async def test_an_endpoint_that_moves_is_loaded_there_first_and_unloaded_here_later(
    tmp_path: Path,
) -> None:
    here, there = LoaderHarness(tmp_path / "here"), LoaderHarness(tmp_path / "there")
    there.options = replace(there.options, pool="gpu")
    there.loader = there.new_loader()
    serving = status(STABLE, stable=STABLE)
    moves: tuple[dict[str, str], ...] = ({}, {"next_pool": "gpu"}, {"pool": "gpu"})
    for update in moves:
        for harness in (here, there):
            harness.endpoints.show(serving.model_copy(update=update))
            report = await harness.settle()
            assert report.ready
        assert names(here.reports.stored["l"]) == ["2"]
        assert names(there.reports.stored["l"]) == (["2"] if update else [])
    here.time += 601
    assert names(await here.settle()) == []
    assert here.triton.calls[-1] == ("unload", STABLE.triton_model)


async def test_a_package_that_ends_tritons_ends_one_of_the_next_pool_at_a_time(
    tmp_path: Path,
) -> None:
    there = [LoaderHarness(tmp_path / name) for name in "abc"]
    for harness, name in zip(there, "abc", strict=True):
        harness.options = replace(harness.options, name=name, pool="gpu")
        harness.loader = harness.new_loader()
        harness.endpoints.put(endpoint(name="other"))
        harness.endpoints.show(status(OLD, stable=OLD).model_copy(update={"pool": "gpu"}), "other")
        harness.triton.dies_on.add(STABLE.triton_model)
        harness.triton.stays_down = True
        await harness.loader.step()
    moving, ended, held = status(STABLE, stable=STABLE), [0, 0, 0], HeldPackages()
    for _ in range(30):
        held.take(tuple(harness.reports.stored[harness.options.name] for harness in there))
        moving = place_endpoint(EndpointSpec(model="m", pool="gpu"), moving, held, refused=False)
        for harness in there:
            harness.endpoints.show(moving)
            harness.time += 20.0
            if harness.triton.down:
                harness.triton.restart()
            while await harness.loader.step():
                pass
        down = [harness.triton.down for harness in there]
        assert sum(down) <= 1
        ended = [count + is_down for count, is_down in zip(ended, down, strict=True)]
    assert ended == [2, 2, 2]


def with_room(harness: LoaderHarness, room: Room) -> None:
    """A loader whose Triton has no more than this."""
    harness.options = replace(harness.options, room=room)
    harness.loader = harness.new_loader()


async def test_a_candidate_that_does_not_fit_is_not_fetched_and_says_why(
    harness: LoaderHarness,
) -> None:
    with_room(harness, Room(memory_bytes=1_000_000_000))
    harness.packages.sizes |= {STABLE.package: 100_000_000, CANDIDATE.package: 600_000_000}
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    assert (report.ready, names(report)) == (True, ["2"])
    assert harness.packages.fetched == [STABLE]
    (failure,) = report.failed
    assert not failure.by_version  # another Triton may have the room
    assert failure.reason == (
        "it needs some 1.2 GB of memory, and 1 other packages take some 200 MB of 1.0 GB"
    )
    # It is tried again, as others leave.
    harness.packages.sizes[CANDIDATE.package] = 100_000_000
    harness.loader = harness.new_loader()
    assert sorted(names(await harness.settle())) == ["2", "3"]


async def test_a_candidate_that_did_not_fit_is_tried_as_soon_as_another_has_left(
    harness: LoaderHarness,
) -> None:
    with_room(harness, Room(memory_bytes=1_000_000_000))
    harness.packages.sizes |= {STABLE.package: 100_000_000, CANDIDATE.package: 300_000_000}
    earlier = ref("1", "e")
    harness.packages.sizes[earlier.package] = 200_000_000
    await harness.serve(STABLE, earlier, stable=STABLE)
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    assert [failure.ref for failure in report.failed] == [CANDIDATE]
    for _ in range(10):  # by then it is tried once a minute
        harness.time += 60.0
        report = await harness.settle()
    # The other one has left, and nothing says so of the candidate before it is tried.
    assert (names(report), [failure.ref for failure in report.failed]) == (["2"], [CANDIDATE])
    report = await harness.settle()
    assert sorted(names(report)) == ["2", "3"]


async def test_a_stable_version_is_loaded_though_it_should_not_fit(harness: LoaderHarness) -> None:
    with_room(harness, Room(memory_bytes=1, disk_bytes=1))
    harness.packages.sizes[STABLE.package] = 500_000_000
    report = await harness.serve(STABLE, stable=STABLE)
    assert (report.ready, names(report)) == (True, ["2"])


async def test_a_package_that_the_disk_does_not_hold_is_not_fetched(
    harness: LoaderHarness,
) -> None:
    with_room(harness, Room(disk_bytes=400_000_000))
    harness.packages.sizes |= {STABLE.package: 300_000_000, CANDIDATE.package: 200_000_000}
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    assert harness.packages.fetched == [STABLE]
    assert report.failed[0].reason == "it needs 200 MB of disk, and 100 MB are left"


async def test_memory_of_the_machine_is_not_weighed_for_models_on_gpus(
    harness: LoaderHarness,
) -> None:
    harness.triton.gpus = 1
    with_room(harness, Room(memory_bytes=200_000_000))
    harness.packages.sizes[CANDIDATE.package] = 500_000_000
    report = await harness.serve(STABLE, CANDIDATE, stable=STABLE)
    assert sorted(names(report)) == ["2", "3"]


async def test_a_loader_whose_turn_is_later_fetches_no_candidate(harness: LoaderHarness) -> None:
    coming = status(STABLE, CANDIDATE, stable=STABLE)
    harness.endpoints.show(coming.model_copy(update={"loading": ("another",)}))
    report = await harness.settle()
    assert (report.ready, names(report), report.failed) == (True, ["2"], ())
    assert harness.packages.fetched == [STABLE]
    harness.endpoints.show(coming.model_copy(update={"loading": ("l", "another")}))
    assert sorted(names(await harness.settle())) == ["2", "3"]
