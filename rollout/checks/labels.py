"""Labels that come late: which of them are compared, and whose they are.

A label counts in the window in which it came, with its age. Reports of wrong answers and of right
ones may take different times, so that what has come of an answer depends on how old it is. Arms are
compared only by answers that were given since the arms are what they are: then the answers of both
have the same ages in every window, whatever the delays are. It never asks what an answer was.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from msgspec.structs import replace

from contracts.windows import (
    AGE_STRIDE,
    CALLER_GROUPS,
    LABEL_AGES,
    EndpointWindow,
    EvidenceCounts,
    Sparse,
)
from measures.correlation import Floats
from measures.histograms import dense
from measures.state import SequentialState
from rollout.checks.left_out import ENOUGH, MOST_OF_AN_ARM

LEAST_FEEDBACK = 2  # of each arm, in counts of feedback that are compared at once

_WRONG_C, _ALL_C, _WRONG_S, _ALL_S = range(4)
_EVERY = 0  # of a caller's groups' axis: all callers, nobody included
# A group of callers is told to people with this many labels, and so far from the others.
_LEAST_TOLD = 20.0
_DEVIATIONS = 5.0

Arms = tuple[EvidenceCounts, EvidenceCounts]  # candidate and stable


def about_answers(
    counts: EvidenceCounts, window: EndpointWindow, since: float, until: float = math.inf
) -> EvidenceCounts:
    """With only the labels of a window that are about answers given between two times for sure.

    A class of ages that may hold others is left out whole.
    """
    classes = [
        at
        for at, oldest in enumerate(LABEL_AGES)
        if window.start - oldest >= since
        and window.start + window.seconds - (LABEL_AGES[at - 1] if at else 0.0) <= until
    ]
    every, wrong = (
        _of_classes(aged, classes) for aged in (counts.aged_feedback, counts.aged_wrong)
    )
    return replace(
        counts,
        feedback=sum(every.values()),
        feedback_wrong=sum(wrong.values()),
        group_feedback={group: n for group, n in every.items() if group < CALLER_GROUPS},
        group_wrong={group: n for group, n in wrong.items() if group < CALLER_GROUPS},
    )


def _of_classes(aged: Sparse, classes: list[int]) -> Sparse:
    """Counts by group of callers, nobody's behind them."""
    found: Sparse = {}
    for at, count in aged.items():
        if at // AGE_STRIDE in classes:
            group = at % AGE_STRIDE
            found[group] = found.get(group, 0) + count
    return found


def count_labels(arms: Arms) -> Floats:
    """``[4, 1 + groups]``: wrong and all labels of candidate and stable, of all and by group."""
    rows = []
    for arm in arms:
        for every, of_groups in (
            (arm.feedback_wrong, arm.group_wrong),
            (arm.feedback, arm.group_feedback),
        ):
            rows.append(np.concatenate([[float(every)], dense(of_groups, CALLER_GROUPS)]))
    return np.array(rows, dtype=np.float64)


def in_blocks(counts: Floats, waiting: Floats) -> tuple[Floats, Floats]:
    """Feedback that is compared now, and what waits on: both ``[4, 1 + groups, ...]``.

    A window in which one arm alone has feedback tells nothing of a difference, and at a label in
    ten windows nearly all are such. So windows are added up until both arms have ``LEAST_FEEDBACK``
    labels. The rule counts labels and sees no answer; the rates are taken to be even within what is
    added up.

    Args:
        counts: of a window, as ``counted``.
        waiting: of the windows before.
    """
    held = counts + waiting
    is_full = np.minimum(held[_ALL_C, _EVERY], held[_ALL_S, _EVERY]) >= LEAST_FEEDBACK
    return np.where(is_full, held, 0.0), np.where(is_full, 0.0, held)


@dataclass(frozen=True)
class OtherLabelling:
    """A group of callers that labels otherwise than the others of its arm.

    Attributes:
        is_candidates: whether it is in the candidate's arm.
        group: its number.
        wrong: of its labels.
        labels: how many it has.
        wrong_before: of its labels in stable's windows before the canary; 0 of 0: there were few.
        labels_before: the same.
        others: share of the labels of its arm's others that say wrong.
    """

    is_candidates: bool
    group: int
    wrong: float
    labels: float
    wrong_before: float
    labels_before: float
    others: float


class Labelling(SequentialState, frozen=True):
    """Who labels, and how.

    Attributes:
        past: ``[2, 1 + groups]``, wrong and all labels of stable before the canary.
        arms: ``[4, 1 + groups]``, as ``counted``, of this stage.
    """

    past: Floats
    arms: Floats

    @classmethod
    def begin(cls) -> Self:
        """Nothing known yet."""
        return cls(np.zeros((2, 1 + CALLER_GROUPS)), np.zeros((4, 1 + CALLER_GROUPS)))

    def with_history(self, stable: EvidenceCounts) -> Self:
        """With a window of stable before the canary."""
        if not stable.feedback:
            return self
        return replace(self, past=self.past + count_labels((EvidenceCounts(), stable))[_WRONG_S:])

    def after(self, told: Floats) -> Self:
        """With a window's labels that are compared, as ``counted``."""
        return replace(self, arms=self.arms + told) if told.any() else self

    def next_stage(self) -> Self:
        """In another step."""
        return replace(self, arms=np.zeros_like(self.arms))

    @property
    def is_alone(self) -> bool:
        """Whether one group of callers tells nearly all labels of an arm."""
        for labels in (self.arms[_ALL_C], self.arms[_ALL_S]):
            every, largest = labels[_EVERY], labels[1:].max()
            if every >= ENOUGH and largest > MOST_OF_AN_ARM * every:
                return True
        return False

    def other(self) -> OtherLabelling | None:
        """The group that differs most from its arm's others, more than it did before, if any."""
        before, of_before = _apart(*self.past)
        found, most = None, _DEVIATIONS
        for first in (_WRONG_C, _WRONG_S):
            wrong, labels = self.arms[first : first + 2]
            now, of_now = _apart(wrong, labels)
            deviation = np.sqrt(np.where(of_now > 0, of_now + of_before, np.inf))
            z = np.abs(now - before) / deviation
            if z.max() > most:
                most, group = float(z.max()), int(z.argmax())
                of_group, others = 1 + group, labels[_EVERY] - labels[1 + group]
                wrong_before, labels_before = self.past[:, of_group].tolist()
                found = OtherLabelling(
                    is_candidates=first == _WRONG_C,
                    group=group,
                    wrong=float(wrong[of_group]),
                    labels=float(labels[of_group]),
                    wrong_before=wrong_before,
                    labels_before=labels_before,
                    others=float((wrong[_EVERY] - wrong[of_group]) / others),
                )
        return found


def _apart(wrong: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """``[groups]``: how far a group's share is above that of all others, and its variance.

    0 and 0 where there are too few labels to say so.
    """
    rest_wrong, rest = wrong[_EVERY] - wrong[1:], labels[_EVERY] - labels[1:]
    own = (wrong[1:] + 0.5) / (labels[1:] + 1)
    other = (rest_wrong + 0.5) / (rest + 1)
    variance = own * (1 - own) / (labels[1:] + 1) + other * (1 - other) / (rest + 1)
    is_enough = np.minimum(labels[1:], rest) >= _LEAST_TOLD
    return np.where(is_enough, own - other, 0.0), np.where(is_enough, variance, 0.0)
