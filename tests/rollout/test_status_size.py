"""The largest status that a specification allows is stored, and keeps what verdicts rest on."""

import numpy as np
import pytest

from contracts import events
from contracts.endpoint import Arm, EndpointStatus, Phase, Route, Transition
from contracts.model import ModelRef
from contracts.rollout import (
    SERIES_LIMIT,
    AgreementCheck,
    ArmShareCheck,
    Checks,
    HungUpCheck,
    Outcome,
    QualityCheck,
    RolloutSpec,
    RolloutState,
    ScoreAgreementCheck,
    SeriesPoint,
    StatisticCheck,
    WeightStep,
)
from contracts.windows import (
    CALLER_BUCKETS,
    CALLER_STRIDE,
    EndpointWindow,
    EvidenceCounts,
    OwnCounts,
    WindowAggregate,
)
from rollout import status_size
from rollout.judge import WindowsJudge

OLD = ModelRef(model="m" * 200, version="1", package="a" * 64)
NEW = ModelRef(model="m" * 200, version="2", package="b" * 64)
NAMES = tuple(f"s{number:02d}" + "x" * 60 for number in range(50))
LABELS = {f"label-{number:03d}-" + "y" * 60: 5 for number in range(300)}
CHECKS = Checks(
    agreement=AgreementCheck(),
    score_agreement=ScoreAgreementCheck(),
    quality=QualityCheck(),
    hung_up=HungUpCheck(),
    arm_share=ArmShareCheck(),
    statistics=tuple(StatisticCheck(name=name) for name in NAMES),
)
SPEC = RolloutSpec(checks=CHECKS, steps=(WeightStep(weight=5), WeightStep(weight=50)))
OWN = [
    OwnCounts(
        spec=events.StatisticSpec(
            name=name, kind="histogram", edges=[float(edge) for edge in range(200)]
        ),
        counts={str(bucket): 5 + bucket % 7 for bucket in range(201)},
        sum_micro=10**12,
    )
    for name in NAMES
]


def aggregate(ref: ModelRef, arm: Arm, start: int) -> WindowAggregate:
    buckets = dict.fromkeys(range(270), 3)
    groups = dict.fromkeys(range(32), 30)
    attempts = np.random.default_rng(start).integers(1, 2000, CALLER_BUCKETS).tolist()
    evidence = EvidenceCounts(
        requests=100_000,
        errors=37,
        labels=LABELS,
        latency={16 << power: buckets for power in range(10)},
        group_requests=groups,
        group_labels=dict.fromkeys(LABELS, groups),
        caller_latency={16: {at * CALLER_STRIDE + n % 270: n for at, n in enumerate(attempts)}},
        caller_requests=dict(enumerate(attempts)),
        caller_errors={at: n % 5 for at, n in enumerate(attempts) if n % 5},
        feedback=1000,
        feedback_wrong=33,
    )
    return WindowAggregate(
        "e", ref.version, ref.package, arm, start, own=OWN, labels=LABELS, evidence=evidence
    )


@pytest.fixture(scope="module")
def state() -> RolloutState:
    """A rollout with all that a specification can ask for, and a full plot."""
    begun = RolloutState(id="x", candidate=NEW, stable=OLD, began=0, step_began=0)
    past = [EndpointWindow("e", n * 10, 10, [aggregate(OLD, Arm.STABLE, n * 10)]) for n in range(3)]
    seen = [
        EndpointWindow(
            "e",
            n * 10,
            10,
            [aggregate(OLD, Arm.STABLE, n * 10), aggregate(NEW, Arm.CANARY, n * 10)],
        )
        for n in range(3, 6)
    ]
    judged = WindowsJudge().look(SPEC, WindowsJudge().begin(SPEC, begun, past), seen)
    point = SeriesPoint(
        start=1.7e9,
        seconds=10,
        candidate_requests=10**9,
        candidate_errors=10**8,
        candidate_slow=10**8,
        stable_requests=10**9,
        stable_errors=10**8,
        stable_slow=10**8,
    )
    return judged.model_copy(update={"series": (point,) * SERIES_LIMIT})


@pytest.fixture(scope="module")
def largest(state: RolloutState) -> EndpointStatus:
    """Two such rollouts, and a history of nothing but the likes of them."""
    line = Transition(
        at=1.7e9, version="2", phase=Phase.CANARY, reason="r" * 2000, figures=state.figures
    )
    return EndpointStatus(
        routes=(
            Route(arm=Arm.STABLE, ref=OLD, weight=95),
            Route(arm=Arm.CANARY, ref=NEW, weight=5),
        ),
        packages=(OLD, NEW),
        rollout=state,
        last_rollout=state.model_copy(update={"ended_at": 1.0, "outcome": Outcome.SETTLED}),
        history=(line,) * 50,
    )


def test_the_schemas_largest_status_is_more_than_a_cluster_stores_and_is_made_to_fit(
    largest: EndpointStatus,
) -> None:
    assert status_size.size(largest) > 1_500_000
    found = status_size.fit_status(largest)
    assert found is not None
    assert status_size.size(found) <= status_size.MOST_BYTES
    before, after = largest.rollout, found.rollout
    assert before is not None
    assert after is not None
    assert after.evidence == before.evidence
    assert after.checks == before.checks
    assert found.routes == largest.routes
    assert [line.reason for line in found.history] == [line.reason for line in largest.history]


def test_old_figures_go_before_the_last_rollouts_evidence_and_that_before_the_plot(
    largest: EndpointStatus,
) -> None:
    whole = status_size.size(largest)
    found = status_size.fit_status(largest, whole - 1)
    assert found is not None
    assert [bool(line.figures) for line in found.history] == [False] * 40 + [True] * 10
    assert found.last_rollout == largest.last_rollout
    less = status_size.fit_status(largest, status_size.size(found) - 1)
    assert less is not None
    assert less.last_rollout is not None
    assert less.last_rollout.evidence == {}
    assert less.last_rollout.series
    assert less.rollout == largest.rollout


def test_a_status_that_fits_is_left_as_it_is(largest: EndpointStatus) -> None:
    assert status_size.fit_status(largest, status_size.size(largest)) is largest


@pytest.mark.parametrize(
    ("promoted_at", "outcome"), [(None, Outcome.EXPIRED), (5.0, Outcome.REVERTED)]
)
def test_a_rollout_whose_evidence_has_no_room_ends_with_all_callers_on_stable(
    largest: EndpointStatus, promoted_at: float | None, outcome: Outcome
) -> None:
    assert status_size.fit_status(largest, 1000) is None
    rolls = largest.rollout
    assert rolls is not None
    rolls = rolls.model_copy(update={"promoted_at": promoted_at})
    found = status_size.withdraw(
        largest.model_copy(update={"rollout": rolls}), 9.0, "it is too large"
    )
    assert found.routes == (Route.all_callers(OLD),)
    assert found.rollout is None
    assert found.last_rollout is not None
    assert found.last_rollout.outcome is outcome
    assert found.history[-1].reason == "it is too large"
    assert [item.version for item in found.rejected] == ["2"]
    assert status_size.size(found) < 200_000
