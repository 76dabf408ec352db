"""How soon faults are caught and good candidates pass: tests of two proportions, one at a time.

The tests are ``measures.proportions`` as production runs them, over many simulated rollouts at
once. The settings are those of the figures to reach: a fail line of a = 0, s = 1 (harder than the
defaults to get wrong, and comparable with other methods), independent requests, a look after every
window. Requests are nobody's, so that no callers are left out; single windows are, where a stall
would show.
"""

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from bench.findings import Finding, needed, share
from measures.correlation import Floats
from measures.leaving_out import LeftOut, expected_events
from measures.proportions import (
    ALTERNATIVES,
    HarmTest,
    History,
    NonInferiorityTest,
    Tolerance,
    Window,
    log_evidence,
)

ALPHA = 0.0125  # of each of four checks
BETA = 0.05
LEAST_TO_PASS = 100  # the candidate's requests
PAST = 20_000  # requests of stable before the canary
SHARES = (0.05, 0.25, 0.5)
EQUAL = Tolerance(0.0, 1.0)
_NEVER = 40_000  # of the candidate's requests


@dataclass(frozen=True)
class Fault:
    """Rates of both arms, and at most how many canary requests at each of ``SHARES`` are asked."""

    name: str
    canary: float
    stable: float
    targets: tuple[float | None, float | None, float | None]
    window: int = 100  # requests of both arms
    alpha: float = ALPHA
    after: int = 0  # good canary requests before it begins
    may_stall: bool = True  # a stall would show in it, so that single windows are left out


FAULTS = (
    Fault("errors 1 % to 5 %", 0.05, 0.01, (400, 550, 850)),
    Fault("errors 1 % to 2 %", 0.02, 0.01, (3600, 4700, 7200)),
    Fault("errors 0.1 % to 1 %", 0.01, 0.001, (1200, 1700, 2700)),
    Fault("errors 0 to 1 %", 0.01, 0.0, (600, 950, 1600)),
    Fault("slow answers 5 % to 10 %", 0.10, 0.05, (700, 900, 1400)),
    Fault("a class 50 % to 60 %", 0.60, 0.50, (750, 900, 1400), may_stall=False),
    # Both directions share the check's alpha in production; with two classes that is all.
    Fault("the same, alpha shared by both directions", 0.60, 0.50,
          (750, 900, 1400), alpha=ALPHA / 2, may_stall=False),
    Fault("every request fails", 1.0, 0.01, (15, None, 25), window=20),
    Fault("errors 1 % to 5 %, after 5,000 good requests", 0.05, 0.01, (650, None, 1200),
          after=5000),
)  # fmt: skip


def caught(rollouts: int) -> list[Finding]:
    """Canary requests until a fault is caught, at each share."""
    return [
        needed(fault.name, f"{part:.0%}", until_caught(fault, part, rollouts), target)
        for fault in FAULTS
        for part, target in zip(SHARES, fault.targets, strict=True)
    ]


def until_caught(fault: Fault, part: float, rollouts: int) -> Floats:
    """Canary requests until a fault is caught, infinite where it never was."""
    rng = np.random.default_rng([1, FAULTS.index(fault), round(100 * part)])
    past = _past(rng, fault.stable, rollouts)
    past = History(past.events[:, None], past.requests[:, None])
    worse, left = HarmTest.begin((rollouts, 1)), LeftOut.begin(1, (rollouts,), groups=0)
    nobody, one = np.zeros((rollouts, 0, 1, ALTERNATIVES)), np.zeros(rollouts, dtype=np.bool_)
    seen, faulty = np.zeros(rollouts), np.zeros(rollouts)
    amounts = np.full(rollouts, np.inf)
    while np.isinf(amounts).any() and faulty.min() < _NEVER:
        begun = bool(seen.min() >= fault.after)
        window = _window(
            rng,
            fault.window,
            part,
            (fault.canary if begun else fault.stable, fault.stable),
            rollouts,
        )
        column = Window(*(part[:, None] for part in astuple(window)))
        believed = worse.theta_s(past)
        log_s = log_evidence(column, believed, EQUAL)
        worse = worse.grown(log_s, column)
        left = left.after(log_s, nobody, worse.windows, expected_events(column.n_c, believed))
        e_value = left.e_value(worse.windows, one) if fault.may_stall else worse.e_value()
        seen = seen + window.n_c
        faulty = faulty + (window.n_c if begun else 0)
        hit = (e_value[:, 0] >= 1 / fault.alpha) & np.isinf(amounts)
        amounts = np.where(hit, faulty, amounts)
    return amounts


@dataclass(frozen=True)
class Good:
    """An equal candidate: its rate, the line to pass, and at most how many requests it may take."""

    name: str
    rate: float
    line: Tolerance
    target: float | None


ERRORS, SLOW, CLASS = Tolerance(0.01, 1.25), Tolerance(0.02, 1.25), Tolerance(0.05, 1.0)
GOOD = (
    Good("errors of 0.1 %", 0.001, ERRORS, 750),
    Good("errors of 1 %", 0.01, ERRORS, 2500),
    Good("slow answers of 5 %", 0.05, SLOW, 3600),
    Good("a class of 50 %", 0.5, CLASS, None),
)


def passed(rollouts: int) -> list[Finding]:
    """Canary requests until an equal candidate passes."""
    return [
        needed(good.name, f"{part:.0%}", _until_passed(good, part, rollouts), good.target)
        for good in GOOD
        for part in SHARES
    ]


def _until_passed(good: Good, part: float, rollouts: int) -> Floats:
    rng = np.random.default_rng([2, GOOD.index(good), round(100 * part)])
    past = _past(rng, good.rate, rollouts)
    test = NonInferiorityTest.begin((rollouts,))
    amounts = np.full(rollouts, np.inf)
    while np.isinf(amounts).any() and test.n_c.min() < _NEVER:
        window = _window(rng, 100, part, (good.rate, good.rate), rollouts)
        test = test.after(window, past, good.line)
        passes = (test.e_value() >= 1 / BETA) & (test.n_c >= LEAST_TO_PASS)
        amounts = np.where(passes & np.isinf(amounts), test.n_c, amounts)
    return amounts


def wrongly_passed(rollouts: int) -> list[Finding]:
    """Share of candidates exactly on the pass line that ever pass, in 10,000 canary requests."""
    return [
        share(f"{good.name}, on the line to pass", f"{part:.0%}",
              _ever_passed(good, part, rollouts), 0.05)
        for good in GOOD
        for part in SHARES
    ]  # fmt: skip


def _ever_passed(good: Good, part: float, rollouts: int) -> NDArray[np.bool_]:
    rng = np.random.default_rng([3, GOOD.index(good), round(100 * part)])
    past = _past(rng, good.rate, rollouts)
    test = NonInferiorityTest.begin((rollouts,))
    ever = np.zeros(rollouts, dtype=np.bool_)
    on_the_line = float(good.line.a) + float(good.line.s) * good.rate
    while test.n_c.min() < 10_000:
        window = _window(rng, 400, part, (on_the_line, good.rate), rollouts)
        test = test.after(window, past, good.line)
        ever = ever | ((test.e_value() >= 1 / BETA) & (test.n_c >= LEAST_TO_PASS))
    return ever


@dataclass(frozen=True)
class Late:
    """A fault that begins after so many windows, and at most how many canary requests are asked."""

    windows: int
    target: float | None


LATE = (Late(0, 850), Late(100, 1200), Late(500, 1350), Late(2000, 1500), Late(8000, 1700))
NOW = "weights without an end"


def late(rollouts: int) -> list[Finding]:
    """Canary requests until errors of 5 % in place of 1 % are caught that begin late, at a half.

    And how often identical versions alarm within the windows of a day before.
    """
    rng = np.random.default_rng([11])
    past = _past(rng, 0.01, rollouts)
    test = HarmTest.begin((rollouts,))
    alarmed = np.zeros(rollouts, dtype=np.bool_)
    found = []
    for at in range(LATE[-1].windows + 1):
        found += [
            needed(
                f"errors 1 % to 5 %, after {at:,} windows",
                NOW,
                _until_caught_late(case, test, past, rollouts),
                case.target,
            )
            for case in LATE
            if case.windows == at
        ]
        test = test.after(_window(rng, 100, 0.5, (0.01, 0.01), rollouts), past, EQUAL)
        alarmed |= test.e_value() >= 1 / ALPHA
    what = f"identical versions that alarm within {LATE[-1].windows:,} windows"
    return [*found, share(what, NOW, alarmed, ALPHA)]


def _until_caught_late(case: Late, test: HarmTest, past: History, rollouts: int) -> Floats:
    """Canary requests from the fault's beginning on."""
    rng = np.random.default_rng([11, case.windows])
    amounts, seen = np.full(rollouts, np.inf), np.zeros(rollouts)
    while np.isinf(amounts).any() and seen.min() < _NEVER:
        window = _window(rng, 100, 0.5, (0.05, 0.01), rollouts)
        test, seen = test.after(window, past, EQUAL), seen + window.n_c
        amounts = np.where((test.e_value() >= 1 / ALPHA) & np.isinf(amounts), seen, amounts)
    return amounts


def _past(rng: np.random.Generator, rate: float, rollouts: int) -> History:
    return History(
        rng.binomial(PAST, rate, rollouts).astype(np.float64), np.full(rollouts, float(PAST))
    )


def _window(
    rng: np.random.Generator, size: int, part: float, rates: tuple[float, float], rollouts: int
) -> Window:
    n_c = rng.binomial(size, part, rollouts)
    e_c, e_s = rng.binomial(n_c, rates[0]), rng.binomial(size - n_c, rates[1])
    return Window(*(x.astype(np.float64) for x in (e_c, n_c, e_s, size - n_c)))
