"""How far apart two arms with one version can be, only because their callers differ.

Callers stick to an arm and differ from one another, so that the arms' shares differ by who is in
them, for as long as a step lasts: no number of requests averages that out, and no test of requests
tells it from a bad version. It is learnt from stable's callers, in groups by a hash of their names:
what the groups differ by beyond chance is the callers'. It never sees a canary.

Let ``u_k`` be the events of the k-th caller above its requests times the share of all callers in
the same window, N all callers' requests. Where each caller is in one arm with chance w, else in the
other, the arms' shares differ with a variance of ``sum u_k^2 / N^2 / (w (1 - w))``: the linearised
difference of two ratios under Poisson sampling of clusters (Sarndal, Swensson and Wretman, Model
Assisted Survey Sampling, 1992). Sums over groups have the same expectation as sums over callers.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from contracts.windows import CALLER_GROUPS, EvidenceCounts, Sparse
from measures.correlation import Floats
from measures.histograms import dense
from measures.state import State
from rollout.checks.rows import CLASSES, ERRORS, QUALITY, Rows, answered, by_label

# Standard deviations that arms of one version may be apart. Of 100 splits about one is further, in
# either direction, the deviation being an estimate.
DEVIATIONS = 3.0
# Of what is tolerated: where callers can make more than that, passing is luck or takes very long,
# and what passed in shadow need not pass again.
MOST_CALLER_SPREAD = 0.5

_ERRORS, _QUALITY, _CLASSES = 0, 1, 2  # kinds of events, the first one of classes
_DECIMALS = 3  # of an event, that are kept


@dataclass(frozen=True)
class Grouped:
    """Counts of one arm in one window, of errors, of feedback and of each class.

    Attributes:
        events: ``[..., kinds, groups]``, of callers with a name.
        requests: likewise.
        all_events: ``[..., kinds]``, of all callers.
        all_requests: likewise.
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
        answers = answered(evidence)
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


class Callers(State, frozen=True):
    """Sums over stable's windows.

    Attributes:
        above: ``[..., kinds, groups]``, events above what the groups' requests would have.
        by_chance: ``[..., kinds]``, the sum of squares of that, expected of callers all alike.
        events: ``[..., kinds]``, of all callers.
        requests: likewise.
    """

    above: Floats
    by_chance: Floats
    events: Floats
    requests: Floats

    @classmethod
    def begin(cls, labels: int, shape: tuple[int, ...] = ()) -> Self:
        """Nothing known yet, of answers with so many labels."""
        zero = np.zeros((*shape, _kinds(labels)))
        return cls(np.zeros((*zero.shape, CALLER_GROUPS)), zero, zero, zero)

    def after(self, stable: Grouped) -> Self:
        """With a window of stable."""
        n = np.maximum(stable.all_requests, 1.0)
        share = stable.all_events / n
        others = 1 - stable.requests / n[..., None]
        chance = share * (1 - share) * (stable.requests * others).sum(axis=-1)
        above = self.above + stable.events - share[..., None] * stable.requests
        return type(self)(
            np.round(above, _DECIMALS),
            np.round(self.by_chance + chance, _DECIMALS),
            self.events + stable.all_events,
            self.requests + stable.all_requests,
        )

    def spread(self, rows: Rows, share: Floats | float) -> Floats:
        """``[..., rows]``: how far the arms' shares can be apart with one version in both.

        Args:
            rows: of all tests. Those of strata of callers (``measures.own_past``) are 0 here: all
                of latency's, and those of errors but for the unknown stratum.
            share: ``[...]``, of callers that the candidate has; 0 or 1 where both arms answer the
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

    def _kinds_spread(self, share: Floats | float) -> Floats:
        """``[..., kinds]``."""
        both = np.asarray(share * (1.0 - share))[..., None]
        beyond = np.maximum(0.0, (self.above**2).sum(axis=-1) - self.by_chance)
        deviation = np.sqrt(beyond / np.where(both > 0, both, np.inf))
        found: Floats = DEVIATIONS * deviation / np.maximum(self.requests, 1.0)
        return found

    def with_labels(self, labels: int) -> Self:
        """With so many labels, which were not known before."""
        begun = self.begin(labels)
        return type(self)(
            *(
                np.concatenate([getattr(self, name), getattr(begun, name)[_CLASSES:]])
                for name in self.__struct_fields__
            )
        )


def _kinds(labels: int) -> int:
    return _CLASSES + (labels + 1 if labels else 0)


def _kind_of_class(rows: Rows) -> NDArray[np.intp]:
    """The kind of each class's row: a class that falls is the one that grows."""
    classes = np.arange(len(rows.directions), dtype=np.intp)
    return _CLASSES + classes % (len(rows.labels) + 1)


def _dense(counts: Sparse) -> Floats:
    return dense(counts, CALLER_GROUPS).astype(np.float64)
