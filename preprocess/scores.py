"""Arithmetic of scores and vectors, in numpy: logits to probabilities, the best labels, norms.

It knows no task. Probabilities are those of ``transformers``' text-classification pipeline.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]

# Up to this many values lists are faster than arrays: a request of one text, most of all.
_FEW = 64


def by_sigmoid(classes: int, *, multi_label: bool) -> bool:
    """Whether each class is scored on its own, by sigmoid, and not by softmax over all of them.

    That is so for multi-label models, and for those of a single class, where softmax could only
    say 1.

    Args:
        classes: how many there are.
        multi_label: each class on its own.
    """
    return multi_label or classes == 1


def class_scores(logits: NDArray[np.float32], *, multi_label: bool) -> Scores:
    """Probabilities of classes.

    Softmax over the classes, which sums to 1, or sigmoid of each class: see ``by_sigmoid``.

    Args:
        logits: finite, float32 ``[texts, classes]``.
        multi_label: each class on its own.

    Returns:
        float32 ``[texts, classes]`` between 0 and 1.
    """
    if by_sigmoid(logits.shape[1], multi_label=multi_label):
        return sigmoid(logits)
    with np.errstate(over="ignore"):  # a difference beyond float32 is -infinity, whose exp is 0
        shifted: Scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    # Its type is said, as numpy's releases do not agree on it.
    sums: Scores = shifted.sum(axis=1, keepdims=True)
    return shifted / sums


def sigmoid(logits: NDArray[np.float32]) -> Scores:
    """1 / (1 + exp(-x)) of each logit, float32 of the same shape."""
    small = np.exp(-np.abs(logits))  # of a negative number only: no overflow at either end
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)


def best(scores: Scores) -> NDArray[np.int64]:
    """Index of each text's highest score, int64 ``[texts]``; the first one where scores tie."""
    indexes: NDArray[np.int64] = scores.argmax(axis=1)
    return indexes


def best_labels(scores: Scores, labels: Sequence[str]) -> tuple[list[str], list[float]]:
    """Label and score of each text's best class; the first of equal ones.

    Plain lists, for most requests hold one text and few classes, where numpy costs more.
    """
    if scores.size <= _FEW:
        rows = scores.tolist()
        highest: list[float] = [max(row) for row in rows]
        columns = [row.index(score) for row, score in zip(rows, highest, strict=True)]
    else:
        found = best(scores)
        columns = found.tolist()
        highest = scores[np.arange(len(found)), found].tolist()
    return [labels[column] for column in columns], highest


def top_k(
    scores: Scores, labels: Sequence[str], k: int | None = None
) -> list[list[tuple[str, float]]]:
    """For each text its ``k`` best labels with their scores, best first.

    Args:
        scores: ``[texts, len(labels)]``.
        labels: in the order of the columns.
        k: at least 1; all labels where None or more than there are.

    Raises:
        ValueError: ``k`` is below 1, or there is not one label a column.
    """
    if k is not None and k < 1:
        raise ValueError(f"the best {k} labels can't be given; ask for at least 1")
    if scores.ndim != 2 or scores.shape[1] != len(labels):
        raise ValueError(f"{len(labels)} labels do not go with scores of shape {scores.shape}")
    # A stable sort keeps the model's own order where scores tie, as the pipeline does.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    picked = np.take_along_axis(scores, order, axis=1)
    return [
        [(labels[column], score) for column, score in zip(columns, row, strict=True)]
        for columns, row in zip(order.tolist(), picked.tolist(), strict=True)
    ]


def norms(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Euclidean length of each vector, float32 ``[texts]``."""
    lengths: NDArray[np.float32] = np.sqrt(np.einsum("td,td->t", vectors, vectors))
    return lengths
