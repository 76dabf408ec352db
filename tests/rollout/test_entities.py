"""A version that labels tokens is judged by the entities that it finds, from its events on."""

import random

import pytest

from contracts.endpoint import Arm
from contracts.events import NO_ENTITY, EventBatch, Latency, Pairing, PredictionEvent, TextRecord
from contracts.rollout import AgreementCheck, Checks, Verdict
from contracts.windows import EvidenceCounts
from measures.folding import Fold
from rollout.evidence import ComparisonStage, Evidence

pytestmark = pytest.mark.slow

CHECKS = Checks(drift=None, agreement=AgreementCheck(at_least=0.9))
REQUESTS = 120  # a window
WINDOWS = 40
Entities = list[tuple[str, float]]


def entities_of(rng: random.Random) -> Entities:
    """What is in a text: people, sometimes places, often nothing."""
    people = [("PER", 0.9)] * rng.choice((0, 0, 1, 2))
    return people + [("LOC", 0.8)] * rng.choice((0, 0, 0, 1))


def without_places(found: Entities) -> Entities:
    return [entity for entity in found if entity[0] != "LOC"]


def record_of(found: Entities) -> TextRecord:
    label = None if found else NO_ENTITY
    return TextRecord(20, 12, 0, truncated=False, label=label, entities=found)


def event_of(
    rng: random.Random, arm: Arm, *, misses_places: bool, paired: bool = False
) -> PredictionEvent:
    """A request of two texts of one of 500 callers."""
    original = [entities_of(rng) for _ in range(2)]
    found = [without_places(each) if misses_places else each for each in original]
    pairing = None
    if paired:
        equal = [
            same
            for each, own in zip(original, found, strict=True)
            for same in ([entity in own for entity in each] if each else [True])
        ]
        pairing = Pairing("1", 0.01, equal, [0.0, 0.0])
    return PredictionEvent(
        request_id="r",
        time=1.0,
        endpoint="e",
        version="2" if arm in {Arm.CANARY, Arm.SHADOW} else "1",
        package="p",
        arm=arm,
        status=200,
        answered=True,
        latency=Latency(0.0, 0.001, 0.002, 0.01, 0.013),
        texts=[record_of(each) for each in found],
        caller=rng.randint(1, 500),
        pairing=pairing,
    )


def window(rng: random.Random, arm: Arm, *, misses_places: bool, paired: bool) -> EvidenceCounts:
    fold = Fold(10)
    events = [
        event_of(rng, arm, misses_places=misses_places, paired=paired) for _ in range(REQUESTS)
    ]
    fold.add(EventBatch("g", 0, events))
    (aggregate,) = fold.aggregates()
    return aggregate.evidence


def judged(stage: ComparisonStage, *, misses_places: bool) -> dict[str, Verdict]:
    rng = random.Random(4)
    evidence = Evidence.begin(CHECKS, 0.05, (), stage).with_share(
        0.5 if stage is ComparisonStage.CANARY else 0.0
    )
    for _ in range(30):
        stable = window(rng, Arm.STABLE, misses_places=False, paired=False)
        evidence = evidence.with_history(stable)
    is_shadow = stage is ComparisonStage.SHADOW
    for _ in range(WINDOWS):
        candidate = window(
            rng,
            Arm.SHADOW if is_shadow else Arm.CANARY,
            misses_places=misses_places,
            paired=is_shadow,
        )
        stable = window(rng, Arm.STABLE, misses_places=False, paired=False)
        evidence = evidence.after(candidate, stable, 10.0)
    return evidence.verdicts


def test_a_version_that_finds_no_places_fails_class_shares_among_callers() -> None:
    assert judged(ComparisonStage.CANARY, misses_places=True)["classShare"] is Verdict.FAIL
    good = judged(ComparisonStage.CANARY, misses_places=False)
    assert Verdict.FAIL not in good.values()
    assert good["classShare"] is Verdict.PASS


def test_a_shadow_that_finds_no_places_fails_agreement() -> None:
    assert judged(ComparisonStage.SHADOW, misses_places=True)["agreement"] is Verdict.FAIL
    assert judged(ComparisonStage.SHADOW, misses_places=False)["agreement"] is Verdict.PASS
