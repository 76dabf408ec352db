"""What the tests of two proportions say: verdict, figures and one sentence a check.

Fail goes before pass, and no data is unknown.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from contracts.rollout import CheckResult, Checks, ToleranceLine, Verdict
from measures.correlation import Floats
from measures.evalue import Tolerance, WindowCounts, log_ratio
from rollout.checks import rates as tests
from rollout.checks import words
from rollout.checks.labels import OtherLabelling
from rollout.checks.rates import BETA, LEAST_TO_PASS, RateEvidence
from rollout.checks.rows import CLASSES, OTHER, Compared, choose_compared
from rollout.checks.stage import ComparisonStage
from rollout.checks.warmth import COLD_WINDOWS

_EVENTS = {
    tests.ERROR_RATE: "errors",
    tests.LATENCY: "slower than stable's 95th percentile",
    tests.QUALITY: "wrong by feedback",
}

_WORTH_SAYING = 0.01  # of a difference of shares
_MOSTLY = 0.5  # of an arm's answers

_WARMS_UP = f"slow answers of its first {COLD_WINDOWS} windows with callers are only reported"

_NOT_IN_SHADOW = frozenset({tests.LATENCY, tests.QUALITY})


@dataclass(frozen=True)
class _Arms:
    """Counts of one test in both arms, and what the events are called."""

    e_c: float
    n_c: float
    e_s: float
    n_s: float
    events: str
    worse: str = "worse"
    of_callers: "_CallerStrata | None" = None

    def sentence(self) -> str:
        one, other = words.share_of(self.e_c, self.n_c), words.share_of(self.e_s, self.n_s)
        of_callers = self.of_callers.sentence(self) if self.of_callers else ""
        return f"{self.events} {one} against {other}{of_callers}"


@dataclass(frozen=True)
class _CallerStrata:
    """What the candidate's callers are like, if they have strata.

    Attributes:
        expected: share of events that stable has in answers to callers and texts like its.
        alone: share of its answers that stable has no answers to callers and texts like.
        what: is alike.
    """

    expected: float
    alone: float
    what: str

    @classmethod
    def of(cls, e_s: Floats, n_s: Floats, n_c: Floats, what: str) -> Self:
        """Of the counts of all strata."""
        is_like = n_s > 0
        like = float(n_c[is_like].sum())
        expected = float((n_c[is_like] * e_s[is_like] / n_s[is_like]).sum()) / max(like, 1.0)
        every = float(n_c.sum())
        return cls(expected, 1 - like / every if every else 0.0, what)

    def sentence(self, arms: _Arms) -> str:
        """What is to be said of them; nothing if they are much like stable's."""
        said = ""
        if arms.n_s and abs(self.expected - arms.e_s / arms.n_s) >= _WORTH_SAYING:
            said = f", where {words.percent(self.expected)} are expected of such {self.what}"
        if self.alone >= _MOSTLY:
            said += (
                f"; {words.percent(self.alone)} of its answers can't be judged, since stable "
                "answers no callers like these"
            )
        return said


@dataclass(frozen=True)
class ComparisonSetting:
    """What is compared.

    Attributes:
        stage: which arms.
        share: of callers, that the candidate has; 0 in shadow.
        is_last_step: whether the candidate is promoted after this step.
    """

    stage: ComparisonStage
    share: float
    is_last_step: bool


def verdict(rates: RateEvidence, name: str) -> Verdict:
    """A check's word, without its figures."""
    if name in rates.failed:
        return Verdict.FAIL
    return Verdict.PASS if rates.has_passed(name) else Verdict.UNKNOWN


def verdicts(rates: RateEvidence, checks: Checks) -> dict[str, Verdict]:
    """The words of those of these checks that were asked for."""
    enabled = tests.list_enabled(checks)
    return {name: verdict(rates, name) for name in tests.IN_ORDER if enabled[name]}


def results(
    rates: RateEvidence, checks: Checks, alpha: float, setting: ComparisonSetting
) -> tuple[CheckResult, ...]:
    """The results of those of these checks that were asked for.

    Args:
        rates: the evidence.
        checks: the spec's.
        alpha: of each check.
        setting: what is compared.
    """
    enabled = tests.list_enabled(checks)
    return tuple(
        _result(rates, name, check, alpha, setting)
        for name, check in zip(tests.IN_ORDER, choose_compared(checks), strict=True)
        if enabled[name]
    )


def _result(
    rates: RateEvidence, name: str, check: Compared, alpha: float, setting: ComparisonSetting
) -> CheckResult:
    outcome = verdict(rates, name)
    arms = _arms(rates, name, outcome)
    is_open = outcome is Verdict.UNKNOWN
    is_idle = is_open and setting.stage is ComparisonStage.SHADOW and name in _NOT_IN_SHADOW
    spread = rates.caller_spread(name, setting.share)
    is_hidden = (
        is_open
        and name == tests.CLASS_SHARE
        and name in rates.settled
        and rates.is_hidden_by_callers(name, check.pass_, setting.share)
    )
    is_settled = is_hidden and (
        rates.has_passed_beyond_callers(name)
        if setting.is_last_step
        else rates.requests_in_stage(name) >= LEAST_TO_PASS
    )
    is_waited_for = is_open and not (is_idle or is_settled)
    is_paired = setting.stage is ComparisonStage.SHADOW and rates.is_paired(name)
    missing = None
    if is_waited_for:
        missing = (
            _needed_pairs(rates, name)
            if is_paired
            else _needed_requests(rates, name, check.pass_, spread if is_hidden else 0.0)
        )
    of_callers = {}
    if arms.of_callers is not None:
        of_callers["expected_of_callers"] = arms.of_callers.expected
        of_callers["of_callers_unlike_any"] = arms.of_callers.alone
    evidence_to_fail, evidence_to_pass = rates.evidence_to_fail(name), rates.evidence_to_pass(name)
    if outcome is Verdict.FAIL:
        evidence = words.evidence(evidence_to_fail, 1 / alpha)
        beyond = f" beyond what callers differ by, {words.percent(spread)}" if spread else ""
        ending = f"{arms.worse}{words.by_more_than(check.fail)}{beyond}, {evidence}"
    elif outcome is Verdict.PASS:
        evidence = words.evidence(evidence_to_pass, 1 / BETA)
        ending = f"not {arms.worse}{words.by_more_than(check.pass_)}, {evidence}"
    elif is_idle:
        ending = "not judged in shadow"
    elif is_settled:
        ending = (
            f"callers differ by up to {words.percent(spread)} between the arms; passed in shadow, "
            f"on the same requests"
        )
    else:
        ending = f"not yet known, {words.still_needed(missing)}"
    if is_open and name == tests.LATENCY and rates.is_cold(setting.stage, alpha):
        ending = f"{ending}; {_WARMS_UP}"
    if is_open and rates.rests_on_few(name, alpha):
        ending = f"{ending}; {words.RESTS_ON_FEW}"
    other = rates.labelling.other() if name == tests.QUALITY else None
    if other is not None:
        ending = f"{ending}; {_labels_otherwise(other)}"
    return CheckResult(
        name=name,
        verdict=outcome,
        reason=f"{arms.sentence()}: {ending}",
        figures={
            "candidate_events": arms.e_c,
            "candidate_requests": arms.n_c,
            "stable_events": arms.e_s,
            "stable_requests": arms.n_s,
            "evidence_to_fail": evidence_to_fail,
            "needed_to_fail": 1 / alpha,
            "evidence_to_pass": evidence_to_pass,
            "needed_to_pass": 1 / BETA,
            "apart_by_callers": spread,
            **of_callers,
        },
        gate=check.gate,
        required=check.required and not (is_idle or is_settled),
        needs=missing,
    )


def _arms(rates: RateEvidence, name: str, outcome: Verdict) -> _Arms:
    """Counts of the test that decides: since the rollout began if it failed, else by stage."""
    if name == tests.CLASS_SHARE:
        return _class_arms(rates, outcome)
    at = np.flatnonzero(np.isin(rates.rows.test_of_row, _tests_of(rates, name)))
    sums = _stage_sums(rates)
    if outcome is Verdict.FAIL or not sums[1, at].any():
        sums = rates.sums
    e_c, n_c, e_s, n_s = (float(total) for total in sums[:, at].sum(axis=-1))
    has_strata = {
        tests.ERROR_RATE: rates.errors_past is not None,
        tests.LATENCY: rates.own_past is not None,
    }.get(name, False)
    what = "callers and texts" if name == tests.LATENCY else "callers"
    of_callers = (
        _CallerStrata.of(sums[2, at], sums[3, at], sums[1, at], what) if has_strata else None
    )
    return _Arms(e_c, n_c, e_s, n_s, _EVENTS[name], of_callers=of_callers)


def _class_arms(rates: RateEvidence, outcome: Verdict) -> _Arms:
    if not rates.rows.labels:
        return _Arms(0, 0, 0, 0, "labels")
    of_classes = tests.TESTS[tests.CLASS_SHARE]
    if outcome is Verdict.FAIL:
        index, sums = int(np.argmax(rates.e_values[of_classes])), rates.sums
    else:
        index, sums = int(np.argmin(rates.non_inferiority.log_e[of_classes])), _stage_sums(rates)
    direction = rates.rows.directions[index]
    e_c, n_c, e_s, n_s = (float(part) for part in sums[:, CLASSES + index])
    events = f"label {direction.label!r}" if direction.label != OTHER else "other labels"
    if direction.grows:
        return _Arms(e_c, n_c, e_s, n_s, events, "more frequent")
    return _Arms(n_c - e_c, n_c, n_s - e_s, n_s, events, "rarer")


def _labels_otherwise(other: OtherLabelling) -> str:
    arm = "candidate" if other.is_candidates else "old version"
    before = words.share_of(other.wrong_before, other.labels_before)
    return (
        f"callers of group {other.group} label otherwise: of the {arm}'s answers to them "
        f"{words.share_of(other.wrong, other.labels)} are wrong, to others "
        f"{words.percent(other.others)}; before the rollout {before}"
    )


def _stage_sums(rates: RateEvidence) -> Floats:
    of_stage = rates.non_inferiority
    return np.stack([of_stage.e_c, of_stage.n_c, of_stage.e_s, of_stage.n_s])


def _tests_of(rates: RateEvidence, name: str) -> list[int]:
    return list(range(len(rates.rows.tests)))[tests.TESTS[name]]


def _needed_requests(
    rates: RateEvidence, name: str, line: ToleranceLine, spread: float
) -> int | None:
    """The candidate's requests until it passes, if it is as good as stable.

    With a ``spread``, until it is no further off than the line and what callers can make.

    By what a window of this stage is expected to add, at the rate learnt so far, and by how many
    requests it takes for one that the test rests on: not each has feedback. None if nothing is
    known of that yet.
    """
    of_stage = rates.non_inferiority
    n_c = rates.requests_in_stage(name)
    at = np.isin(rates.rows.test_of_row, _tests_of(rates, name)) & (of_stage.n_c > 0)
    if n_c <= 0 or not at.any():
        return None
    theta = (of_stage.e_c[at] + of_stage.e_s[at] + 0.5) / (of_stage.n_c[at] + of_stage.n_s[at] + 1)
    requests, others = of_stage.n_c[at] / rates.windows, of_stage.n_s[at] / rates.windows
    window = WindowCounts(requests * theta, requests, others * theta, others)
    tolerance = Tolerance(line.absolute + spread, line.relative)
    gained = log_ratio(window, theta, theta, tolerance, rates.rho[at], within=rates.within[at])
    gained = gained / rates.near[at]
    of_row = rates.rows.test_of_row[at]
    missing = max(0.0, LEAST_TO_PASS - n_c)
    of_tests = rates.missing_evidence(beyond_callers=spread > 0)
    for test in np.unique(of_row):
        a_request = float(gained[of_row == test].sum() / requests[of_row == test].sum())
        lacking = float(of_tests[test])
        if lacking > 0 and a_request <= 0:
            return None
        if lacking > 0:
            missing = max(missing, lacking / a_request)
    for_one = rates.requests_in_stage(tests.ERROR_RATE) / n_c
    return math.ceil(missing * for_one)


def _needed_pairs(rates: RateEvidence, name: str) -> int | None:
    """The shadow's requests until it passes by pairs, if the next ones are like those so far.

    None if they gained nothing yet.
    """
    n_c = rates.requests_in_stage(name)
    log_e = rates.non_inferiority.log_e[tests.TESTS[name]]
    if n_c <= 0 or log_e.min() <= 0:
        return None
    lacking = math.log(1 / BETA) - float(log_e.min())
    missing = max(LEAST_TO_PASS - n_c, lacking * n_c / float(log_e.min()))
    return max(0, math.ceil(missing))
