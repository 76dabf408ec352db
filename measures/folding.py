"""Prediction events into aggregates: exact counts of each (endpoint, package, arm, window).

What it counts depends on nothing but the messages of a range in their order, so that every process
that folds a range again gets the same numbers. Pure, and the hottest code of ``stats``: no numpy an
event, no clock, no I/O. It never keeps an event, a request id or a text.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeVar

from contracts.endpoint import Arm
from contracts.events import EventBatch, Feedback, Pairing, PredictionEvent, TextRecord
from contracts.statistics import EDGES, LATENCY_EDGES, LatencyStage, Statistic
from contracts.windows import (
    AGE_STRIDE,
    CALLER_BUCKETS,
    CALLER_CAP,
    CALLER_ENTRIES,
    CALLER_GROUPS,
    CALLER_STRIDE,
    MICRO,
    NEAREST,
    SPACE_EDGES,
    EvidenceCounts,
    Sparse,
    WindowAggregate,
    age_class,
)
from measures import frequent
from measures.own_statistics import LARGEST, OwnFold, micro

_TOKENS, _WORDS, _UNK, _UNK_SHARE, _TOKENS_PER_WORD, _SCORE, _NORM, _NON_ZEROS, _GENERATED = (
    statistic.value for statistic in Statistic
)
_COUNT_UPPER: Final = EDGES[Statistic.TOKENS].upper  # of words and UNK tokens as well
_SHARE_UPPER: Final = EDGES[Statistic.UNK_SHARE].upper
_RATIO_UPPER: Final = EDGES[Statistic.TOKENS_PER_WORD].upper
_SCORE_UPPER: Final = EDGES[Statistic.SCORE].upper
_NORM_UPPER: Final = EDGES[Statistic.VECTOR_NORM].upper
_LATENCY_UPPER: Final = LATENCY_EDGES.upper
_TO_INFINITY: Final = len(_LATENCY_UPPER)
_STAGES: Final = tuple(stage.value for stage in LatencyStage)  # in the order of events.Latency
_ROUNDING: Final = 1e-9  # a distance is told to six digits
_LATEST: Final = 1e12  # keeps a window's start finite, whatever is in a message

_HUNG_UP: Final = 499
_OK: Final = 200
_TOO_LATE: Final = 504
_SERVER_ERROR: Final = 500

_Key = tuple[str, str, str, str, int]
_Counted = TypeVar("_Counted", int, str)


class Fold:
    """The counts of any number of messages, in the order in which they were added.

    The order matters for one thing only: which attempts of a caller above its cap count as
    evidence. Added twice, a message counts twice; see ``measures.ranges`` for copies.

    Attributes:
        events: attempts counted.
        newest: largest event time, unix seconds; 0 before the first.
        refusals: endpoint -> status and reason -> count.
    """

    def __init__(self, window_seconds: int) -> None:
        """Takes the length of a window of event time, aligned to the epoch."""
        self.events = 0
        self.newest = 0.0
        self.refusals: dict[str, dict[str, int]] = {}
        self._seconds = window_seconds
        self._open: dict[_Key, _OpenAggregate] = {}

    def add(self, batch: EventBatch) -> None:
        """Counts one message."""
        for event in batch.events:
            opened = self._find_aggregate(event)
            opened.attempt(event)
            if event.observations:
                declared = batch.statistics.get(event.endpoint, ())
                opened.own.observe(event.observations, declared)
        for told in batch.feedback:
            self._find_aggregate(told).feedback(told)
        for refusal in batch.refusals:
            counts = self.refusals.setdefault(refusal.endpoint, {})
            _count(counts, f"{refusal.status} {refusal.reason}", refusal.count)
        self.events += len(batch.events)

    def aggregates(self) -> list[WindowAggregate]:
        """All aggregates. They grow with the next message: encode or copy them before it."""
        return [opened.complete() for opened in self._open.values()]

    def _find_aggregate(self, what: PredictionEvent | Feedback) -> "_OpenAggregate":
        time = min(max(what.time, 0.0), _LATEST)
        self.newest = max(self.newest, time)
        start = int(time // self._seconds) * self._seconds
        key = (what.endpoint, what.version, what.package, what.arm, start)
        opened = self._open.get(key)
        if opened is None:
            opened = self._open[key] = _OpenAggregate(
                WindowAggregate(what.endpoint, what.version, what.package, what.arm, start)
            )
        return opened


class _OpenAggregate:
    """An aggregate, and what must be remembered while its range is open."""

    __slots__ = (
        "_aggregate",
        "_answered",
        "_buckets",
        "_buckets_timed",
        "_callers",
        "_entries",
        "_hung_up",
        "_told",
        "_topics",
        "_vectors",
        "own",
    )

    def __init__(self, aggregate: WindowAggregate) -> None:
        self.own = OwnFold()
        self._aggregate = aggregate
        self._callers: dict[int, int] = {}  # attempts that count as evidence
        self._answered: dict[int, int] = {}  # the same with those that the cache answered
        self._hung_up: dict[int, int] = {}  # the same of those that hung up
        self._told: dict[int, int] = {}  # the same of feedback
        self._topics = bytearray()  # that are not counted yet
        self._vectors = bytearray()  # the same of vectors
        self._buckets = CALLER_BUCKETS  # of callers, whose attempts are told
        self._buckets_timed = CALLER_BUCKETS  # and whose latency is
        self._entries = 0  # of ``caller_latency``

    def complete(self) -> WindowAggregate:
        aggregate = self._aggregate
        for counts, waiting in (
            (aggregate.topics, self._topics),
            (aggregate.vectors, self._vectors),
        ):
            for bucket, count in Counter(waiting).items():
                _count(counts, bucket, count)
            waiting.clear()
        aggregate.own, aggregate.undeclared = self.own.counts(), self.own.undeclared
        return aggregate

    def attempt(self, event: PredictionEvent) -> None:
        aggregate = self._aggregate
        _count(aggregate.statuses, event.status)
        aggregate.answered += event.answered
        aggregate.repeated += event.repeated
        latency = event.latency
        _stages(
            aggregate, (latency.queue, latency.tokenise, latency.wait, latency.infer, latency.total)
        )
        for text in event.texts:
            _text(aggregate, text)
        self._topics += event.topics  # counted many events at a time
        self._vectors += event.vectors
        if event.unk_words:
            frequent.observe(aggregate.unk_words, event.unk_words)
        if event.pairing is not None:
            for distance in event.pairing.distance:
                _count(aggregate.pair_distance, bisect_left(_SCORE_UPPER, distance))
                aggregate.pair_distance_sum += micro(distance)
        if not event.repeated and event.arm is not Arm.FORCED:
            self._evidence(event)

    def _evidence(self, event: PredictionEvent) -> None:
        """Counts an attempt that the split gave to its arm."""
        aggregate = self._aggregate
        aggregate.evidence.unnamed += not event.caller
        is_kept = event.cached > 0 and event.cached == len(event.texts)
        if event.status == _HUNG_UP:
            if not is_kept:
                aggregate.evidence.hung_up += not _is_over_cap(self._hung_up, event.caller)
            return
        is_within = not _is_over_cap(self._answered, event.caller)
        if is_kept and is_within:
            _count_kept(aggregate.evidence, event, 1)
        if is_kept or _is_over_cap(self._callers, event.caller):
            return
        if not is_within:  # it counts below, and kept answers have taken its place
            _count_kept(aggregate.evidence, event, -1)
        _count_evidence(aggregate.evidence, event)
        self._time(aggregate.evidence, event)
        if event.caller:
            _count_group(aggregate.evidence, event, event.caller % CALLER_GROUPS)
            self._count_caller(aggregate.evidence, event)

    def _count_caller(self, evidence: EvidenceCounts, event: PredictionEvent) -> None:
        caller = event.caller % CALLER_BUCKETS
        if caller >= self._buckets:
            return
        _count(evidence.caller_requests, caller)
        if event.status >= _SERVER_ERROR:
            _count(evidence.caller_errors, caller)
        while len(evidence.caller_requests) > CALLER_ENTRIES:
            self._buckets //= 2
            for counts in (evidence.caller_requests, evidence.caller_errors):
                for bucket in [bucket for bucket in counts if bucket >= self._buckets]:
                    del counts[bucket]

    def _time(self, evidence: EvidenceCounts, event: PredictionEvent) -> None:
        if event.cached or not event.texts or event.status not in {_OK, _TOO_LATE}:
            return
        longest = length_bucket(max(text.tokens for text in event.texts))
        bucket = _TO_INFINITY
        if event.status == _OK:
            bucket = bisect_left(_LATENCY_UPPER, compared_seconds(event))
        _count(evidence.latency.setdefault(longest, {}), bucket)
        caller = event.caller % CALLER_BUCKETS
        if event.caller and caller < self._buckets_timed:
            counts = evidence.caller_latency.setdefault(longest, {})
            at = caller * CALLER_STRIDE + bucket
            self._entries += at not in counts
            _count(counts, at)
            while self._entries > CALLER_ENTRIES:
                self._tell_fewer(evidence)

    def _tell_fewer(self, evidence: EvidenceCounts) -> None:
        """Leaves the upper half of the buckets of callers out of ``caller_latency``."""
        self._buckets_timed = buckets = self._buckets_timed // 2
        evidence.caller_latency = {
            length: kept
            for length, counts in evidence.caller_latency.items()
            if (kept := {at: n for at, n in counts.items() if at < buckets * CALLER_STRIDE})
        }
        self._entries = sum(map(len, evidence.caller_latency.values()))

    def feedback(self, told: Feedback) -> None:
        aggregate = self._aggregate
        _count(aggregate.feedback.setdefault(told.answered, {}), told.truth)
        if told.score is not None and 0 <= told.score <= 1:
            bucket = bisect_left(_SCORE_UPPER, told.score)
            _count(aggregate.feedback_scores, bucket)
            _count(aggregate.feedback_score_sums, bucket, micro(told.score))
            if told.answered == told.truth:
                _count(aggregate.feedback_right, bucket)
        if told.arm is Arm.FORCED or _is_over_cap(self._told, told.caller):
            return
        evidence, is_wrong = aggregate.evidence, told.answered != told.truth
        evidence.feedback += 1
        evidence.feedback_wrong += is_wrong
        group = told.caller % CALLER_GROUPS if told.caller else CALLER_GROUPS
        aged = age_class(told.time - told.answered_at) * AGE_STRIDE + group
        _count(evidence.aged_feedback, aged)
        if is_wrong:
            _count(evidence.aged_wrong, aged)
        if told.caller:
            _count(evidence.group_feedback, group)
            if is_wrong:
                _count(evidence.group_wrong, group)


def compared_seconds(event: PredictionEvent) -> float:
    """What versions are compared by: tokenise + wait + infer.

    Of text that was written, for each of its tokens: it is as long as callers ask for.
    """
    latency = event.latency
    seconds = latency.tokenise + latency.wait + latency.infer
    if event.texts and event.texts[0].generated is not None:
        seconds /= max(1, sum(text.generated or 0 for text in event.texts))
    return seconds


def length_bucket(tokens: int) -> int:
    """The smallest power of two that is at least ``tokens``.

    >>> [length_bucket(tokens) for tokens in (0, 1, 2, 3, 8, 9)]
    [1, 1, 2, 4, 8, 16]
    """
    return 1 << max(0, tokens - 1).bit_length()


def _stages(aggregate: WindowAggregate, seconds: Sequence[float]) -> None:
    for stage, value in zip(_STAGES, seconds, strict=True):
        if value > 0:  # a stage that was not reached is 0
            _value(aggregate.latency, aggregate.latency_sums, stage, _LATENCY_UPPER, value)


def _text(aggregate: WindowAggregate, text: TextRecord) -> None:
    tokens, words, unk = text.tokens, text.words, text.unk
    histograms, sums = aggregate.histograms, aggregate.sums
    aggregate.texts += 1
    aggregate.truncated += text.truncated
    _value(histograms, sums, _TOKENS, _COUNT_UPPER, tokens)
    _value(histograms, sums, _WORDS, _COUNT_UPPER, words)
    _value(histograms, sums, _UNK, _COUNT_UPPER, unk)
    _value(histograms, sums, _UNK_SHARE, _SHARE_UPPER, unk / (tokens or 1))
    _value(histograms, sums, _TOKENS_PER_WORD, _RATIO_UPPER, tokens / (words or 1))
    if text.norm is not None:
        _value(histograms, sums, _NORM, _NORM_UPPER, text.norm)
    if text.non_zeros is not None:
        _value(histograms, sums, _NON_ZEROS, _COUNT_UPPER, text.non_zeros)
    if text.generated is not None:
        _value(histograms, sums, _GENERATED, _COUNT_UPPER, text.generated)
    if text.score is not None:
        _value(histograms, sums, _SCORE, _SCORE_UPPER, text.score)
    if text.label is not None:
        _count(aggregate.labels, text.label)
        if text.score is not None:
            _value(
                aggregate.label_scores,
                aggregate.label_score_sums,
                text.label,
                _SCORE_UPPER,
                text.score,
            )
    for label, score in text.entities or ():
        _count(aggregate.labels, label)
        _value(histograms, sums, _SCORE, _SCORE_UPPER, score)
        _value(aggregate.label_scores, aggregate.label_score_sums, label, _SCORE_UPPER, score)


def _labels(text: TextRecord) -> Sequence[str]:
    """What a text counts as: its label, or the types of the entities in it."""
    if text.entities:
        return [label for label, _ in text.entities]
    return () if text.label is None else (text.label,)


def _value(
    histograms: dict[str, Sparse],
    sums: dict[str, int],
    key: str,
    upper: tuple[float, ...],
    value: float,
) -> None:
    # Called ten times an event: no function that can be spared is called here.
    bucket = bisect_left(upper, value)
    counts = histograms.get(key)
    if counts is None:
        counts = histograms[key] = {}
    counts[bucket] = counts.get(bucket, 0) + 1
    millionths = round(value * MICRO) if -LARGEST <= value <= LARGEST else micro(value)
    sums[key] = sums.get(key, 0) + millionths


def _count_evidence(evidence: EvidenceCounts, event: PredictionEvent) -> None:
    evidence.requests += 1
    evidence.errors += event.status >= _SERVER_ERROR
    for text in event.texts:
        for label in _labels(text):
            _count(evidence.labels, label)
        if text.norm is not None:
            _count(evidence.norms, bisect_left(_NORM_UPPER, text.norm))
    if len(event.texts) > 1 or (event.texts and event.texts[0].entities):
        _count_neighbours(evidence, event.texts)
    if event.pairing is not None:
        evidence.pairs += len(event.pairing.equal)
        evidence.pairs_equal += sum(event.pairing.equal)
        _count_pairs(evidence, event, event.pairing)


def _count_neighbours(evidence: EvidenceCounts, texts: Sequence[TextRecord]) -> None:
    labels: dict[str, int] = {}
    for text in texts:
        for label in _labels(text):
            _count(labels, label)
    others = sum(labels.values()) - 1
    for label, count in labels.items():
        if others:
            _count(evidence.label_neighbours, label, count * others)
        if count > 1:
            _count(evidence.label_like_neighbours, label, count * (count - 1))


def _count_pairs(evidence: EvidenceCounts, event: PredictionEvent, pairing: Pairing) -> None:
    """What a shadow answered beside what the caller got, if the event tells both."""
    if pairing.status:
        _count(evidence.pair_statuses.setdefault(pairing.status, {}), event.status)
    if pairing.norms and len(pairing.norms) == len(event.texts):
        _count_vectors(evidence, event, pairing)
    if pairing.labels and len(pairing.labels) == len(event.texts):
        part = round(MICRO / len(event.texts))
        for original, text in zip(pairing.labels, event.texts, strict=True):
            if text.label is not None:
                _count(evidence.pair_labels.setdefault(original, {}), text.label, part)
    if len(pairing.scores) == len(event.texts):
        for score, text in zip(pairing.scores, event.texts, strict=True):
            if text.score is not None:
                _count(
                    evidence.pair_scores, bisect_left(_SCORE_UPPER, (1 + text.score - score) / 2)
                )
    seconds = compared_seconds(event)
    if pairing.labels and seconds > 0 and pairing.seconds > 0:
        bucket = bisect_left(_LATENCY_UPPER, seconds) - bisect_left(_LATENCY_UPPER, pairing.seconds)
        _count(evidence.pair_latency, bucket)


def _count_vectors(evidence: EvidenceCounts, event: PredictionEvent, pairing: Pairing) -> None:
    for distance, shared in zip(pairing.distance, pairing.neighbours, strict=False):
        at = bisect_left(SPACE_EDGES, distance - _ROUNDING) * (NEAREST + 1) + shared
        _count(evidence.pair_nearness, at)
    part = round(MICRO / len(event.texts))
    for norm, text in zip(pairing.norms, event.texts, strict=True):
        if text.norm is not None:
            one, other = bisect_left(_NORM_UPPER, norm), bisect_left(_NORM_UPPER, text.norm)
            _count(evidence.pair_norms.setdefault(one, {}), other, part)


def _count_kept(evidence: EvidenceCounts, event: PredictionEvent, more: int) -> None:
    for text in event.texts:
        if text.norm is not None:
            _gain(evidence.cached_norms, bisect_left(_NORM_UPPER, text.norm), more)
        for label in _labels(text):
            _gain(evidence.cached_labels, label, more)
            if event.caller:
                groups = evidence.group_cached_labels.setdefault(label, {})
                _gain(groups, event.caller % CALLER_GROUPS, more)
                if not groups:
                    del evidence.group_cached_labels[label]


def _gain(counts: dict[_Counted, int], key: _Counted, more: int) -> None:
    """Counts what may be below 0; what is 0 is left out."""
    _count(counts, key, more)
    if not counts[key]:
        del counts[key]


def _count_group(evidence: EvidenceCounts, event: PredictionEvent, group: int) -> None:
    _count(evidence.group_requests, group)
    if event.status >= _SERVER_ERROR:
        _count(evidence.group_errors, group)
    for text in event.texts:
        for label in _labels(text):
            _count(evidence.group_labels.setdefault(label, {}), group)


def _is_over_cap(callers: dict[int, int], caller: int) -> bool:
    """Whether this caller has had its share; counts it if it has not."""
    if caller == 0:
        return False
    seen = callers.get(caller, 0)
    if seen >= CALLER_CAP:
        return True
    callers[caller] = seen + 1
    return False


def _count(counts: dict[_Counted, int], key: _Counted, more: int = 1) -> None:
    counts[key] = counts.get(key, 0) + more
