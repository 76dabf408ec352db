"""Text embedding: one vector for each text."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.tasks import Task
from preprocess.encoder import Encoded
from preprocess.scores import norms
from preprocess.tasks.head import Answered, Difference, Head, Output, Side, Values


class TextEmbedding(Head):
    """Values are float32 ``[texts, dimension]`` vectors."""

    task: ClassVar[Task] = Task.TEXT_EMBEDDING

    def records(
        self,
        encoded: Encoded,
        values: Values,
        labels: tuple[str, ...],  # noqa: ARG002 - no labels
    ) -> list[TextRecord]:
        """The Euclidean norm of the vector."""
        return [
            TextRecord(*known, norm=norm)
            for known, norm in zip(encoded.statistics(), norms(values).tolist(), strict=True)
        ]

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """(1 - cosine) / 2: 0 for one direction, 1 for opposite ones.

        It is 1 for vectors of different dimensions, and for a vector of zeros unless both are.
        """
        values, others = ours.values, theirs.values
        if values.shape != others.shape:
            return _of_vectors(np.ones(len(values)))
        a, b = values.astype(np.float64), others.astype(np.float64)
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        both_none = ~a.any(axis=1) & ~b.any(axis=1)
        dots = np.einsum("td,td->t", a, b)
        cosine = np.divide(dots, lengths, out=np.full(len(a), -1.0), where=lengths > 0)
        cosine[both_none] = 1.0
        return _of_vectors((1 - cosine) / 2)

    def pipeline(self, answer: Answered, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401, ARG002
        """The vector of one text, or a list of vectors."""
        vectors = answer.values.tolist()
        return vectors[0] if one else vectors

    def predictions(self, answer: Answered) -> list[Any]:
        """A vector for each text."""
        vectors: list[list[float]] = answer.values.tolist()
        return list(vectors)

    def outputs(self, answer: Answered) -> dict[str, Output]:
        """The vectors."""
        return {"EMBEDDING": answer.values}


def _of_vectors(distance: NDArray[np.floating]) -> Difference:
    return Difference(distance, [], [], np.empty(0))
