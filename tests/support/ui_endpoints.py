"""Made-up endpoint objects for the page: serving, in the middle of a rollout, rolled back."""

import numpy as np
from ui_board import WINDOW, ref

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
from contracts.rollout import (
    CheckResult,
    Outcome,
    RolloutState,
    SeriesPoint,
    Verdict,
)
from contracts.tasks import Task


def endpoint(name: str, status: EndpointStatus, model: str = "sentiment") -> ModelEndpoint:
    """An endpoint with the default spec."""
    return ModelEndpoint(
        metadata=Metadata(name=name, revision="7"), spec=EndpointSpec(model=model), status=status
    )


def serving(version: str, now: float) -> EndpointStatus:
    """A first version that serves."""
    lines = [
        Transition(at=now - 5000 + 20 * i, version=version, phase=phase)
        for i, phase in enumerate(
            (Phase.CONVERTING, Phase.VERIFYING, Phase.LOADING, Phase.LOADED, Phase.SERVING)
        )
    ]
    return EndpointStatus(
        generation=3,
        task=Task.TEXT_CLASSIFICATION,
        routes=(Route(arm=Arm.STABLE, ref=ref(version), weight=100),),
        packages=(ref(version),),
        history=tuple(lines),
    )


def checks(verdict: Verdict, *, error: Verdict | None = None) -> tuple[CheckResult, ...]:
    """All checks with one word; ``error`` for the error rate."""
    missing = verdict is Verdict.UNKNOWN
    wait = ", about 410 more of the candidate's requests are needed" if missing else ""
    return (
        CheckResult(
            name="errorRate",
            verdict=error or verdict,
            reason=f"errors 21 of 402 (5.2 %) against 6 of 5,210 (0.1 %): evidence 2,820{wait}",
            needs=410 if missing else None,
        ),
        CheckResult(
            name="latency",
            verdict=verdict,
            reason=f"slower than stable's 95th percentile 22 of 402 (5.5 %) against 5.0 %{wait}",
        ),
        CheckResult(name="classShare", verdict=verdict, reason="label 'negative' 41.2 % of 42.0 %"),
        CheckResult(
            name="outputShift", verdict=Verdict.PASS, reason="distance 0.021 between the arms"
        ),
        CheckResult(
            name="drift",
            verdict=Verdict.UNKNOWN,
            reason="402 texts of the candidate, 500 and both reference profiles are needed",
            gate=False,
            required=False,
        ),
    )


def on_its_way(now: float, stable: str = "3", candidate: str = "4") -> EndpointStatus:
    """A rollout at 25 %."""
    base = serving(stable, now)
    began = now - 780
    steps: tuple[tuple[Phase, float, dict[str, float], str], ...] = (
        (Phase.CONVERTING, -150, {}, ""),
        (Phase.VERIFYING, -90, {}, ""),
        (Phase.LOADING, -40, {}, ""),
        (Phase.LOADED, -5, {}, ""),
        (Phase.SHADOW, 0, {"percent": 100.0}, "every check that can be made in shadow has passed"),
        (Phase.CANARY, 240, {"percent": 5.0}, "all checks pass"),
        (Phase.CANARY, 480, {"percent": 25.0}, "all checks pass"),
    )
    lines = tuple(
        Transition(at=began + at, version=candidate, phase=phase, reason=why, figures=figures)
        for phase, at, figures, why in steps
    )
    state = RolloutState(
        id="v4-24f2c7e4b413",
        candidate=ref(candidate),
        stable=ref(stable),
        step=2,
        began=began,
        step_began=began + 480,
        checks=checks(Verdict.UNKNOWN),
        series=points(began, now - 15),
    )
    return base.model_copy(
        update={
            "routes": (
                Route(arm=Arm.CANARY, ref=ref(candidate), weight=25),
                Route(arm=Arm.STABLE, ref=ref(stable), weight=75),
            ),
            "packages": (ref(stable), ref(candidate)),
            "candidate": Candidate(
                version=candidate,
                phase=Phase.CANARY,
                reason="not yet known: errorRate, latency, classShare",
                ref=ref(candidate),
            ),
            "rollout": state,
            "history": (*base.history, *lines),
        }
    )


def rolled_back(now: float, stable: str = "3", candidate: str = "4") -> EndpointStatus:
    """A rollout that ended at 25 %, two minutes ago."""
    status = on_its_way(now, stable, candidate)
    assert status.rollout is not None
    reason = "errorRate: errors 21 of 402 (5.2 %) against 6 of 5,210 (0.1 %), evidence 2,820"
    ended = status.rollout.model_copy(
        update={
            "checks": checks(Verdict.UNKNOWN, error=Verdict.FAIL),
            "ended_at": now - 120,
            "outcome": Outcome.ROLLED_BACK,
            "reason": reason,
            "series": points(status.rollout.began, now - 120, broken=True),
        }
    )
    line = Transition(at=now - 120, version=candidate, phase=Phase.ROLLED_BACK, reason=reason)
    return status.model_copy(
        update={
            "routes": (Route(arm=Arm.STABLE, ref=ref(stable), weight=100),),
            "candidate": Candidate(
                version=candidate, phase=Phase.ROLLED_BACK, reason=reason, ref=ref(candidate)
            ),
            "rollout": None,
            "last_rollout": ended,
            "history": (*status.history, line),
        }
    )


def points(began: float, until: float, *, broken: bool = False) -> tuple[SeriesPoint, ...]:
    """Both arms as the checks saw them."""
    rng = np.random.default_rng(5)
    made = []
    for start in np.arange(began // WINDOW * WINDOW, until, WINDOW):
        share = 1.0 if start < began + 240 else 0.05 if start < began + 480 else 0.25
        mine, theirs = int(400 * share), int(400 * (1 - share if share < 1 else 1))
        failing = 0.05 if broken and start > began + 480 else 0.002
        made.append(
            SeriesPoint(
                start=float(start),
                seconds=WINDOW,
                candidate_requests=mine,
                candidate_errors=int(rng.binomial(mine, failing)),
                candidate_slow=int(rng.binomial(mine, 0.05)),
                stable_requests=theirs,
                stable_errors=int(rng.binomial(theirs, 0.002)),
                stable_slow=int(rng.binomial(theirs, 0.05)),
            )
        )
    return tuple(made)
