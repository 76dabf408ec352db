"""Where a rollout is shown, by the status that is stored."""

import pytest
from rich.console import Console

from contracts.durations import about
from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Route,
    Transition,
)
from contracts.model import ModelRef
from contracts.rollout import CheckResult, Outcome, RolloutState, Verdict
from headrace.commands.rollout_picture import document, in_brief, picture
from rollout.view import Mark, View, newest

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
        spec=EndpointSpec(model="m"),
        status=EndpointStatus.model_validate({"routes": (STABLE,), **status}),
    )


def rollout(**state: object) -> RolloutState:
    began = {"began": NOW - 3600, "step_began": NOW - 60}
    return RolloutState.model_validate(
        {"id": "r", "candidate": NEW, "stable": OLD, "checks": CHECKS, **began, **state}
    )


def way(seen: View) -> str:
    signs = {
        Mark.DONE: "{}", Mark.NOW: "[{}]", Mark.AHEAD: "({})", Mark.FAILED: "!{}", Mark.LEFT: "~{}",
    }  # fmt: skip
    return " ".join(signs[stage.mark].format(stage.name) for stage in seen.stages)


def drawn(seen: View, *, details: bool = False) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(picture(seen, NOW, details=details))
    return capture.get()


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        (Phase.CONVERTING, "[converting] (verifying) (loading)"),
        (Phase.VERIFYING, "converting [verifying] (loading)"),
        (Phase.LOADING, "converting verifying [loading]"),
    ],
)
def test_a_candidate_on_its_way_is_shown_before_the_steps(phase: Phase, shown: str) -> None:
    seen = newest(endpoint(candidate=Candidate(version="4", phase=phase)))
    rest = "(shadow) (5 %) (25 %) (50 %) (promoted) (settled)"
    assert way(seen) == f"{shown} {rest}"
    assert (seen.version, seen.against, seen.deadline_seconds(NOW)) == ("4", "3", None)


def test_the_first_version_has_no_steps() -> None:
    candidate = Candidate(version="1", phase=Phase.VERIFYING)
    seen = newest(endpoint(routes=(), candidate=candidate))
    assert way(seen) == "converting [verifying] (loading) (serving)"


def test_a_step_is_shown_with_the_time_to_its_deadline_less_pauses() -> None:
    candidate = Candidate(version="4", phase=Phase.CANARY, reason="not yet known: latency", ref=NEW)
    seen = newest(endpoint(candidate=candidate, rollout=rollout(step=2, paused_seconds=600)))
    assert way(seen) == (
        "converting verifying loading shadow 5 % [25 %] (50 %) (promoted) (settled)"
    )
    assert seen.deadline_seconds(NOW) == 86400 - 3600 + 600
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
    seen = newest(endpoint(rollout=state, candidate=waiting))
    assert way(seen).endswith("50 % [promoted] (settled)")
    assert (seen.bake_seconds(NOW), seen.deadline_seconds(NOW), seen.next_version) == (
        3000,
        None,
        "5",
    )
    assert "Version 5 waits" in drawn(seen)
    assert "no check need pass" in drawn(seen)


@pytest.mark.parametrize(
    ("outcome", "state", "shown"),
    [
        (Outcome.SETTLED, {"step": 3, "promoted_at": NOW}, "50 % promoted settled"),
        (Outcome.ROLLED_BACK, {"step": 1}, "shadow !5 % (25 %) (50 %) (promoted) (settled)"),
        (Outcome.REVERTED, {"step": 3, "promoted_at": NOW}, "50 % !promoted (settled)"),
        (Outcome.SUPERSEDED, {"step": 0}, "~shadow (5 %) (25 %) (50 %) (promoted) (settled)"),
    ],
)
def test_an_ended_rollout_is_shown_where_it_ended(
    outcome: Outcome, state: dict[str, object], shown: str
) -> None:
    last = rollout(**state, ended_at=NOW, outcome=outcome, reason="so it was")
    candidate = Candidate(version="4", phase=Phase.ROLLED_BACK)
    for status in ({"last_rollout": last}, {"last_rollout": last, "candidate": candidate}):
        seen = newest(endpoint(**status))
        assert way(seen).endswith(shown)
        assert (seen.phase, seen.reason) == (outcome.value, "so it was")


def test_a_rejected_version_is_shown_where_it_stuck() -> None:
    history = tuple(
        Transition(at=1, version="4", phase=phase) for phase in (Phase.CONVERTING, Phase.VERIFYING)
    )
    candidate = Candidate(version="4", phase=Phase.REJECTED, reason="parity 0.4")
    seen = newest(endpoint(candidate=candidate, history=history))
    assert way(seen).startswith("converting !verifying (loading)")


def test_steps_that_were_edited_away_are_no_error() -> None:
    assert "[50 %]" in way(newest(endpoint(rollout=rollout(step=15))))
    ended = rollout(step=15, ended_at=NOW, outcome=Outcome.ROLLED_BACK)
    assert "!50 %" in way(newest(endpoint(last_rollout=ended)))


def test_an_endpoint_without_any_version_is_no_error() -> None:
    assert "no version yet" in drawn(newest(endpoint(routes=())))


def test_each_check_is_drawn_with_its_verdict_sentence_and_need() -> None:
    shown = drawn(newest(endpoint(rollout=rollout(step=1))), details=True)
    assert "weights: stable version 3 100 %" in shown
    assert "errors 1 of 400" in shown
    assert shown.count("1,200 more") == 1
    assert "fail (reports only)\n    PSI 0.4 [beyond]" in shown


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
    assert about(seconds) == text
