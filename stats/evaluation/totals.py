"""What Prometheus' counters stand at: sums since the process started, within bounds.

The sums are those of the merged windows; if a label has more values than its bound, the ones
that came last are summed under ``other``, and how much that was is counted. Pure; the clock is
passed in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from contracts.endpoint import Arm
from contracts.metrics import OTHER
from contracts.windows import OwnCounts, Sparse, WindowAggregate
from measures.histograms import add_counts
from measures.increments import Growth
from measures.merging import add_own

MOST_LABELS = 100  # of an arm
MOST_STATUSES = 24  # of an arm
MOST_REASONS = 32  # of refusals of an endpoint
MOST_OWN = 50  # statistics of users' own, of an arm
MOST_ENDPOINTS = 100  # whose lost events are told apart
KEEP_SECONDS = 600.0
# What an attempt can come to: at 0 until it does, so that a rate sees the first one.
KNOWN_STATUSES = ("200", "400", "499", "500", "502", "503", "504")


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """How many of each a process tells apart.

    Attributes:
        arms: endpoint, version, arm; more are counted, and not shown.
        versions: watched for drift.
    """

    arms: int = 256
    versions: int = 64

    @property
    def endpoints(self) -> int:
        """Whose refusals are told apart: an endpoint has an arm, and far fewer series of these."""
        return self.arms


class ArmKey(NamedTuple):
    """The labels that most series have."""

    endpoint: str
    version: str
    arm: Arm


@dataclass(slots=True)
class ArmTotals:
    """Everything about one arm since the start. Sums of values in millionths of their unit."""

    statuses: dict[str, int] = field(default_factory=dict)
    answered: int = 0
    repeated: int = 0
    texts: int = 0
    truncated: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    right: int = 0
    wrong: int = 0
    pairs_equal: int = 0
    pairs_differing: int = 0
    histograms: dict[str, Sparse] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)
    latency: dict[str, Sparse] = field(default_factory=dict)
    latency_sums: dict[str, int] = field(default_factory=dict)
    label_scores: dict[str, Sparse] = field(default_factory=dict)
    label_score_sums: dict[str, int] = field(default_factory=dict)
    pair_distance: Sparse = field(default_factory=dict)
    pair_distance_sum: int = 0
    own: list[OwnCounts] = field(default_factory=list)
    undeclared: int = 0
    touched: float = 0.0  # when it last grew or was declared, unix seconds


class TrafficTotals:
    """All counters.

    An arm or an endpoint that is gone is kept until another one needs its place: a process that
    lives for months sees more versions than it ever tells apart at a time.

    Attributes:
        most: how many are told apart.
        keep_seconds: for this time an arm or an endpoint that is gone keeps its place.
        arms: by endpoint, version and arm; packages of one version together.
        refusals: endpoint -> status and reason ("503 overloaded") -> count.
        forgotten: arms and endpoints that made room.
        skipped: messages of events that no fold worker understood.
        copies: messages of events that were in the log before.
        mistimed: messages of events from a clock that was far off Kafka's.
        overflow: which bound -> how much it summed under ``other``, or left out.
    """

    def __init__(
        self, most: SeriesLimits = SeriesLimits(), keep_seconds: float = KEEP_SECONDS
    ) -> None:
        self.most = most
        self.keep_seconds = keep_seconds
        self.arms: dict[ArmKey, ArmTotals] = {}
        self.refusals: dict[str, dict[str, int]] = {}
        self._refused_at: dict[str, float] = {}  # or declared, unix seconds
        self.forgotten = 0
        self.skipped = 0
        self.copies = 0
        self.mistimed = 0
        self.overflow: dict[str, int] = dict.fromkeys(BOUNDS, 0)

    def add(self, growth: Growth, now: float) -> None:
        """Counts what a record added."""
        self.skipped += growth.skipped
        self.copies += growth.copies
        self.mistimed += growth.mistimed
        for aggregate in growth.aggregates:
            arm = self._arm(ArmKey(aggregate.endpoint, aggregate.version, aggregate.arm), now)
            if arm is None:
                self.overflow["arms"] += sum(aggregate.statuses.values())
            else:
                self._aggregate(arm, aggregate)
        for endpoint, counts in growth.refusals.items():
            self._count_refused(endpoint, counts, now)

    def declare(self, key: ArmKey, labels: Iterable[str], now: float) -> None:
        """An arm that is routed to: it is shown, its labels at 0 until they are counted."""
        arm = self._arm(key, now)
        if arm is not None:
            for status in KNOWN_STATUSES:
                arm.statuses.setdefault(status, 0)
            for label in labels:
                if len(arm.labels) < MOST_LABELS:
                    arm.labels.setdefault(label, 0)

    def declare_endpoint(self, endpoint: str, reasons: Iterable[str], now: float) -> None:
        """An endpoint that exists: its refusals are at 0 until they are counted."""
        self._count_refused(endpoint, dict.fromkeys(reasons, 0), now)

    def adopt(
        self,
        endpoint: str,
        arms: Mapping[ArmKey, ArmTotals],
        refusals: Mapping[str, int],
        now: float,
    ) -> None:
        """Goes on with an endpoint's counters from where another process had them."""
        self.arms |= arms
        if refusals:
            self.refusals[endpoint] = dict(refusals)
            self._refused_at[endpoint] = now

    def note_overflow(self, what: str, amount: int) -> None:
        """Counts what another part had no room for."""
        self.overflow[what] += amount

    def _arm(self, key: ArmKey, now: float) -> ArmTotals | None:
        arm = self.arms.get(key)
        if arm is None:
            if len(self.arms) >= self.most.arms and not self._forget_arm(now):
                return None
            arm = self.arms[key] = ArmTotals()
        arm.touched = now
        return arm

    def _forget_arm(self, now: float) -> bool:
        """Makes room for one, of that which is gone for longest; whether one is."""
        oldest = min(self.arms, key=lambda key: self.arms[key].touched)
        if self.arms[oldest].touched >= now - self.keep_seconds:
            return False
        del self.arms[oldest]
        self.forgotten += 1
        return True

    def _forget_endpoint(self, now: float) -> bool:
        """The same of an endpoint with refusals."""
        oldest = min(self._refused_at, key=lambda name: self._refused_at[name], default=None)
        if oldest is None or self._refused_at[oldest] >= now - self.keep_seconds:
            return False
        del self.refusals[oldest], self._refused_at[oldest]
        self.forgotten += 1
        return True

    def _aggregate(self, arm: ArmTotals, aggregate: WindowAggregate) -> None:
        arm.answered += aggregate.answered
        arm.repeated += aggregate.repeated
        arm.texts += aggregate.texts
        arm.truncated += aggregate.truncated
        arm.pairs_equal += aggregate.evidence.pairs_equal
        arm.pairs_differing += aggregate.evidence.pairs - aggregate.evidence.pairs_equal
        arm.pair_distance_sum += aggregate.pair_distance_sum
        arm.undeclared += sum(aggregate.undeclared.values())
        for answered, truths in aggregate.feedback.items():
            right = truths.get(answered, 0)
            arm.right += right
            arm.wrong += sum(truths.values()) - right
        add_counts(arm.statuses, {str(status): n for status, n in aggregate.statuses.items()})
        for name in _ADDED:
            add_counts(getattr(arm, name), getattr(aggregate, name))
        self.overflow["statuses"] += _sum_rest(arm.statuses, MOST_STATUSES)
        self.overflow["labels"] += _sum_rest(arm.labels, MOST_LABELS)
        _bound_sparse(arm.label_scores, MOST_LABELS)
        _sum_rest(arm.label_score_sums, MOST_LABELS)
        for own in add_own(arm.own, aggregate.own, MOST_OWN):
            self.overflow["own"] += sum(own.counts.values()) + own.unfit

    def _count_refused(self, endpoint: str, counts: Mapping[str, int], now: float) -> None:
        known, most = endpoint in self._refused_at, self.most.endpoints
        if not known and len(self._refused_at) >= most and not self._forget_endpoint(now):
            self.overflow["endpoints"] += sum(counts.values())
            endpoint = OTHER
        else:
            self._refused_at[endpoint] = now
        held = self.refusals.setdefault(endpoint, {})
        add_counts(held, counts)
        self.overflow["reasons"] += _sum_rest(held, MOST_REASONS)


# Of an arm and of an aggregate alike.
_ADDED = (
    "labels", "sums", "latency_sums", "label_score_sums", "pair_distance", "histograms", "latency",
    "label_scores",
)  # fmt: skip
BOUNDS = ("arms", "statuses", "labels", "own", "endpoints", "reasons", "windows", "versions")


def _sum_rest(counts: dict[str, int], most: int) -> int:
    """Sums what came last under ``other``, if there are more keys; returns how much."""
    summed = 0
    for key in [key for key in counts if key != OTHER][most:]:
        summed += counts.pop(key)
    if summed:
        counts[OTHER] = counts.get(OTHER, 0) + summed
    return summed


def _bound_sparse(counts: dict[str, Sparse], most: int) -> None:
    for key in [key for key in counts if key != OTHER][most:]:
        add_counts(counts.setdefault(OTHER, {}), counts.pop(key))
