"""Two versions' answers to the same texts, compared text by text.

Pure arithmetic; what counts as agreement is decided here and nowhere else.
"""

import numpy as np
from numpy.typing import NDArray

from contracts.events import Pairing
from contracts.tasks import Task
from gateway.packages import ServedModel
from preprocess.heads import best

_DIGITS = 6  # of a distance in an event


def pair(
    answered: ServedModel,
    values: NDArray[np.float32],
    copied: ServedModel,
    others: NDArray[np.float32],
    seconds: float,
) -> Pairing:
    """How far a shadow's answers are from those that the caller got.

    Args:
        answered: the version that answered the caller.
        values: its answer, float32 ``[texts, labels]`` probabilities or ``[texts, dimension]``.
        copied: the shadow's version.
        others: its answer to the same texts; it may have other labels, or another dimension.
        seconds: tokenise + wait + infer of the answer that the caller got.
    """
    if answered.task is Task.TEXT_EMBEDDING:
        return Pairing(answered.ref.version, seconds, [], _rounded(_turned(values, others)))
    ours, theirs = answered.manifest.labels, copied.manifest.labels
    names = np.array(ours)[best(values)], np.array(theirs)[best(others)]
    equal: list[bool] = (names[0] == names[1]).tolist()
    if ours != theirs:
        every = tuple(dict.fromkeys((*ours, *theirs)))
        values, others = _spread(values, ours, every), _spread(others, theirs, every)
    difference = np.abs(values - others)
    if answered.manifest.multi_label:
        # Each label is a distribution of its own over yes and no.
        distance = difference.mean(axis=1)
    else:
        distance = difference.sum(axis=1) / 2
    return Pairing(answered.ref.version, seconds, equal, _rounded(distance))


def _turned(values: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """(1 - cosine) / 2 of each pair of vectors: 0 for one direction, 1 for opposite ones.

    Vectors of different dimensions have nothing in common: 1. So has one without a direction,
    unless both have none.
    """
    if values.shape != others.shape:
        return np.ones(len(values))
    a, b = values.astype(np.float64), others.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    both_none = ~a.any(axis=1) & ~b.any(axis=1)
    dots = np.einsum("td,td->t", a, b)
    cosine = np.divide(dots, lengths, out=np.full(len(a), -1.0), where=lengths > 0)
    cosine[both_none] = 1.0
    turned: NDArray[np.float64] = (1 - cosine) / 2
    return turned


def _spread(
    scores: NDArray[np.float32], labels: tuple[str, ...], every: tuple[str, ...]
) -> NDArray[np.float32]:
    """The scores with a column for each of ``every`` label, 0 for those that a model lacks."""
    wide = np.zeros((len(scores), len(every)), np.float32)
    wide[:, [every.index(label) for label in labels]] = scores
    return wide


def _rounded(distance: NDArray[np.floating]) -> list[float]:
    return [round(d, _DIGITS) for d in np.clip(distance, 0.0, 1.0).tolist()]
