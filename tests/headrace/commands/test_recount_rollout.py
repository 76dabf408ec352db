"""What was recorded of a rollout and what was derived again are told beside each other."""

import json
from dataclasses import replace

import pytest

from contracts.endpoint import EndpointSpec, Metadata, ModelEndpoint
from contracts.rollout import Verdict
from headrace.commands.recount_rollout import rollout_of, tell
from headrace.errors import RefusedError
from stats.recounting.verdict import CheckPair, StepRecount, VerdictRecount

FOUND = VerdictRecount(
    version="2",
    outcome="RolledBack",
    events=4321,
    steps=(
        StepRecount("shadow", 1_000_000.0, 12, passed=True, reason="passed: errorRate"),
        StepRecount("5 %", 1_000_200.0, 3, passed=False, reason="errorRate: 9 of 40"),
    ),
    checks=(
        CheckPair("errorRate", Verdict.FAIL, Verdict.FAIL, 40.0, 40.0),
        CheckPair("latency", Verdict.UNKNOWN, Verdict.UNKNOWN, 31.0, 30.0),
    ),
    failed_at=1_000_230.0,
    looked_through=1_000_230.0,
)


def test_both_are_told_with_their_requests(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tone", FOUND, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "tone, version 2 (RolledBack): 4321 attempts were counted again" in said
    assert "latency unknown unknown 31 30" in said
    assert "it failed with the window that ended at 1970-01-12 13:50:30" in said


def test_another_verdict_is_told_and_ends_in_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    other = CheckPair("errorRate", Verdict.FAIL, Verdict.UNKNOWN, 40.0, 40.0)
    with pytest.raises(RefusedError, match="The checks that fail on the raw events"):
        tell("tone", replace(FOUND, checks=(other,), failed_at=None), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["agrees"] is False
    assert told["checks"][0]["recorded"] == "fail"
    assert told["checks"][0]["derived"] == "unknown"


def test_what_can_not_be_derived_is_no_agreement() -> None:
    with pytest.raises(RefusedError, match="can't be derived whole: messages are gone"):
        tell("tone", replace(FOUND, missing=("messages are gone",)), as_json=False)


def test_an_endpoint_without_a_rollout_is_refused() -> None:
    plain = ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m"))
    with pytest.raises(RefusedError, match="tone has had no rollout yet"):
        rollout_of(plain)
