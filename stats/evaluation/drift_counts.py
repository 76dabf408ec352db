"""What of a window is watched for drift, as counts by bucket: of aggregates and profiles.

Buckets of a statistic never change while it is watched: they are those of ``contracts.statistics``,
of the profile's labels, or of a declaration of users'. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from contracts.events import (
    TOPIC_BUCKETS,
    VECTOR_PARTITIONS,
    VECTOR_PLANES,
    StatisticSpec,
)
from contracts.features import Feature
from contracts.profile import ReferenceProfile
from contracts.statistics import EDGES, Statistic
from contracts.windows import OwnCounts, Sparse, WindowAggregate
from measures.classifier_test import TODAY
from measures.correlation import Floats

LABELS = "labels"
TRUNCATED = "truncated"
TOPICS = "topics"
VECTORS = "vectors"
OTHERS = "others"  # labels that the profile does not know
_NAMED = 3  # labels of a bin that are named one by one
_LABEL_LIMIT = 50  # of a version without a profile


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """The buckets of a statistic.

    Attributes:
        names: one a bucket, for people: upper edges, or labels.
        ordered: they are upper edges, with one more bucket to infinity.
    """

    names: tuple[str, ...]
    ordered: bool

    @classmethod
    def of_edges(cls, upper: Sequence[float]) -> "BucketLayout":
        """Of a histogram."""
        return cls((*(f"{edge:g}" for edge in upper), "inf"), ordered=True)

    def bin_name(self, members: Sequence[int]) -> str:
        """What several buckets are called together."""
        if not self.ordered:
            named = [self.names[member] for member in members]
            return " / ".join(named) if len(named) <= _NAMED else OTHERS
        last = len(self.names) - 1
        if list(members) != list(range(members[0], members[-1] + 1)):
            return OTHERS
        if members[-1] == last:
            return f"> {self.names[members[0] - 1]}" if members[0] else "all"
        return f"<= {self.names[members[-1]]}"


@dataclass(frozen=True)
class ClassifierInput:
    """What the classifier test watches, and nothing else does.

    Attributes:
        layout: its buckets.
        names: of what the classifier reads.
        features: ``[buckets, names]``, what is summed up for each; None: the buckets.
        times: how often a text is counted, if what it reads is shown as a share of texts.
        today: weight of a window in how today differs from the usual.
        knows_days: whether nothing is bet on what days differed by before.
    """

    layout: BucketLayout
    names: tuple[str, ...]
    features: Floats | None = None
    times: int = 1
    today: float = TODAY
    knows_days: bool = False

    def to_shares(self, shares: Floats) -> Floats:
        """``[names]`` of shares ``[buckets]``."""
        return shares if self.features is None else self.times * (shares @ self.features)


def _sides() -> ClassifierInput:
    """Sides of planes, of counts by cell.

    A linear classifier finds more by 48 sides than by 256 cells (``docs/decisions``, 0066).
    """
    planes, cells = VECTOR_PARTITIONS * VECTOR_PLANES, VECTOR_PARTITIONS << VECTOR_PLANES
    features = np.zeros((cells, 2 * planes))
    for cell in range(cells):
        first = (cell >> VECTOR_PLANES) * VECTOR_PLANES
        for bit in range(VECTOR_PLANES):
            features[cell, 2 * (first + bit) + (cell >> bit & 1)] = 1
    names = tuple(f"plane {plane}, {side}" for plane in range(planes) for side in _SIDES)
    layout = BucketLayout(tuple(f"cell {at}" for at in range(cells)), ordered=False)
    return ClassifierInput(
        layout, names, features, VECTOR_PARTITIONS, _TODAY_OF_VECTORS, knows_days=True
    )


# Fifty windows, as of other statistics. With the 143 of tokens, what is expected of today lags by
# as much as these tell within the hour.
_TODAY_OF_VECTORS = 0.02
_SIDES = ("below", "above")
_BUCKETS = tuple(f"bucket {at}" for at in range(TOPIC_BUCKETS))
TESTED: Mapping[str, ClassifierInput] = {
    TOPICS: ClassifierInput(BucketLayout(_BUCKETS, ordered=False), _BUCKETS),
    VECTORS: _sides(),
}
_EDGED: Mapping[str, BucketLayout] = {
    statistic.value: BucketLayout.of_edges(edges.upper) for statistic, edges in EDGES.items()
}
_TRUNCATED = BucketLayout(("whole", "truncated"), ordered=False)


def layouts_of(profile: ReferenceProfile | None) -> dict[str, BucketLayout]:
    """What can be watched from the start: what the profile knows, or nothing without one."""
    if profile is None or profile.texts == 0:
        return {}
    found = {statistic.value: _EDGED[statistic.value] for statistic in profile.histograms}
    found[TRUNCATED] = _TRUNCATED
    if profile.labels:
        found[LABELS] = _labels(profile.labels)
    return found


def reference_counts(profile: ReferenceProfile, name: str, layout: BucketLayout) -> Floats:
    """``[buckets]`` of the profile."""
    if name == TRUNCATED:
        return np.array([profile.texts - profile.truncated, profile.truncated], dtype=np.float64)
    if name == LABELS:
        named = [profile.labels.get(label, 0) for label in layout.names[:-1]]
        rest = sum(profile.labels.values()) - sum(named)
        return np.array([*named, rest], dtype=np.float64)
    return np.array(profile.histograms[Statistic(name)], dtype=np.float64)


def features_of(features: Iterable[Feature]) -> dict[str, tuple[BucketLayout, Floats]]:
    """Buckets and reference counts of features and answers, by what they are watched as.

    Of those whose counts its own rows tell; the others are compared with the first day.
    """
    found = {}
    for feature in features:
        layout = _own_layout(feature.statistic())
        if layout is not None and sum(feature.counts) > 0:
            counts = np.array(feature.counts, dtype=np.float64)
            found[_own_name(feature.name)] = layout, counts
    return found


def counts_of(
    aggregate: WindowAggregate,
    known: Mapping[str, BucketLayout],
    profile: ReferenceProfile | None,
    labels: Sequence[str] = (),
) -> Iterator[tuple[str, BucketLayout, Sparse]]:
    """Every watched statistic of a window: name, buckets, counts.

    Args:
        aggregate: of the window.
        known: what is watched so far, whose buckets stay as they are.
        profile: of the version; what it leaves out is not watched, because it means nothing there.
        labels: of the model, if there is no profile.
    """
    bare = profile is None or profile.texts == 0
    for name, counts in aggregate.histograms.items():
        if name in known or (bare and name in _EDGED):
            yield name, _EDGED[name], counts
    if aggregate.texts and (TRUNCATED in known or bare):
        yield (
            TRUNCATED,
            _TRUNCATED,
            {0: aggregate.texts - aggregate.truncated, 1: aggregate.truncated},
        )
    if aggregate.labels and (LABELS in known or bare):
        layout = known.get(LABELS) or _labels(labels or tuple(aggregate.labels))
        yield LABELS, layout, _by_place(aggregate.labels, layout)
    for own in aggregate.own:
        yield from _count_own(own, known)


def tested_of(aggregate: WindowAggregate) -> Iterator[tuple[str, Sparse]]:
    """What of a window the classifier test watches: name, counts by bucket of ``TESTED``."""
    if aggregate.topics:
        yield TOPICS, aggregate.topics
    if aggregate.vectors:
        yield VECTORS, aggregate.vectors


def _by_place(counts: Mapping[str, int], layout: BucketLayout) -> Sparse:
    """Counts of labels by their bucket; what has none joins the last one, the others."""
    places = {label: at for at, label in enumerate(layout.names[:-1])}
    found: Sparse = {}
    for label, count in counts.items():
        at = places.get(label, len(places))
        found[at] = found.get(at, 0) + count
    return found


def _labels(labels: Iterable[str]) -> BucketLayout:
    return BucketLayout((*sorted(labels)[:_LABEL_LIMIT], OTHERS), ordered=False)


def _count_own(
    own: OwnCounts, known: Mapping[str, BucketLayout]
) -> Iterator[tuple[str, BucketLayout, Sparse]]:
    """A counter has no distribution; a declaration that was changed is not watched on."""
    name, layout = _own_name(own.spec.name), _own_layout(own.spec)
    if layout is None or known.get(name, layout) != layout:
        return
    if own.spec.kind == "histogram":
        yield name, layout, {int(bucket): count for bucket, count in own.counts.items()}
    else:
        yield (
            name,
            layout,
            {at: own.counts[value] for at, value in enumerate(layout.names) if value in own.counts},
        )


def _own_name(statistic: str) -> str:
    return f"own:{statistic}"


def _own_layout(spec: StatisticSpec) -> BucketLayout | None:
    if spec.kind == "histogram":
        return BucketLayout.of_edges(spec.edges)
    if spec.kind == "category":
        return BucketLayout(tuple(spec.values), ordered=False)
    return None
