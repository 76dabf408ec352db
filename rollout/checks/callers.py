"""How far apart two arms with one version can be, only because their callers differ.

Callers stick to an arm and differ from one another, so that the arms' shares differ by who is in
them, for as long as a step lasts: no number of requests averages that out, and no test of requests
tells it from a bad version. It is learnt from stable's callers, in groups by a hash of their names:
what the groups differ by beyond chance is the callers'. It never sees a canary.

Let ``u_k`` be the events of the k-th caller above its requests times the share of all callers in
the same window, N all callers' requests. If each caller is in one arm with chance w, else in the
other, the arms' shares differ with a variance of ``sum u_k^2 / N^2 / (w (1 - w))``: the linearised
difference of two ratios under Poisson sampling of clusters (Sarndal, Swensson and Wretman, Model
Assisted Survey Sampling, 1992). Sums over groups have the same expectation as sums over callers.

Names may last for minutes only (a document, a session). What such callers make does average out,
but a caller's requests of one window and of near ones count as few: by how much is the variance of
the groups' ``u`` over near windows, beyond what lasts (``CallerVariation.near``). It does not
shrink with the arm, as what all requests of a window share does.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from contracts.windows import CALLER_GROUPS, EvidenceCounts, Sparse
from measures.correlation import CAUTION, Floats
from measures.histograms import dense
from measures.state import SequentialState
from rollout.checks.rows import CLASSES, ERRORS, QUALITY, CheckRows, by_label, count_answers

# Standard deviations that arms of one version may be apart. Of 100 splits about one is further, in
# either direction, the deviation being an estimate.
DEVIATIONS = 3.0
# Of what is tolerated: if callers can make more than that, passing is luck or takes very long,
# and what passed in shadow need not pass again.
MOST_CALLER_SPREAD = 0.5
# What a window's requests weigh in the next one, as near ones: 20 windows in the mean.
NEAR = 0.95
NEAR_NOISE = 0.25  # of the variance: of callers who last, 30 windows show as much by chance

_ERRORS, _QUALITY, _CLASSES = 0, 1, 2  # kinds of events, the first one of classes
_DECIMALS = 3  # of an event, that are kept


@dataclass(frozen=True)
class GroupCounts:
    """Counts of one arm in one window, of errors, of feedback and of each class.

    Attributes:
        events: ``[..., kinds, groups]``, of callers with a name.
        requests: of the same shape.
        all_events: ``[..., kinds]``, of all callers.
        all_requests: of the same shape.
    """

    events: Floats
    requests: Floats
    all_events: Floats
    all_requests: Floats

    @classmethod
    def of(cls, evidence: EvidenceCounts, labels: tuple[str, ...]) -> Self:
        """As production counted them; ``labels`` are the classes compared one by one."""
        of_labels = {name: _dense(groups) for name, groups in evidence.group_labels.items()}
        for name, groups in evidence.group_cached_labels.items():
            of_labels[name] = of_labels.get(name, np.zeros(CALLER_GROUPS)) + _dense(groups)
        answers = count_answers(evidence)
        labelled = sum(of_labels.values(), np.zeros(CALLER_GROUPS))
        known = [of_labels.get(label, np.zeros(CALLER_GROUPS)) for label in labels]
        classes = [*known, labelled - sum(known, np.zeros(CALLER_GROUPS))] if labels else []
        shares = by_label(answers, labels) if labels else []
        return cls(
            np.array([_dense(evidence.group_errors), _dense(evidence.group_wrong), *classes]),
            np.array(
                [
                    _dense(evidence.group_requests),
                    _dense(evidence.group_feedback),
                    *([labelled] * len(classes)),
                ]
            ),
            np.array([evidence.errors, evidence.feedback_wrong, *shares], dtype=np.float64),
            np.array(
                [
                    evidence.requests,
                    evidence.feedback,
                    *([sum(answers.values())] * len(shares)),
                ],
                dtype=np.float64,
            ),
        )


class CallerVariation(SequentialState, frozen=True):
    """Sums over stable's windows.

    Attributes:
        above: ``[..., kinds, groups]``, events above what the groups' requests would have.
        by_chance: ``[..., kinds]``, the sum of squares of that, expected of callers all alike.
        events: ``[..., kinds]``, of all callers.
        requests: of the same shape.
        near: as ``above``, of the last windows: each one weighs ``NEAR`` of the one after it.
        near_squares: ``[..., kinds]``, the part of ``above``'s sum of squares that is of near
            windows.
        near_requests: ``[..., kinds]``, as ``near``, of all callers' requests.
        near_pairs: ``[..., kinds]``, as ``near_squares``, of all callers' requests.
    """

    above: Floats
    by_chance: Floats
    events: Floats
    requests: Floats
    near: Floats
    near_squares: Floats
    near_requests: Floats
    near_pairs: Floats

    @classmethod
    def begin(cls, labels: int, shape: tuple[int, ...] = ()) -> Self:
        """Nothing known yet, of answers with this number of labels."""
        zero = np.zeros((*shape, _kinds(labels)))
        wide = np.zeros((*zero.shape, CALLER_GROUPS))
        return cls(wide, zero, zero, zero, wide, zero, zero, zero)

    def after(self, stable: GroupCounts) -> Self:
        """Returns a copy with a window of stable."""
        n = np.maximum(stable.all_requests, 1.0)
        share = stable.all_events / n
        others = 1 - stable.requests / n[..., None]
        chance = share * (1 - share) * (stable.requests * others).sum(axis=-1)
        more = stable.events - share[..., None] * stable.requests
        before, requests = NEAR * self.near, NEAR * self.near_requests
        squares, pairs = self.near_squares, self.near_pairs
        return type(self)(
            np.round(self.above + more, _DECIMALS),
            np.round(self.by_chance + chance, _DECIMALS),
            self.events + stable.all_events,
            self.requests + stable.all_requests,
            np.round(before + more, _DECIMALS),
            np.round(squares + (more * (more + 2 * before)).sum(axis=-1), _DECIMALS),
            np.round(requests + stable.all_requests, _DECIMALS),
            np.round(pairs + stable.all_requests * (stable.all_requests + 2 * requests), _DECIMALS),
        )

    def spread(self, rows: CheckRows, share: Floats | float) -> Floats:
        """``[..., rows]``: how far the arms' shares can be apart with one version in both.

        Args:
            rows: of all tests. Those of strata of callers (``measures.own_past``) are 0 here: all
                of latency's, and those of errors but for the unknown stratum.
            share: ``[...]``, of callers that the candidate has; 0 or 1 if both arms answer the
                same callers: then nothing is apart.
        """
        kinds = self._kinds_spread(share)
        found = np.zeros((*kinds.shape[:-1], rows.count))
        found[..., ERRORS.start], found[..., QUALITY] = kinds[..., _ERRORS], kinds[..., [_QUALITY]]
        found[..., CLASSES:] = kinds[..., _kind_of_class(rows)]
        return found

    def distance(self, share: Floats | float) -> Floats:
        """``[...]``: the same of all classes together, as a Jensen-Shannon distance.

        For near distributions it is ``sum_k (p_k - q_k)^2 / (8 p_k ln 2)``, squared.
        """
        events = self.events[..., _CLASSES:]
        p = events / np.maximum(self.requests[..., _CLASSES:], 1.0)
        squares = self._kinds_spread(share)[..., _CLASSES:] ** 2 / np.where(events > 0, p, np.inf)
        found: Floats = np.sqrt(squares.sum(axis=-1) / (8 * np.log(2.0)))
        return np.minimum(found, 1.0)

    def near_effect(self, rows: CheckRows) -> Floats:
        """``[..., rows]``: this many requests of near windows count as one, for who sends them.

        Of classes, and of errors in the unknown stratum: names that live for minutes have no past.
        1 of other rows.
        """
        effect = 1.0 + self._near_excess / np.where(self._variance > 0, self._variance, 1.0)
        found = np.ones((*effect.shape[:-1], rows.count))
        found[..., ERRORS.start] = effect[..., _ERRORS]
        found[..., CLASSES:] = effect[..., _kind_of_class(rows)]
        return found

    @property
    def shared_near_effect(self) -> Floats:
        """``[...]``: the same of a histogram of all classes."""
        p = (self.events / np.maximum(self.requests, 1.0))[..., _CLASSES:]
        seen = p > 0
        over = np.where(seen, self._near_excess[..., _CLASSES:] / np.where(seen, p, 1.0), 0.0)
        degrees = np.maximum(seen.sum(axis=-1) - 1, 1)
        requests = self.requests[..., _CLASSES:].max(axis=-1, initial=1.0)
        effect: Floats = 1.0 + over.sum(axis=-1) / (degrees * requests)
        return effect

    @property
    def _variance(self) -> Floats:
        """``[..., kinds]``: of the events of independent requests."""
        p = self.events / np.maximum(self.requests, 1.0)
        return self.requests * p * (1 - p)

    @property
    def _near_excess(self) -> Floats:
        """``[..., kinds]``: what callers add to that over near windows, beyond what lasts.

        What lasts is told by windows that are further from one another: it makes as much of the
        requests' pairs there as among near ones, and is a tolerance already (``spread``).
        """
        squares, pairs = self.near_squares, self.near_pairs
        far = np.square(self.requests) - pairs
        lasting = np.maximum(0.0, (self.above**2).sum(axis=-1) - squares)
        part = np.where(far > 0, lasting / np.where(far > 0, far, 1.0), 0.0)
        excess = squares - self.by_chance - part * pairs - NEAR_NOISE * self._variance
        return np.where(pairs > 0, CAUTION * np.maximum(0.0, excess), 0.0)

    def _kinds_spread(self, share: Floats | float) -> Floats:
        """``[..., kinds]``."""
        both = np.asarray(share * (1.0 - share))[..., None]
        beyond = np.maximum(0.0, (self.above**2).sum(axis=-1) - self.by_chance)
        deviation = np.sqrt(beyond / np.where(both > 0, both, np.inf))
        found: Floats = DEVIATIONS * deviation / np.maximum(self.requests, 1.0)
        return found

    def with_labels(self, labels: int) -> Self:
        """Returns a copy with this number of labels, which were not known before."""
        parts, begun = structs.astuple(self), structs.astuple(self.begin(labels))
        return type(self)(
            *(
                np.concatenate([part, more[_CLASSES:]])
                for part, more in zip(parts, begun, strict=True)
            )
        )


def _kinds(labels: int) -> int:
    return _CLASSES + (labels + 1 if labels else 0)


def _kind_of_class(rows: CheckRows) -> NDArray[np.intp]:
    """The kind of each class's row: a class that falls is the one that grows."""
    classes = np.arange(len(rows.directions), dtype=np.intp)
    return _CLASSES + classes % (len(rows.labels) + 1)


def _dense(counts: Sparse) -> Floats:
    return dense(counts, CALLER_GROUPS).astype(np.float64)
