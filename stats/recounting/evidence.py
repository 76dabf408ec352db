"""The evidence of one endpoint's windows, counted from its raw events by code of its own.

It shares no code of counting with the fold role (``measures.folding``, ``measures.ranges``,
``measures.merging``), so that a mistake there does not show up here as well. What the two must have
in common are the contracts: which attempts count, the edges of buckets, and the length of a range,
for a caller's attempts are capped by range. Only ``EvidenceCounts`` are counted: what drift and
statistics of users' own rest on is not.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from contracts.endpoint import Arm
from contracts.events import (
    Feedback,
    PredictionEvent,
    TextRecord,
    UnknownSchemaError,
    decode,
)
from contracts.statistics import EDGES, LATENCY_EDGES, Statistic
from contracts.windows import (
    AGE_STRIDE,
    CALLER_BUCKETS,
    CALLER_CAP,
    CALLER_ENTRIES,
    CALLER_GROUPS,
    CALLER_STRIDE,
    LABEL_AGES,
    MICRO,
    RANGE_MESSAGES,
    SPACE_EDGES,
    EndpointWindow,
    EvidenceCounts,
    WindowAggregate,
)
from measures.recounting import Duplicates, RawMessage

_SECONDS = np.array(LATENCY_EDGES.upper)
_SCORES = np.array(EDGES[Statistic.SCORE].upper)
_NORMS = np.array(EDGES[Statistic.VECTOR_NORM].upper)

_Slot = tuple[int, str, str, Arm]  # start of the window, version, package, arm


class RawEvidence:
    """Adds up messages of all partitions into windows of one endpoint."""

    def __init__(self, endpoint: str, window_seconds: int) -> None:
        """Takes the endpoint's name, and the length of windows of event time."""
        self.events = 0
        self._endpoint = endpoint
        self._seconds = window_seconds
        self._counts: dict[_Slot, dict[str, Any]] = {}

    def add(self, messages: Iterable[RawMessage], copies: Duplicates) -> None:
        """Counts the messages of one partition, in their order.

        Args:
            messages: those that count, from the first of a range on.
            copies: what is known of the messages before.
        """
        attempts: defaultdict[_Slot, list[PredictionEvent]] = defaultdict(list)
        told: defaultdict[_Slot, list[Feedback]] = defaultdict(list)
        now_in = -1
        for message in messages:
            if message.offset // RANGE_MESSAGES != now_in:
                self._close(attempts, told)
                now_in = message.offset // RANGE_MESSAGES
            if copies.is_copy(message):
                copies.first_told(message, now_in * RANGE_MESSAGES)
                continue
            try:
                batch = decode(message.value)
            except (UnknownSchemaError, msgspec.DecodeError):
                continue
            for event in batch.events:
                if event.endpoint == self._endpoint:
                    attempts[self._slot(event)].append(event)
            for each in copies.first_told(message, now_in * RANGE_MESSAGES):
                if each.endpoint == self._endpoint:
                    told[self._slot(each)].append(each)
        self._close(attempts, told)

    def windows(self) -> tuple[EndpointWindow, ...]:
        """All windows, oldest first, with nothing in them but evidence."""
        by_start: defaultdict[int, list[WindowAggregate]] = defaultdict(list)
        for (start, version, package, arm), counts in sorted(self._counts.items()):
            evidence = msgspec.convert(counts, EvidenceCounts)
            by_start[start].append(
                WindowAggregate(self._endpoint, version, package, arm, start, evidence=evidence)
            )
        return tuple(
            EndpointWindow(self._endpoint, start, self._seconds, aggregates)
            for start, aggregates in sorted(by_start.items())
        )

    def _slot(self, what: PredictionEvent | Feedback) -> _Slot:
        start = int(what.time // self._seconds) * self._seconds
        return start, what.version, what.package, what.arm

    def _close(
        self, attempts: dict[_Slot, list[PredictionEvent]], told: dict[_Slot, list[Feedback]]
    ) -> None:
        """Counts a range: caps are of a range."""
        for slot in attempts.keys() | told.keys():
            self.events += len(attempts.get(slot, ()))
            counted = counts_of(attempts.get(slot, ()), told.get(slot, ()))
            self._counts[slot] = _sum(self._counts.get(slot, {}), counted)
        attempts.clear()
        told.clear()


def counts_of(attempts: Iterable[PredictionEvent], told: Iterable[Feedback]) -> dict[str, Any]:
    """The evidence in one range's attempts and feedback of one window, version and arm.

    Returns:
        The fields of ``EvidenceCounts`` that are not 0.
    """
    attempts = [event for event in attempts if _is_arms(event)]
    evidence = list(_within_cap(event for event in attempts if _counts(event)))
    gave_up = (event for event in attempts if event.status == 499 and not _is_kept(event))
    truths = list(_within_cap(each for each in told if each.arm is not Arm.FORCED))
    texts = [text for event in evidence for text in event.texts]
    paired = [(event, event.pairing) for event in evidence if event.pairing is not None]
    named = [event for event in evidence if event.caller]
    wrong = [each for each in truths if each.answered != each.truth]
    counts: dict[str, Any] = {
        "requests": len(evidence),
        "errors": sum(event.status > 499 for event in evidence),
        "latency": _nest((length, took, 1) for _, length, took in _list_timed(evidence)),
        "caller_latency": _by_caller(named),
        **_attempts_by_caller(named),
        "labels": Counter(label for text in texts for label in _labels(text)),
        "norms": _buckets(_NORMS, [text.norm for text in texts if text.norm is not None]),
        "pairs": sum(len(pairing.equal) for _, pairing in paired),
        "pairs_equal": sum(pairing.equal.count(True) for _, pairing in paired),
        "hung_up": len(list(_within_cap(gave_up))),
        "unnamed": sum(event.caller == 0 for event in attempts),
        "feedback": len(truths),
        "feedback_wrong": len(wrong),
        "aged_feedback": Counter(map(_age_class, truths)),
        "aged_wrong": Counter(map(_age_class, wrong)),
        "group_requests": Counter(map(_group, named)),
        "group_errors": Counter(_group(event) for event in named if event.status > 499),
        "group_feedback": Counter(_group(each) for each in truths if each.caller),
        "group_wrong": Counter(_group(each) for each in wrong if each.caller),
        "group_labels": _nest(
            (label, _group(event), 1)
            for event in named
            for text in event.texts
            for label in _labels(text)
        ),
        **_neighbours(evidence),
        **_pairs(evidence),
        **_count_cached(attempts, evidence),
    }
    return {name: dict(of) if isinstance(of, Counter) else of for name, of in counts.items() if of}


def _is_arms(event: PredictionEvent) -> bool:
    """Whether it is one that the split gave to an arm."""
    return not event.repeated and event.arm is not Arm.FORCED


def _is_kept(event: PredictionEvent) -> bool:
    return event.cached > 0 and event.cached == len(event.texts)


def _counts(event: PredictionEvent) -> bool:
    return _is_answer(event) and not _is_kept(event)


def _is_answer(event: PredictionEvent) -> bool:
    return _is_arms(event) and event.status != 499


def _count_cached(
    attempts: list[PredictionEvent], evidence: list[PredictionEvent]
) -> dict[str, Any]:
    """What answers of the cache change, if a caller's first answers count of either kind."""
    first = list(_within_cap(event for event in attempts if _is_answer(event)))
    labels: Counter[str] = Counter()
    norms: Counter[int] = Counter()
    groups: Counter[tuple[str, int]] = Counter()
    for events, sign in ((first, 1), (evidence, -1)):
        for event in events:
            told = [label for text in event.texts for label in _labels(text)]
            vectors = [text.norm for text in event.texts if text.norm is not None]
            labels.update({label: sign * told.count(label) for label in set(told)})
            for bucket, count in _buckets(_NORMS, vectors).items():
                norms[bucket] += sign * count
            for label in told if event.caller else ():
                groups[label, _group(event)] += sign
    of_groups = ((label, group, count) for (label, group), count in groups.items() if count)
    return {
        "cached_labels": {label: count for label, count in labels.items() if count},
        "cached_norms": {bucket: count for bucket, count in norms.items() if count},
        "group_cached_labels": _nest(of_groups),
    }


def _within_cap(what: Iterable[Any]) -> Iterator[Any]:
    """The first ones of each caller; all of nobody's."""
    taken: Counter[int] = Counter()
    for each in what:
        taken[each.caller] += 1
        if not each.caller or taken[each.caller] <= CALLER_CAP:
            yield each


def _labels(text: TextRecord) -> list[str]:
    """What a text counts as: the types of the entities in it, or its label."""
    if text.entities:
        return [kind for kind, _ in text.entities]
    return [] if text.label is None else [text.label]


def _group(of: PredictionEvent | Feedback) -> int:
    return of.caller % CALLER_GROUPS


def _age_class(told: Feedback) -> int:
    """By how long after the answer a label came, and by group of callers."""
    age = sum(told.time - told.answered_at > edge for edge in LABEL_AGES)
    return age * AGE_STRIDE + (_group(told) if told.caller else CALLER_GROUPS)


def _buckets(edges: Any, values: list[float]) -> dict[int, int]:  # noqa: ANN401 - an array
    if not values:
        return {}
    found = np.searchsorted(edges, np.array(values), side="left")
    return {int(bucket): int(count) for bucket, count in Counter(found.tolist()).items()}


def _nest(counted: Iterable[tuple[Any, Any, int]]) -> dict[Any, dict[Any, int]]:
    found: dict[Any, dict[Any, int]] = {}
    for outer, inner, more in counted:
        of = found.setdefault(outer, {})
        of[inner] = of.get(inner, 0) + more
    return found


def _seconds(event: PredictionEvent) -> float:
    seconds = event.latency.tokenise + event.latency.wait + event.latency.infer
    written = sum(text.generated or 0 for text in event.texts)
    return seconds / written if written else seconds


def _list_timed(evidence: list[PredictionEvent]) -> Iterator[tuple[PredictionEvent, int, int]]:
    """Attempts that say how slow a version is, with buckets of their length and time."""
    for event in evidence:
        if not event.texts or event.cached or event.status not in {200, 504}:
            continue
        length = 1
        while length < max(text.tokens for text in event.texts):
            length *= 2
        in_time = int(np.searchsorted(_SECONDS, _seconds(event), side="left"))
        yield event, length, in_time if event.status == 200 else len(_SECONDS)


def _by_caller(named: list[PredictionEvent]) -> dict[int, dict[int, int]]:
    """Latencies by bucket of callers: of as many buckets, by halves, as there is room for."""
    told = Counter(
        (event.caller % CALLER_BUCKETS, length, took) for event, length, took in _list_timed(named)
    )
    buckets = CALLER_BUCKETS
    while len(told) > CALLER_ENTRIES:
        buckets //= 2
        told = Counter({key: count for key, count in told.items() if key[0] < buckets})
    return _nest(
        (length, caller * CALLER_STRIDE + took, count)
        for (caller, length, took), count in told.items()
    )


def _attempts_by_caller(named: list[PredictionEvent]) -> dict[str, Counter[int]]:
    """Attempts by bucket of callers, in the same way, and those of them that failed."""
    every = [(event.caller % CALLER_BUCKETS, event.status > 499) for event in named]
    buckets = CALLER_BUCKETS
    while len({bucket for bucket, _ in every}) > CALLER_ENTRIES:
        buckets //= 2
        every = [each for each in every if each[0] < buckets]
    return {
        "caller_requests": Counter(bucket for bucket, _ in every),
        "caller_errors": Counter(bucket for bucket, has_failed in every if has_failed),
    }


def _neighbours(evidence: list[PredictionEvent]) -> dict[str, dict[str, int]]:
    near: Counter[str] = Counter()
    alike: Counter[str] = Counter()
    for event in evidence:
        labels = [label for text in event.texts for label in _labels(text)]
        for place, label in enumerate(labels):
            others = labels[:place] + labels[place + 1 :]
            near[label] += len(others)
            alike[label] += others.count(label)
    return {"label_neighbours": dict(+near), "label_like_neighbours": dict(+alike)}


def _pairs(evidence: list[PredictionEvent]) -> dict[str, Any]:
    labels, scores, slower, norms, near = [], [], [], [], []
    statuses = [
        (event.pairing.status, event.status, 1)
        for event in evidence
        if event.pairing is not None and event.pairing.status
    ]
    for event in evidence:
        pairing, texts = event.pairing, event.texts
        if pairing is None or not texts:
            continue
        if len(pairing.labels) == len(texts):
            part = round(MICRO / len(texts))
            labels += [
                (original, text.label, part)
                for original, text in zip(pairing.labels, texts, strict=True)
                if text.label is not None
            ]
        if len(pairing.scores) == len(texts):
            scores += [
                (1 + text.score - score) / 2
                for score, text in zip(pairing.scores, texts, strict=True)
                if text.score is not None
            ]
        if len(pairing.norms) == len(texts):
            part = round(MICRO / len(texts))
            edges, apart = (
                np.round(MICRO * np.array(each)) for each in (SPACE_EDGES, pairing.distance)
            )
            buckets = np.searchsorted(edges, apart, side="left").tolist()
            near += [11 * each + n for each, n in zip(buckets, pairing.neighbours, strict=False)]
            norms += [
                (*np.searchsorted(_NORMS, [norm, text.norm], side="left").tolist(), part)
                for norm, text in zip(pairing.norms, texts, strict=True)
                if text.norm is not None
            ]
        if pairing.labels and min(_seconds(event), pairing.seconds) > 0:
            one, other = np.searchsorted(_SECONDS, [_seconds(event), pairing.seconds], side="left")
            slower.append(int(one - other))
    return {
        "pair_labels": _nest(labels),
        "pair_scores": _buckets(_SCORES, scores),
        "pair_latency": dict(Counter(slower)),
        "pair_statuses": _nest(statuses),
        "pair_norms": _nest(norms),
        "pair_nearness": dict(Counter(near)),
    }


def _sum(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    found = dict(one)
    for key, more in other.items():
        if isinstance(more, Mapping):
            found[key] = _sum(found.get(key, {}), more)
        else:
            found[key] = found.get(key, 0) + more
    return found
