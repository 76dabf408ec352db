"""Scenarios for the page: endpoint objects, and the board that goes with them."""

from dataclasses import dataclass, replace

import numpy as np
from ui_board import WINDOW, Traffic, board, drift, ref

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
from stats.evaluation.board import (
    Board,
)


def endpoint(name: str, status: EndpointStatus, model: str = "sentiment") -> ModelEndpoint:
    """An endpoint with the default spec."""
    return ModelEndpoint(
        metadata=Metadata(name=name, revision="7"), spec=EndpointSpec(model=model), status=status
    )


def serving(version: str, now: float) -> EndpointStatus:
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


@dataclass(frozen=True)
class World:
    """What a page is made from."""

    endpoints: tuple[ModelEndpoint, ...]
    board: Board


def quiet(now: float) -> World:
    """One endpoint that serves, and nothing happens."""
    return World(
        (endpoint("sentiment", serving("3", now)),),
        board({"sentiment": [Traffic("3", Arm.STABLE)]}, now),
    )


def rolling(now: float) -> World:
    """One endpoint in the middle of a rollout."""
    began = 780
    parts = [
        Traffic("3", Arm.STABLE, rate=36),
        Traffic("4", Arm.SHADOW, begin=began, end=began - 240, slow=0.8),
        Traffic("4", Arm.CANARY, rate=6, begin=began - 240, slow=0.8),
    ]
    return World(
        (endpoint("sentiment", on_its_way(now)),),
        board(
            {"sentiment": parts},
            now,
            drifts={"sentiment": [drift("4", now, calibration=0.4), drift("3", now)]},
        ),
    )


def gone_back(now: float) -> World:
    """One endpoint after a rollback."""
    began = 780
    parts = [
        Traffic("3", Arm.STABLE, rate=36),
        Traffic("4", Arm.SHADOW, begin=began, end=began - 240, slow=0.8),
        Traffic("4", Arm.CANARY, rate=6, begin=began - 240, end=120, errors=0.05, slow=1.4),
    ]
    return World(
        (endpoint("sentiment", rolled_back(now)),),
        board({"sentiment": parts}, now),
    )


def drifted(now: float) -> World:
    """One endpoint whose texts changed six minutes ago."""
    factor = {"tokens": 5.0, "words": 5.2, "tokens_per_word": 9.0, "unk_share": 7.0, "score": 2.2}
    return World(
        (endpoint("sentiment", serving("3", now)),),
        board(
            {"sentiment": [Traffic("3", Arm.STABLE, changed_from=360, own=True)]},
            now,
            drifts={"sentiment": [drift("3", now, factor=factor)]},
        ),
    )


def untouched(now: float) -> World:
    """One endpoint that serves, and nobody ever asked it."""
    return World(
        (endpoint("sentiment", serving("1", now)),),
        Board(now, now - 60, 0.0, connected=True),
    )


def preparing(now: float) -> World:
    """An endpoint whose first version is being converted."""
    candidate = Candidate(version="1", phase=Phase.VERIFYING, reason="compared over 128 texts")
    status = EndpointStatus(
        candidate=candidate,
        history=(Transition(at=now - 40, version="1", phase=Phase.CONVERTING),),
    )
    return World((endpoint("sentiment", status),), Board(now, now - 60, 0.0, connected=True))


def empty(now: float) -> World:
    """Nothing at all, and Kafka away."""
    return World((), Board(now, now - 60, 0.0, connected=False))


def many(now: float, count: int = 12) -> World:
    """Many endpoints in all states."""
    worlds = (rolling(now), quiet(now), gone_back(now), drifted(now), preparing(now))
    endpoints, boards = [], {}
    tasks = ("sentiment", "toxicity-filter", "intent-router", "product-search", "ticket-triage")
    for number in range(count):
        world = worlds[number % len(worlds)]
        name = f"{tasks[number % len(tasks)]}-{number // len(tasks) + 1}"
        source = world.endpoints[0]
        metadata = source.metadata.model_copy(update={"name": name})
        endpoints.append(source.model_copy(update={"metadata": metadata}))
        known = world.board.of("sentiment")
        if known.series:
            boards[name] = replace(
                known, name=name, series=tuple(replace(s, endpoint=name) for s in known.series)
            )
    return World(
        tuple(endpoints), Board(now, now - 1500, now - 8, connected=True, by_endpoint=boards)
    )


def embedding(now: float) -> World:
    """One endpoint that answers with vectors."""
    status = serving("2", now).model_copy(update={"task": Task.TEXT_EMBEDDING})
    return World(
        (endpoint("product-search", status),),
        board({"product-search": [Traffic("2", Arm.STABLE, embedding=True)]}, now),
    )


HOSTILE = "<img src=x onerror=window.__broken=1>\"'</script><b>&amp;\u202e\x00"


def hostile(now: float) -> World:
    """A rollout in which everything that users can name is markup."""
    world = rolling(now)
    source = world.endpoints[0]
    status = source.status
    assert status.rollout is not None
    assert status.candidate is not None
    named = {"reason": HOSTILE, "by": HOSTILE}
    status = status.model_copy(
        update={
            "candidate": status.candidate.model_copy(update={"reason": HOSTILE}),
            "notes": (HOSTILE,),
            "history": tuple(line.model_copy(update=named) for line in status.history),
            "rollout": status.rollout.model_copy(
                update={
                    "checks": tuple(
                        check.model_copy(update={"reason": HOSTILE, "name": HOSTILE})
                        for check in status.rollout.checks
                    )
                }
            ),
        }
    )
    made = source.model_copy(
        update={"status": status, "spec": source.spec.model_copy(update={"model": HOSTILE})}
    )
    labels = {HOSTILE: 0.5, "positive": 0.5}
    known = board(
        {
            "sentiment": [
                Traffic("3", Arm.STABLE, labels=labels),
                Traffic("4", Arm.CANARY, rate=6, labels=labels),
            ]
        },
        now,
    )
    held = known.of("sentiment")
    origins = tuple(
        replace(origin, data_sets=(HOSTILE,), run_id=HOSTILE) for origin in held.origins
    )
    drifts = tuple(
        replace(
            item,
            reference=replace(item.reference, source=HOSTILE),
            statistics=tuple(
                replace(one, statistic=f"own:{HOSTILE}", bins=(HOSTILE,) * len(one.bins))
                for one in item.statistics
            ),
        )
        for item in held.drift
    )
    held = replace(held, origins=origins, drift=drifts, refusals={HOSTILE: 3})
    return World((made,), replace(known, by_endpoint={"sentiment": held}))


WORLDS = {
    "quiet": quiet,
    "rolling": rolling,
    "gone-back": gone_back,
    "drifted": drifted,
    "untouched": untouched,
    "preparing": preparing,
    "empty": empty,
    "many": many,
    "embedding": embedding,
    "hostile": hostile,
}
