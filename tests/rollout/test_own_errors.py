"""A caller that failed often before is compared with callers that did: errors within strata."""

import json

import evidence_windows
import numpy as np
import pytest
from evidence_windows import only
from evidence_windows import result_of as errors
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.rollout import ErrorRateCheck, Verdict
from contracts.windows import CALLER_GROUPS, EvidenceCounts, Sparse
from measures.own_past import STRATA, OwnPast
from rollout.checks import rows
from rollout.checks.callers import GroupCounts
from rollout.checks.left_out import ArmGroupCounts
from rollout.evidence import ComparisonStage, Evidence

CHECKS = only(error_rate=ErrorRateCheck())
CALLERS = np.arange(40)
POOR = CALLERS % 10 == 0  # a tenth of the callers, of whom 10 and 20 get the candidate
RATES = np.where(POOR, 0.15, 0.004)
# More of those who fail than of the others.
CANDIDATES = np.isin(CALLERS, [10, 20, 3, 5])
EACH = 20  # requests of a caller in a window


def counts(callers: np.ndarray, failed: np.ndarray, *, is_told: bool = True) -> EvidenceCounts:
    """A window of these callers, so many of whose requests failed."""
    of_callers: Sparse = {int(at): EACH for at in callers}
    errors = {int(at): int(n) for at, n in zip(callers, failed, strict=True) if n}
    return EvidenceCounts(
        requests=EACH * len(callers),
        errors=int(failed.sum()),
        group_requests=grouped(of_callers),
        group_errors=grouped(errors),
        caller_requests=of_callers if is_told else {},
        caller_errors=errors if is_told else {},
    )


def grouped(of_callers: Sparse) -> Sparse:
    found: Sparse = {}
    for caller, count in of_callers.items():
        found[caller % CALLER_GROUPS] = found.get(caller % CALLER_GROUPS, 0) + count
    return found


def window(
    callers: np.ndarray, rng: np.random.Generator, *, more: float = 0.0, is_told: bool = True
) -> EvidenceCounts:
    """Answers of an arm, of which so large a share fails besides."""
    rates = RATES[callers] + more * (1 - RATES[callers])
    return counts(callers, rng.binomial(EACH, rates), is_told=is_told)


def begun(*, is_told: bool = True, windows: int = 40) -> Evidence:
    rng = np.random.default_rng(1)
    return evidence_windows.begun(CHECKS, lambda: window(CALLERS, rng, is_told=is_told), windows)


def compared(
    evidence: Evidence,
    windows: int = 60,
    *,
    more: float = 0.0,
    is_told: bool = True,
    seed: int = 2,
    mine: np.ndarray = CANDIDATES,
) -> Evidence:
    rng = np.random.default_rng(seed)
    for _ in range(windows):
        candidate = window(CALLERS[mine], rng, more=more, is_told=is_told)
        evidence = evidence.after(candidate, window(CALLERS[~mine], rng, is_told=is_told), 10.0)
    return evidence


def test_callers_who_failed_often_before_keep_no_equal_version_waiting() -> None:
    assert errors(compared(begun(is_told=False), is_told=False)).verdict is Verdict.UNKNOWN
    result = errors(compared(begun()))
    assert result.verdict is Verdict.PASS
    # Half of the candidate's callers fail often, and a twentieth of stable's.
    assert result.figures["expected_of_callers"] > 0.05
    assert " are expected of such callers:" in result.reason


def test_a_version_that_fails_more_is_found_that_callers_hid() -> None:
    mine = np.isin(CALLERS, [1, 2, 3, 5])  # none of those who fail often
    together = compared(begun(is_told=False), more=0.04, is_told=False, mine=mine)
    assert errors(together).verdict is Verdict.UNKNOWN
    assert errors(compared(begun(), more=0.04, mine=mine)).verdict is Verdict.FAIL


def test_what_the_candidate_answers_moves_no_caller_to_another_stratum() -> None:
    before = begun()
    assert before.rates.errors_past is not None
    assert compared(before, 5, more=0.4).rates.errors_past is before.rates.errors_past


def test_shadow_teaches_how_often_callers_fail_and_pairs_are_of_all_of_them() -> None:
    rng = np.random.default_rng(3)
    shadow = begun(windows=1).next_stage(ComparisonStage.SHADOW).with_share(0.0)
    failures = {200: {200: 780, 502: 4}, 502: {200: 8, 502: 8}}
    for _ in range(40):
        copies = EvidenceCounts(requests=800, errors=12, pair_statuses=failures)
        shadow = shadow.after(copies, window(CALLERS, rng), 10.0)
    past = shadow.rates.errors_past
    assert past is not None
    assert past.strata[CALLERS[POOR]].min() > past.strata[CALLERS[~POOR]].max()
    result = errors(shadow)
    assert result.verdict is Verdict.PASS
    assert result.figures["candidate_requests"] == result.figures["stable_requests"] == 40 * 800
    assert shadow.rates.past[1, rows.ERRORS].sum() == 41 * 800


def test_one_group_of_callers_that_begins_to_fail_is_left_out_within_strata() -> None:
    evidence, rng = begun(), np.random.default_rng(5)
    for _ in range(60):
        mine = CALLERS[CANDIDATES]
        failed = np.where(mine == 3, EACH // 2, rng.binomial(EACH, RATES[mine]))
        stable = window(CALLERS[~CANDIDATES], rng)
        evidence = evidence.after(counts(mine, failed), stable, 10.0)
    assert errors(evidence).verdict is not Verdict.FAIL
    assert evidence.rates.harm.e_value()[0] > 1e6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("told_before", [False, True])
def test_while_folds_are_upgraded_an_equal_version_does_not_fail(
    seed: int,
    told_before: bool,
) -> None:
    """Some windows tell callers and others don't, before the canary and in it."""
    rng = np.random.default_rng(7)
    evidence = Evidence.begin(CHECKS, 0.05, ("a", "b"), ComparisonStage.CANARY)
    for at in range(40):
        evidence = evidence.with_history(window(CALLERS, rng, is_told=told_before and at > 20))
    evidence = evidence.with_share(0.1)
    for at in range(6):
        evidence = compared(evidence, 10, is_told=at % 2 == 0, seed=10 * seed + at)
    assert errors(evidence).verdict is not Verdict.FAIL


def test_what_is_learnt_is_stored_bit_by_bit() -> None:
    evidence = begun()
    again = Evidence.of_json(json.loads(json.dumps(evidence.to_json())))
    assert errors(compared(again, 5)).figures == errors(compared(evidence, 5)).figures


def test_requests_of_nobody_have_the_tolerance_that_they_had() -> None:
    rates = begun().rates
    spread = rates.spread(0.1)
    assert spread[rows.ERRORS.start] == rates.callers.spread(rates.rows, 0.1)[rows.ERRORS.start]
    known = spread[rows.KNOWN_ERRORS]
    assert (known == known[0]).all()
    assert 0 <= known[0] < spread[rows.ERRORS.start] / 3


caller = st.tuples(st.integers(0, 4095), st.integers(1, 20), st.integers(0, 20))


@settings(max_examples=30)
@given(st.lists(caller, max_size=12, unique_by=lambda each: each[0]), st.integers(0, 9))
def test_groups_and_strata_add_up_to_what_is_counted(
    told: list[tuple[int, int, int]], stratum: int
) -> None:
    requests = {bucket: n for bucket, n, _ in told}
    failed = {bucket: min(n, e) for bucket, n, e in told if min(n, e)}
    evidence = EvidenceCounts(
        requests=sum(requests.values()) + 7,  # seven of nobody
        errors=sum(failed.values()) + 2,
        group_requests=grouped(requests),
        group_errors=grouped(failed),
        caller_requests=requests,
        caller_errors=failed,
    )
    past = OwnPast.begin()
    past.events[: 2048 + stratum] = 10.0 * stratum
    past.expected[::2] = 3.0
    of_rows = rows.error_counts(evidence, past)
    arm = ArmGroupCounts.of(GroupCounts.of(evidence, ()), rows.errors_of_callers(evidence), past)
    for whole, of_groups, nobodys in zip(of_rows, (arm.failed, arm.attempts), (2, 7), strict=True):
        assert of_groups.shape == (CALLER_GROUPS, STRATA)
        assert of_groups.min() >= 0
        beside = np.array(whole) - of_groups.sum(axis=0)
        assert beside.tolist() == [nobodys, *[0] * (STRATA - 1)]
