"""Labels of the pairs that disagree bound the difference of accuracy, at every look."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.labelled_pairs import (
    BETS,
    Labels,
    bounds,
    disagreement,
    is_not_worse,
    log_evidence,
)

counts = st.integers(0, 400)


def labels_of(candidate: int, stable: int, neither: int = 0) -> Labels:
    return Labels(*(np.array(float(count)) for count in (candidate, stable, neither)))


def test_the_e_value_is_that_of_bets_worked_out_one_by_one() -> None:
    margin, wealth = 0.4, np.ones(len(BETS))
    for x in [1] * 7 + [-1] * 3 + [0] * 2:
        wealth *= 1 + BETS * (x + margin)
    found = log_evidence(labels_of(7, 3, 2), margin)
    assert np.exp(found) == pytest.approx(wealth.mean())


@given(candidate=st.integers(1, 60), margin=st.floats(0.0, 0.99))
def test_an_e_value_has_a_mean_of_one_on_the_line(candidate: int, margin: float) -> None:
    """Over all outcomes of a few labels whose mean is just minus the margin."""
    n = candidate % 12 + 1
    right = (1 - margin) / 2
    total = 0.0
    for k in range(n + 1):
        chance = (
            np.exp(sum(np.log(np.arange(n - k + 1, n + 1))) - sum(np.log(np.arange(1, k + 1))))
            * right**k
            * (1 - right) ** (n - k)
        )
        total += chance * np.exp(log_evidence(labels_of(k, n - k), margin))
    assert total == pytest.approx(1.0)


@given(counts, counts, counts, st.floats(-0.9, 0.9), st.floats(0.0, 0.1))
def test_evidence_grows_with_the_margin(
    candidate: int, stable: int, neither: int, margin: float, more: float
) -> None:
    labels = labels_of(candidate, stable, neither)
    assert log_evidence(labels, margin + more) >= log_evidence(labels, margin) - 1e-9


def test_without_labels_nothing_is_known_but_how_many_pairs_disagree() -> None:
    none = labels_of(0, 0)
    found = bounds(none, np.array(10_000.0), np.array(500.0))
    share = float(disagreement(np.array(10_000.0), np.array(500.0), 0.01)[1])
    assert 0.055 < share < 0.065
    assert float(found.lower) == pytest.approx(-share)
    assert float(found.upper) == pytest.approx(share)
    assert not is_not_worse(none, np.array(10_000.0), np.array(500.0), 0.02)


def test_where_few_enough_pairs_disagree_no_label_is_needed() -> None:
    assert is_not_worse(labels_of(0, 0), np.array(10_000.0), np.array(100.0), 0.02)


def test_some_sixty_labels_show_that_an_equal_version_is_not_worse_by_two_points() -> None:
    pairs = np.array(10_000.0), np.array(500.0)
    assert not is_not_worse(labels_of(15, 15), *pairs, 0.02)
    assert is_not_worse(labels_of(32, 32), *pairs, 0.02)
    found = bounds(labels_of(32, 32), *pairs)
    assert -0.025 < float(found.lower) < 0 < float(found.upper) < 0.025


def test_bounds_are_those_of_the_verdict_with_the_versions_exchanged() -> None:
    pairs = np.array(5_000.0), np.array(600.0)
    one = bounds(labels_of(40, 10, 5), *pairs)
    other = bounds(labels_of(10, 40, 5), *pairs)
    assert float(one.lower) == pytest.approx(-float(other.upper))
    assert float(one.lower) > 0  # the candidate is better


@pytest.mark.slow
def test_versions_on_the_line_are_seldom_called_not_worse_however_often_one_looks() -> None:
    """400 rollouts of 300 labels, looked at after each: at most 5 % and chance."""
    rng = np.random.default_rng(1)
    disagree = rng.binomial(10_000, 0.05, 400).astype(float)
    right = np.cumsum(rng.random((300, 400)) < 0.3, axis=0).astype(float)
    shown = np.zeros(400, dtype=bool)
    for count in range(1, 301, 5):
        of = right[count - 1]
        labels = Labels(of, count - of, np.zeros(400))
        shown |= is_not_worse(labels, np.full(400, 10_000.0), disagree, 0.02)
    assert shown.mean() < 0.08
