"""What is left out of the evidence to fail: what a window says without each group of callers.

Groups are those of the windows (``contracts.windows.CALLER_GROUPS``). Latency is not counted by
group: there nobody is left out. Neither is anybody in shadow, where both arms answer the same
callers. Single windows are left out of errors and latency, where a stall shows. Labels don't stall,
and feedback may come all in one window.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from measures.correlation import Floats
from measures.evalue import Tolerance, WindowCounts, log_e_value, log_e_value_of_one
from measures.leaving_out import GROUPS, expected_events
from measures.own_past import STRATA, CallersAnswers, OwnPast
from measures.proportions import ALTERNATIVES, StableHistory, alternatives, log_evidence
from measures.state import SequentialState
from rollout.checks.callers import GroupCounts
from rollout.checks.rows import (
    CLASSES,
    ERROR_TEST,
    ERRORS,
    LATENCY,
    LATENCY_TEST,
    QUALITY,
    QUALITY_TEST,
    CheckRows,
)
from rollout.checks.slowness import ENOUGH as ENOUGH_PAST

# A group that has more than that of an arm can't be left out: the version would go unjudged.
MOST_OF_AN_ARM = 0.9
ENOUGH = 100  # requests of an arm, before its only group is taken for all of it


class ArmGroups(SequentialState, frozen=True):
    """Requests of both arms in this stage, of all and by group.

    Attributes:
        every: ``[..., 2]``, candidate and stable.
        groups: ``[..., 2, GROUPS]``.
    """

    every: Floats
    groups: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> Self:
        """None yet."""
        return cls(np.zeros((*shape, 2)), np.zeros((*shape, 2, GROUPS)))

    def after(self, candidate: GroupCounts, stable: GroupCounts) -> Self:
        """Returns a copy with a window of both arms."""
        arms = (candidate, stable)
        every = np.stack([arm.all_requests[..., 0] for arm in arms], axis=-1)
        groups = np.stack([arm.requests[..., 0, :] for arm in arms], axis=-2)
        return type(self)(self.every + every, self.groups + groups)

    @property
    def is_alone(self) -> NDArray[np.bool_]:
        """``[...]``: whether one group is nearly all of an arm."""
        largest = self.groups.max(axis=-1)
        found = (self.every >= ENOUGH) & (largest > MOST_OF_AN_ARM * self.every)
        return np.asarray(found.any(axis=-1))


@dataclass(frozen=True)
class WindowPrior:
    """What is believed before a window, ``[..., rows]`` each.

    Attributes:
        theta_s: stable's rate.
        line: the tolerance.
        rho: intra-window correlation.
        within: the part of the design effect that texts of one request make.
        near: what is divided by besides, for callers' requests of near windows.
    """

    theta_s: Floats
    line: Tolerance
    rho: Floats
    within: Floats
    near: Floats

    def log_s(self, window: WindowCounts, rows: CheckRows) -> Floats:
        """``[..., tests, ALTERNATIVES]``: what a window says."""
        of_tests: Floats = np.add.reduceat(self.log_of_rows(window), rows.tests, axis=-2)
        return of_tests

    def log_of_rows(self, window: WindowCounts) -> Floats:
        """``[..., rows, ALTERNATIVES]``: what each row of a window says.

        It is computed if both arms have requests, for other rows say nothing: in most strata of
        callers an arm has none.
        """
        is_told = (window.n_c > 0) & (window.n_s > 0)

        def told(part: Floats | float) -> Floats:
            found: Floats = np.broadcast_to(part, is_told.shape)[is_told]
            return found

        log_s = np.zeros((*is_told.shape, ALTERNATIVES))
        log_s[is_told] = log_evidence(
            WindowCounts(
                *(told(part) for part in (window.e_c, window.n_c, window.e_s, window.n_s))
            ),
            told(self.theta_s),
            Tolerance(told(self.line.a), told(self.line.s)),
            told(self.rho),
            within=told(self.within),
        )
        return log_s / self.near[..., None]

    def expected(self, window: WindowCounts, rows: CheckRows) -> Floats:
        """``[..., tests]``: events of the candidate in a window, at stable's rate."""
        return expected_events(window.n_c, self.theta_s, rows.tests)

    def of(self, rows: list[int]) -> Self:
        """Of some rows, with one more axis before them."""
        theta_s, a, s, rho, within, near = (
            np.asarray(part)[..., None, rows]
            for part in (self.theta_s, self.line.a, self.line.s, self.rho, self.within, self.near)
        )
        return type(self)(theta_s, Tolerance(a, s), rho, within, near)


@dataclass(frozen=True)
class ArmGroupCounts:
    """One arm's counts of a window by groups of callers.

    Attributes:
        every: of errors and of each class.
        failed: ``[..., GROUPS, STRATA]``, errors.
        attempts: of the same shape.
        labels: ``[..., 2, GROUPS, rows of quality]``, wrong and all that are compared now; None:
            there are none.
    """

    every: GroupCounts
    failed: Floats
    attempts: Floats
    labels: Floats | None = None

    @classmethod
    def of(
        cls,
        every: GroupCounts,
        callers: CallersAnswers,
        past: OwnPast,
        labels: Floats | None = None,
    ) -> Self:
        """With errors by stratum, ``callers`` being those of whom it is told."""
        by_group = replace(callers, length=callers.at[-1] % GROUPS)
        found = by_group.by_stratum(past.strata, every.events[..., 0, :], every.requests[..., 0, :])
        failed, attempts = (np.moveaxis(part, -2, -1) for part in found)
        return cls(every, failed, attempts, labels)


def without_groups(
    log_s: Floats,
    window: WindowCounts,
    arms: tuple[ArmGroupCounts, ArmGroupCounts],
    believed: WindowPrior,
    rows: CheckRows,
) -> Floats:
    """``[..., GROUPS, tests, ALTERNATIVES]``: what a window says without each group.

    Args:
        log_s: what it says with all of them, ``[..., tests, ALTERNATIVES]``.
        window: its counts, ``[..., rows]``.
        arms: the groups' counts of candidate and stable.
        believed: before the window.
        rows: of all tests.
    """
    found = np.repeat(log_s[..., None, :, :], GROUPS, axis=-3)
    at = [*range(ERRORS.start, ERRORS.stop), *range(QUALITY.start, rows.count)]
    counts = []
    for arm, e, n in ((arms[0], window.e_c, window.n_c), (arms[1], window.e_s, window.n_s)):
        events, requests = _of_rows(arm, rows)
        counts += [e[..., None, at] - events, n[..., None, at] - requests]
    tests = [ERROR_TEST, *range(QUALITY_TEST, len(rows.tests))]
    of_rows = believed.of(at).log_of_rows(WindowCounts(*(np.maximum(part, 0.0) for part in counts)))
    first = [0, STRATA, *range(STRATA + QUALITY.stop - QUALITY.start, len(at))]
    found[..., tests, :] = np.add.reduceat(of_rows, first, axis=-2)
    return found


def also_against_past(
    log_s: Floats,
    window: WindowCounts,
    past: StableHistory,
    believed: WindowPrior,
    factor: Floats | float = 1.0,
) -> Floats:
    """``log_s`` of a bake, with latency's evidence as far as stable's past says the same.

    The promoted version has nearly all callers in the bake and the old one few. Batches of the
    former are larger and take longer, whatever version they are of. Before the rollout stable had
    all callers. So a window tells against the version only what it tells against both: the least of
    the two is at most the e-value of the arms. Rows of which the past knows little say nothing.

    ``factor``, ``[...]``: that many times as many slow answers are put down to the version's share
    (``share_cost``).
    """
    factor = np.asarray(factor)[..., None, None]
    e_c, n_c, e, n = (
        part[..., LATENCY, None] for part in (window.e_c, window.n_c, past.events, past.requests)
    )
    theta = (e + 0.5) / (n + 1.0)
    theta_s, a, s, rho = (
        np.broadcast_to(part, believed.theta_s.shape)[..., LATENCY, None]
        for part in (believed.theta_s, believed.line.a, believed.line.s, believed.rho)
    )
    # Before the bake stable had the large share: without it, it has the less slow answers.
    arms = WindowCounts(e_c, n_c, window.e_s[..., LATENCY, None], window.n_s[..., LATENCY, None])
    line = Tolerance(a, s * factor)
    of_arms = log_e_value(arms, alternatives(theta_s), theta_s / factor, line, rho).sum(axis=-2)
    of_rows = log_e_value_of_one(e_c, n_c, alternatives(theta), a + s * theta, rho)
    of_past = np.where(n >= ENOUGH_PAST, of_rows, 0.0).sum(axis=-2)
    found = log_s.copy()
    found[..., LATENCY_TEST, :] = np.minimum(of_arms, of_past)
    return found


def classes_by_group(arm: GroupCounts) -> Floats:
    """``[..., GROUPS, classes]``: answers of each class."""
    found: Floats = np.moveaxis(arm.events, -1, -2)[..., 2:]
    return found


def _of_rows(arm: ArmGroupCounts, rows: CheckRows) -> tuple[Floats, Floats]:
    """Events and requests of each row of errors, quality and classes, ``[..., GROUPS, rows]``."""
    events, requests = (
        np.moveaxis(part, -1, -2)[..., 2:] for part in (arm.every.events, arm.every.requests)
    )
    labels = arm.labels
    if labels is None:
        labels = np.zeros((*events.shape[:-2], 2, GROUPS, QUALITY.stop - QUALITY.start))
    of_events = [arm.failed, labels[..., 0, :, :], events]
    of_requests = [arm.attempts, labels[..., 1, :, :], requests]
    if rows.count - CLASSES > events.shape[-1]:  # of three classes and more, each also falls
        of_events.append(requests - events)
        of_requests.append(requests)
    return np.concatenate(of_events, axis=-1), np.concatenate(of_requests, axis=-1)
