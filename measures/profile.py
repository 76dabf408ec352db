"""The reference profile: what a version's texts and answers looked like when it was evaluated.

Profiles of parts of a data set add to the profile of the whole. It never sees a text and never
reads a file.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.profile import ReferenceProfile
from contracts.statistics import EDGES, Statistic
from measures.histogram import Histogram
from measures.observation import observed

_Key = TypeVar("_Key", bound=str)
_AND = " + "


class UnequalProfilesError(ValueError):
    """Two profiles count different things, so that their sum would mean nothing."""


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
        histograms in it add to ``texts``.

    Raises:
        ValueError: ``scores`` has another shape, or only some records carry an answer.
        measures.histogram.NotANumberError: a score or norm is NaN.
    """
    histograms: dict[Statistic, tuple[int, ...]] = {}
    for statistic, values in observed(records).items():
        if len(values) == 0:
            continue
        if len(values) != len(records):
            raise ValueError(f"{statistic} is known of {len(values)} of {len(records)} texts")
        histograms[statistic] = Histogram.of(EDGES[statistic], values).to_tuple()
    if scores is not None and scores.shape != (len(records), len(labels)):
        raise ValueError(
            f"scores are {scores.shape}, not {(len(records), len(labels))} (texts, labels)"
        )
    counted = Counter(record.label for record in records if record.label is not None)
    return ReferenceProfile(
        texts=len(records),
        source=source,
        truncated=sum(record.truncated for record in records),
        histograms=histograms,
        label_scores={}
        if scores is None
        else {
            label: Histogram.of(EDGES[Statistic.SCORE], scores[:, column]).to_tuple()
            for column, label in enumerate(labels)
        },
        # A label that was never predicted is a count of 0, not an unknown label.
        labels=dict(sorted((dict.fromkeys(labels, 0) | counted).items())),
    )


def merged(one: ReferenceProfile, other: ReferenceProfile) -> ReferenceProfile:
    """The profile of both sets of texts together; a profile of no texts changes nothing.

    Raises:
        UnequalProfilesError: one counts a statistic or a label's scores that the other does not.
    """
    if one.texts == 0 or other.texts == 0:
        return one if one.texts else other
    return ReferenceProfile(
        texts=one.texts + other.texts,
        source=_sources(one.source, other.source),
        truncated=one.truncated + other.truncated,
        histograms=_added(one.histograms, other.histograms),
        label_scores=_added(one.label_scores, other.label_scores),
        labels={
            label: one.labels.get(label, 0) + other.labels.get(label, 0)
            for label in sorted(one.labels | other.labels)
        },
    )


def _sources(one: str, other: str) -> str:
    parts = {*one.split(_AND), *other.split(_AND)} - {""}
    return _AND.join(sorted(parts))


def _added(
    one: Mapping[_Key, tuple[int, ...]], other: Mapping[_Key, tuple[int, ...]]
) -> dict[_Key, tuple[int, ...]]:
    if one.keys() != other.keys():
        differing = ", ".join(sorted(one.keys() ^ other.keys()))
        raise UnequalProfilesError(f"only one of two profiles counts {differing}")
    return {
        key: tuple(a + b for a, b in zip(one[key], other[key], strict=True)) for key in sorted(one)
    }
