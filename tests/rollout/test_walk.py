"""Whole rollouts: the machine with the checks that run in production, over drawn traffic.

Every status goes through JSON between two passes, as it does in an endpoint store.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_windows import aggregate, drawn, window
from rollout_walk import ONE, TWO, Walk

from contracts.endpoint import Arm, EndpointStatus, Phase, Route
from contracts.endpoint_record import summary
from contracts.rollout import Checks, LatencyCheck, Outcome, RolloutSpec, ShadowStep, Verdict
from contracts.windows import EndpointWindow, WindowAggregate
from rollout.judge import WindowsJudge
from rollout.steps import HISTORY_WINDOWS

SECONDS = 10
BAKE = 300.0
SPEC = RolloutSpec(bake=BAKE)
STABLE_ALONE = (Route(arm=Arm.STABLE, ref=ONE, weight=100),)


class Traffic:
    """Draws windows for the routes as they are; version 2 may differ from version 1."""

    def __init__(self, seed: int, *, requests: int = 2000, **of_candidate: Any) -> None:
        self._random = np.random.default_rng(seed)
        self._requests = requests
        self._of_candidate: dict[str, Any] = of_candidate

    def on(self, routes: tuple[Route, ...], start: int) -> EndpointWindow:
        return window(start, *(self._aggregate(route, start) for route in routes), seconds=SECONDS)

    def _aggregate(self, route: Route, start: int) -> WindowAggregate:
        requests = round(self._requests * route.weight / 100)
        differs = self._of_candidate if route.ref == TWO else {}
        return aggregate(route.ref, route.arm, start, drawn(self._random, requests, **differs))


def begun(traffic: Traffic, spec: RolloutSpec = SPEC, history: int = HISTORY_WINDOWS) -> Walk:
    """A rollout in its first step, with some of stable's past known."""
    walk = Walk(spec, judge=WindowsJudge())
    first = int(walk.now) - history * SECONDS
    past = tuple(traffic.on(STABLE_ALONE, first + i * SECONDS) for i in range(history))
    walk.observed = replace(walk.observed, windows=past)
    return walk.step()


def passed(walk: Walk, traffic: Traffic, windows: int) -> Walk:
    """That many windows with a pass after each, or fewer where the rollout ends before."""
    for _ in range(windows):
        if walk.status.rollout is None:
            break
        made = traffic.on(walk.status.routes, int(walk.now))
        walk.observed = replace(walk.observed, windows=(*(walk.observed.windows or ()), made))
        walk.step(SECONDS)
        walk.status = EndpointStatus.model_validate_json(walk.status.model_dump_json())
    return walk


def test_an_equal_version_walks_from_shadow_to_settled() -> None:
    traffic = Traffic(1)
    walk = passed(begun(traffic), traffic, 200)
    assert walk.last.outcome is Outcome.SETTLED
    assert walk.shares == {"stable 2": 100}
    assert [(line.phase, line.step) for line in walk.status.history] == [
        (Phase.SHADOW, 0),
        (Phase.CANARY, 1),
        (Phase.CANARY, 2),
        (Phase.CANARY, 3),
        (Phase.PROMOTED, 3),
        (Phase.SETTLED, 3),
    ]
    shadow, five, _, half = walk.status.history[1:5]
    assert shadow.reason == "passed: errorRate, classShare, outputShift"
    assert five.reason == "passed: errorRate, latency, classShare, outputShift"
    assert half.figures["errorRate.candidate_requests"] >= 100
    assert walk.last.promoted_at is not None
    assert walk.last.ended_at == walk.last.promoted_at + BAKE


@pytest.mark.parametrize(
    ("fault", "name", "phase"),
    [
        ({"errors": 0.06}, "errorRate", Phase.SHADOW),
        ({"positive": 0.97}, "classShare", Phase.SHADOW),
        ({"slower": 2.0}, "latency", Phase.CANARY),
    ],
)
def test_a_bad_version_is_rolled_back_where_its_fault_shows(
    fault: dict[str, Any], name: str, phase: Phase
) -> None:
    traffic = Traffic(2, **fault)
    walk = passed(begun(traffic), traffic, 200)
    assert walk.last.outcome is Outcome.ROLLED_BACK
    assert name in {item.name for item in walk.last.checks if item.verdict is Verdict.FAIL}
    assert name in walk.last.reason
    assert walk.status.history[-2].phase is phase
    assert walk.shares == {"stable 1": 100}
    assert [item.version for item in walk.status.rejected] == ["2"]


def test_a_version_that_turns_bad_after_its_promotion_is_reverted_in_the_bake() -> None:
    spec = RolloutSpec(bake=3600)
    good = Traffic(3)
    walk = begun(good, spec)
    while walk.status.rollout is not None and walk.state.promoted_at is None:
        passed(walk, good, 1)
    passed(walk, good, 5)
    passed(walk, Traffic(4, errors=0.3), 200)
    assert walk.last.outcome is Outcome.REVERTED
    assert "errorRate" in walk.last.reason
    assert walk.shares == {"stable 1": 100}


@pytest.mark.slow
def test_without_a_shadow_step_callers_wait_until_stable_is_known() -> None:
    traffic = Traffic(6)
    spec = RolloutSpec(steps=SPEC.steps[1:], bake=BAKE)
    walk = passed(begun(traffic, spec, history=3), traffic, HISTORY_WINDOWS - 4)
    assert walk.shares == {"stable 1": 100}
    assert walk.why == "19 of 20 windows with traffic of the stable version are known"
    assert passed(walk, traffic, 1).shares == {"canary 2": 5, "stable 1": 95}
    assert passed(walk, traffic, 200).last.outcome is Outcome.SETTLED


@pytest.mark.slow
def test_too_little_traffic_ends_at_the_deadline_and_says_what_is_missing() -> None:
    traffic = Traffic(7, requests=2)
    spec = RolloutSpec(deadline=600)
    walk = passed(begun(traffic, spec), traffic, 200)
    assert walk.last.outcome is Outcome.EXPIRED
    assert walk.last.reason.startswith("no verdict within 10m: not yet known: errorRate")


@pytest.mark.slow
def test_a_check_that_is_added_on_the_way_must_pass_too() -> None:
    traffic = Traffic(8)
    few = RolloutSpec(checks=Checks(latency=None, drift=None), bake=BAKE)
    walk = begun(traffic, few)
    while walk.state.step == 0:
        passed(walk, traffic, 1)
    walk.spec = few.model_copy(update={"checks": Checks(latency=LatencyCheck(), drift=None)})
    passed(walk, traffic, 1)
    assert "latency" in {item.name for item in walk.state.checks}
    walk = passed(walk, traffic, 200)
    assert walk.last.outcome is Outcome.SETTLED
    assert "latency" in walk.status.history[2].reason


@pytest.mark.slow
def test_an_unloaded_candidate_keeps_its_evidence() -> None:
    traffic = Traffic(9)
    walk = begun(traffic, RolloutSpec(steps=(ShadowStep(shadow=100), *SPEC.steps[2:]), bake=BAKE))
    passed(walk, traffic, 4)
    assert walk.state.step == 1
    known = _requests(walk)
    assert passed(walk.sees(ONE).step(), traffic, 3).shares == {"stable 1": 100}
    assert _requests(walk) == known
    assert passed(walk.sees(ONE, TWO).step(), traffic, 200).last.outcome is Outcome.SETTLED


def _requests(walk: Walk) -> float:
    (found,) = (item for item in walk.state.checks if item.name == "errorRate")
    return found.figures["candidate_requests"]


@pytest.mark.slow
def test_a_rollout_survives_being_stored_at_every_pass() -> None:
    stored, kept = begun(Traffic(10)), begun(Traffic(10))
    passed(stored, Traffic(11), 40)
    traffic = Traffic(11)
    for _ in range(40):
        made = traffic.on(kept.status.routes, int(kept.now))
        kept.observed = replace(kept.observed, windows=(*(kept.observed.windows or ()), made))
        kept.step(SECONDS)
    assert kept.status == stored.status


@pytest.mark.parametrize("windows", [2, 9, 20])
@pytest.mark.parametrize(
    ("of_candidate", "outcomes"),
    [
        pytest.param({}, {Outcome.SETTLED}, id="equal"),
        pytest.param({"errors": 0.2}, {Outcome.ROLLED_BACK, Outcome.REVERTED}, id="bad"),
    ],
)
def test_with_its_evidence_lost_an_equal_version_settles_and_a_bad_one_does_not(
    windows: int, of_candidate: dict[str, Any], outcomes: set[Outcome | None]
) -> None:
    traffic = Traffic(1)
    walk = passed(begun(traffic), traffic, windows)
    walk.status = summary(walk.status)
    walk.step()
    assert walk.state.evidence
    assert passed(walk, Traffic(2, **of_candidate), 200).last.outcome in outcomes
