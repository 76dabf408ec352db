"""What Prometheus reads is what was counted: every family once, every bucket cumulative."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_batches import batch_of
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from contracts import metrics
from contracts.endpoint import Arm
from contracts.statistics import EDGES, LATENCY_EDGES, LatencyStage, Statistic
from contracts.windows import MICRO, WindowAggregate
from measures.counting import CountingState, CountingStatus
from measures.folding import Fold
from measures.histograms import dense
from measures.increments import Growth
from measures.losses import MessageLosses
from stats.evaluation.board import (
    Accuracy,
    Board,
    DriftReference,
    EndpointBoard,
    Monitor,
    Origin,
    StatisticDrift,
    VersionDrift,
)
from stats.evaluation.exposition import ExpositionSnapshot, RoleHealth, coarsen, families
from stats.evaluation.totals import MOST_ENDPOINTS, ArmKey, TrafficTotals

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Given(Collector):
    def __init__(self, found: Iterable[Family]) -> None:
        self.found = list(found)

    def collect(self) -> Iterable[Family]:
        return self.found


def exposed(totals: TrafficTotals | None = None, board: Board | None = None) -> ExpositionSnapshot:
    held = totals or TrafficTotals()
    return ExpositionSnapshot(
        totals=held,
        arms=tuple(held.arms),
        refusals=held.refusals,
        board=board or Board(),
        health=RoleHealth(lag=3, records=7),
        counting=CountingStatus(CountingState.STALLED, 1_000_000.0, 12),
        false_alarm_seconds=86_400.0,
    )


def read(now: ExpositionSnapshot) -> Samples:
    """Every series; two of the same labels are an error."""
    return samples_of(families(now))


def samples_of(told: Iterable[Family]) -> Samples:
    found: Samples = {}
    for family in told:
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def counted(seed: int = 1, messages: int = 20) -> TrafficTotals:
    rng, fold, totals = random.Random(seed), Fold(10), TrafficTotals()
    for number in range(messages):
        fold.add(batch_of(rng, sequence=number, events=5))
    totals.add(Growth(10, tuple(fold.aggregates()), fold.refusals, 100, 2, 1), 1.0)
    return totals


def test_every_declared_family_is_told_once_with_its_kind_and_labels() -> None:
    found = list(families(exposed(counted(), board())))
    assert sorted(family.name for family in found) == sorted(m.family for m in metrics.EVALUATE)
    kinds = {family.name: family.type for family in found}
    for metric in metrics.EVALUATE:
        assert kinds[metric.family] == metric.kind.value
    declared = {metric.family: set(metric.labels) for metric in metrics.EVALUATE}
    for family in found:
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == declared[family.name]


def test_losses_are_told_by_endpoint_and_reason_within_their_bound() -> None:
    dropped = {f"endpoint-{n:03}": {"buffer_full": 1} for n in range(MOST_ENDPOINTS + 5)}
    now = ExpositionSnapshot(
        TrafficTotals(),
        (),
        {},
        Board(),
        RoleHealth(),
        CountingStatus(),
        1.0,
        lost=MessageLosses(7, dropped, 2),
    )
    samples = read(now)
    assert value(samples, metrics.MESSAGES_MISSING.name) == 7
    assert value(samples, metrics.GATEWAYS_SILENT.name) == 2
    name = metrics.EVENTS_REPORTED_LOST.name
    assert value(samples, name, endpoint="endpoint-000", reason="buffer_full") == 1
    assert value(samples, name, endpoint=metrics.OTHER, reason="buffer_full") == 5


@pytest.mark.slow
def test_it_reads_back_from_prometheus_own_format() -> None:
    now = exposed(counted(messages=3), board())
    registry = CollectorRegistry()
    registry.register(Given(families(now)))
    text = generate_latest(registry).decode()
    assert samples_of(text_string_to_metric_families(text)) == read(now)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_counters_and_sums_are_those_of_the_totals(seed: int) -> None:
    totals = counted(seed, 5)
    samples = read(exposed(totals))
    for key, arm in totals.arms.items():
        slot = {"endpoint": key.endpoint, "version": key.version, "arm": key.arm.value}
        for status, count in arm.statuses.items():
            assert value(samples, metrics.ATTEMPTS.name, **slot, status=status) == count
        for label, count in arm.labels.items():
            assert value(samples, metrics.LABELS.name, **slot, label=label) == count
        assert value(samples, metrics.TEXTS.name, **slot) == arm.texts
        tokens = metrics.TEXT_HISTOGRAMS[Statistic.TOKENS]
        assert value(samples, tokens.count, **slot) == arm.texts
        assert value(samples, tokens.sum, **slot) == arm.sums.get("tokens", 0) / MICRO
        for stage in LatencyStage:
            seen = value(samples, metrics.LATENCY.count, **slot, stage=stage.value)
            assert seen == sum(arm.latency.get(stage, {}).values())
    for endpoint, reasons in totals.refusals.items():
        for told, count in reasons.items():
            status, reason = told.split(" ", 1)
            labels = {"endpoint": endpoint, "status": status, "reason": reason}
            assert value(samples, metrics.REFUSALS.name, **labels) == count
    assert value(samples, metrics.EVENTS_SKIPPED.name) == 2


@given(st.dictionaries(st.integers(0, len(LATENCY_EDGES.upper)), st.integers(1, 9)))
def test_coarse_buckets_of_latency_count_exactly_what_lies_below_their_edge(
    counts: dict[int, int],
) -> None:
    fine = dense(counts, len(LATENCY_EDGES.upper) + 1).tolist()
    found = coarsen(fine)
    assert len(found) == len(metrics.LATENCY_BUCKETS) + 1
    assert sum(found) == sum(fine)
    for number, edge in enumerate(metrics.LATENCY_BUCKETS):
        at = LATENCY_EDGES.upper.index(edge)
        assert sum(found[: number + 1]) == sum(fine[: at + 1])


def test_buckets_are_cumulative_and_end_with_the_count() -> None:
    totals = TrafficTotals()
    aggregate = WindowAggregate(
        "e", "1", "p", Arm.STABLE, 0, histograms={"tokens": {2: 5, 20: 1, 21: 2}}
    )
    totals.add(Growth(10, (aggregate,), {}, 0, 0, 0), 1.0)
    samples = read(exposed(totals))
    slot = {"endpoint": "e", "version": "1", "arm": "stable"}
    name = metrics.TEXT_HISTOGRAMS[Statistic.TOKENS].bucket
    upper = [f"{edge:g}" for edge in EDGES[Statistic.TOKENS].upper]
    seen = [value(samples, name, **slot, le=edge) for edge in [*upper, "+Inf"]]
    assert seen == [0, 0, *[5] * 18, 6, 8]


def test_a_declared_arm_starts_at_zero_in_every_family_of_a_classifier() -> None:
    totals = TrafficTotals()
    totals.declare(ArmKey("e", "1", Arm.STABLE), ("bad", "good"), 1.0)
    totals.declare_endpoint("e", ("503 overloaded",), 1.0)
    samples = read(exposed(totals))
    slot = {"endpoint": "e", "version": "1", "arm": "stable"}
    for labels in ({"status": "200"}, {"status": "503"}):
        assert value(samples, metrics.ATTEMPTS.name, **slot, **labels) == 0
    for outcome in ("right", "wrong"):
        assert value(samples, metrics.FEEDBACK.name, **slot, outcome=outcome) == 0
    assert value(samples, metrics.LABELS.name, **slot, label="good") == 0
    assert value(samples, metrics.SCORES.bucket, **slot, label="bad", le="1") == 0
    refused = {"endpoint": "e", "status": "503", "reason": "overloaded"}
    assert value(samples, metrics.REFUSALS.name, **refused) == 0
    assert not [key for key in samples if key[0] == metrics.PAIRS.name]  # no shadow


def test_arms_that_are_not_shown_have_no_series() -> None:
    totals = counted()
    hidden = ExpositionSnapshot(totals, (), {}, Board(), RoleHealth(), CountingStatus(), 1.0)
    assert not [key for key in read(hidden) if ("arm", "stable") in key[1]]


def board() -> Board:
    monitors = (Monitor(1.0, 0.25, 60.0, 30.0, calibrated=True), Monitor(0.2, 0.1, 10.0, 30.0))
    drift = VersionDrift(
        "1", "a" * 64, DriftReference("profile", 500, "the run's texts"), 0.5, 9.0, 1000,
        (StatisticDrift("tokens", monitors, 2), StatisticDrift("own:length", (), 0)),
    )  # fmt: skip
    accuracy = Accuracy("1", Arm.STABLE, 0.9, 100, None, 0)
    origin = Origin("1", "a" * 64, "m", "run", ("reviews",), "text-classification", "fp32")
    one = EndpointBoard("e", drift=(drift,), accuracy=(accuracy,), origins=(origin,))
    return Board(10.0, 5.0, 9.0, connected=True, by_endpoint={"e": one})


def test_drift_is_told_with_its_threshold_its_calibration_and_its_alarm() -> None:
    samples = read(exposed(board=board()))
    labels = {"endpoint": "e", "version": "1", "statistic": "tokens"}
    assert value(samples, metrics.DRIFT_PSI.name, **labels, **{"lambda": "1"}) == 0.25
    assert value(samples, metrics.DRIFT_SIGNIFICANCE.name, **labels, **{"lambda": "1"}) == 2
    for metric, wanted in (
        (metrics.DRIFT_LEVEL, 2),
        (metrics.DRIFT_ALARM, 1),
        (metrics.DRIFT_CALIBRATED, 1),
    ):
        assert value(samples, metric.name, **labels) == wanted
    version = {"endpoint": "e", "version": "1"}
    assert value(samples, metrics.DRIFT_REFERENCE.name, **version, kind="profile") == 1
    assert value(samples, metrics.DRIFT_CALIBRATION.name, **version) == 0.5
    with pytest.raises(KeyError):  # nothing is known of it yet
        value(samples, metrics.DRIFT_LEVEL.name, **{**labels, "statistic": "own:length"})


def test_accuracy_and_origin_are_told_as_far_as_they_are_known() -> None:
    samples = read(exposed(board=board()))
    arm = {"endpoint": "e", "version": "1", "arm": "stable"}
    assert value(samples, metrics.ACCURACY_ESTIMATED.name, **arm) == 0.9
    with pytest.raises(KeyError):
        value(samples, metrics.ACCURACY_MEASURED.name, **arm)
    (info,) = (dict(key[1]) for key in samples if key[0] == metrics.VERSION_INFO.name)
    assert (info["run_id"], info["data_set"], info["package"]) == ("run", "reviews", "a" * 12)
    assert value(samples, metrics.EVALUATE_LAG.name) == 3


def test_a_standstill_of_counting_is_told_with_its_beginning() -> None:
    samples = read(exposed())
    assert value(samples, metrics.UNCOUNTED_MESSAGES.name) == 12
    assert value(samples, metrics.COUNTED_THROUGH.name) == 1_000_000.0
    assert value(samples, metrics.COUNTING_STATE.name, state="stalled") == 1
    assert value(samples, metrics.COUNTING_STATE.name, state="counted") == 0


def test_bounds_are_told_before_they_are_reached() -> None:
    totals = TrafficTotals()
    for number in range(64):
        totals.declare(ArmKey(f"e{number}", "1", Arm.STABLE), (), 1.0)
    found = read(exposed(totals))
    assert found["headrace_evaluate_limit_used_ratio", (("what", "arms"),)] == 0.25
    assert found["headrace_evaluate_limit_used_ratio", (("what", "versions"),)] == 0.0
