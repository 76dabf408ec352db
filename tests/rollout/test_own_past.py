"""A caller that was slow before is compared with callers that were: latency within strata."""

import json
from collections import Counter

import evidence_windows
import numpy as np
from evidence_windows import only
from evidence_windows import result_of as latency

from contracts.rollout import LatencyCheck, Verdict
from contracts.windows import CALLER_STRIDE, EvidenceCounts
from measures.own_past import OwnPast
from rollout.evidence import ComparisonStage, Evidence

CHECKS = only(latency=LatencyCheck())
CALLERS = np.arange(40)
SLOW = CALLERS % 10 == 0  # a tenth of the callers, of whom 10 and 20 get the candidate
TOKENS = 32
QUICK, LATE = 100, 108  # buckets of LATENCY_EDGES: half as long again
# More of those who are slow than of the others.
CANDIDATES = np.isin(CALLERS, [10, 20, 3, 5])


def window(
    callers: np.ndarray,
    rng: np.random.Generator,
    *,
    later: int | np.ndarray = 0,
    is_told: bool = True,
    renamed: int = 0,
) -> EvidenceCounts:
    """Answers of an arm, twenty of each caller, that take so many buckets longer than usual."""
    took = np.round(rng.normal(0, 8, (len(callers), 20))).astype(int)
    took = took + (np.where(SLOW[callers], LATE, QUICK) + later)[:, None]
    latency = Counter(took.ravel().tolist())
    of_callers = Counter(((callers + renamed)[:, None] * CALLER_STRIDE + took).ravel().tolist())
    return EvidenceCounts(
        requests=took.size,
        latency={TOKENS: dict(latency)},
        caller_latency={TOKENS: dict(of_callers)} if is_told else {},
    )


def begun(*, is_told: bool = True, windows: int = 40) -> Evidence:
    rng = np.random.default_rng(1)
    return evidence_windows.begun(CHECKS, lambda: window(CALLERS, rng, is_told=is_told), windows)


def compared(
    evidence: Evidence, windows: int = 60, *, later: int = 0, is_told: bool = True
) -> Evidence:
    rng = np.random.default_rng(2)
    for _ in range(windows):
        candidate = window(CALLERS[CANDIDATES], rng, later=later, is_told=is_told)
        evidence = evidence.after(
            candidate, window(CALLERS[~CANDIDATES], rng, is_told=is_told), 10.0
        )
    return evidence


def test_callers_who_were_slow_before_are_no_fault_of_the_version_that_answers_them() -> None:
    assert latency(compared(begun(is_told=False), is_told=False)).verdict is Verdict.FAIL
    result = latency(compared(begun()))
    assert result.verdict is Verdict.PASS
    # Half of the candidate's callers are slow, and a twentieth of stable's.
    assert result.figures["expected_of_callers"] > 0.1
    assert " are expected of such callers and texts" in result.reason


def test_a_version_that_is_slower_fails_whoever_its_callers_are() -> None:
    assert latency(compared(begun(), later=5)).verdict is Verdict.FAIL


def test_one_caller_that_becomes_slow_is_no_fault_of_the_version_that_answers_it() -> None:
    one = np.where(CALLERS[CANDIDATES] == 3, 30, 0)
    evidence = begun()
    rng = np.random.default_rng(7)
    for _ in range(60):
        candidate = window(CALLERS[CANDIDATES], rng, later=one)
        evidence = evidence.after(candidate, window(CALLERS[~CANDIDATES], rng), 10.0)
    assert latency(evidence).verdict is not Verdict.FAIL
    assert evidence.rates.rests_on_few("latency", 0.05)
    # Two such callers are a fault: no group of callers is left out but one.
    for _ in range(20):
        two = np.where(np.isin(CALLERS[CANDIDATES], [3, 5]), 30, 0)
        candidate = window(CALLERS[CANDIDATES], rng, later=two)
        evidence = evidence.after(candidate, window(CALLERS[~CANDIDATES], rng), 10.0)
    assert latency(evidence).verdict is Verdict.FAIL


def renamed(later: int = 0, windows: int = 60) -> Evidence:
    """Half of the candidate's callers are slow, and all have other names than in stable's past."""
    rng = np.random.default_rng(8)
    evidence = begun().with_share(0.1)
    for _ in range(windows):
        candidate = window(CALLERS[CANDIDATES], rng, later=later, renamed=1000)
        stable = window(CALLERS[~CANDIDATES], rng, renamed=1000)
        evidence = evidence.after(candidate, stable, 10.0)
    return evidence


def test_callers_whose_names_changed_are_no_fault_and_a_slower_version_is() -> None:
    assert latency(renamed()).verdict is Verdict.UNKNOWN
    assert latency(renamed(later=16)).verdict is Verdict.FAIL


def test_what_the_candidate_answers_moves_no_caller_to_another_stratum() -> None:
    before = begun()
    after = compared(before, windows=5, later=40)
    assert before.rates.own_past is not None
    assert after.rates.own_past is before.rates.own_past


def test_shadow_teaches_what_callers_are_like() -> None:
    rng = np.random.default_rng(3)
    shadow = begun(windows=1).next_stage(ComparisonStage.SHADOW).with_share(0.0)
    for _ in range(40):
        stable = window(CALLERS, rng)
        shadow = shadow.after(window(CALLERS, rng, is_told=False), stable, 10.0)
    past = shadow.rates.own_past
    assert past is not None
    assert past.strata[CALLERS[SLOW]].min() > past.strata[CALLERS[~SLOW]].max()


def test_callers_like_whom_stable_answers_none_are_told() -> None:
    rng = np.random.default_rng(4)
    evidence = begun()
    for _ in range(10):
        evidence = evidence.after(
            window(CALLERS[SLOW], rng, later=-8), window(CALLERS[~SLOW], rng), 10.0
        )
    result = latency(evidence)
    assert result.verdict is Verdict.UNKNOWN
    assert result.figures["of_callers_unlike_any"] == 1
    assert "100.0 % of its answers can't be judged" in result.reason


def test_what_is_learnt_is_stored_bit_by_bit() -> None:
    evidence = begun()
    again = Evidence.of_json(json.loads(json.dumps(evidence.to_json())))
    assert latency(compared(again, 5)).figures == latency(compared(evidence, 5)).figures


def test_requests_of_nobody_are_compared_with_each_other() -> None:
    """Nobody's are in the unknown stratum, with callers who have no past."""
    evidence = begun()
    rng = np.random.default_rng(5)
    nobodys = window(CALLERS[~SLOW], rng, is_told=False)
    seen = evidence.after(nobodys, nobodys, 10.0).rates.non_inferiority
    first = evidence.rates.rows.tests
    assert isinstance(evidence.rates.own_past, OwnPast)
    of_lengths = seen.n_c[first[1] : first[2]]
    assert of_lengths[:7].sum() == of_lengths.sum() == nobodys.requests


def test_what_callers_of_a_stratum_differ_by_is_tolerated() -> None:
    rng = np.random.default_rng(6)
    alike = begun(windows=40)
    unlike = begun(windows=1)
    for _ in range(40):  # in each window another caller is slow, which no past tells
        whose = rng.permutation(CALLERS)
        took = np.where(CALLERS == 0, LATE, QUICK)[:, None].repeat(20, axis=1)
        of_callers = Counter((whose[:, None] * CALLER_STRIDE + took).ravel().tolist())
        stable = EvidenceCounts(
            requests=took.size,
            latency={TOKENS: dict(Counter(took.ravel().tolist()))},
            caller_latency={TOKENS: dict(of_callers)},
        )
        unlike = unlike.with_history(stable)
    apart = [each.rates.caller_spread("latency", 0.1) for each in (alike, unlike)]
    assert apart[1] > 4 * apart[0]
    assert apart[1] > 0.02
    assert unlike.rates.caller_spread("latency", 0.0) == 0
    assert latency(unlike).figures["apart_by_callers"] == apart[1]
