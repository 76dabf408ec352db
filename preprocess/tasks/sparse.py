"""Sparse embedding: a weight for each token of the vocabulary, most of them 0, as SPLADE has it.

Pooling, the largest log(1 + relu(logit)) of all tokens, is part of the graph.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from contracts.events import TextRecord
from contracts.tasks import SPARSE, Task
from preprocess.encoder import EncodedTexts
from preprocess.scores import norms
from preprocess.tasks.head import AnsweredTexts, Difference, Head, Output, Side, Values, Weights


class SparseEmbedding(Head):
    """Values are float32 ``[texts, vocabulary]`` weights; what is not above 0 is not told."""

    task: ClassVar[Task] = Task.SPARSE_EMBEDDING
    kinds: ClassVar[frozenset[str]] = frozenset({SPARSE})

    def _values(self, output: Values, *, multi_label: bool) -> Values:  # noqa: ARG002
        return np.maximum(output, 0)

    def records(
        self,
        encoded: EncodedTexts,
        values: Values,
        labels: tuple[str, ...],  # noqa: ARG002 - no labels
    ) -> list[TextRecord]:
        """The Euclidean norm, and how many weights are not 0."""
        counts = np.count_nonzero(values, axis=1).tolist()
        return [
            TextRecord(*known, norm=norm, non_zeros=count)
            for known, norm, count in zip(
                encoded.statistics(), norms(values).tolist(), counts, strict=True
            )
        ]

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """1 - weighted Jaccard: the sum of the smaller weights over that of the larger ones.

        It is 1 for vocabularies of different sizes, and 0 between two texts without any weight.
        """
        values, others = ours.values, theirs.values
        if values.shape != others.shape:
            return Difference(np.ones(len(values)), [], [], np.empty(0))
        shared = np.minimum(values, others).sum(axis=1, dtype=np.float64)
        every = np.maximum(values, others).sum(axis=1, dtype=np.float64)
        jaccard = np.divide(shared, every, out=np.ones_like(every), where=every > 0)
        return Difference(1 - jaccard, [], [], np.empty(0))

    def sparse(self, answer: AnsweredTexts) -> list[Weights]:
        """See ``Head.sparse``."""
        return weights(answer.values)

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401, ARG002
        """``{"index", "value"}`` of each weight that is not 0, by index; a list of them a text."""
        found = weights(answer.values)
        return found[0] if one else found

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """The same list a text."""
        return list(weights(answer.values))

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The same as JSON."""
        lists = weights(answer.values)
        return {"SPARSE": [json.dumps(each, separators=(",", ":")) for each in lists]}


def weights(values: Values) -> list[Weights]:
    """The weights that are not 0 of each text, in the order of their indices.

    Args:
        values: float32 ``[texts, vocabulary]``.
    """
    found: list[Weights] = []
    for row in values:
        (indices,) = np.nonzero(row)
        found.append(
            [
                {"index": index, "value": value}
                for index, value in zip(indices.tolist(), row[indices].tolist(), strict=True)
            ]
        )
    return found
