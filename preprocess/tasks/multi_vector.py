"""Multi-vector embedding: a vector for each token of a text, and late interaction (ColBERT).

By themselves texts are answered with their token vectors. A query with documents is ranked: scores
are MaxSim of both, as ``MultiVectorEncoder`` of sentence-transformers computes it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from contracts.events import TextRecord
from contracts.tasks import RELEVANCE, TOKENS, Task
from preprocess.encoder import EncodedTexts, TextEncoder
from preprocess.late_interaction import (
    QueryDocumentEncoder,
    answered_vectors,
    count_filling,
    fill_to_longest,
    mean_distance,
    scores_of_pairs,
    vectors_of_texts,
)
from preprocess.scores import norms
from preprocess.tasks.head import (
    AnsweredTexts,
    Difference,
    Head,
    Output,
    Ranking,
    SecondText,
    Side,
    Values,
    best_first,
    require_encoded,
)
from preprocess.vectors import unit


class MultiVectorEmbedding(Head):
    """Values are float32 ``[tokens of all rows, dimension]``."""

    task: ClassVar[Task] = Task.MULTI_VECTOR_EMBEDDING
    second_text: ClassVar[SecondText] = SecondText.NONE  # but where documents are ranked
    encoder: ClassVar[type[TextEncoder]] = QueryDocumentEncoder
    kinds: ClassVar[frozenset[str]] = frozenset({TOKENS, RELEVANCE})

    def select_answered(self, encoded: EncodedTexts, values: Values) -> Values:
        """Without the vectors of tokens that are left out."""
        return np.concatenate(answered_vectors(encoded, values))

    def records(
        self,
        encoded: EncodedTexts,
        values: Values,
        labels: tuple[str, ...],  # noqa: ARG002 - no labels
    ) -> list[TextRecord]:
        """The Euclidean norm of the mean of a text's vectors; of a pair, of its document's."""
        lengths = norms(self.pooled(encoded, values)).tolist()
        return [
            TextRecord(*known, norm=norm)
            for known, norm in zip(encoded.statistics(), lengths, strict=True)
        ]

    def pooled(self, encoded: EncodedTexts, values: Values) -> Values:
        """The mean of each text's vectors."""
        means: Values = np.zeros((len(encoded.statistics()), values.shape[1]), np.float32)
        for mean, vectors in zip(means, vectors_of_texts(encoded, values), strict=True):
            if len(vectors):
                mean[:] = vectors.mean(axis=0)
        return means

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """See ``mean_distance``. It is 1 for vectors of different dimensions."""
        encoded, others = require_encoded(ours), require_encoded(theirs)
        if ours.values.shape[1] != theirs.values.shape[1]:
            return Difference(np.ones(len(encoded.statistics())), [], [], np.empty(0))
        apart = [
            mean_distance(unit(one), unit(other))
            for one, other in zip(
                vectors_of_texts(encoded, ours.values),
                vectors_of_texts(others, theirs.values),
                strict=True,
            )
        ]
        return Difference(np.clip(np.array(apart), 0, 1), [], [], np.empty(0))

    def token_vectors(self, answer: AnsweredTexts) -> list[Values]:
        """See ``Head.token_vectors``."""
        return answered_vectors(require_encoded(answer), answer.values)

    def ranking(self, answer: AnsweredTexts) -> Ranking:
        """By MaxSim, which is no probability: a score is shown as it is."""
        scores = scores_of_pairs(require_encoded(answer), answer.values)
        order, ordered = best_first(scores)
        return order, ordered.tolist(), ordered.tolist()

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401, ARG002
        """A list of vectors a text."""
        found = self.predictions(answer)
        return found[0] if one else found

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """The same."""
        return [each.tolist() for each in self.token_vectors(answer)]

    def count_filling(self, answer: AnsweredTexts) -> int:
        """See ``Head.count_filling``."""
        return count_filling(require_encoded(answer).tokens, answer.values.shape[1])

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """Vectors as many as the longest text has, zeros behind the others."""
        vectors = self.token_vectors(answer)
        return {"TOKEN_VECTORS": fill_to_longest(vectors, answer.values.shape[1])}
