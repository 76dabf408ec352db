"""Edges are the contract by which any two histograms add."""

import itertools

import pytest

from contracts.statistics import EDGES, LATENCY_EDGES, Edges, Statistic


def test_every_statistic_has_edges() -> None:
    assert set(EDGES) == set(Statistic)


def test_latency_edges_hold_a_quantile_within_five_percent() -> None:
    ratios = [b / a for a, b in itertools.pairwise(LATENCY_EDGES.upper)]
    assert max(ratios) <= 1.0501
    assert LATENCY_EDGES.upper[0] <= 0.0001
    assert LATENCY_EDGES.upper[-1] >= 60


@pytest.mark.parametrize("upper", [(), (1.0, 1.0), (2.0, 1.0)])
def test_edges_that_do_not_grow_are_refused(upper: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="strictly increasing"):
        Edges(upper, "seconds")
