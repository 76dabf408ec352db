"""The reference profile: what a version's texts and answers looked like when it was evaluated.

It never sees a text and never reads a file.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.profile import ReferenceProfile
from contracts.statistics import EDGES, Statistic
from measures.observation import histogram, observe


def reference_profile(
    records: Sequence[TextRecord],
    *,
    source: str,
    labels: Sequence[str] = (),
    scores: NDArray[np.float32] | None = None,
) -> ReferenceProfile:
    """Counts over answered texts.

    Args:
        records: one a text, each with its answer.
        source: where the texts came from, for people.
        labels: the classifier's labels in the order of the columns of ``scores``; none for vectors.
        scores: ``[len(records), len(labels)]`` probabilities.

    Returns:
        The profile. A statistic that no record carries (``SCORE`` of an embedding) is left out; all
        histograms in it add to ``texts``, but that of scores of entities, which each have one.

    Raises:
        ValueError: ``scores`` has another shape, only some records carry an answer, or a score or
            norm is NaN.
    """
    histograms: dict[Statistic, tuple[int, ...]] = {}
    entities = any(record.entities is not None for record in records)
    for statistic, values in observe(records).items():
        if len(values) == 0:
            continue
        if len(values) != len(records) and not entities:
            raise ValueError(f"{statistic} is known of {len(values)} of {len(records)} texts")
        histograms[statistic] = histogram(EDGES[statistic], values)
    if scores is not None and scores.shape != (len(records), len(labels)):
        raise ValueError(
            f"scores are {scores.shape}, not {(len(records), len(labels))} (texts, labels)"
        )
    counted = Counter(record.label for record in records if record.label is not None)
    counted.update(label for record in records for label, _ in record.entities or ())
    return ReferenceProfile(
        texts=len(records),
        source=source,
        truncated=sum(record.truncated for record in records),
        histograms=histograms,
        label_scores={}
        if scores is None
        else {
            label: histogram(EDGES[Statistic.SCORE], scores[:, column])
            for column, label in enumerate(labels)
        },
        # A label that was never predicted is a count of 0, not an unknown label.
        labels=dict(sorted((dict.fromkeys(labels, 0) | counted).items())),
    )
