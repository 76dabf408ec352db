"""How good a search by vectors is, of queries whose relevant documents are known. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Floats = NDArray[np.float64]

MOST = 10  # documents that are found
EQUALLY_NEAR = 1e-6  # of cosines: which of two equal texts is nearer is chance
_NUMBERS = 1 << 24  # cosines at once
_RESAMPLES = 2000
_SHARE = 0.95  # of an interval


def find_nearest(queries: Vectors, documents: Vectors) -> NDArray[np.int64]:
    """Places of the nearest documents by cosine, the nearest first, ``[queries, MOST]``; exact.

    Args:
        queries: of length 1, float32 ``[queries, width]``.
        documents: the same, ``MOST`` at least.
    """
    step = max(1, _NUMBERS // len(documents))
    return np.concatenate(
        [
            _find_best(queries[start : start + step] @ documents.T)
            for start in range(0, len(queries), step)
        ]
    )


def _find_best(scores: Vectors) -> NDArray[np.int64]:
    near = np.argpartition(-scores, MOST - 1, axis=1)[:, :MOST]
    order = np.argsort(-np.take_along_axis(scores, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def find_nearest_sparse(
    queries: Sequence[Mapping[int, float]], documents: Sequence[Mapping[int, float]]
) -> NDArray[np.int64]:
    """As ``find_nearest``, by the product of sparse vectors: weights by index, never negative."""
    places: dict[int, list[int]] = {}
    weights: dict[int, list[float]] = {}
    for place, document in enumerate(documents):
        for index, weight in document.items():
            places.setdefault(index, []).append(place)
            weights.setdefault(index, []).append(weight)
    found = []
    for query in queries:
        scores = np.zeros((1, len(documents)), np.float32)
        for index, weight in query.items():
            if index in places:
                scores[0, places[index]] += weight * np.array(weights[index], np.float32)
        found.append(_find_best(scores))
    return np.concatenate(found)


def find_nearest_tokens(
    queries: Sequence[Vectors], documents: Sequence[Vectors]
) -> NDArray[np.int64]:
    """As ``find_nearest``, by MaxSim: of each query's vector the nearest of a document's, summed.

    Args:
        queries: of each, float32 ``[tokens, width]``, one vector at least.
        documents: the same.
    """
    found = []
    for query in queries:
        scores = np.empty((1, len(documents)), np.float32)
        start = 0
        while start < len(documents):
            end, tokens = start, 0
            while end < len(documents) and (end == start or tokens * len(query) < _NUMBERS):
                tokens += len(documents[end])
                end += 1
            some = documents[start:end]
            begins = np.cumsum([0, *(len(each) for each in some[:-1])])
            nearest = np.maximum.reduceat(query @ np.concatenate(some).T, begins, axis=1)
            scores[0, start:end] = nearest.sum(axis=0)
            start = end
        found.append(_find_best(scores))
    return np.concatenate(found)


def count_shared(cosines: Vectors, others: Vectors) -> NDArray[np.int64]:
    """How many of the ``MOST`` nearest documents the others' cosines find too, of each query.

    Documents that are equally near may come in any order.

    Args:
        cosines: float32 ``[queries, documents]``; minus infinity leaves a document out.
        others: the same.
    """
    chosen = np.argpartition(-others, MOST - 1, axis=1)[:, :MOST]
    farthest = -np.partition(-cosines, MOST - 1, axis=1)[:, MOST - 1 : MOST]
    found = np.take_along_axis(cosines, chosen, axis=1) >= farthest - EQUALLY_NEAR
    counts: NDArray[np.int64] = found.sum(axis=1)
    return counts


def judge_searches(
    found: NDArray[np.int64], relevant: Sequence[Mapping[int, float]]
) -> tuple[Floats, Floats]:
    """Recall and nDCG of each query, as trec_eval's ``recall`` and ``ndcg_cut``.

    Args:
        found: places of documents, the best first, ``[queries, MOST]``.
        relevant: of each query, places of the documents that answer it, and how well, above 0.
    """
    discounts = 1 / np.log2(np.arange(2, MOST + 2))
    recalls, gains = [], []
    for places, grades in zip(found.tolist(), relevant, strict=True):
        got = np.array([grades.get(place, 0.0) for place in places])
        best = np.sort([*grades.values()])[::-1][:MOST]
        recalls.append(np.count_nonzero(got) / len(grades))
        gains.append(got @ discounts / (best @ discounts[: len(best)]))
    return np.array(recalls), np.array(gains)


def compare_searches(
    found: Mapping[str, NDArray[np.int64]], relevant: Sequence[Mapping[int, float]]
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Mean and 95 % interval of each measure, of two searches by name and of their difference.

    Both answer the same queries, so that the differences are paired; beside them, the share of the
    documents of a query that both find.
    """
    old, new = found.values()
    judged = [judge_searches(each, relevant) for each in (old, new)]
    told = {
        name: {
            **{of: mean_with_interval(values) for of, values in zip(found, pair, strict=True)},
            "difference": mean_with_interval(pair[1] - pair[0]),
        }
        for name, *pair in zip(("recall@10", "nDCG@10"), *judged, strict=True)
    }
    shared = [len({*a} & {*b}) / MOST for a, b in zip(old.tolist(), new.tolist(), strict=True)]
    return {**told, "nearest ten": {"shared": mean_with_interval(np.array(shared))}}


def mean_with_interval(values: Floats) -> tuple[float, float, float]:
    """The mean and a 95 % interval: a bootstrap over queries, the same at each call."""
    random = np.random.default_rng(0)
    count = len(values)
    means = [values[random.integers(count, size=count)].mean() for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, [(1 - _SHARE) / 2, (1 + _SHARE) / 2])
    return float(values.mean()), float(low), float(high)
