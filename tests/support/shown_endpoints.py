"""Endpoints as they look in use, for what shows them; sentences are those of real rollouts."""

from rollout_walk import SPEC

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Rejection,
    Route,
    Transition,
)
from contracts.model import ModelRef
from contracts.rollout import CheckResult, CommandOutcome, RolloutState, Verb, Verdict

NOW = 1_795_000_000.0  # 2026-11-18 11:06:40 UTC

COLLAPSED = CheckResult(
    name="classShare",
    verdict=Verdict.FAIL,
    reason="label 'positive' 191 of 192 (99.5 %) against 456 of 800 (57.0 %): more frequent by more"
    " than 2 points, evidence 1e9 against 100 needed",
    figures={
        "candidate_events": 191,
        "candidate_requests": 192,
        "stable_events": 456,
        "stable_requests": 800,
        "evidence_to_fail": 1_234_567_890,
        "needed_to_fail": 100,
        "evidence_to_pass": 0.0132,
        "needed_to_pass": 20,
        "apart_by_callers": 0,
    },
)
SHIFTED = CheckResult(
    name="outputShift",
    verdict=Verdict.FAIL,
    reason="distance 0.486 between the arms' labels, over 192 of the candidate's: more than the 0.2"
    " that is tolerated",
    figures={"distance": 0.486, "tolerated": 0.2, "candidate_requests": 192, "looks": 11},
)
ERRORS = CheckResult(
    name="errorRate",
    verdict=Verdict.PASS,
    reason="errors 1 of 12,371 (0.0 %) against 4 of 37,200 (0.0 %): not worse by more than 1 point"
    " and 1.25 times, evidence 26,671 against 20 needed",
    figures={"candidate_events": 1, "candidate_requests": 12_371, "stable_requests": 37_200},
)
LATENCY = CheckResult(
    name="latency",
    verdict=Verdict.UNKNOWN,
    reason="slower than stable's 95th percentile 611 of 12,370 (4.9 %) against 1,860 of 37,196 (5.0"
    " %): not yet known, about 1,200 more of the candidate's requests are needed",
    figures={"candidate_events": 611, "candidate_requests": 12_370, "stable_requests": 37_196},
    needs=1200,
)
DRIFT = CheckResult(
    name="drift",
    verdict=Verdict.FAIL,
    reason="PSI of tokens per word 0.412 against 0.031: more than 0.1 beyond stable's",
    figures={"psi": 0.412},
    gate=False,
)
OWN = CheckResult(
    name="statistic.share_of_texts_in_capital_letters",
    verdict=Verdict.UNKNOWN,
    reason="no values of share_of_texts_in_capital_letters of both arms in one window yet",
    required=False,
)


def _ref(model: str, version: int) -> ModelRef:
    return ModelRef(model=model, version=str(version), package=f"{version:x}" * 64)


def _why(*checks: CheckResult) -> str:
    return "; ".join(f"{check.name}: {check.reason}" for check in checks)


def _figures(*checks: CheckResult) -> dict[str, float]:
    return {f"{check.name}.{name}": at for check in checks for name, at in check.figures.items()}


def _line(ago: float, version: int, phase: Phase, reason: str = "", **more: object) -> Transition:
    line = {"at": NOW - ago, "version": str(version), "phase": phase, "reason": reason, **more}
    return Transition.model_validate(line)


ONNX = (
    "ONNX Runtime can't load the graph: [ONNXRuntimeError] : 1 : FAIL : Fatal error:"
    " com.example.research:SecretActivation(-1) is not a registered function/op"
)

HISTORY = (
    _line(9000, 1, Phase.CONVERTING, "MLflow's version 1 was registered"),
    _line(8990, 1, Phase.SERVING, "the first version"),
    _line(7000, 2, Phase.CONVERTING),
    _line(6993, 2, Phase.REJECTED, ONNX),
    _line(5000, 3, Phase.CONVERTING),
    _line(4980, 3, Phase.SHADOW, "compared with version 1", figures={"percent": 100}),
    _line(
        4925,
        3,
        Phase.ROLLED_BACK,
        _why(COLLAPSED, SHIFTED),
        figures=_figures(COLLAPSED, SHIFTED, ERRORS),
    ),
    _line(3000, 10, Phase.SHADOW, "compared with version 1", figures={"percent": 100}),
    _line(
        2400,
        10,
        Phase.CANARY,
        "errorRate, latency, classShare and outputShift pass",
        figures={"percent": 25, **_figures(ERRORS, LATENCY)},
    ),
    _line(1200, 10, Phase.CANARY, "paused: a release of the shop is on", by="anna@example.com"),
)
REFUSED = (
    CommandOutcome(
        id="1", verb=Verb.PROMOTE, by="ben", at=NOW - 1100, accepted=False,
        said="version 9 is not the one that is on its way: version 10 is",
    ),
)  # fmt: skip


def sentiment() -> ModelEndpoint:
    """Version 10 has a quarter of the callers; two versions before it were rejected."""
    old, new = _ref("sentiment", 1), _ref("sentiment", 10)
    return ModelEndpoint(
        metadata=Metadata(name="sentiment-classifier"),
        spec=EndpointSpec(model="sentiment", rollout=SPEC),
        status=EndpointStatus(
            routes=(
                Route(arm=Arm.STABLE, ref=old, weight=75),
                Route(arm=Arm.CANARY, ref=new, weight=25),
            ),
            candidate=Candidate(
                version="10", phase=Phase.CANARY, ref=new, reason="not yet known: latency"
            ),
            rollout=RolloutState(
                id="v10", candidate=new, stable=old, began=NOW - 3000, step_began=NOW - 2400,
                step=2, checks=(ERRORS, LATENCY, DRIFT, OWN),
            ),
            rejected=(
                Rejection(version="2", options="", reason=ONNX, at=NOW - 6993),
                Rejection(
                    version="3", options="", reason=_why(COLLAPSED, SHIFTED), at=NOW - 4925
                ),
            ),
            history=HISTORY,
            commands=REFUSED,
        ),
    )  # fmt: skip


def collapsed() -> ModelEndpoint:
    """Version 4 was rolled back in shadow."""
    old, new = _ref("tone", 3), _ref("tone", 4)
    reason = _why(COLLAPSED, SHIFTED)
    return ModelEndpoint(
        metadata=Metadata(name="tone"),
        spec=EndpointSpec(model="tone", rollout=SPEC),
        status=EndpointStatus(
            routes=(Route(arm=Arm.STABLE, ref=old, weight=100),),
            candidate=Candidate(version="4", phase=Phase.ROLLED_BACK, reason=reason),
            last_rollout=RolloutState(
                id="v4", candidate=new, stable=old, began=NOW - 900, step_began=NOW - 900,
                step=0, ended_at=NOW - 600, outcome="RolledBack", reason=reason,
                checks=(ERRORS, COLLAPSED, SHIFTED),
            ),
            rejected=(Rejection(version="4", options="", reason=reason, at=NOW - 600),),
        ),
    )  # fmt: skip


def settled() -> ModelEndpoint:
    """One version for all callers, and nothing on its way; a name as long as names get."""
    return ModelEndpoint(
        metadata=Metadata(name="questions-about-orders-of-the-shop-in-four-languages-by-mail"),
        spec=EndpointSpec(model="questions"),
        status=EndpointStatus(
            routes=(Route(arm=Arm.STABLE, ref=_ref("questions", 12), weight=100),)
        ),
    )
