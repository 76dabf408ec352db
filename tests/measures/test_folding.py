"""Folding against a count that shares no line with it."""

import random
from bisect import bisect_left
from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from prediction_batches import DECLARED, batch_of, event_of

from contracts.endpoint import Arm
from contracts.events import (
    NO_ENTITY,
    EventBatch,
    Feedback,
    Latency,
    Pairing,
    PredictionEvent,
    Refusals,
    StatisticSpec,
    TextRecord,
)
from contracts.statistics import EDGES, LATENCY_EDGES, Stage, Statistic
from contracts.windows import (
    AGE_STRIDE,
    CALLER_BUCKETS,
    CALLER_CAP,
    CALLER_ENTRIES,
    CALLER_GROUPS,
    CALLER_STRIDE,
    LABEL_AGES,
    MICRO,
    WindowAggregate,
    age_class,
)
from measures.folding import Fold, length_bucket
from measures.observation import histogram, observed


def folded(*batches: EventBatch, seconds: int = 10) -> list[WindowAggregate]:
    fold = Fold(seconds)
    for batch in batches:
        fold.add(batch)
    return fold.aggregates()


def only(*batches: EventBatch) -> WindowAggregate:
    (aggregate,) = folded(*batches)
    return aggregate


def event(**changes: object) -> PredictionEvent:
    fields: dict[str, object] = {
        "request_id": "r",
        "time": 105.0,
        "endpoint": "sentiment",
        "version": "1",
        "package": "a" * 64,
        "arm": Arm.STABLE,
        "status": 200,
        "answered": True,
        "latency": Latency(0.001, 0.002, 0.003, 0.01, 0.02),
        "texts": [TextRecord(9, 6, 1, truncated=False, label="positive", score=0.9)],
        "caller": 1,
    }
    return PredictionEvent(**{**fields, **changes})  # type: ignore[arg-type]  # any of the fields


def batch(*events: PredictionEvent) -> EventBatch:
    return EventBatch("g", 0, list(events))


def key_of(event: PredictionEvent) -> tuple[str, str, Arm, int]:
    return event.endpoint, event.package, event.arm, int(event.time) // 10 * 10


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), messages=st.integers(1, 8))
def test_every_count_is_that_of_a_naive_count(seed: int, messages: int) -> None:
    rng = random.Random(seed)
    batches = [batch_of(rng, events=12) for _ in range(messages)]
    events = [event for batch in batches for event in batch.events]
    for aggregate in folded(*batches):
        mine = [
            e
            for e in events
            if key_of(e) == (aggregate.endpoint, aggregate.package, aggregate.arm, aggregate.start)
        ]
        texts = [text for e in mine for text in e.texts]
        assert aggregate.statuses == Counter(e.status for e in mine)
        assert aggregate.answered == sum(e.answered for e in mine)
        assert aggregate.repeated == sum(e.repeated for e in mine)
        assert (aggregate.texts, aggregate.truncated) == (
            len(texts),
            sum(t.truncated for t in texts),
        )
        told = [(t.label, t.score) for t in texts if t.label is not None]
        told += [entity for t in texts for entity in t.entities or ()]
        assert aggregate.labels == Counter(label for label, _ in told)
        assert aggregate.topics == Counter(bucket for e in mine for bucket in e.topics)
        assert aggregate.vectors == Counter(cell for e in mine for cell in e.vectors)
        for statistic, values in observed(texts).items():
            dense = histogram(EDGES[statistic], values)
            counts = aggregate.histograms.get(statistic, {})
            assert counts == {bucket: n for bucket, n in enumerate(dense) if n}
            assert aggregate.sums.get(statistic, 0) == sum(round(value * 1e6) for value in values)
        for label, scores in aggregate.label_scores.items():
            found = [score for one, score in told if one == label]
            assert sum(scores.values()) == len(found) == aggregate.labels[label]
            wanted = sum(round(score * 1e6) for score in found if score is not None)
            assert aggregate.label_score_sums[label] == wanted
        distances = [d for e in mine if e.pairing for d in e.pairing.distance]
        assert sum(aggregate.pair_distance.values()) == len(distances)
        assert aggregate.pair_distance_sum == sum(round(distance * 1e6) for distance in distances)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_all_events_feedback_and_refusals_are_in_exactly_one_place(seed: int) -> None:
    rng = random.Random(seed)
    batches = [batch_of(rng, events=9) for _ in range(6)]
    fold = Fold(10)
    for one in batches:
        fold.add(one)
    aggregates = fold.aggregates()
    assert fold.events == sum(len(one.events) for one in batches)
    assert sum(sum(aggregate.statuses.values()) for aggregate in aggregates) == fold.events
    feedback = sum(
        sum(truths.values()) for aggregate in aggregates for truths in aggregate.feedback.values()
    )
    assert feedback == sum(len(one.feedback) for one in batches)
    refused = sum(refusal.count for one in batches for refusal in one.refusals)
    assert sum(fold.refusals.get("topics", {}).values()) == refused
    times = [e.time for one in batches for e in one.events]
    times += [told.time for one in batches for told in one.feedback]
    assert fold.newest == max(times)


def test_a_window_begins_at_a_multiple_of_its_length() -> None:
    aggregates = folded(batch(event(time=109.999), event(time=110.0), event(time=119.0)))
    assert [(aggregate.start, aggregate.statuses[200]) for aggregate in aggregates] == [
        (100, 1),
        (110, 2),
    ]


def test_refusals_are_kept_by_status_and_reason() -> None:
    fold = Fold(10)
    fold.add(EventBatch("g", 0, [], [Refusals("a", 503, "overloaded", 2)]))
    fold.add(EventBatch("g", 1, [], [Refusals("a", 503, "overloaded", 3)]))
    fold.add(EventBatch("g", 2, [], [Refusals("a", 429, "rate", 1)]))
    assert fold.refusals == {"a": {"503 overloaded": 5, "429 rate": 1}}


def test_latency_of_a_stage_that_was_not_reached_is_not_counted() -> None:
    aggregate = only(batch(event(latency=Latency(0.001, 0.002, 0.0, 0.0, 0.003), status=503)))
    assert set(aggregate.latency) == {Stage.QUEUE, Stage.TOKENISE, Stage.TOTAL}
    assert aggregate.latency_sums == {"queue": 1000, "tokenise": 2000, "total": 3000}


def test_of_one_caller_only_so_many_attempts_are_evidence() -> None:
    many = [event(caller=5, status=500) for _ in range(CALLER_CAP + 30)]
    aggregate = only(batch(*many, event(caller=6)))
    assert (aggregate.evidence.requests, aggregate.evidence.errors) == (CALLER_CAP + 1, CALLER_CAP)
    assert sum(aggregate.statuses.values()) == CALLER_CAP + 31


def test_what_counts_as_evidence_counts_for_its_group_of_callers_and_nobodys_for_none() -> None:
    wrong = event(caller=5, status=500, texts=[])
    events = [event(caller=5), event(caller=5 + CALLER_GROUPS), wrong, event(caller=6)]
    events += [event(caller=0), event(caller=6, repeated=True), event(caller=6, status=499)]
    evidence = only(batch(*events)).evidence
    assert evidence.requests == 5
    assert evidence.group_requests == {5: 3, 6: 1}
    assert evidence.group_errors == {5: 1}
    assert evidence.group_labels == {"positive": {5: 2, 6: 1}}


def test_what_callers_tell_counts_for_their_group_up_to_their_cap() -> None:
    told = [Feedback(105.0, "r", "e", "1", "a" * 64, Arm.STABLE, "x", "y", 0, 1.0, caller=9)]
    told *= CALLER_CAP + 3
    told += [replace(told[0], truth="x", caller=1), replace(told[0], caller=0)]
    evidence = only(EventBatch("g", 0, [], feedback=told)).evidence
    assert (evidence.feedback, evidence.feedback_wrong) == (CALLER_CAP + 2, CALLER_CAP + 1)
    assert evidence.group_feedback == {9: CALLER_CAP, 1: 1}
    assert evidence.group_wrong == {9: CALLER_CAP}
    of_nobody = CALLER_GROUPS  # behind the groups
    aged = {age_class(104.0) * AGE_STRIDE + group: n for group, n in ((9, CALLER_CAP), (1, 1))}
    assert evidence.aged_wrong == {
        age_class(104.0) * AGE_STRIDE + 9: CALLER_CAP,
        age_class(104.0) * AGE_STRIDE + of_nobody: 1,
    }
    assert evidence.aged_feedback == {**aged, age_class(104.0) * AGE_STRIDE + of_nobody: 1}


@given(st.floats(-10, 4e6), st.floats(0, 4e6))
def test_a_label_is_in_the_class_of_its_age_and_classes_are_few(age: float, more: float) -> None:
    found, later = age_class(age), age_class(age + more)
    assert 0 <= found <= later <= len(LABEL_AGES) <= 40
    assert found == len(LABEL_AGES) or age <= LABEL_AGES[found]
    assert found == 0 or age > LABEL_AGES[found - 1]


def test_requests_of_nobody_have_no_cap() -> None:
    aggregate = only(batch(*(event(caller=0) for _ in range(CALLER_CAP + 30))))
    assert aggregate.evidence.requests == CALLER_CAP + 30


def test_a_callers_cap_is_of_each_aggregate() -> None:
    many = [event(caller=5, time=time) for time in (105.0, 115.0) for _ in range(CALLER_CAP + 1)]
    assert [aggregate.evidence.requests for aggregate in folded(batch(*many))] == [CALLER_CAP] * 2


ONE_TEXT = [TextRecord(3, 2, 0, truncated=False, label="a", score=0.5)]


@pytest.mark.parametrize(
    "left_out",
    [
        {"repeated": True},
        {"status": 499},
        {"arm": Arm.FORCED},
        {"cached": 1, "texts": ONE_TEXT},
    ],
    ids=str,
)
def test_what_may_not_bear_witness_is_counted_and_not_judged(left_out: dict[str, object]) -> None:
    aggregate = only(batch(*(event(**left_out) for _ in range(CALLER_CAP))))
    assert sum(aggregate.statuses.values()) == CALLER_CAP
    assert aggregate.evidence.requests == 0
    assert aggregate.evidence.labels == {}


def test_a_request_of_whose_texts_some_were_inferred_is_evidence_but_not_of_latency() -> None:
    evidence = only(batch(event(cached=1, texts=ONE_TEXT * 2))).evidence
    assert (evidence.requests, evidence.labels) == (1, {"a": 2})
    assert evidence.latency == {}


answer = st.tuples(st.sampled_from([0, 5, 37]), st.sampled_from("ab"), st.booleans())


@given(st.lists(answer, max_size=3 * CALLER_CAP))
def test_labels_with_those_of_the_cache_are_each_callers_first_answers(
    told: list[tuple[int, str, bool]],
) -> None:
    events, first, seen = [], Counter[str](), Counter[int]()
    of_group = Counter[tuple[str, int]]()
    for caller, label, is_kept in told:
        texts = [replace(ONE_TEXT[0], label=label)]
        events.append(event(caller=caller, texts=texts, cached=int(is_kept)))
        if caller == 0 or seen[caller] < CALLER_CAP:
            first[label] += 1
            of_group[label, caller % CALLER_GROUPS] += caller != 0
        seen[caller] += 1
    for aggregate in folded(batch(*events)):
        evidence = aggregate.evidence
        all_of_them = Counter(evidence.labels)
        all_of_them.update(evidence.cached_labels)
        assert all_of_them == first
        for label in "ab":
            groups = Counter(evidence.group_labels.get(label, {}))
            groups.update(evidence.group_cached_labels.get(label, {}))
            assert groups[5] == of_group[label, 5]  # two callers are in it


def test_answers_of_the_cache_take_the_place_of_later_ones_of_their_caller() -> None:
    kept = [event(cached=1, texts=[replace(ONE_TEXT[0], label="b")])] * 5
    inferred = [event(texts=ONE_TEXT)] * CALLER_CAP
    evidence = only(batch(*kept, *inferred)).evidence
    assert (evidence.requests, evidence.labels) == (CALLER_CAP, {"a": CALLER_CAP})
    assert evidence.cached_labels == {"b": 5, "a": -5}
    assert evidence.group_cached_labels == {"b": {1: 5}, "a": {1: -5}}


def test_norms_of_the_cache_are_told_apart() -> None:
    vector = [replace(ONE_TEXT[0], label=None, score=None, norm=1.0)]
    evidence = only(batch(event(texts=vector), event(texts=vector, cached=1))).evidence
    assert evidence.norms == evidence.cached_norms
    assert sum(evidence.norms.values()) == 1


def test_what_is_left_out_uses_up_nobodys_cap() -> None:
    hung_up = [event(status=499) for _ in range(CALLER_CAP)]
    assert only(batch(*hung_up, event())).evidence.requests == 1


def test_judged_latency_is_without_the_queue_and_by_the_longest_text() -> None:
    texts = [TextRecord(n, 4, 0, truncated=False, label="a", score=0.5) for n in (3, 17, 5)]
    aggregate = only(batch(event(texts=texts, latency=Latency(5.0, 0.002, 0.003, 0.01, 9.0))))
    (bucket,) = aggregate.evidence.latency[32]
    assert LATENCY_EDGES.upper[bucket - 1] < 0.015 <= LATENCY_EDGES.upper[bucket]


def test_an_answer_that_came_too_late_is_slower_than_any() -> None:
    late = event(status=504, texts=[TextRecord(9, 6, 1, truncated=False)])
    evidence = only(batch(late, event(status=503))).evidence
    assert evidence.latency == {16: {len(LATENCY_EDGES.upper): 1}}
    assert (evidence.requests, evidence.errors) == (2, 2)


def test_times_of_callers_with_a_name_are_told_by_bucket_of_callers_within_their_cap() -> None:
    quick, slow = Latency(0.0, 0.0, 0.0, 0.01, 0.01), Latency(0.0, 0.0, 0.0, 0.02, 0.02)
    events = [event(caller=5, latency=quick)] * (CALLER_CAP + 3)
    events += [event(caller=5 + CALLER_BUCKETS, latency=quick), event(caller=6, latency=slow)]
    events += [event(caller=0, latency=slow), event(caller=6, latency=slow, status=500)]
    evidence = only(batch(*events)).evidence
    ((length, latency),) = evidence.latency.items()
    at = [bisect_left(LATENCY_EDGES.upper, seconds) for seconds in (0.01, 0.02)]
    assert latency == {at[0]: CALLER_CAP + 1, at[1]: 2}
    assert evidence.caller_latency == {
        length: {5 * CALLER_STRIDE + at[0]: CALLER_CAP + 1, 6 * CALLER_STRIDE + at[1]: 1}
    }
    assert len(LATENCY_EDGES.upper) < CALLER_STRIDE


def test_attempts_of_callers_with_a_name_and_their_failures_are_told_by_bucket() -> None:
    failed = event(caller=5 + CALLER_BUCKETS, status=502)
    events = [event(caller=5)] * (CALLER_CAP + 3) + [failed, event(caller=6), failed]
    events += [event(caller=0, status=500), event(caller=6, status=499)]
    evidence = only(batch(*events)).evidence
    assert evidence.caller_requests == {5: CALLER_CAP + 2, 6: 1}
    assert evidence.caller_errors == {5: 2}


def test_of_many_callers_only_those_of_the_lower_buckets_have_their_attempts_told() -> None:
    events = [
        event(caller=3 + at * 5, status=(200, 500)[at % 3 == 0]) for at in range(2 * CALLER_ENTRIES)
    ]
    folds = [only(batch(*events)).evidence, only(batch(*reversed(events))).evidence]
    assert folds[0].caller_requests == folds[1].caller_requests
    assert folds[0].caller_errors == folds[1].caller_errors
    told, failed = folds[0].caller_requests, folds[0].caller_errors
    assert CALLER_ENTRIES / 4 < len(told) <= CALLER_ENTRIES
    assert failed.keys() < told.keys()
    for bucket in range(max(told) + 1):
        mine = [each for each in events if each.caller % CALLER_BUCKETS == bucket]
        assert told.get(bucket, 0) == len(mine)
        assert failed.get(bucket, 0) == sum(each.status == 500 for each in mine)
    assert folds[0].requests == len(events)


def test_of_many_callers_only_those_of_the_lower_buckets_have_their_times_told() -> None:
    events = [event(caller=2 + at * 7) for at in range(2 * CALLER_ENTRIES)]
    folds = [only(batch(*events)).evidence, only(batch(*reversed(events))).evidence]
    assert folds[0].caller_latency == folds[1].caller_latency
    (told,) = folds[0].caller_latency.values()
    callers = {at // CALLER_STRIDE for at in told}
    buckets = {each.caller % CALLER_BUCKETS for each in events}
    halves = [CALLER_BUCKETS >> at for at in range(12)]
    kept = next(each for each in halves if len({b for b in buckets if b < each}) <= CALLER_ENTRIES)
    assert callers == {bucket for bucket in buckets if bucket < kept}
    assert kept < CALLER_BUCKETS
    (every,) = folds[0].latency.values()
    assert sum(every.values()) == len(events)


def test_texts_of_one_request_are_counted_by_how_many_neighbours_have_the_same_label() -> None:
    evidence = only(
        batch(
            event(texts=answers("a", "a", "b"), caller=0),
            event(texts=answers("a", "a"), caller=0),
            event(texts=answers("b"), caller=0),
            event(texts=answers("a", "b"), caller=0, repeated=True),
        )
    ).evidence
    assert evidence.labels == {"a": 4, "b": 2}
    assert evidence.label_neighbours == {"a": 2 * 2 + 2 * 1, "b": 2}
    assert evidence.label_like_neighbours == {"a": 2 + 2}


def test_requests_of_one_text_and_vectors_have_no_neighbours() -> None:
    vectors = [TextRecord(9, 6, 0, truncated=False, norm=1.0)] * 3
    evidence = only(batch(event(), event(texts=vectors))).evidence
    assert (evidence.label_neighbours, evidence.label_like_neighbours) == ({}, {})


def test_entities_are_counted_by_type_with_their_scores_and_texts_without_any_too() -> None:
    none = TextRecord(9, 6, 0, truncated=False, label=NO_ENTITY, entities=[])
    some = TextRecord(
        9, 6, 0, truncated=False, entities=[("FOOD", 0.9), ("FOOD", 0.8), ("WEATHER", 0.7)]
    )
    counts = only(batch(event(texts=[none, some], caller=5), event(texts=[some], caller=0)))
    assert counts.labels == {"O": 1, "FOOD": 4, "WEATHER": 2}
    assert sum(counts.histograms[Statistic.SCORE].values()) == 6
    assert counts.sums[Statistic.SCORE] == round(4.8 * MICRO)
    assert {label: sum(each.values()) for label, each in counts.label_scores.items()} == {
        "FOOD": 4,
        "WEATHER": 2,
    }
    evidence = counts.evidence
    assert evidence.labels == counts.labels
    assert evidence.group_labels == {"O": {5: 1}, "FOOD": {5: 2}, "WEATHER": {5: 1}}
    # Of the first request each of 4 answers has 3 neighbours, of the second each of 3 has 2.
    assert evidence.label_neighbours == {"O": 3, "FOOD": 6 + 4, "WEATHER": 3 + 2}
    assert evidence.label_like_neighbours == {"FOOD": 2 + 2}


def test_entities_of_a_shadow_are_compared_one_by_one() -> None:
    text = TextRecord(9, 6, 0, truncated=False, entities=[("FOOD", 0.9)])
    told = Pairing("1", 0.01, [True, False, True], [0.5])
    evidence = only(batch(event(arm=Arm.SHADOW, texts=[text], pairing=told))).evidence
    assert (evidence.pairs, evidence.pairs_equal, evidence.pair_labels) == (3, 2, {})


def answers(*labels: str, score: float = 0.5) -> list[TextRecord]:
    return [TextRecord(9, 6, 0, truncated=False, label=label, score=score) for label in labels]


def test_a_shadow_is_counted_beside_the_answers_to_the_same_request() -> None:
    """A request counts once, however many texts it has; scores and times by how far apart."""
    told = Pairing("1", 0.015, [True, False], [0.0, 1.0], ["a", "a"], [0.5, 0.25])
    one = Pairing("1", 0.010, [True], [0.0], ["b"], [0.5])
    slow = Latency(0.0, 0.002, 0.003, 0.02, 0.03)
    evidence = only(
        batch(
            event(arm=Arm.SHADOW, texts=answers("a", "b"), pairing=told),
            event(arm=Arm.SHADOW, texts=answers("b"), pairing=one, latency=slow),
        )
    ).evidence
    assert evidence.pair_labels == {"a": {"a": MICRO // 2, "b": MICRO // 2}, "b": {"b": MICRO}}
    edges = EDGES[Statistic.SCORE].upper
    (same, more) = sorted(evidence.pair_scores)
    assert (evidence.pair_scores[same], evidence.pair_scores[more]) == (2, 1)
    assert edges[same - 1] < 0.5 <= edges[same]  # (1 + 0) / 2
    assert edges[more - 1] < 0.625 <= edges[more]  # (1 + 0.5 - 0.25) / 2
    (alike, slower) = sorted(evidence.pair_latency)
    assert alike == 0
    assert 1.05**slower == pytest.approx(2.5, rel=0.06)  # 25 ms after 10 ms, in buckets of 5 %


def test_a_shadow_is_counted_beside_how_its_original_ended() -> None:
    failed = Pairing("1", 0.0, status=502)
    answered, older = (
        Pairing("1", 0.01, [True], [0.0], ["a"], [0.5], status) for status in (200, 0)
    )
    of_shadow = partial(event, arm=Arm.SHADOW, texts=answers("a"))
    evidence = only(
        batch(
            of_shadow(pairing=answered),
            of_shadow(pairing=answered),
            of_shadow(pairing=older),
            of_shadow(pairing=Pairing("1", 0.01, status=200), status=504),
            of_shadow(pairing=failed),
            of_shadow(pairing=failed, status=502),
        )
    ).evidence
    assert evidence.pair_statuses == {200: {200: 2, 504: 1}, 502: {200: 1, 502: 1}}
    assert (evidence.requests, evidence.errors) == (6, 2)
    assert evidence.pair_labels == {"a": {"a": 3 * MICRO}}


def test_norms_of_a_shadow_are_counted_beside_those_that_the_caller_got() -> None:
    """A request counts once, however many vectors it has."""
    vectors = [TextRecord(9, 6, 0, truncated=False, norm=norm) for norm in (1.0, 1.0, 20.0)]
    two = Pairing("1", 0.0, distance=[0.0, 0.0], status=200, norms=[1.0, 5.0])
    one = Pairing("1", 0.0, distance=[0.0], status=200, norms=[1.0])
    evidence = only(
        batch(
            event(arm=Arm.SHADOW, texts=vectors[1:], pairing=two),
            event(arm=Arm.SHADOW, texts=vectors[:1], pairing=one),
            event(arm=Arm.SHADOW, texts=vectors[:2], pairing=one),  # of another number of texts
        )
    ).evidence
    edges = EDGES[Statistic.VECTOR_NORM].upper
    at = {norm: bisect_left(edges, norm) for norm in (1.0, 5.0, 20.0)}
    half = MICRO // 2
    assert evidence.pair_norms == {at[1.0]: {at[1.0]: half + MICRO}, at[5.0]: {at[20.0]: half}}


def test_the_thirds_of_a_request_of_three_texts_are_a_request_to_a_millionth() -> None:
    told = Pairing("1", 0.0, labels=["a", "b", "c"], scores=[0.5] * 3)
    counts = only(batch(event(arm=Arm.SHADOW, texts=answers("a", "b", "c"), pairing=told))).evidence
    total = sum(sum(answers.values()) for answers in counts.pair_labels.values())
    assert total == pytest.approx(MICRO, abs=3)


@pytest.mark.parametrize(
    "pairing",
    [
        Pairing("1", 0.015, [True, False], [0.0, 1.0]),
        Pairing("1", 0.015, [], [0.5, 0.5]),
        Pairing("1", 0.015, [True, False], [0.0, 1.0], ["a"], [0.5]),
    ],
    ids=["without labels", "of vectors", "of another number of texts"],
)
def test_a_shadow_without_its_originals_labels_is_counted_as_before(pairing: Pairing) -> None:
    evidence = only(batch(event(arm=Arm.SHADOW, texts=answers("a", "b"), pairing=pairing))).evidence
    assert (evidence.pair_labels, evidence.pair_scores) == ({}, {})
    assert evidence.labels == {"a": 1, "b": 1}
    assert (evidence.pairs, evidence.pairs_equal) == (len(pairing.equal), sum(pairing.equal))


@given(st.integers(0, 100_000))
def test_a_length_bucket_is_the_power_of_two_above(tokens: int) -> None:
    bucket = length_bucket(tokens)
    assert bucket in {1 << n for n in range(18)}
    assert tokens <= bucket
    assert bucket == 1 or bucket // 2 < tokens


def test_own_statistics_are_counted_by_their_declaration() -> None:
    seen: dict[str, list[float | str]] = {
        "length": [0.5, 1.0, 50.0, 1e9, "long"],
        "language": ["de", "de", "fr", 3.0],
        "emoji": [2.0, 0.5, -1.0, "x"],
        "nobody's": [1.0, 2.0],
    }
    aggregate = only(
        EventBatch("g", 0, [event(observations=seen)], statistics={"sentiment": DECLARED})
    )
    own = {counts.spec.name: counts for counts in aggregate.own}
    assert own["length"].counts == {"0": 2, "2": 1, "3": 1}
    assert (own["length"].sum_micro, own["length"].unfit) == (1_000_000_051_500_000, 1)
    assert (own["language"].counts, own["language"].unfit) == ({"de": 2}, 2)
    assert (own["emoji"].sum_micro, own["emoji"].unfit) == (2_500_000, 2)
    assert aggregate.undeclared == {"nobody's": 2}


def test_two_declarations_of_one_name_are_counted_apart() -> None:
    def of(edges: list[float]) -> EventBatch:
        spec = StatisticSpec("length", "histogram", edges=edges)
        seen: dict[str, list[float | str]] = {"length": [1.5]}
        return EventBatch("g", 0, [event(observations=seen)], statistics={"sentiment": [spec]})

    aggregate = only(of([1.0, 2.0]), of([2.0]), of([1.0, 2.0]))
    assert [(own.spec.edges, own.counts) for own in aggregate.own] == [
        ([1.0, 2.0], {"1": 2}),
        ([2.0], {"0": 1}),
    ]


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=5))
def test_no_value_in_a_message_can_stop_the_counting(values: list[float]) -> None:
    latency = Latency(*(values * 5)[:5])
    aggregates = folded(batch(event(time=values[0], latency=latency)))
    assert sum(sum(aggregate.statuses.values()) for aggregate in aggregates) == 1


def test_edges_are_those_that_reference_profiles_use() -> None:
    for statistic in Statistic:
        assert all(a < b for a, b in pairwise(EDGES[statistic].upper))
    values = np.array(EDGES[Statistic.TOKENS].upper)
    texts = [TextRecord(int(n), 1, 0, truncated=False) for n in values]
    aggregate = only(batch(event(texts=texts)))
    assert aggregate.histograms["tokens"] == dict.fromkeys(range(len(values)), 1)


def test_a_random_batch_has_all_kinds_of_events() -> None:
    rng = random.Random(0)
    events = [event_of(rng) for _ in range(2000)]
    assert {e.arm for e in events} == set(Arm)
    assert {e.status for e in events} == {200, 400, 499, 500, 503, 504}
    assert any(e.pairing and e.pairing.equal for e in events)
    assert any(e.observations for e in events)


def test_of_a_text_that_was_written_the_time_of_a_token_is_judged() -> None:
    text = TextRecord(9, 6, 1, truncated=False, label="stop", generated=20)
    aggregate = only(batch(event(texts=[text], latency=Latency(5.0, 0.1, 0.1, 1.8, 9.0))))
    (bucket,) = aggregate.evidence.latency[16]
    assert LATENCY_EDGES.upper[bucket - 1] < 0.1 <= LATENCY_EDGES.upper[bucket]
    assert aggregate.sums[Statistic.GENERATED_TOKENS] == 20 * 1_000_000
    assert aggregate.labels == {"stop": 1}
