"""Names that live for minutes, each with one label: identical versions are not told apart."""

from dataclasses import replace

import numpy as np
import pytest
from verdicts import whole
from verdicts.batched_evidence import CHECKS, NAMES, BatchedEvidence
from verdicts.traffic import LABELS, Arm, Harm, harmed
from verdicts.worlds import SESSIONS, Traffic

from rollout.evidence import ComparisonStage, Evidence

ROLLOUTS = 12
QUARTER = np.full(ROLLOUTS, 0.25)
NOBODY = np.zeros(ROLLOUTS)
ALWAYS_SECOND = Harm("all texts have the second label", flips=1.0)


def judged(windows: int, harm: Harm | None = None) -> BatchedEvidence:
    """Rollouts at a quarter of the callers, for so many windows."""
    rng = np.random.default_rng(35)
    traffic = Traffic.of(SESSIONS[0], ROLLOUTS, rng)
    evidence = BatchedEvidence.begin(ROLLOUTS, 0.05)
    for _ in range(whole.HISTORY):
        traffic = traffic.moved(rng)
        evidence = evidence.with_history(traffic.window(NOBODY, NOBODY, rng)[1])
    for _ in range(windows):
        traffic = traffic.moved(rng)
        candidate, stable = traffic.window(NOBODY, QUARTER, rng)
        if harm is not None:
            candidate = harmed(candidate, harm, NOBODY > 0, rng)
        evidence = evidence.after(candidate, stable, QUARTER, NOBODY > 0)
    return evidence


@pytest.mark.slow
def test_sessions_end_no_rollout_of_identical_versions() -> None:
    assert not judged(180).failed.any()


@pytest.mark.slow
def test_a_version_that_knows_one_label_only_is_found_among_sessions() -> None:
    found = judged(120, ALWAYS_SECOND).failed
    assert found[:, [NAMES.index("classShare"), NAMES.index("outputShift")]].any(axis=1).all()


def test_production_divides_by_what_the_simulation_divides_by() -> None:
    rng = np.random.default_rng(3)
    rollouts = 2
    nobody, split = np.zeros(rollouts), np.full(rollouts, 0.25)
    traffic = Traffic.of(replace(SESSIONS[0], shortest=0), rollouts, rng)
    batched = BatchedEvidence.begin(rollouts, 0.05)
    alone = [Evidence.begin(CHECKS, 0.05, LABELS) for _ in range(rollouts)]

    def told(arm: Arm, row: int) -> Evidence:
        return alone[row].with_history(arm.evidence(row))

    for _ in range(30):
        traffic = traffic.moved(rng)
        stable = traffic.window(nobody, nobody, rng)[1]
        batched = batched.with_history(stable)
        alone = [told(stable, row) for row in range(rollouts)]
    alone = [
        each.next_stage(ComparisonStage.CANARY).with_share(0.25, is_last_step=False)
        for each in alone
    ]
    for _ in range(20):
        traffic = traffic.moved(rng)
        arms = traffic.window(nobody, split, rng)
        batched = batched.after(*arms, split, nobody > 0)
        alone = [
            alone[row].after(arms[0].evidence(row), arms[1].evidence(row), 10)
            for row in range(rollouts)
        ]
    for row in range(rollouts):
        one = alone[row]
        assert one.rates.near.max() > 10
        assert one.rates.harm.log_a == pytest.approx(batched.harm.log_a[row], rel=1e-9)
        assert one.rates.non_inferiority.log_e == pytest.approx(batched.non_inferiority.log_e[row])
        assert one.outputs.test is not None
        assert one.outputs.test.fails.size() == pytest.approx(batched.shifts.size()[row])
