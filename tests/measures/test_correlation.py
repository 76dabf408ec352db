"""Traffic whose requests resemble one another is measured for what it is, and no other."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.correlation import (
    ASSUMED,
    CAUTION,
    ENOUGH_WINDOWS,
    IntraclassCorrelation,
    design_effect,
)


def learnt(events: Sequence[Sequence[float]], requests: Sequence[float]) -> IntraclassCorrelation:
    """After these windows, each with the counts of some events."""
    found = IntraclassCorrelation.begin(len(events[0]))
    for counts, n in zip(events, requests, strict=True):
        found = found.after(np.array(counts, dtype=float), np.full(len(counts), float(n)))
    return found


def test_a_request_alone_counts_as_one() -> None:
    assert design_effect(np.array([1.0, 0.0]), 0.5).tolist() == [1, 1]
    assert float(design_effect(np.array(101.0), 0.01)) == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=20))
def test_a_correlation_is_always_between_0_and_1(pairs: list[tuple[int, int]]) -> None:
    found = learnt([[min(pair)] for pair in pairs], [n for _, n in pairs])
    assert 0 <= found.each[0] <= 1
    assert 0 <= found.shared <= 1


def test_the_arithmetic() -> None:
    # p = 0.3, rates 0.2 and 0.4 of 50 in turn: each difference squared is 0.04, over
    # 0.21 x 2/50 = 0.0084: X = 4.7619. rho = 1.5 (X - 1) / 49.
    events = [[10, 40], [20, 30]] * 5
    by_hand = 1.5 * (0.04 / 0.0084 - 1) / 49
    found = learnt(events, [50] * 10)
    assert found.each == pytest.approx([by_hand, by_hand])
    assert found.shared == pytest.approx(by_hand)  # a histogram of two classes is a proportion
    with_an_empty_class = learnt([[*counts, 0] for counts in events], [50] * 10)
    assert with_an_empty_class.shared == pytest.approx(by_hand)
    assert with_an_empty_class.each[2] == 0


def test_too_few_windows_are_taken_for_what_callers_usually_cause() -> None:
    few = learnt([[10], [40]] * 4 + [[0]], [50] * 8 + [0])
    assert (few.windows[0], ENOUGH_WINDOWS) == (8, 10)
    assert (few.each[0], few.shared) == (ASSUMED, ASSUMED)


def test_a_slow_trend_is_no_correlation() -> None:
    assert learnt([[1000 * rate] for rate in np.linspace(0.05, 0.15, 200)], [1000] * 200).each == 0


@pytest.mark.parametrize("rho", [0.0, 0.005, 0.02])
def test_a_correlation_is_found_again(rho: float) -> None:
    rng = np.random.default_rng(11)
    n, p = 500, 0.1
    rates = np.full(2000, p) if rho == 0 else rng.beta(p / rho - p, (1 - p) / rho - 1 + p, 2000)
    found = learnt(rng.binomial(n, rates)[:, None].tolist(), [n] * 2000).each[0] / CAUTION
    assert found == pytest.approx(rho, abs=0.1 * rho + 0.0005)


def test_windows_without_requests_change_nothing_and_a_new_event_begins_anew() -> None:
    before = learnt([[10, 1], [20, 2]] * 6, [50] * 12)
    after = before.after(np.zeros(2), np.zeros(2))
    assert after.to_json() == before.to_json()
    wider = before.widened(1)
    assert wider.each.tolist() == [*before.each, ASSUMED]
    stored = json.loads(json.dumps(wider.to_json()))
    assert IntraclassCorrelation.of_json(stored).to_json() == stored
