"""The endpoint's next status, step by step and through random events."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_fakes import candidate_of, ref, refusal, report

from contracts.endpoint import (
    HISTORY_LIMIT,
    AliasVersion,
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Phase,
    PinnedVersion,
    Rejection,
    Route,
)
from contracts.loading import DeviceKind, LoaderReport, LoadFailure
from contracts.rollout import Outcome, RolloutSpec, RolloutState, Strategy
from contracts.tasks import Task
from registry.conversions.messages import ConversionFailure, ConversionProgress, Package, Signature
from registry.reconcile.plan import (
    MOST_CRASHES,
    ObservedState,
    PlanDecision,
    PlannedVersion,
    choose_version,
    plan,
)

SPEC = EndpointSpec(model="m")
DIRECT = EndpointSpec(model="m", rollout=RolloutSpec(strategy=Strategy.DIRECT))
CLASSIFIER = Signature(task=Task.TEXT_CLASSIFICATION, labels=("no", "yes"))
ONE, TWO, THREE = (PlannedVersion(number, f"options-{number}") for number in "123")
WAITS = "waits for the conversion of other version 1 to end"
AT_FAULT = ConversionFailure(reason="a pickle", by_version=True)
AWAY = ConversionFailure(reason="no space left", by_version=False)


def package(version: PlannedVersion, letter: str = "") -> Package:
    return Package(ref(version.number, letter or "abcdef"[int(version.number)]), CLASSIFIER)


def packaged(*versions: PlannedVersion) -> dict[str, Package]:
    return {version.options: package(version) for version in versions}


def serving(version: PlannedVersion = ONE, now: float = 0.0) -> EndpointStatus:
    """An endpoint on which one version serves since ``now``."""
    made = package(version)
    seen = ObservedState((version,), packages=packaged(version), loaders=(report(made.ref),))
    return plan(SPEC, EndpointStatus(), seen, now).status


def loading(
    status: EndpointStatus, version: PlannedVersion = TWO, *reports: LoaderReport
) -> ObservedState:
    """What is seen while ``version`` is converted and not loaded yet."""
    stable = CLASSIFIER if status.stable else None
    return ObservedState(
        (version, ONE),
        packages=packaged(ONE, version),
        loaders=reports or (report(),),
        stable=stable,
    )


def rejecting(*versions: PlannedVersion) -> EndpointStatus:
    """After the newest of these versions failed to convert, by its own fault."""
    seen = ObservedState(versions, jobs={versions[0].options: AT_FAULT})
    return plan(SPEC, EndpointStatus(), seen, 1.0).status


def taken_back(
    status: EndpointStatus, version: PlannedVersion, reason: str = "error rate"
) -> EndpointStatus:
    """As a rollout leaves it that took ``version`` back."""
    rejection = Rejection(version=version.number, options=version.options, reason=reason, at=1.0)
    return status.model_copy(update={"rejected": (rejection,)})


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(ObservedState(None), id="MLflow has not answered"),
        pytest.param(ObservedState((ONE,), fault="away"), id="the store is away"),
        pytest.param(ObservedState(()), id="the model was removed"),
    ],
)
def test_what_serves_is_left_alone(seen: ObservedState) -> None:
    status = serving()
    assert plan(SPEC, status, seen, 5.0) == PlanDecision(status)


def test_a_first_version_is_converted() -> None:
    decision = plan(SPEC, EndpointStatus(), ObservedState((ONE,)), 1.0)
    assert decision.convert == ONE
    assert candidate_of(decision.status).phase is Phase.CONVERTING
    assert decision.status.routes == ()


def test_progress_of_the_conversion_is_shown() -> None:
    job = ConversionProgress(phase=Phase.VERIFYING, message="comparing")
    seen = ObservedState((ONE,), jobs={ONE.options: job})
    candidate = candidate_of(plan(SPEC, EndpointStatus(), seen, 1.0).status)
    assert (candidate.phase, candidate.reason) == (Phase.VERIFYING, "comparing")


def test_a_converted_version_is_named_before_it_is_routed() -> None:
    status = plan(SPEC, EndpointStatus(), loading(EndpointStatus(), ONE), 1.0).status
    assert status.packages == (package(ONE).ref,)
    assert status.routes == ()
    assert (candidate_of(status).ref, candidate_of(status).options) == (
        package(ONE).ref,
        ONE.options,
    )


def test_a_direct_version_gets_all_traffic_once_every_loader_holds_it() -> None:
    status = serving()
    new = package(TWO).ref
    one_of_two = loading(status, TWO, report(new), report())
    waiting = plan(DIRECT, status, one_of_two, 2.0).status
    assert waiting.stable == package(ONE).ref
    both = replace(one_of_two, loaders=(report(new), report(new)))
    done = plan(DIRECT, waiting, both, 3.0).status
    assert done.stable == new
    assert [(route.arm, route.weight) for route in done.routes] == [(Arm.STABLE, 100)]
    assert done.candidate is None
    assert done.task is Task.TEXT_CLASSIFICATION


def test_a_version_after_the_first_is_handed_over_once_every_loader_holds_it() -> None:
    status = serving()
    new = package(TWO).ref
    one_of_two = loading(status, TWO, report(new), report())
    waiting = plan(SPEC, status, one_of_two, 2.0).status
    assert candidate_of(waiting).phase is Phase.LOADING
    both = replace(one_of_two, loaders=(report(new), report(new)))
    loaded = plan(SPEC, waiting, both, 3.0).status
    assert loaded.stable == package(ONE).ref
    assert loaded.candidate == Candidate(
        version="2", phase=Phase.LOADED, ref=new, options=TWO.options
    )
    assert plan(SPEC, loaded, both, 4.0).status == loaded


def rolling_out(status: EndpointStatus, **state: Any) -> EndpointStatus:
    """With a rollout of version 2 as the machine keeps it."""
    new, old = package(TWO).ref, package(ONE).ref
    fields = {"id": "r", "candidate": new, "stable": old, "began": 1.0, "step_began": 1.0, **state}
    phase = Phase.PROMOTED if "promoted_at" in state else Phase.CANARY
    shown = Candidate(version="2", phase=phase, ref=new, options=TWO.options)
    routes = (
        Route(arm=Arm.STABLE, ref=old, weight=95),
        Route(arm=Arm.CANARY, ref=new, weight=5),
    )
    if "promoted_at" in state:
        routes = (
            Route(arm=Arm.STABLE, ref=new, weight=95),
            Route(arm=Arm.CONTROL, ref=old, weight=5),
        )
    return status.model_copy(
        update={
            "rollout": RolloutState(**fields),
            "routes": routes,
            "candidate": shown,
            "packages": (old, new),
        }
    )


def test_candidate_and_routes_are_the_rollouts_until_its_promotion() -> None:
    status = rolling_out(serving())
    for seen in (
        loading(status, TWO),
        loading(status, THREE),
        ObservedState((THREE, TWO, ONE), stable=CLASSIFIER),
        ObservedState((ONE,), packages=packaged(ONE), stable=CLASSIFIER),
        ObservedState(()),
    ):
        assert plan(SPEC, status, seen, 5000.0) == PlanDecision(status)
        assert plan(DIRECT, status, seen, 5000.0) == PlanDecision(status)


def test_in_a_bake_a_newer_version_is_prepared_and_waits() -> None:
    status = rolling_out(serving(), promoted_at=50.0)
    seen = ObservedState((THREE, TWO, ONE), packages=packaged(ONE, TWO), stable=CLASSIFIER)
    decision = plan(SPEC, status, seen, 60.0)
    assert decision.convert == THREE
    held = [item.ref for item in packaged(ONE, TWO, THREE).values()]
    seen = replace(seen, packages=packaged(THREE), loaders=(report(*held),))
    for spec in (SPEC, DIRECT):
        after = plan(spec, decision.status, seen, 70.0).status
        assert candidate_of(after).phase is Phase.LOADED
        assert "bake" in candidate_of(after).reason
        assert after.routes == status.routes
        assert after.rollout == status.rollout


def test_the_version_in_its_bake_stays_shown() -> None:
    status = rolling_out(serving(), promoted_at=50.0)
    seen = ObservedState((TWO, ONE), packages=packaged(ONE, TWO), stable=CLASSIFIER)
    assert plan(SPEC, status, seen, 60.0) == PlanDecision(status)


def test_a_version_that_was_rolled_back_stays_shown_as_that_and_is_not_tried_again() -> None:
    gone = Candidate(version="2", phase=Phase.ROLLED_BACK, reason="errors", options=TWO.options)
    rejection = Rejection(version="2", options=TWO.options, reason="errors", at=9.0)
    status = serving().model_copy(update={"candidate": gone, "rejected": (rejection,)})
    seen = ObservedState((TWO, ONE), packages=packaged(ONE, TWO), stable=CLASSIFIER)
    assert plan(SPEC, status, seen, 10.0) == PlanDecision(status)


def test_a_version_that_expired_is_shown_as_that_again_after_another_one() -> None:
    rejection = Rejection(version="2", options=TWO.options, reason="why", at=9.0, expired=True)
    status = serving().model_copy(update={"rejected": (rejection,)})
    seen = ObservedState((TWO, ONE), packages=packaged(ONE, TWO), stable=CLASSIFIER)
    shown = candidate_of(plan(SPEC, status, seen, 10.0).status)
    assert (shown.phase, shown.reason) == (Phase.EXPIRED, "why")


def test_a_rejection_that_a_person_cleared_begins_anew() -> None:
    gone = Candidate(version="2", phase=Phase.ROLLED_BACK, reason="errors", options=TWO.options)
    status = serving().model_copy(update={"candidate": gone})
    seen = loading(status, TWO, report(package(ONE).ref, package(TWO).ref))
    after = plan(SPEC, status, seen, 10.0).status
    assert candidate_of(after).phase is Phase.LOADED


def test_what_a_rollout_compares_and_what_undo_needs_stays_loaded() -> None:
    old, new = package(ONE).ref, package(TWO).ref
    baking = rolling_out(serving(), promoted_at=50.0)
    seen = ObservedState((TWO, ONE), packages=packaged(ONE, TWO), stable=CLASSIFIER)
    assert set(plan(SPEC, baking, seen, 5000.0).status.packages) == {old, new}
    assert baking.rollout is not None
    settled = baking.model_copy(
        update={
            "rollout": None,
            "candidate": None,
            "last_rollout": baking.rollout.model_copy(
                update={"ended_at": 6000.0, "outcome": Outcome.SETTLED}
            ),
            "routes": (Route(arm=Arm.STABLE, ref=new, weight=100),),
        }
    )
    assert set(plan(SPEC, settled, seen, 6599.0).status.packages) == {old, new}
    assert plan(SPEC, settled, seen, 6600.0).status.packages == (new,)


def test_without_a_loader_nothing_is_promoted() -> None:
    status = serving()
    seen = replace(loading(status), loaders=(), unserved="no loader is heard")
    after = plan(SPEC, status, seen, 2.0).status
    assert after.stable == package(ONE).ref
    assert candidate_of(after).reason == "no loader is heard"


def test_the_old_version_stays_loaded_ten_minutes_and_then_leaves() -> None:
    status = serving()
    new = package(TWO).ref
    seen = loading(status, TWO, report(new))
    promoted = plan(DIRECT, status, seen, 100.0).status
    assert set(promoted.packages) == {package(ONE).ref, new}
    assert plan(DIRECT, promoted, seen, 699.0).status == promoted
    later = plan(DIRECT, promoted, seen, 700.0).status
    assert later.packages == (new,)


def test_a_version_at_fault_is_rejected_and_not_tried_again() -> None:
    rejected = rejecting(ONE)
    assert (candidate_of(rejected).phase, candidate_of(rejected).reason) == (
        Phase.REJECTED,
        "a pickle",
    )
    again = plan(SPEC, rejected, ObservedState((ONE,)), 1e9)
    assert again.convert is None
    assert again.status == rejected


@pytest.mark.parametrize("bad", [21, 60])
def test_each_of_many_versions_at_fault_is_tried_once(bad: int) -> None:
    versions = tuple(PlannedVersion(str(n), f"options-{n}") for n in range(1 + bad, 0, -1))
    status, tried = serving(), []
    for moment in range(3 * bad):
        seen = ObservedState(versions, packages=packaged(ONE), stable=CLASSIFIER)
        target = choose_version(SPEC, status, seen)
        if target is not None and target != ONE:
            tried.append(target.number)
            seen = replace(seen, jobs={target.options: AT_FAULT})
        status = plan(SPEC, status, seen, float(moment)).status
    assert sorted(tried, key=int) == [str(n) for n in range(2, 2 + bad)]
    assert status.stable == package(ONE).ref


def test_a_version_that_a_rollout_took_back_stays_so_however_many_fail_after_it() -> None:
    status = taken_back(serving(), TWO)
    for number in range(3, 60):
        version = PlannedVersion(str(number), f"options-{number}")
        seen = ObservedState((version,), jobs={version.options: AT_FAULT}, stable=CLASSIFIER)
        status = plan(SPEC, status, seen, float(number)).status
    seen = ObservedState((TWO, ONE), packages=packaged(ONE, TWO), stable=CLASSIFIER)
    assert choose_version(SPEC, status, seen) == ONE


def test_versions_passed_over_are_not_followed_but_can_be_pinned() -> None:
    status = serving().model_copy(update={"rejected_through": 2})
    seen = ObservedState((TWO, ONE), packages=packaged(ONE), stable=CLASSIFIER)
    assert choose_version(SPEC, status, seen) == ONE
    assert choose_version(SPEC, status, replace(seen, versions=(THREE, TWO, ONE))) == THREE
    pinned = EndpointSpec(model="m", version=PinnedVersion(pin="2"))
    assert choose_version(pinned, status, seen) == TWO


def test_a_rejection_of_long_ago_is_shown_though_its_reason_has_left() -> None:
    status = taken_back(serving(), TWO, reason="")
    seen = ObservedState((TWO, ONE), packages=packaged(ONE), stable=CLASSIFIER)
    candidate = candidate_of(plan(SPEC, status, seen, 9.0).status)
    assert candidate.phase is Phase.REJECTED
    assert "MLflow" in candidate.reason


def test_a_rejected_version_is_tried_again_under_other_options() -> None:
    changed = PlannedVersion(ONE.number, "other options")
    assert plan(SPEC, rejecting(ONE), ObservedState((changed,)), 2.0).convert == changed


def test_the_newest_good_version_is_taken_where_the_newest_is_rejected() -> None:
    assert plan(SPEC, rejecting(TWO, ONE), ObservedState((TWO, ONE)), 2.0).convert == ONE


def test_a_rejection_stays_visible_while_the_stable_version_serves() -> None:
    seen = ObservedState((TWO, ONE), packages=packaged(ONE), jobs={TWO.options: AT_FAULT})
    status = plan(SPEC, serving(), seen, 1.0).status
    assert status.stable == package(ONE).ref
    assert candidate_of(status).phase is Phase.REJECTED


def test_a_fault_of_the_environment_blocks_and_is_retried_with_growing_waits() -> None:
    status = EndpointStatus()
    now, waits = 0.0, []
    for _ in range(4):
        status = plan(SPEC, status, ObservedState((ONE,), jobs={ONE.options: AWAY}), now).status
        candidate = candidate_of(status)
        assert (candidate.phase, candidate.reason) == (Phase.BLOCKED, "no space left")
        assert candidate.retry_at is not None
        assert plan(SPEC, status, ObservedState((ONE,)), candidate.retry_at - 0.1).convert is None
        assert plan(SPEC, status, ObservedState((ONE,)), candidate.retry_at).convert == ONE
        waits.append(candidate.retry_at - now)
        now = candidate.retry_at
    assert waits == [5, 10, 20, 40]
    assert status.rejected == ()
    assert sum(line.phase is Phase.BLOCKED for line in status.history) == 1


def test_a_fault_that_was_noted_is_not_counted_again() -> None:
    seen = ObservedState((ONE,), jobs={ONE.options: AWAY})
    once = plan(SPEC, EndpointStatus(), seen, 1.0).status
    assert plan(SPEC, once, seen, 2.0) == PlanDecision(once)


def gone(*versions: PlannedVersion, **more: Any) -> ObservedState:
    """The store answers, and lacks the package of version 1, which serves."""
    return ObservedState(versions, stable_gone=True, **more)


def test_a_stable_version_whose_package_is_gone_is_converted_before_all_others() -> None:
    seen = gone(TWO, ONE, packages=packaged(TWO), loaders=(report(package(TWO).ref),))
    for spec in (SPEC, DIRECT, SPEC.model_copy(update={"version": PinnedVersion(pin="2")})):
        decision = plan(spec, serving(), seen, 2.0)
        assert decision.convert == ONE
        assert decision.status.routes == serving().routes


def test_a_rollout_goes_on_while_the_stable_versions_package_is_gone() -> None:
    status = rolling_out(serving())
    seen = gone(TWO, ONE, packages=packaged(TWO))
    assert plan(SPEC, status, seen, 2.0) == PlanDecision(status)
    assert choose_version(SPEC, status, seen) == TWO


def test_a_store_that_is_away_meanwhile_moves_nothing() -> None:
    held = report(package(ONE).ref, package(TWO).ref)
    seen = gone(TWO, ONE, packages=packaged(TWO), fault="the store is away", loaders=(held,))
    decision = plan(DIRECT, serving(), seen, 2.0)
    assert decision.convert is None
    assert decision.status.stable == package(ONE).ref
    assert candidate_of(decision.status).phase is Phase.BLOCKED


def test_a_newer_version_must_keep_what_the_stable_one_made_anew_promises() -> None:
    anew = package(ONE, "f")
    other = Package(package(TWO).ref, CLASSIFIER.model_copy(update={"labels": ("bad", "good")}))
    held = report(anew.ref, other.ref)
    packages = {ONE.options: anew, TWO.options: other}
    seen = gone(TWO, ONE, packages=packages, stable=anew.signature, loaders=(held,))
    status = plan(DIRECT, serving(), seen, 2.0).status
    assert status.stable == package(ONE).ref
    assert status.rejected[0].version == "2"
    back = plan(DIRECT, status, seen, 3.0).status
    assert back.stable == anew.ref


def test_where_the_stable_version_can_not_be_made_anew_a_newer_one_must_keep_its_task() -> None:
    rejection = Rejection(version="1", options=ONE.options, reason="no graph", at=1.0)
    status = serving().model_copy(update={"rejected": (rejection,)})
    seen = gone(TWO, ONE, packages=packaged(TWO), loaders=(report(package(TWO).ref),))
    assert plan(DIRECT, status, seen, 2.0).status.stable == package(TWO).ref
    removed = gone(TWO, packages=packaged(TWO), loaders=(report(package(TWO).ref),))
    assert plan(DIRECT, serving(), removed, 2.0).status.stable == package(TWO).ref
    embedding = Package(package(TWO).ref, Signature(task=Task.TEXT_EMBEDDING, dimension=2))
    seen = replace(seen, packages={TWO.options: embedding})
    assert plan(DIRECT, status, seen, 2.0).status.rejected[-1].version == "2"


def test_a_newer_version_supersedes_one_on_its_way() -> None:
    status = serving()
    status = plan(SPEC, status, loading(status), 1.0).status
    seen = ObservedState((THREE, TWO, ONE), packages=packaged(ONE, TWO), stable=CLASSIFIER)
    decision = plan(SPEC, status, seen, 2.0)
    assert decision.convert == THREE
    assert candidate_of(decision.status).version == "3"
    assert candidate_of(decision.status).ref is None


def test_no_newer_version_stops_the_first_one() -> None:
    status = plan(SPEC, EndpointStatus(), ObservedState((ONE,)), 1.0).status
    decision = plan(SPEC, status, ObservedState((THREE, TWO, ONE)), 2.0)
    assert decision.convert == ONE
    served = replace(
        loading(decision.status, ONE, report(package(ONE).ref)), versions=(THREE, TWO, ONE)
    )
    status = plan(SPEC, decision.status, served, 3.0).status
    assert status.stable == package(ONE).ref
    assert plan(SPEC, status, replace(served, stable=CLASSIFIER), 4.0).convert == THREE


def test_a_first_version_that_has_not_begun_or_can_not_go_on_gives_way_to_a_newer_one() -> None:
    waits = plan(SPEC, EndpointStatus(), ObservedState((ONE,), busy=WAITS), 1.0).status
    assert plan(SPEC, waits, ObservedState((TWO, ONE)), 2.0).convert == TWO
    begun = plan(SPEC, EndpointStatus(), ObservedState((ONE,)), 1.0).status
    blocked = plan(SPEC, begun, ObservedState((ONE,), jobs={ONE.options: AWAY}), 2.0).status
    assert plan(SPEC, blocked, ObservedState((TWO, ONE)), 3.0).convert == TWO
    assert plan(SPEC, begun, ObservedState((TWO,)), 2.0).convert == TWO  # the first was deleted


def on_its_way(phase: Phase) -> tuple[EndpointStatus, ObservedState]:
    """An endpoint that serves version 1, and version 2 in this phase before its rollout."""
    status = serving()
    seen = ObservedState((TWO, ONE), packages=packaged(ONE), stable=CLASSIFIER)
    if phase is Phase.WAITING:
        seen = replace(seen, busy=WAITS)
    elif phase is Phase.BLOCKED:
        seen = replace(seen, jobs={TWO.options: AWAY})
    elif phase in (Phase.VERIFYING, Phase.PUBLISHING):
        seen = replace(seen, jobs={TWO.options: ConversionProgress(phase=phase, message="")})
    elif phase in (Phase.LOADING, Phase.LOADED):
        held = [package(ONE).ref, *([package(TWO).ref] if phase is Phase.LOADED else [])]
        seen = loading(status, TWO, report(*held))
    status = plan(SPEC, status, seen, 1.0).status
    assert candidate_of(status).phase is phase
    return status, seen


ON_THE_WAY = [
    *(Phase.WAITING, Phase.CONVERTING, Phase.VERIFYING, Phase.PUBLISHING),
    *(Phase.LOADING, Phase.LOADED, Phase.BLOCKED),
]
PINNED = SPEC.model_copy(update={"version": PinnedVersion(pin="1")})
PINNED_TO_NONE = SPEC.model_copy(update={"version": PinnedVersion(pin="9")})
FOLLOWS_NONE = SPEC.model_copy(update={"version": AliasVersion(alias="gone")})
MOVED = PlannedVersion("1", "options-1-gpu", DeviceKind.GPU)
OTHERWISE = PlannedVersion("2", "options-2-otherwise")


@pytest.mark.parametrize("phase", ON_THE_WAY)
@pytest.mark.parametrize(
    ("spec", "change", "why"),
    [
        pytest.param(SPEC, {"versions": (ONE,)}, "MLflow's model m has no version 2", id="deleted"),
        pytest.param(SPEC, {"versions": ()}, "MLflow's model m has no version 2", id="model"),
        pytest.param(SPEC, {"versions": (THREE, TWO, ONE)}, "version 3 is newer", id="newer"),
        pytest.param(PINNED, {}, "the endpoint asks for version 1", id="pinned"),
        pytest.param(PINNED_TO_NONE, {}, "the endpoint asks for version 9", id="pinned to none"),
        pytest.param(FOLLOWS_NONE, {}, "the endpoint's alias gone names", id="no alias"),
        pytest.param(SPEC, {"move": MOVED}, "the endpoint moves to another pool", id="moved"),
        pytest.param(
            SPEC, {"stable_gone": True, "packages": {}}, "package of version 1, which serves",
            id="rebuilt",
        ),
    ],
)  # fmt: skip
def test_a_version_that_leaves_before_its_rollout_says_why(
    phase: Phase, spec: EndpointSpec, change: dict[str, Any], why: str
) -> None:
    status, seen = on_its_way(phase)
    if "packages" in change and phase in (Phase.LOADING, Phase.LOADED):
        change = {**change, "packages": packaged(TWO)}
    after = plan(spec, status, replace(seen, **change), 7.0).status
    assert after.candidate is None or after.candidate.version != "2"
    (line,) = [each for each in after.history if each.version == "2" and each.at == 7.0]
    assert line.phase is Phase.SUPERSEDED
    assert why in line.reason
    assert "while" in line.reason
    again = plan(spec, after, replace(seen, **change), 8.0).status
    assert [each for each in again.history if each.version == "2"][-1] == line  # said once


@pytest.mark.parametrize("phase", ON_THE_WAY)
def test_a_version_that_begins_again_under_other_options_says_so_and_is_not_dropped(
    phase: Phase,
) -> None:
    status, seen = on_its_way(phase)
    after = plan(SPEC, status, replace(seen, versions=(OTHERWISE, ONE), busy=WAITS), 7.0).status
    assert candidate_of(after).options == OTHERWISE.options
    (line,) = [each for each in after.history if each.at == 7.0]
    assert (line.version, line.phase) == ("2", Phase.WAITING)
    assert "is to be converted otherwise" in line.reason


def test_the_serving_version_that_need_not_be_made_anew_is_said_to_serve_as_before() -> None:
    stable = serving()
    moves = ObservedState((ONE,), packages=packaged(ONE), stable=CLASSIFIER, move=MOVED)
    rebuilds = ObservedState((ONE,), stable=CLASSIFIER, stable_gone=True)
    for seen in (moves, rebuilds):
        on_the_way = plan(SPEC, stable, seen, 2.0).status
        assert candidate_of(on_the_way).version == "1"
        after = plan(SPEC, on_the_way, replace(moves, move=None), 7.0).status
        assert after.candidate is None
        line = after.history[-1]
        assert (line.version, line.phase, line.at) == ("1", Phase.SERVING, 7.0)
        assert "serves as before" in line.reason
        assert plan(PINNED_TO_NONE, on_the_way, moves, 7.0).status.history[-1].phase is not (
            Phase.SUPERSEDED
        )


def test_a_first_version_that_is_deleted_on_its_way_says_so() -> None:
    status = plan(SPEC, EndpointStatus(), ObservedState((ONE,)), 1.0).status
    decision = plan(SPEC, status, ObservedState(()), 2.0)
    assert decision.convert is None
    assert decision.status.candidate is None
    line = decision.status.history[-1]
    assert (line.version, line.phase) == ("1", Phase.SUPERSEDED)
    assert (
        line.reason == "MLflow's model m has no version 1 any more: dropped while it was converted"
    )


def test_versions_registered_faster_than_they_are_converted_are_served_now_and_then() -> None:
    status, converted = serving(), set[str]()
    versions: tuple[PlannedVersion, ...] = (ONE,)
    for number in range(2, 12):
        versions = (PlannedVersion(str(number), f"options-{number}"), *versions)
        seen = ObservedState(versions, packages=packaged(ONE), stable=CLASSIFIER)
        decision = plan(SPEC, status, seen, float(number))
        status = decision.status
        assert decision.convert is not None
        converted.add(decision.convert.number)
    assert converted == {"2", "3", "4"}  # the third one is left to end


def test_conversions_that_end_without_a_result_are_tried_again_and_expire_in_the_end() -> None:
    crash = ConversionFailure(reason="killed by SIGKILL", by_version=False, crashed=True)
    status, now, pauses = EndpointStatus(), 0.0, []
    while not status.rejected:
        status = plan(SPEC, status, ObservedState((ONE,), jobs={ONE.options: crash}), now).status
        candidate = candidate_of(status)
        if candidate.retry_at is not None:
            assert candidate.phase is Phase.BLOCKED
            pauses.append(candidate.retry_at - now)
            now = candidate.retry_at
    assert pauses == sorted(pauses)
    assert len(pauses) == MOST_CRASHES - 1
    assert status.rejected[0].expired
    assert "SIGKILL" in status.rejected[0].reason
    assert candidate_of(status).phase is Phase.EXPIRED
    after = plan(SPEC, status, ObservedState((ONE,), jobs={}), now + 1e6)
    assert after.convert is None


def test_faults_of_the_environment_between_crashes_do_not_count_as_crashes() -> None:
    crash = ConversionFailure(reason="killed", by_version=False, crashed=True)
    away = ConversionFailure(reason="MLflow is away", by_version=False)
    status, now = EndpointStatus(), 0.0
    for job in (crash, away) * 2 * MOST_CRASHES:
        status = plan(SPEC, status, ObservedState((ONE,), jobs={ONE.options: job}), now).status
        now = candidate_of(status).retry_at or now
    assert not status.rejected


def test_another_conversion_is_waited_for() -> None:
    decision = plan(SPEC, EndpointStatus(), ObservedState((ONE,), busy=WAITS), 1.0)
    assert decision.convert is None
    candidate = candidate_of(decision.status)
    assert (candidate.phase, candidate.reason) == (Phase.WAITING, WAITS)


def test_a_candidate_that_triton_refuses_is_rejected_and_leaves_at_once() -> None:
    status = serving()
    status = plan(SPEC, status, loading(status), 1.0).status
    new = package(TWO).ref
    failure = refusal(new, "no such operator")
    after = plan(SPEC, status, loading(status, TWO, report(failed=(failure,))), 2.0).status
    assert after.stable == package(ONE).ref
    assert after.packages == (package(ONE).ref,)
    assert "no such operator" in after.rejected[0].reason


def test_a_candidate_that_can_not_be_loaded_now_is_blocked_and_goes_on_by_itself() -> None:
    status = serving()
    new = package(TWO).ref
    failure = LoadFailure(ref=new, reason="the store is away", by_version=False)
    blocked = plan(SPEC, status, loading(status, TWO, report(failed=(failure,))), 2.0).status
    assert candidate_of(blocked).phase is Phase.BLOCKED
    assert new in blocked.packages
    done = plan(SPEC, blocked, loading(status, TWO, report(new)), 3.0).status
    assert candidate_of(done).phase is Phase.LOADED


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        (Signature(task=Task.TEXT_EMBEDDING, dimension=3), "task"),
        (Signature(task=Task.TEXT_CLASSIFICATION, labels=("yes", "no")), "labels"),
    ],
)
def test_a_version_that_breaks_its_callers_is_rejected(changed: Signature, word: str) -> None:
    status = serving()
    seen = loading(status)
    packages = {**seen.packages, TWO.options: Package(package(TWO).ref, changed)}
    after = plan(SPEC, status, replace(seen, packages=packages), 1.0).status
    assert after.stable == package(ONE).ref
    assert word in after.rejected[0].reason


@pytest.mark.parametrize(
    ("rollout", "claims", "is_taken"),
    [
        ({}, False, True),
        ({"embedding": {"space": "cutover"}}, True, True),
        ({"strategy": "shadow"}, False, True),
        ({}, True, False),
        ({"embedding": {"space": "same"}}, False, False),
        ({"strategy": "direct"}, False, False),
    ],
)
def test_vectors_of_another_dimension_are_cut_over_and_go_to_nobody_in_another_way(
    rollout: dict[str, Any], *, claims: bool, is_taken: bool
) -> None:
    spec = EndpointSpec(model="m", rollout=RolloutSpec.model_validate(rollout))
    stable, new = (Signature(task=Task.TEXT_EMBEDDING, dimension=size) for size in (384, 768))
    target = replace(TWO, claims_space=claims)
    seen = replace(
        loading(serving(), target, report(package(TWO).ref)),
        packages={TWO.options: Package(package(TWO).ref, new)},
        stable=stable,
    )
    after = plan(spec, serving(), seen, 1.0).status
    assert [each.version for each in after.rejected] == ([] if is_taken else ["2"])
    assert after.stable == package(ONE).ref
    if is_taken:
        assert candidate_of(after).phase is Phase.LOADED
    else:
        assert "dimension is 768" in after.rejected[0].reason


def test_numbers_of_a_table_that_are_more_than_before_go_to_nobody() -> None:
    stable, new = (Signature(task=Task.TABULAR_REGRESSION, dimension=size) for size in (1, 3))
    assert stable.of_any_dimension() == stable
    seen = replace(
        loading(serving(), TWO, report(package(TWO).ref)),
        packages={TWO.options: Package(package(TWO).ref, new)},
        stable=stable,
    )
    after = plan(SPEC, serving(), seen, 1.0).status
    assert "dimension is 3" in after.rejected[0].reason


def test_nothing_is_promoted_while_the_stable_versions_package_can_not_be_read() -> None:
    status = serving()
    seen = loading(status, TWO, report(package(TWO).ref))
    after = plan(SPEC, status, replace(seen, stable=None, fault="the store is away"), 1.0).status
    assert after.stable == package(ONE).ref
    assert candidate_of(after).reason == "the store is away"


def test_other_options_for_the_serving_version_make_a_new_candidate() -> None:
    changed = PlannedVersion("1", "other options")
    decision = plan(SPEC, serving(), ObservedState((changed,), stable=CLASSIFIER), 1.0)
    assert decision.convert == changed
    assert decision.status.stable == package(ONE).ref


def test_latest_never_goes_back_where_versions_are_removed() -> None:
    status = serving(TWO)
    decision = plan(SPEC, status, ObservedState((ONE,), stable=CLASSIFIER), 1.0)
    assert decision == PlanDecision(status)


def test_a_pin_goes_back() -> None:
    spec = EndpointSpec(model="m", version=PinnedVersion(pin="1"))
    status = serving(TWO)
    assert plan(spec, status, ObservedState((TWO, ONE), stable=CLASSIFIER), 1.0).convert == ONE


def test_an_alias_is_followed() -> None:
    spec = EndpointSpec(model="m", version=AliasVersion(alias="champion"))
    seen = ObservedState((TWO, ONE), aliases={"champion": "1"})
    assert plan(spec, EndpointStatus(), seen, 1.0).convert == ONE
    assert plan(spec, EndpointStatus(), ObservedState((TWO, ONE)), 1.0).convert is None


jobs = st.sampled_from(
    [None, AT_FAULT, AWAY, ConversionProgress(phase=Phase.CONVERTING, message=""), "published"]
)


@st.composite
def events(draw: st.DrawFn) -> list[tuple[ObservedState, float]]:
    """A history of what may be seen: versions come, conversions end, loaders come and go."""
    versions = tuple(PlannedVersion(str(number), f"o{number}") for number in (4, 3, 2, 1))
    seen: list[tuple[ObservedState, float]] = []
    now, packages = 0.0, dict[str, Package]()
    for _ in range(draw(st.integers(1, 15))):
        now += draw(st.sampled_from([0.25, 5.0, 700.0]))
        known = versions[draw(st.integers(0, 3)) :]
        word = draw(jobs)
        target = draw(st.sampled_from(known))
        if word == "published":
            packages[target.options] = package(target)
        refs = [item.ref for item in packages.values()]
        held = draw(st.lists(st.sampled_from(refs), unique=True)) if refs else []
        bad = draw(st.lists(st.sampled_from(refs), unique=True, max_size=1)) if refs else []
        failures = tuple(refusal(item, "no", by_version=draw(st.booleans())) for item in bad)
        reports = draw(st.sampled_from([(), (report(*held, failed=failures),)]))
        fault = draw(st.sampled_from(["", "", "away"]))
        observed = ObservedState(
            draw(st.sampled_from([None, known, known])),
            packages={} if fault else dict(packages),
            jobs={target.options: word}
            if isinstance(word, ConversionFailure | ConversionProgress)
            else {},
            loaders=reports,
            stable=None if fault else CLASSIFIER,
            fault=fault,
            busy=draw(st.sampled_from(["", WAITS])),
        )
        seen.append((observed, now))
    return seen


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from([SPEC, DIRECT]), events())
def test_whatever_happens_the_invariants_hold(
    spec: EndpointSpec, history: list[tuple[ObservedState, float]]
) -> None:
    status = EndpointStatus()
    rejected: set[tuple[str, str]] = set()
    for seen, now in history:
        before, decision = status, plan(spec, status, seen, now)
        status = decision.status
        held = {model.ref for item in seen.loaders for model in item.loaded}
        assert sum(route.weight for route in status.routes) in (0, 100)
        assert all(route.ref in status.packages for route in status.routes)
        assert len(status.history) <= HISTORY_LIMIT
        assert len(set(status.packages)) == len(status.packages)
        if before.stable is not None:
            assert status.stable is not None
        if status.stable != before.stable:
            assert status.stable in held
            assert len(status.routes) == 1
        if before.stable is not None and spec == SPEC:
            assert status.stable == before.stable
        left = before.candidate
        if left is not None and left.phase in ON_THE_WAY and left != status.candidate:
            now_on_its_way = status.candidate
            if now_on_its_way is None or now_on_its_way.version != left.version:
                said = [each for each in status.history if each.version == left.version][-1]
                assert said.at == now
                assert said.phase is Phase.SERVING or said.reason
        if decision.convert is not None:
            assert (decision.convert.number, decision.convert.options) not in rejected
        rejected |= {(item.version, item.options) for item in status.rejected}
        # Killed here, and started again from what was written: the same comes out.
        written = EndpointStatus.model_validate_json(status.model_dump_json(by_alias=True))
        assert plan(spec, written, seen, now) == plan(spec, status, seen, now)


def test_a_version_whose_tag_comes_late_claims_its_space_until_its_rollout_begins() -> None:
    claiming = replace(TWO, claims_space=True)
    for version in (TWO, claiming, TWO):
        status = plan(SPEC, serving(), loading(serving(), version), 5.0).status
        assert candidate_of(status).claims_space is version.claims_space
    status = plan(SPEC, status, loading(serving(), claiming), 6.0).status
    assert candidate_of(status).claims_space
