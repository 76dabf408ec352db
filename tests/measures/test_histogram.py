"""Histograms count every value once, add in any order, and refuse what is no number."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.statistics import EDGES, LATENCY_EDGES, Edges
from measures.histogram import Histogram, NotANumberError, UnequalEdgesError, merged

SMALL = Edges((0.0, 1.0, 2.5), "things")
numbers = st.floats(allow_nan=False)
values = st.lists(numbers, max_size=50)
all_edges = st.sampled_from([*EDGES.values(), LATENCY_EDGES])


def test_a_value_belongs_to_the_first_bucket_whose_edge_it_does_not_exceed() -> None:
    histogram = Histogram.of(SMALL, [-5, 0, 0.1, 1, 1.0001, 2.5, 2.6, math.inf, -math.inf])
    assert histogram.to_tuple() == (3, 2, 2, 2)
    assert histogram.total == 9


@given(all_edges, values)
def test_every_value_is_counted_in_its_bucket(edges: Edges, some: list[float]) -> None:
    histogram = Histogram.of(edges, some)
    expected = [0] * (len(edges.upper) + 1)
    for value in some:
        bucket = next((i for i, edge in enumerate(edges.upper) if value <= edge), -1)
        expected[bucket] += 1
    assert list(histogram.to_tuple()) == expected


@given(all_edges, values, values, values)
def test_adding_is_counting_all_in_any_order(
    edges: Edges, a: list[float], b: list[float], c: list[float]
) -> None:
    one, two, three = (Histogram.of(edges, some) for some in (a, b, c))
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + two + three == Histogram.of(edges, a + b + c)
    assert merged(edges, [one, two, three]) == merged(edges, [three, one, two])
    assert one + Histogram(edges) == one


@given(values)
def test_counts_survive_being_stored(some: list[float]) -> None:
    histogram = Histogram.of(SMALL, some)
    assert Histogram(SMALL, histogram.to_tuple()) == histogram


def test_adding_changes_neither_part() -> None:
    one, two = Histogram.of(SMALL, [1]), Histogram.of(SMALL, [2])
    both = one + two
    both.add([7])
    assert (one.total, two.total, both.total) == (1, 1, 3)


def test_nan_is_refused_and_nothing_is_counted() -> None:
    histogram = Histogram(SMALL)
    with pytest.raises(NotANumberError, match="1 of 3 values are NaN"):
        histogram.add([1, math.nan, 2])
    assert histogram.total == 0


def test_values_of_any_shape_are_counted() -> None:
    histogram = Histogram.of(SMALL, np.ones((3, 4), np.float32))
    histogram.add(0.5)
    histogram.add([])
    assert histogram.to_tuple() == (0, 13, 0, 0)


def test_different_edges_do_not_add() -> None:
    with pytest.raises(UnequalEdgesError):
        Histogram(SMALL) + Histogram(Edges((0.0, 1.0), "things"))


@pytest.mark.parametrize("counts", [(1, 2, 3), (1, 2, 3, 4, 5), (1, -1, 0, 0)])
def test_counts_that_do_not_go_with_the_edges_are_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="count"):
        Histogram(SMALL, counts)


@given(st.lists(st.floats(0.0001, 60), min_size=1, max_size=100), st.floats(0, 1))
def test_a_latency_quantile_is_within_5_percent_above_the_true_one(
    seconds: list[float], share: float
) -> None:
    found = Histogram.of(LATENCY_EDGES, seconds).quantile(share)
    true = sorted(seconds)[max(1, math.ceil(share * len(seconds))) - 1]
    assert true <= found <= true * 1.0501


def test_a_quantile_in_the_last_bucket_is_infinite() -> None:
    assert Histogram.of(SMALL, [1, 9]).quantile(0.5) == 1.0
    assert Histogram.of(SMALL, [1, 9]).quantile(1.0) == math.inf


def test_what_has_no_quantile_says_so() -> None:
    with pytest.raises(ValueError, match="no quantiles"):
        Histogram(SMALL).quantile(0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        Histogram.of(SMALL, [1]).quantile(1.5)


def test_histograms_are_no_keys() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Histogram(SMALL))
    assert Histogram(SMALL) != "histogram"
