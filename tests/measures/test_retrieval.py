"""Recall and nDCG as they are defined, and intervals that hold the truth as often as they say."""

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.retrieval import (
    MOST,
    count_shared,
    find_nearest,
    find_nearest_sparse,
    find_nearest_tokens,
    judge_searches,
    mean_with_interval,
)


def test_a_search_judged_by_hand() -> None:
    found = np.arange(MOST)[None]  # documents 0 to 9, in this order
    (recall,), (gain,) = judge_searches(found, [{1: 2.0, 4: 1.0, 70: 3.0}])
    assert recall == pytest.approx(2 / 3)
    best = 3 / log2(2) + 2 / log2(3) + 1 / log2(4)
    assert gain == pytest.approx((2 / log2(3) + 1 / log2(6)) / best)


@given(st.data())
def test_the_best_search_has_one_and_none_has_more(data: st.DataObject) -> None:
    grades = data.draw(st.dictionaries(st.integers(0, 30), st.floats(0.1, 5), min_size=1))
    found = data.draw(st.permutations(range(31)))[:MOST]
    best = sorted(range(31), key=lambda place: -grades.get(place, 0))[:MOST]
    recalls, gains = judge_searches(np.array([found, best]), [grades] * 2)
    assert 0 <= recalls[0] <= recalls[1] == min(1, MOST / len(grades))
    assert 0 <= gains[0] <= gains[1] + 1e-12
    assert gains[1] == pytest.approx(1)


@given(st.integers(0, 100), st.integers(MOST, 60))
def test_the_nearest_are_found_in_order(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    documents, queries = (random.normal(size=(n, 8)).astype(np.float32) for n in (count, 5))
    wanted = [np.argsort(-(documents @ query))[:MOST].tolist() for query in queries]
    assert find_nearest(queries, documents).tolist() == wanted
    cosines = queries @ documents.T
    assert count_shared(cosines, cosines).tolist() == [MOST] * 5


def test_of_a_hundred_intervals_about_one_in_twenty_misses() -> None:
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        mean, low, high = mean_with_interval(random.exponential(size=60))
        assert low <= mean <= high
        hits += low <= 1.0 <= high
    assert 88 <= hits <= 99


@given(st.integers(0, 100), st.integers(MOST, 40))
def test_sparse_and_token_vectors_are_searched_as_each_pair_is_scored(
    seed: int, count: int
) -> None:
    random = np.random.default_rng(seed)

    def sparse() -> dict[int, float]:
        chosen = random.choice(50, size=8, replace=False)
        return {int(index): float(random.random()) for index in chosen}

    texts = [sparse() for _ in range(count + 3)]
    queries, documents = texts[:3], texts[3:]
    for query, found in zip(queries, find_nearest_sparse(queries, documents), strict=True):
        scores = [sum(w * each.get(i, 0.0) for i, w in query.items()) for each in documents]
        told = [scores[place] for place in found]
        assert told == pytest.approx(sorted(scores, reverse=True)[:MOST], abs=1e-5)
    tokens = [
        random.normal(size=(random.integers(1, 6), 4)).astype(np.float32) for _ in range(count + 3)
    ]
    rows = find_nearest_tokens(tokens[:3], tokens[3:])
    for asked, found in zip(tokens[:3], rows, strict=True):
        sums = [float((asked @ each.T).max(axis=1).sum()) for each in tokens[3:]]
        told = [sums[place] for place in found]
        assert told == pytest.approx(sorted(sums, reverse=True)[:MOST], abs=1e-4)
