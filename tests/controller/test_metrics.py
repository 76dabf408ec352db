"""Prometheus sees what the endpoints' statuses say, and nothing of endpoints that are gone."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from registry_fakes import endpoint, ref

from contracts import metrics
from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Route,
    Transition,
)
from contracts.rollout import CheckResult, Outcome, RolloutState, StepTraffic, Verdict
from controller.metrics import RolloutCollector

OLD, NEW = ref("1", "a"), ref("2", "b")
CHECKS = tuple(CheckResult(name=verdict.value, verdict=verdict, reason="so") for verdict in Verdict)
STATE = RolloutState(
    id="r", candidate=NEW, stable=OLD, step=2, began=1.0, step_began=1.0, checks=CHECKS
)
ON = EndpointStatus(
    routes=(
        Route(arm=Arm.STABLE, ref=OLD, weight=75),
        Route(arm=Arm.CANARY, ref=NEW, weight=25),
    ),
    candidate=Candidate(version="2", phase=Phase.CANARY, ref=NEW),
    rollout=STATE,
)


class World:
    """Endpoints, and what Prometheus reads of them."""

    def __init__(self, *endpoints: ModelEndpoint) -> None:
        self.endpoints = list(endpoints)
        self.registry = CollectorRegistry()
        self.registry.register(RolloutCollector(lambda: self.endpoints))

    def read(self, metric: metrics.Metric) -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        samples = [s for family in families for s in family.samples if s.name == metric.name]
        return {tuple(s.labels[name] for name in metric.labels): s.value for s in samples}


def test_weights_step_and_verdicts_of_a_rollout_that_goes_on() -> None:
    world = World(endpoint(ON))
    assert world.read(metrics.ROUTE_WEIGHT) == {
        ("e", "1", "stable"): 0.75,
        ("e", "2", "canary"): 0.25,
    }
    assert world.read(metrics.ROLLOUT_STEP) == {("e", "2"): 2}
    assert world.read(metrics.ROLLOUT_PAUSED) == {("e", "2"): 0}
    assert world.read(metrics.CHECK_VERDICT) == {
        ("e", "2", "pass"): 1,
        ("e", "2", "unknown"): 0,
        ("e", "2", "fail"): -1,
    }


def test_a_rollout_without_a_verdict_tells_its_deadline_and_its_evidence() -> None:
    state = STATE.model_copy(
        update={
            "began": 100.0,
            "paused_seconds": 50.0,
            "looked_through": 700.0,
            "traffic": StepTraffic(candidate=12, since=100.0),
        }
    )
    world = World(endpoint(ON.model_copy(update={"rollout": state})))
    newest = ("e", "2")
    assert world.read(metrics.ROLLOUT_BEGAN) == {newest: 100}
    assert world.read(metrics.ROLLOUT_DEADLINE) == {newest: 150 + 86400}
    assert world.read(metrics.ROLLOUT_JUDGED) == {newest: 700}
    assert world.read(metrics.ROLLOUT_REQUESTS) == {newest: 12}


@pytest.mark.parametrize("stopped", ["paused_at", "promoted_at"])
def test_a_clock_that_is_stopped_has_no_deadline(stopped: str) -> None:
    state = STATE.model_copy(update={stopped: 200.0})
    world = World(endpoint(ON.model_copy(update={"rollout": state})))
    assert world.read(metrics.ROLLOUT_DEADLINE) == {}
    assert world.read(metrics.ROLLOUT_JUDGED) == {}


def test_an_endpoint_without_a_version_is_told() -> None:
    assert World(endpoint(ON)).read(metrics.ENDPOINT_STABLE) == {("e",): 1}
    assert World(endpoint(EndpointStatus())).read(metrics.ENDPOINT_STABLE) == {("e",): 0}


def test_exactly_one_phase_is_current() -> None:
    phases = World(endpoint(ON)).read(metrics.ROLLOUT_PHASE)
    assert len(phases) == len(Phase)
    assert [key for key, value in phases.items() if value] == [("e", "2", "Canary")]


def test_why_a_version_was_rolled_back_stays_seen() -> None:
    ended = STATE.model_copy(update={"outcome": Outcome.ROLLED_BACK, "ended_at": 2.0})
    status = ON.model_copy(update={"rollout": None, "last_rollout": ended})
    world = World(endpoint(status))
    assert world.read(metrics.CHECK_VERDICT)["e", "2", "fail"] == -1
    assert world.read(metrics.ROLLOUT_STEP) == {}


def test_transitions_count_from_zero_at_the_start_of_the_controller() -> None:
    before = Transition(at=1.0, version="1", phase=Phase.SERVING)
    world = World(endpoint(ON.model_copy(update={"history": (before,)})))
    assert set(world.read(metrics.ROLLOUT_TRANSITIONS).values()) == {0}
    after = Transition(at=2.0, version="2", phase=Phase.ROLLED_BACK)
    world.endpoints = [endpoint(ON.model_copy(update={"history": (before, after)}))]
    world.read(metrics.ROLLOUT_TRANSITIONS)
    counted = world.read(metrics.ROLLOUT_TRANSITIONS)
    assert {key: value for key, value in counted.items() if value} == {("e", "RolledBack"): 1}


def test_an_endpoint_that_is_gone_has_no_series() -> None:
    world = World(endpoint(ON))
    world.endpoints = []
    for metric in metrics.CONTROLLER:
        assert world.read(metric) == {}


def test_every_metric_of_the_collector_is_declared() -> None:
    families = list(RolloutCollector(lambda: [endpoint(ON)]).collect())
    declared = {metric.family for metric in metrics.CONTROLLER} - {
        metrics.WRITE_BACK_FAILURES.family
    }
    assert {family.name for family in families} == declared
