"""Counters stand at what the merged windows hold, and no label has more values than its bound."""

from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_batches import batches_of, record_of

from contracts.endpoint import Arm
from contracts.events import StatisticSpec
from contracts.metrics import OTHER
from contracts.windows import OwnCounts, WindowAggregate
from measures.increments import Growth, growth
from measures.merging import add, merge
from stats.evaluation import totals
from stats.evaluation.totals import KNOWN_STATUSES, ArmKey, SeriesLimits, TrafficTotals


def growth_of(
    *aggregates: WindowAggregate, refusals: dict[str, dict[str, int]] | None = None
) -> Growth:
    return Growth(10, aggregates, refusals or {}, 0, 0, 0)


def aggregate_of(labels: dict[str, int]) -> WindowAggregate:
    scores = {label: {19: count} for label, count in labels.items()}
    return WindowAggregate("e", "1", "p", Arm.STABLE, 0, labels=labels, label_scores=scores)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), first=st.integers(1, 5), more=st.integers(1, 5))
def test_increments_add_up_to_the_aggregates_of_the_newest_record(
    seed: int, first: int, more: int
) -> None:
    batches = batches_of(seed, first + more, events=4)
    old, new = record_of(batches[:first]), record_of(batches)
    counted = TrafficTotals()
    counted.add(growth(None, old), 1.0)
    counted.add(growth(old, new), 2.0)
    wanted: dict[ArmKey, WindowAggregate] = {}
    for aggregate in new.aggregates:
        key = ArmKey(aggregate.endpoint, aggregate.version, aggregate.arm)
        if key in wanted:
            add(wanted[key], aggregate)
        else:
            wanted[key] = merge([aggregate])
    assert counted.arms.keys() == wanted.keys()
    for key, aggregate in wanted.items():
        arm = counted.arms[key]
        assert arm.statuses == {str(status): count for status, count in aggregate.statuses.items()}
        for name in ("answered", "repeated", "texts", "truncated", "labels", "histograms", "sums",
                     "latency", "latency_sums", "label_scores", "label_score_sums", "pair_distance",
                     "pair_distance_sum"):  # fmt: skip
            assert getattr(arm, name) == getattr(aggregate, name), name
        told = sum(sum(truths.values()) for truths in aggregate.feedback.values())
        assert arm.right + arm.wrong == told
        assert arm.pairs_equal + arm.pairs_differing == aggregate.evidence.pairs
        assert arm.undeclared == sum(aggregate.undeclared.values())
        assert sorted(arm.own, key=str) == sorted(aggregate.own, key=str)
    assert counted.refusals == new.refusals


def test_a_declared_arm_stands_at_zero_with_its_labels_and_statuses() -> None:
    counted = TrafficTotals()
    counted.declare(ArmKey("e", "1", Arm.STABLE), ("bad", "good"), 5.0)
    arm = counted.arms[ArmKey("e", "1", Arm.STABLE)]
    assert arm.labels == {"bad": 0, "good": 0}
    assert arm.statuses == dict.fromkeys(KNOWN_STATUSES, 0)
    assert arm.touched == 5.0


def test_labels_past_the_bound_are_summed_under_other_and_counted() -> None:
    counted = TrafficTotals()
    names = [f"label {number}" for number in range(totals.MOST_LABELS + 3)]
    for _ in range(2):
        counted.add(growth_of(aggregate_of(dict.fromkeys(names, 2))), 1.0)
    arm = counted.arms[ArmKey("e", "1", Arm.STABLE)]
    assert len(arm.labels) == totals.MOST_LABELS + 1
    assert arm.labels[OTHER] == 12
    assert arm.label_scores[OTHER] == {19: 12}
    assert counted.overflow["labels"] == 12
    assert sum(arm.labels.values()) == 4 * len(names)


def test_arms_past_the_bound_are_counted_and_not_held() -> None:
    counted = TrafficTotals()
    for number in range(totals.SeriesLimits().arms + 5):
        aggregate = WindowAggregate("e", str(number), "p", Arm.STABLE, 0, statuses={200: 2})
        counted.add(growth_of(aggregate), 1.0)
    assert len(counted.arms) == totals.SeriesLimits().arms
    assert counted.overflow["arms"] == 10


def test_an_arm_that_is_gone_makes_room_for_a_new_one() -> None:
    counted = TrafficTotals(SeriesLimits(arms=2), keep_seconds=600.0)
    for number in range(50):  # versions of one endpoint, one after the other
        at = 1000.0 * number
        counted.declare(ArmKey("e", "0", Arm.CONTROL), (), at)
        aggregate = WindowAggregate("e", str(number), "p", Arm.STABLE, 0, statuses={200: 2})
        counted.add(growth_of(aggregate), at)
    assert counted.arms.keys() == {ArmKey("e", "0", Arm.CONTROL), ArmKey("e", "49", Arm.STABLE)}
    assert counted.overflow["arms"] == 0
    assert counted.forgotten == 49


def test_an_arm_that_is_still_shown_makes_no_room() -> None:
    counted = TrafficTotals(SeriesLimits(arms=1), keep_seconds=600.0)
    for version, at in (("1", 0.0), ("2", 600.0)):
        aggregate = WindowAggregate("e", version, "p", Arm.STABLE, 0, statuses={200: 2})
        counted.add(growth_of(aggregate), at)
    assert counted.arms.keys() == {ArmKey("e", "1", Arm.STABLE)}
    assert counted.overflow["arms"] == 2


def test_a_deleted_endpoint_makes_room_for_another_ones_refusals() -> None:
    counted = TrafficTotals(SeriesLimits(arms=2), keep_seconds=600.0)
    for number in range(50):
        counted.declare_endpoint("stays", ("503 overloaded",), 1000.0 * number)
        refused = {f"e{number}": {"503 overloaded": 1}}
        counted.add(growth_of(refusals=refused), 1000.0 * number)
    assert counted.refusals.keys() == {"stays", "e49"}
    assert counted.overflow["endpoints"] == 0


def test_every_endpoint_of_a_shard_has_refusals_of_its_own() -> None:
    counted = TrafficTotals(SeriesLimits(arms=256))
    for number in range(128):  # of 1,000 endpoints on 8 shards
        counted.declare_endpoint(f"e{number}", ("503 overloaded",), 1.0)
    counted.add(growth_of(refusals={"e127": {"503 overloaded": 1}}), 1.0)
    assert counted.refusals["e127"] == {"503 overloaded": 1}
    assert OTHER not in counted.refusals


def test_reasons_and_endpoints_of_refusals_are_bounded() -> None:
    counted = TrafficTotals()
    reasons = {f"503 reason {number}": 1 for number in range(totals.MOST_REASONS + 2)}
    counted.add(growth_of(refusals={"e": reasons}), 1.0)
    assert counted.refusals["e"][OTHER] == 2
    for number in range(counted.most.endpoints + 4):
        counted.add(growth_of(refusals={f"e{number}": {"503 overloaded": 1}}), 1.0)
    assert len(counted.refusals) == counted.most.endpoints + 1
    assert counted.refusals[OTHER] == {"503 overloaded": 5}
    assert counted.overflow["endpoints"] == 5


def test_statistics_of_users_past_the_bound_are_counted_and_not_held() -> None:
    counted, aggregate = TrafficTotals(), aggregate_of({})
    aggregate.own = [
        OwnCounts(StatisticSpec(f"s{number}", "category", values=["a"]), {"a": 2}, unfit=1)
        for number in range(totals.MOST_OWN + 3)
    ]
    for _ in range(2):
        counted.add(growth_of(aggregate), 1.0)
    (arm,) = counted.arms.values()
    assert len(arm.own) == totals.MOST_OWN
    assert {own.counts["a"] for own in arm.own} == {4}
    assert counted.overflow["own"] == 2 * 3 * (2 + 1)
