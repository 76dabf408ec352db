"""The rows of all tests of two proportions: which counts of a window each of them compares.

All tests of a rollout are rows of one array, so that a window costs one pass of arithmetic. Errors,
latency and quality always have rows, whether the spec has these checks or not, and classes as soon
as they are known. So a check that is added to the spec later already has its evidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from contracts.rollout import Checks, ClassShareCheck, ErrorRateCheck, LatencyCheck, QualityCheck
from contracts.windows import MICRO, UNSERVED, EvidenceCounts
from measures.correlation import Floats
from measures.histograms import add_counts
from measures.own_past import STRATA, CallersAnswers, OwnPast
from measures.proportions import Tolerance
from rollout.checks.slowness import LENGTHS, Slowness

CLASSES_LIMIT = 10  # classes that are compared one by one; the rarest others share one row
OTHER = ""  # that row's name, and of labels that stable never gave

ERRORS = slice(0, STRATA)  # one row a stratum of callers, the unknown one's first
KNOWN_ERRORS = slice(ERRORS.start + 1, ERRORS.stop)  # of callers with a past
PAIRED_ERRORS = slice(ERRORS.start, ERRORS.start + 1)  # where pairs of all callers are counted
# Of each stratum of callers one row a length, the unknown stratum's first.
LATENCY = slice(ERRORS.stop, ERRORS.stop + STRATA * len(LENGTHS))
UNKNOWN_LATENCY = slice(LATENCY.start, LATENCY.start + len(LENGTHS))
# Labels of answers that were given in this step, and in the bake of those of the step before it.
QUALITY = slice(LATENCY.stop, LATENCY.stop + 2)
CLASSES = QUALITY.stop  # first row of the classes

ERROR_TEST, LATENCY_TEST, QUALITY_TEST = 0, 1, 2
CLASS_TEST = 3  # first of the tests of classes

_SERVER_ERROR = 500


@dataclass(frozen=True)
class Direction:
    """A class's share, tested for being larger or smaller."""

    label: str
    grows: bool


@dataclass(frozen=True)
class CheckRows:
    """The rows of an endpoint whose answers have these labels; none while they are not known."""

    labels: tuple[str, ...]

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, labels: tuple[str, ...]) -> Self:
        """The same object for the same labels, for it is asked for at each window."""
        return cls(labels)

    @cached_property
    def directions(self) -> tuple[Direction, ...]:
        """One a row from ``CLASSES`` on. Of two classes, one falls only as the other grows."""
        if not self.labels:
            return ()
        names = (*self.labels, OTHER)
        grows = [Direction(label, grows=True) for label in names]
        falls = [Direction(label, grows=False) for label in names]
        return (*grows, *(falls if len(self.labels) > 2 else ()))

    @property
    def count(self) -> int:
        """How many rows there are."""
        return CLASSES + len(self.directions)

    @cached_property
    def tests(self) -> NDArray[np.intp]:
        """First row of each test: rows of errors, and of latency, are strata of one test."""
        classes = range(CLASSES, self.count)
        return np.array([ERRORS.start, LATENCY.start, QUALITY.start, *classes], dtype=np.intp)

    @cached_property
    def test_of_row(self) -> NDArray[np.intp]:
        """The test that each row belongs to."""
        return np.repeat(np.arange(len(self.tests)), np.diff(self.tests, append=self.count))

    def counts(
        self,
        evidence: EvidenceCounts,
        slowness: Slowness,
        past: OwnPast,
        errors_past: OwnPast,
    ) -> tuple[Floats, Floats]:
        """Events and requests of one arm in one window, a row.

        ``past`` is that of callers, by which latency is compared, and ``errors_past`` that
        errors.
        """
        slow, timed = latency_counts(evidence, slowness, past)
        failed, attempts = error_counts(evidence, errors_past)
        events = [*failed, *slow, evidence.feedback_wrong, 0]
        requests = [*attempts, *timed, evidence.feedback, 0]
        if self.labels:
            answers = count_answers(evidence)
            labelled = sum(answers.values())
            shares = by_label(answers, self.labels)
            falls = [labelled - count for count in shares]
            events += shares
            events += falls[: len(self.directions) - len(shares)]
            requests += [labelled] * len(self.directions)
        return np.array(events, dtype=np.float64), np.array(requests, dtype=np.float64)


def latency_counts(
    evidence: EvidenceCounts, slowness: Slowness, past: OwnPast
) -> tuple[Sequence[float], Sequence[float]]:
    """Slow attempts and all attempts of a window, by row of latency."""
    slow, timed = slowness.count_slow(evidence)
    if not evidence.caller_latency:
        nothing = [0] * (len(LENGTHS) * (STRATA - 1))
        return [*slow, *nothing], [*timed, *nothing]
    every = np.array([slow, timed], dtype=np.float64)
    of_strata = slowness.of_callers(evidence).by_stratum(past.strata, *every)
    return of_strata[0].ravel().tolist(), of_strata[1].ravel().tolist()


def error_counts(
    evidence: EvidenceCounts, past: OwnPast
) -> tuple[Sequence[float], Sequence[float]]:
    """Failed attempts and all attempts of a window, by row of errors."""
    if not evidence.caller_requests:
        nothing = [0] * (STRATA - 1)
        return [evidence.errors, *nothing], [evidence.requests, *nothing]
    every = np.array([[evidence.errors], [evidence.requests]], dtype=np.float64)
    of_strata = errors_of_callers(evidence).by_stratum(past.strata, *every)
    return of_strata[0].ravel().tolist(), of_strata[1].ravel().tolist()


def sum_strata(rows: Floats, test: slice) -> Floats:
    """``[..., rows]`` of errors or of latency, to ``[..., STRATA]``."""
    found: Floats = rows[..., test].reshape(*rows.shape[:-1], STRATA, -1).sum(axis=-1)
    return found


def errors_of_callers(evidence: EvidenceCounts) -> CallersAnswers:
    """What callers with a name had, an entry each."""
    buckets = np.fromiter(evidence.caller_requests, dtype=np.intp)
    failed = (evidence.caller_errors.get(bucket, 0) for bucket in evidence.caller_requests)
    return CallersAnswers(
        (buckets,),
        np.zeros_like(buckets),
        np.fromiter(failed, dtype=np.float64),
        np.fromiter(evidence.caller_requests.values(), dtype=np.float64),
    )


def count_answers(evidence: EvidenceCounts) -> dict[str, int]:
    """All of an arm's answers by label, those that a cache kept included.

    Each version has a cache of its own. In an arm of few requests it finds fewer of the texts that
    come often, so that what is left to be inferred differs between the arms, and the answers that
    callers get do not.
    """
    if not evidence.cached_labels:
        return evidence.labels
    found = dict(evidence.labels)
    add_counts(found, evidence.cached_labels)
    return found


def drop_cached(evidence: EvidenceCounts) -> EvidenceCounts:
    """Without what a cache answered: of that no copies are made."""
    if not evidence.cached_labels and not evidence.cached_norms:
        return evidence
    return replace(evidence, cached_labels={}, cached_norms={}, group_cached_labels={})


def by_label(counts: dict[str, int], labels: Sequence[str]) -> list[int]:
    """Counts of these labels in this order, and behind them of all others together."""
    known = [counts.get(label, 0) for label in labels]
    return [*known, sum(counts.values()) - sum(known)]


def neighbours(evidence: EvidenceCounts, labels: Sequence[str]) -> tuple[Floats, Floats]:
    """Neighbours of the texts of each class, and those that are alike, ``[classes]``, others last.

    All others' neighbours are taken to be alike: which label each has is not kept.
    """
    every = by_label(evidence.label_neighbours, labels)
    like = [evidence.label_like_neighbours.get(label, 0) for label in labels]
    return np.array(every, dtype=np.float64), np.array([*like, every[-1]], dtype=np.float64)


def pair_labels(evidence: EvidenceCounts, labels: tuple[str, ...]) -> Floats | None:
    """Requests by the original's label and the shadow's, ``[classes, classes]``, others behind.

    None if no event told what the caller got.
    """
    if not labels or not evidence.pair_labels:
        return None
    at = {label: index for index, label in enumerate(labels)}
    table = np.zeros((len(labels) + 1, len(labels) + 1))
    for original, answers in evidence.pair_labels.items():
        for label, millionths in answers.items():
            table[at.get(original, -1), at.get(label, -1)] += millionths / MICRO
    return table


def pair_errors(evidence: EvidenceCounts) -> Floats | None:
    """Requests by whether the original failed and whether the shadow did, ``[2, 2]``.

    A pair of which no version had a part in one attempt (``UNSERVED``) tells nothing. None if no
    event told how the caller's attempt ended.
    """
    if not evidence.pair_statuses:
        return None
    table = np.zeros((2, 2))
    for original, copies in evidence.pair_statuses.items():
        for status, count in copies.items():
            if UNSERVED not in {original, status}:
                table[int(original >= _SERVER_ERROR), int(status >= _SERVER_ERROR)] += count
    return table


def pair_norms(evidence: EvidenceCounts, bins: int) -> Floats | None:
    """Requests by bin of the original's norm and the shadow's, ``[bins, bins]``; None as there."""
    if not evidence.pair_norms:
        return None
    table = np.zeros((bins, bins))
    for original, copies in evidence.pair_norms.items():
        for norm, millionths in copies.items():
            table[min(original, bins - 1), min(norm, bins - 1)] += millionths / MICRO
    return table


def list_leading(counts: dict[str, int]) -> tuple[str, ...]:
    """The labels that are compared one by one: the most frequent ones, by name."""
    ranked = sorted(counts, key=lambda label: (-counts[label], label))
    return tuple(sorted(ranked[:CLASSES_LIMIT]))


Compared = ErrorRateCheck | LatencyCheck | QualityCheck | ClassShareCheck


@dataclass(frozen=True)
class Lines:
    """The tolerances of all rows, each ``[rows]``."""

    fail: Tolerance
    pass_: Tolerance

    def of(self, rows: slice) -> Self:
        """Of some of the rows."""
        return type(self)(
            *(
                Tolerance(np.asarray(line.a)[rows], np.asarray(line.s)[rows])
                for line in (self.fail, self.pass_)
            )
        )


def choose_compared(checks: Checks) -> tuple[Compared, Compared, Compared, Compared]:
    """Errors, latency, quality and classes as asked for, or by default if they are not."""
    return (
        checks.error_rate or ErrorRateCheck(),
        checks.latency or LatencyCheck(),
        checks.quality or QualityCheck(),
        checks.class_share or ClassShareCheck(),
    )


def lines(checks: Checks, rows: CheckRows) -> Lines:
    """The tolerance of each row."""
    of_quality = QUALITY.stop - QUALITY.start
    sizes = (STRATA, LATENCY.stop - LATENCY.start, of_quality, len(rows.directions))
    of_rows = [
        check
        for check, size in zip(choose_compared(checks), sizes, strict=True)
        for _ in range(size)
    ]
    return Lines(
        Tolerance(
            np.array([check.fail.absolute for check in of_rows]),
            np.array([check.fail.relative for check in of_rows]),
        ),
        Tolerance(
            np.array([check.pass_.absolute for check in of_rows]),
            np.array([check.pass_.relative for check in of_rows]),
        ),
    )
