"""What a cold window can say: nothing against the version, and only a part of what lets it pass."""

from functools import cache

import numpy as np
import pytest
from evidence_windows import only, result_of, timed
from hypothesis import given
from hypothesis import strategies as st

from contracts.rollout import LatencyCheck, ToleranceLine, Verdict
from contracts.windows import EvidenceCounts
from measures.proportions import ALTERNATIVES
from rollout.checks.warmth import COLD_WINDOWS, RESERVE, ArmWarmth, stake_part
from rollout.evidence import ComparisonStage, Evidence

QUICK, SLOW = 100, 140  # buckets of LATENCY_EDGES


def answers(requests: int, slow: float) -> EvidenceCounts:
    late = round(requests * slow)
    return timed({QUICK: requests - late, SLOW: late})


@cache
def begun() -> Evidence:
    """Of a version whose stable one has a history."""
    evidence = Evidence.begin(
        only(latency=LatencyCheck()), 0.05, ("a", "b"), ComparisonStage.SHADOW
    )
    for _ in range(40):
        evidence = evidence.with_history(answers(1000, 0.04))
    return evidence


def met(
    shares: list[float], copies: tuple[float, ...] = (), stage: ComparisonStage | None = None
) -> Evidence:
    """After windows in which the version had these shares of slow answers, copies first."""
    evidence = begun()
    for slow in copies:
        evidence = evidence.after(answers(200, slow), answers(1000, 0.04), 10.0)
    evidence = evidence.next_stage(stage or ComparisonStage.CANARY).with_share(0.05)
    for slow in shares:
        evidence = evidence.after(answers(50, slow), answers(950, 0.04), 10.0)
    return evidence


def verdict(evidence: Evidence) -> Verdict:
    return result_of(evidence).verdict


@given(st.lists(st.floats(0, 1), max_size=COLD_WINDOWS))
def test_whatever_cold_windows_say_is_no_evidence_against_a_version(shares: list[float]) -> None:
    evidence = met(shares)
    assert evidence.rates.evidence_to_fail("latency") == pytest.approx(1.0, abs=1e-6)
    assert verdict(evidence) is not Verdict.FAIL


@given(st.lists(st.floats(0, 1), min_size=COLD_WINDOWS, max_size=COLD_WINDOWS))
def test_a_version_that_stays_slow_is_found_as_soon_whatever_it_was_while_cold(
    shares: list[float],
) -> None:
    assert verdict(met([*shares, *[0.4] * 4])) is Verdict.FAIL


def test_a_cold_window_is_reported_and_said_to_be_one() -> None:
    result = result_of(met([0.5]))
    assert result.figures["candidate_events"] == 25
    assert "first 18 windows with callers are only reported" in result.reason
    assert "only reported" not in result_of(met([0.04] * COLD_WINDOWS)).reason


def test_a_version_whose_copies_were_slow_is_judged_from_its_first_callers_on() -> None:
    assert verdict(met([0.4] * 4, copies=(0.4,) * 4)) is Verdict.FAIL
    assert verdict(met([0.4] * 4, copies=(0.04,) * 4)) is not Verdict.FAIL


def test_an_edited_tolerance_forgets_what_copies_said_under_the_one_before() -> None:
    slow = met([], copies=(0.4,) * 4)
    assert not slow.rates.is_cold(ComparisonStage.CANARY, slow.alpha)
    wider = only(latency=LatencyCheck(fail=ToleranceLine(absolute=0, relative=20)))
    assert slow.with_checks(wider, 0.05).rates.is_cold(ComparisonStage.CANARY, slow.alpha)


def test_a_version_that_was_never_a_canary_warms_up_in_the_bake() -> None:
    assert verdict(met([0.5] * COLD_WINDOWS, stage=ComparisonStage.BAKE)) is not Verdict.FAIL
    assert verdict(met([0.5] * 30, stage=ComparisonStage.BAKE)) is Verdict.FAIL


def test_it_is_warm_for_good_after_so_many_windows_of_any_step() -> None:
    evidence = met([0.04] * COLD_WINDOWS).next_stage(ComparisonStage.CANARY)
    assert not evidence.rates.is_cold(ComparisonStage.CANARY, evidence.alpha)
    kept = Evidence.of_json(evidence.to_json())
    assert kept.to_json() == evidence.to_json()


@given(
    st.lists(
        st.tuples(st.floats(0.01, 0.99), st.floats(0, 1)).map(lambda x: (x[0], x[1] / x[0])),
        max_size=COLD_WINDOWS,
    )
)
def test_the_evidence_to_pass_keeps_its_mean_and_its_reserve_in_cold_windows(
    windows: list[tuple[float, float]],
) -> None:
    """Of a window that multiplies evidence by ``x`` with probability ``p``, else by the rest."""
    log_e = np.array(0.0)
    for p, x in windows:
        rest = (1 - p * x) / (1 - p)
        if min(x, rest) <= 0:
            continue
        by = [float(np.exp(stake_part(log_e, log_e + np.log(each)))) for each in (x, rest)]
        assert p * by[0] + (1 - p) * by[1] == pytest.approx(float(np.exp(log_e)))
        assert min(by) >= RESERVE * (1 - 1e-9)
        log_e = np.log(by[0])


def test_nothing_is_known_of_copies_that_never_came() -> None:
    begun = ArmWarmth.begin((3,))
    assert begun.is_cold(0.0125).all()
    assert begun.log_slow.shape == (3, ALTERNATIVES)
