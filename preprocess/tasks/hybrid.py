"""Hybrid embedding: dense, sparse and token vectors of one run of a model, as BGE-M3 gives them.

The graph joins its three outputs to one, a row a token: the first columns are the token's vector,
in the row of the first token the dense one of the text; the last column is the token's weight. So
one run answers whatever kind a request asks for, and travels as labels of tokens do.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from contracts.events import TextRecord
from contracts.tasks import DENSE, SPARSE, TOKENS, Task
from preprocess.encoder import EncodedTexts
from preprocess.late_interaction import (
    count_filling,
    fill_to_longest,
    mean_distance,
)
from preprocess.scores import norms
from preprocess.tasks.embedding import formed, refuse_dimensions
from preprocess.tasks.head import (
    AnsweredTexts,
    Difference,
    Head,
    ModelDescription,
    Output,
    SecondText,
    Side,
    Values,
    Weights,
    require_encoded,
)
from preprocess.vectors import VectorPrecision, unit

_ALL = (DENSE, SPARSE, TOKENS)


class HybridEmbedding(Head):
    """Values are float32 ``[tokens of all rows, dimension + 1]``."""

    task: ClassVar[Task] = Task.HYBRID_EMBEDDING
    second_text: ClassVar[SecondText] = SecondText.NONE
    parameters: ClassVar[frozenset[str]] = frozenset({"kinds", "dimensions", "normalize"})
    everywhere: ClassVar[frozenset[str]] = parameters
    kinds: ClassVar[frozenset[str]] = frozenset(_ALL)
    further_columns: ClassVar[int] = 1

    def records(
        self,
        encoded: EncodedTexts,
        values: Values,
        labels: tuple[str, ...],  # noqa: ARG002 - no labels
    ) -> list[TextRecord]:
        """The dense vector's Euclidean norm, and the number of sparse weights."""
        lengths = norms(_dense(encoded, values)).tolist()
        weights = _weights(encoded, values)
        return [
            TextRecord(*known, norm=norm, non_zeros=len(each))
            for known, norm, each in zip(encoded.statistics(), lengths, weights, strict=True)
        ]

    def pooled(self, encoded: EncodedTexts, values: Values) -> Values | None:
        """The dense one of each text."""
        return _dense(encoded, values)

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """The largest of three: of the dense vectors, of the sparse ones, and of the tokens'.

        (1 - cosine) / 2 of dense vectors, 1 - weighted Jaccard of sparse ones. Of token vectors
        (1 - s) / 2, where s is the mean cosine of a token's vector to the nearest of the other
        version's, as in late interaction. It is 1 for vectors of different dimensions.
        """
        if ours.values.shape[1] != theirs.values.shape[1]:
            return Difference(np.ones(len(require_encoded(ours))), [], [], np.empty(0))
        both = [
            (
                unit(_dense(require_encoded(side), side.values)),
                _weights(require_encoded(side), side.values),
                [unit(each) for each in _tokens(require_encoded(side), side.values)],
            )
            for side in (ours, theirs)
        ]
        apart = [
            max((1 - float(a @ b)) / 2, _apart(weights, others), mean_distance(tokens, nearest))
            for a, b, weights, others, tokens, nearest in zip(
                *(part for pair in zip(*both, strict=True) for part in pair), strict=True
            )
        ]
        return Difference(np.clip(np.array(apart), 0, 1), [], [], np.empty(0))

    def refusal(self, parameters: Mapping[str, Any], model: ModelDescription) -> str:
        """More dimensions than there are, bytes, or no kind at all."""
        if more := refuse_dimensions(parameters, model):
            return more
        precision = parameters.get("precision")
        if precision and VectorPrecision(precision).by_ranges:
            return f"precision: {self.task} has no {precision}; ask for ubinary or float32."
        if parameters.get("kinds") == []:
            return f"kinds: name some of {', '.join(_ALL)}."
        return ""

    def dense(self, answer: AnsweredTexts) -> Values:
        """See ``Head.dense``."""
        return _dense(require_encoded(answer), answer.values)

    def sparse(self, answer: AnsweredTexts) -> list[Weights]:
        """See ``Head.sparse``."""
        return _weights(require_encoded(answer), answer.values)

    def token_vectors(self, answer: AnsweredTexts) -> list[Values]:
        """See ``Head.token_vectors``."""
        return _tokens(require_encoded(answer), answer.values)

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """With ``kinds`` an object of them a text, without the dense vector alone."""
        found = self._show(answer, parameters)
        return found[0] if one else found

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """The same."""
        return self._show(answer, answer.parameters)

    def count_filling(self, answer: AnsweredTexts) -> int:
        """See ``Head.count_filling``."""
        return count_filling(require_encoded(answer).tokens, answer.values.shape[1] - 1)

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """All kinds; token vectors as long as the longest text's, zeros behind the others."""
        vectors = self.token_vectors(answer)
        dense = formed(self.dense(answer), None, answer.parameters)
        return {
            "EMBEDDING": dense.astype(np.float32, copy=False),
            "SPARSE": [json.dumps(each, separators=(",", ":")) for each in self.sparse(answer)],
            "TOKEN_VECTORS": fill_to_longest(vectors, answer.values.shape[1] - 1),
        }

    def _show(self, answer: AnsweredTexts, parameters: Mapping[str, Any]) -> list[Any]:
        kinds = parameters.get("kinds")
        dense: list[Any] = []
        if kinds is None or DENSE in kinds:
            dense = formed(self.dense(answer), None, parameters).tolist()
        if kinds is None:
            return dense
        columns: dict[str, Sequence[Any]] = {}
        for kind in kinds:
            if kind == DENSE:
                columns[kind] = dense
            elif kind == SPARSE:
                columns[kind] = self.sparse(answer)
            else:
                columns[kind] = [each.tolist() for each in self.token_vectors(answer)]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _firsts(encoded: EncodedTexts) -> list[int]:
    return [0, *accumulate(encoded.tokens)][:-1]


def _dense(encoded: EncodedTexts, values: Values) -> Values:
    vectors: Values = values[_firsts(encoded), :-1]
    return vectors


def _tokens(encoded: EncodedTexts, values: Values) -> list[Values]:
    """The vectors of all tokens of each text but the first, which is not of any word."""
    return [
        values[first + 1 : first + count, :-1]
        for first, count in zip(_firsts(encoded), encoded.tokens, strict=True)
    ]


def _weights(encoded: EncodedTexts, values: Values) -> list[Weights]:
    """Of each text the largest weight of each token that is in it; special ones have none."""
    found: list[Weights] = []
    for first, ids in zip(_firsts(encoded), encoded.ids, strict=True):
        largest: dict[int, float] = {}
        weights = values[first : first + len(ids), -1].tolist()
        for token, weight in zip(ids, weights, strict=True):
            if token not in encoded.special and weight > largest.get(token, 0.0):
                largest[token] = weight
        found.append([{"index": index, "value": largest[index]} for index in sorted(largest)])
    return found


def _apart(ours: Weights, theirs: Weights) -> float:
    """1 - weighted Jaccard."""
    one, other = ({each["index"]: each["value"] for each in side} for side in (ours, theirs))
    every = one.keys() | other.keys()
    larger = sum(max(one.get(at, 0.0), other.get(at, 0.0)) for at in every)
    smaller = sum(min(one[at], other[at]) for at in one.keys() & other.keys())
    return 1 - smaller / larger if larger else 0.0
