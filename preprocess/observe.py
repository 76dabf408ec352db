"""What is recorded of each text: encoded texts and their answers -> text records.

It never sees a text.
"""

import numpy as np
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.tasks import Task
from preprocess.encoder import Encoded
from preprocess.heads import best, norms

# Up to so many values lists are faster than arrays: a request of one text, most of all.
_FEW = 64


def answered(
    encoded: Encoded, task: Task, values: NDArray[np.float32], labels: tuple[str, ...] = ()
) -> list[TextRecord]:
    """Records of texts that were answered.

    A classifier's record holds the best label and its score (of a multi-label model too), an
    embedding's the Euclidean norm of the vector.

    Args:
        encoded: the texts, as the model saw them.
        task: what was asked.
        values: float32 ``[texts, labels]`` probabilities or ``[texts, dimension]`` vectors.
        labels: in the order of the columns; none for vectors.

    Raises:
        ValueError: not one row of values a text.
    """
    if len(values) != len(encoded):
        raise ValueError(f"{len(values)} rows of values do not go with {len(encoded)} texts")
    statistics = zip(encoded.tokens, encoded.words, encoded.unk, encoded.truncated, strict=True)
    if task is Task.TEXT_EMBEDDING:
        return [
            TextRecord(tokens, words, unk, truncated, norm=norm)
            for (tokens, words, unk, truncated), norm in zip(
                statistics, norms(values).tolist(), strict=True
            )
        ]
    if values.size <= _FEW:
        rows = values.tolist()
        scores = [max(row) for row in rows]
        columns = [row.index(score) for row, score in zip(rows, scores, strict=True)]
    else:
        found = best(values)
        columns = found.tolist()
        scores = values[np.arange(len(found)), found].tolist()
    return [
        TextRecord(tokens, words, unk, truncated, label=labels[column], score=score)
        for (tokens, words, unk, truncated), column, score in zip(
            statistics, columns, scores, strict=True
        )
    ]


def unanswered(encoded: Encoded) -> list[TextRecord]:
    """Records of texts whose attempt failed: what is known of the texts, and no answer."""
    return [
        TextRecord(tokens, words, unk, truncated)
        for tokens, words, unk, truncated in zip(
            encoded.tokens, encoded.words, encoded.unk, encoded.truncated, strict=True
        )
    ]
