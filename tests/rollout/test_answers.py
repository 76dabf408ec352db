"""A version that answers questions is judged by how long its answers are, if it has any."""

import random

import pytest

from contracts.endpoint import Arm
from contracts.events import EventBatch, Latency, Pairing, PredictionEvent, TextRecord
from contracts.rollout import AgreementCheck, Checks, Verdict
from contracts.windows import EvidenceCounts
from measures.folding import Fold
from preprocess.tasks.question_answering import NO_ANSWER
from rollout.evidence import ComparisonStage, Evidence

CHECKS = Checks(drift=None, agreement=AgreementCheck(at_least=0.9))
REQUESTS = 120  # a window
WINDOWS = 40
CLASSES = ("1-8 characters", "9-16 characters", "17-32 characters", NO_ANSWER)


def event_of(
    rng: random.Random, arm: Arm, instead: dict[str, str], pairing: bool
) -> PredictionEvent:
    """A question of one of 500 callers; the version gives ``instead`` of some answers others."""
    original = rng.choices(CLASSES, (4, 3, 1, 2))[0]
    given = instead.get(original, original)
    same = original == given
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
        texts=[TextRecord(60, 40, 0, truncated=False, entities=[(given, 0.7)])],
        caller=rng.randint(1, 500),
        pairing=Pairing("1", 0.01, [same], [0.0 if same else 1.0]) if pairing else None,
    )


def window(rng: random.Random, arm: Arm, instead: dict[str, str]) -> EvidenceCounts:
    fold = Fold(10)
    shadow = arm is Arm.SHADOW
    fold.add(EventBatch("g", 0, [event_of(rng, arm, instead, shadow) for _ in range(REQUESTS)]))
    (aggregate,) = fold.aggregates()
    return aggregate.evidence


def judged(stage: ComparisonStage, instead: dict[str, str]) -> dict[str, Verdict]:
    rng = random.Random(4)
    evidence = Evidence.begin(CHECKS, 0.05, (), stage).with_share(
        0.5 if stage is ComparisonStage.CANARY else 0.0
    )
    for _ in range(30):
        evidence = evidence.with_history(window(rng, Arm.STABLE, {}))
    for _ in range(WINDOWS):
        candidate = window(
            rng, Arm.SHADOW if stage is ComparisonStage.SHADOW else Arm.CANARY, instead
        )
        evidence = evidence.after(candidate, window(rng, Arm.STABLE, {}), 10.0)
    return evidence.verdicts


SILENT = {CLASSES[0]: NO_ANSWER}
LONG = {CLASSES[0]: CLASSES[2]}


@pytest.mark.parametrize("instead", [SILENT, LONG], ids=["silent", "long"])
def test_a_version_of_other_answers_fails_class_shares_among_callers(
    instead: dict[str, str],
) -> None:
    assert judged(ComparisonStage.CANARY, instead)["classShare"] is Verdict.FAIL


@pytest.mark.slow
def test_a_version_of_the_same_answers_passes_among_callers() -> None:
    good = judged(ComparisonStage.CANARY, {})
    assert Verdict.FAIL not in good.values()
    assert good["classShare"] is Verdict.PASS


@pytest.mark.slow
def test_a_shadow_of_other_answers_fails_agreement() -> None:
    assert judged(ComparisonStage.SHADOW, SILENT)["agreement"] is Verdict.FAIL
    assert judged(ComparisonStage.SHADOW, {})["agreement"] is Verdict.PASS
