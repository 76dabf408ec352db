"""A rollout as people see it, by the status that is stored; its stages are in ``test_view.py``."""

import pytest
from rich.console import Console
from rollout_walk import SPEC

from contracts.durations import humanise
from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Route,
)
from contracts.model import ModelRef
from contracts.rollout import CheckResult, Outcome, RolloutState, Verdict
from headrace.commands.rollout_picture import document, in_brief, picture
from rollout.view import RolloutView, StageMark, newest

OLD = ModelRef(model="m", version="3", package="a" * 64)
NEW = ModelRef(model="m", version="4", package="b" * 64)
STABLE = Route(arm=Arm.STABLE, ref=OLD, weight=100)
NOW = 100_000.0
CHECKS = (
    CheckResult(name="errorRate", verdict=Verdict.PASS, reason="errors 1 of 400", figures={"n": 4}),
    CheckResult(name="latency", verdict=Verdict.UNKNOWN, reason="slow: 1,200 more", needs=1200),
    CheckResult(name="drift", verdict=Verdict.FAIL, reason="PSI 0.4 [beyond]", gate=False),
)


def endpoint(**status: object) -> ModelEndpoint:
    return ModelEndpoint(
        metadata=Metadata(name="tone"),
        spec=EndpointSpec(model="m", rollout=SPEC),
        status=EndpointStatus.model_validate({"routes": (STABLE,), **status}),
    )


def rollout(**state: object) -> RolloutState:
    began = {"began": NOW - 3600, "step_began": NOW - 60}
    return RolloutState.model_validate(
        {"id": "r", "candidate": NEW, "stable": OLD, "checks": CHECKS, **began, **state}
    )


def drawn(seen: RolloutView) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(picture(seen, NOW))
    return capture.get()


def test_a_step_is_told_in_brief_with_the_time_to_its_deadline_less_pauses() -> None:
    candidate = Candidate(version="4", phase=Phase.CANARY, reason="not yet known: latency", ref=NEW)
    seen = newest(endpoint(candidate=candidate, rollout=rollout(step=2, paused_seconds=600)))
    assert seen.reason == "not yet known: latency"
    assert in_brief(seen, NOW) == "version 4 at 25 %, 1 of 3 checks pass, 23h10m to the deadline"


def test_a_paused_rollout_stops_its_clock() -> None:
    state = rollout(step=1, paused_at=NOW - 1000)
    seen = newest(endpoint(rollout=state))
    assert document(seen, NOW) == document(seen, NOW + 500)
    assert "paused" in in_brief(seen, NOW)


def test_a_promoted_version_shows_its_bake_and_who_waits() -> None:
    waiting = Candidate(version="5", phase=Phase.LOADED)
    state = rollout(step=3, promoted_at=NOW - 600)
    shown = drawn(newest(endpoint(rollout=state, candidate=waiting)))
    assert "50m of its bake left" in shown
    assert "Version 5 waits" in shown
    assert "no check has to pass" in shown


def test_an_ended_rollout_is_shown_with_its_outcome() -> None:
    last = rollout(step=1, ended_at=NOW, outcome=Outcome.ROLLED_BACK, reason="so it was")
    candidate = Candidate(version="4", phase=Phase.ROLLED_BACK)
    for status in ({"last_rollout": last}, {"last_rollout": last, "candidate": candidate}):
        seen = newest(endpoint(**status))
        assert [stage.name for stage in seen.stages if stage.mark is StageMark.FAILED] == ["5 %"]
        assert (seen.phase, seen.reason) == (Outcome.ROLLED_BACK.value, "so it was")


def test_an_endpoint_without_any_version_is_no_error() -> None:
    assert "no version yet" in drawn(newest(endpoint(routes=())))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3661, "1h1m"),
        (86400, "1d"),
        (90061, "1d1h"),
        (-5, "0s"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert humanise(seconds) == text
