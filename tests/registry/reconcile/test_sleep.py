"""When an endpoint falls asleep, and what wakes it or keeps it awake."""

import pytest
from registry_fakes import ref, report

from contracts.endpoint import Arm, Candidate, EndpointSpec, EndpointStatus, Phase, Route
from contracts.loading import LoaderReport
from contracts.rollout import RolloutState
from registry.reconcile.rollouts import HeldPackages
from registry.reconcile.sleep import note_sleep

STABLE, NEW = ref("1", "a"), ref("2", "b")
SPEC = EndpointSpec(model="m")
SERVING = EndpointStatus(routes=(Route.all_callers(STABLE),), packages=(STABLE,))
ASLEEP = SERVING.model_copy(update={"asleep": 5.0})
NOW = 100.0


def of(name: str, loaded: LoaderReport, *, idle: bool = True) -> LoaderReport:
    named = tuple(model.ref.package for model in loaded.loaded) if idle else ()
    return loaded.model_copy(update={"loader": name, "idle": named})


IDLE, OTHER_IDLE = of("a", report(STABLE)), of("b", report(STABLE))
BUSY = of("b", report(STABLE), idle=False)
EMPTY = of("b", report())


def after(
    status: EndpointStatus, *reports: LoaderReport, spec: EndpointSpec = SPEC
) -> float | None:
    held = HeldPackages()
    held.take(reports)
    return note_sleep(spec, status, held, NOW).asleep


def test_it_falls_asleep_where_every_triton_holds_it_and_nobody_asked_any() -> None:
    assert after(SERVING, IDLE, OTHER_IDLE) == NOW


@pytest.mark.parametrize("other", [BUSY, EMPTY])
def test_one_triton_that_was_asked_or_lacks_it_keeps_it_awake(other: LoaderReport) -> None:
    assert after(SERVING, IDLE, other) is None


def test_without_any_loader_nothing_changes() -> None:
    assert after(SERVING) is None
    assert after(ASLEEP) == 5.0


@pytest.mark.parametrize("reports", [(IDLE, EMPTY), (EMPTY,), (IDLE, OTHER_IDLE)])
def test_it_sleeps_on_while_tritons_unload_it(reports: tuple[LoaderReport, ...]) -> None:
    assert after(ASLEEP, *reports) == 5.0


def test_one_triton_that_is_asked_wakes_it_for_all() -> None:
    assert after(ASLEEP, EMPTY.model_copy(update={"loader": "a"}), BUSY) is None


def test_a_loader_that_knows_no_sleep_keeps_it_awake() -> None:
    assert after(SERVING, IDLE, report(STABLE)) is None


def test_an_endpoint_that_never_sleeps_is_woken() -> None:
    spec = SPEC.model_copy(update={"sleeps": False})
    assert after(SERVING, IDLE, OTHER_IDLE, spec=spec) is None
    assert after(ASLEEP, EMPTY, spec=spec) is None


ROLLOUT = RolloutState(id="r", candidate=NEW, stable=STABLE, began=0.0, step_began=0.0)
CANARY = (
    Route(arm=Arm.STABLE, ref=STABLE, weight=95),
    Route(arm=Arm.CANARY, ref=NEW, weight=5),
)


@pytest.mark.parametrize(
    "update",
    [
        {"candidate": Candidate(version="2", phase=Phase.CONVERTING)},
        {"candidate": Candidate(version="2", phase=Phase.LOADING, ref=NEW)},
        {"candidate": Candidate(version="2", phase=Phase.BLOCKED)},
        {"rollout": ROLLOUT},
        {"rollout": ROLLOUT, "routes": CANARY},
        {"packages": (STABLE, NEW)},  # kept for an undo
        {"next_pool": "gpu"},
    ],
)
def test_what_a_rollout_an_undo_or_a_move_needs_wakes_and_stays_awake(
    update: dict[str, object],
) -> None:
    assert after(SERVING.model_copy(update=update), IDLE, OTHER_IDLE) is None
    assert after(ASLEEP.model_copy(update=update), EMPTY) is None


@pytest.mark.parametrize("phase", [Phase.REJECTED, Phase.ROLLED_BACK, Phase.EXPIRED])
def test_a_version_that_was_turned_down_keeps_nobody_awake(phase: Phase) -> None:
    shown = SERVING.model_copy(update={"candidate": Candidate(version="2", phase=phase)})
    assert after(shown, IDLE, OTHER_IDLE) == NOW


def test_an_endpoint_without_a_stable_version_is_not_asleep() -> None:
    assert after(EndpointStatus(asleep=5.0), IDLE) is None


def test_other_pools_do_not_count() -> None:
    elsewhere = BUSY.model_copy(update={"pool": "gpu"})
    assert after(SERVING, IDLE, OTHER_IDLE, elsewhere) == NOW
