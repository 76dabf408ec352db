"""What is left out of the evidence to fail: what a window says without each group of callers.

Groups are those of the windows (``contracts.windows.CALLER_GROUPS``). Nobody is left out in shadow,
where both arms answer the same callers. Single windows are left out of errors and latency, where a
stall shows. Labels don't stall, and feedback may come all in one window.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from measures.correlation import Floats
from measures.evalue import Tolerance, WindowCounts, log_e_value, log_e_value_of_one
from measures.leaving_out import GROUPS, expected_events
from measures.own_past import CallersAnswers, OwnPast
from measures.proportions import ALTERNATIVES, StableHistory, alternatives, log_evidence
from measures.state import SequentialState
from rollout.checks.callers import GroupCounts
from rollout.checks.rows import (
    CLASSES,
    ERRORS,
    LATENCY,
    LATENCY_TEST,
    QUALITY,
    CheckRows,
)
from rollout.checks.slowness import ENOUGH as ENOUGH_PAST
from rollout.checks.slowness import LENGTHS
from rollout.checks.stage import ComparisonStage

Yes = NDArray[np.bool_]

_LATENCIES = LATENCY.stop - LATENCY.start
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

    def log_of_rows(self, window: WindowCounts, of: Yes | bool = True) -> Floats:  # noqa: FBT001, FBT002
        """``[..., rows, ALTERNATIVES]``: what each row of a window says, of those asked for.

        It is computed if both arms have requests, for other rows say nothing: in most strata of
        callers an arm has none.
        """
        is_told = (window.n_c > 0) & (window.n_s > 0) & of

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

    @property
    def of_groups(self) -> Self:
        """With one more axis before that of rows."""
        theta_s, a, s, rho, within, near = (
            np.broadcast_to(part, self.theta_s.shape)[..., None, :]
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
        slow: ``[..., GROUPS, rows of latency]``, slow answers of callers with a name.
        timed: of the same shape, all of them.
    """

    every: GroupCounts
    failed: Floats
    attempts: Floats
    labels: Floats | None = None
    slow: Floats | float = 0.0
    timed: Floats | float = 0.0

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

    def with_times(self, answers: CallersAnswers, past: OwnPast) -> Self:
        """With the answers of callers with a name, by length as production has them."""
        lead, bucket = answers.at[:-1], answers.at[-1]
        row = past.strata[answers.at] * len(LENGTHS) + answers.length
        of_rows = []
        for counts in (answers.events, answers.requests):
            found = np.zeros((*past.strata.shape[:-1], GROUPS, LATENCY.stop - LATENCY.start))
            np.add.at(found, (*lead, bucket % GROUPS, row), counts)
            of_rows.append(found)
        return replace(self, slow=of_rows[0], timed=of_rows[1])


def without_groups(
    window: WindowCounts,
    arms: tuple[ArmGroupCounts, ArmGroupCounts],
    believed: WindowPrior,
    rows: CheckRows,
    bake: "BakePast",
) -> Floats:
    """``[..., GROUPS, tests, ALTERNATIVES]``: what a window of callers says without each group.

    Args:
        window: its counts, ``[..., rows]``.
        arms: the groups' counts of candidate and stable.
        believed: before the window.
        rows: of all tests.
        bake: what latency is held against besides.
    """
    rest, is_changed = _leave_out(window, arms, rows)
    of_rows = believed.log_of_rows(window)
    of_groups = believed.of_groups
    without = of_groups.log_of_rows(rest, is_changed)
    of_rows = np.where(is_changed[..., None], without, of_rows[..., None, :, :])
    found: Floats = np.add.reduceat(of_rows, rows.tests, axis=-2)
    return bake.of_groups.hold(found, rest, of_groups)


def _leave_out(
    window: WindowCounts, arms: tuple[ArmGroupCounts, ArmGroupCounts], rows: CheckRows
) -> tuple[WindowCounts, Yes]:
    """``[..., GROUPS, rows]``: a window's counts without each group, and if they are others."""
    counts, is_changed = [], np.zeros(1, dtype=np.bool_)
    for arm, e, n in ((arms[0], window.e_c, window.n_c), (arms[1], window.e_s, window.n_s)):
        events, requests = _of_rows(arm, rows)
        is_changed = is_changed | (requests > 0)
        counts += [e[..., None, :] - events, n[..., None, :] - requests]
    return WindowCounts(*(np.maximum(part, 0.0) for part in counts)), is_changed


@dataclass(frozen=True)
class BakePast:
    """Stable before the rollout, which a bake's latency is held against as well as the arms.

    The promoted version has nearly all callers in the bake and the old one few. Batches of the
    former are larger and take longer, whatever version they are of. Before the rollout stable had
    all callers. So a window tells against the version only what it tells against both: the least of
    the two is at most the e-value of the arms. Rows of which the past knows little say nothing.

    Attributes:
        past: ``[..., rows]``.
        factor: ``[...]``, that many times as many slow answers are put down to the version's share
            (``share_cost``).
        is_bake: ``[...]``, before it is one nothing is held.
    """

    past: StableHistory
    factor: Floats
    is_bake: Yes

    @classmethod
    def of(cls, past: StableHistory, factor: Floats, stage: ComparisonStage) -> Self:
        """Of one rollout."""
        return cls(past, factor, np.asarray(stage is ComparisonStage.BAKE))

    @property
    def of_groups(self) -> Self:
        """With one more axis before that of rows."""
        past = StableHistory(self.past.events[..., None, :], self.past.requests[..., None, :])
        return type(self)(past, np.asarray(self.factor)[..., None], self.is_bake[..., None])

    def hold(self, log_s: Floats, window: WindowCounts, believed: WindowPrior) -> Floats:
        """``log_s``, ``[..., tests, ALTERNATIVES]``, with latency's evidence held against both."""
        if not self.is_bake.any():
            return log_s
        told = np.flatnonzero((window.n_c[..., LATENCY] > 0).reshape(-1, _LATENCIES).any(axis=0))
        at = told + LATENCY.start  # a row without answers says nothing
        factor = np.asarray(self.factor)[..., None, None]
        past = (self.past.events, self.past.requests)
        e_c, n_c, e, n = (part[..., at, None] for part in (window.e_c, window.n_c, *past))
        theta = (e + 0.5) / (n + 1.0)
        theta_s, a, s, rho = (
            np.broadcast_to(part, believed.theta_s.shape)[..., at, None]
            for part in (believed.theta_s, believed.line.a, believed.line.s, believed.rho)
        )
        # Before the bake stable had the large share: without it, it has the less slow answers.
        arms = WindowCounts(e_c, n_c, window.e_s[..., at, None], window.n_s[..., at, None])
        line = Tolerance(a, s * factor)
        of_arms = log_e_value(arms, alternatives(theta_s), theta_s / factor, line, rho).sum(axis=-2)
        of_rows = log_e_value_of_one(e_c, n_c, alternatives(theta), a + s * theta, rho)
        of_past = np.where(n >= ENOUGH_PAST, of_rows, 0.0).sum(axis=-2)
        found = log_s.copy()
        found[..., LATENCY_TEST, :] = np.where(
            self.is_bake[..., None], np.minimum(of_arms, of_past), log_s[..., LATENCY_TEST, :]
        )
        return found


def classes_by_group(arm: GroupCounts) -> Floats:
    """``[..., GROUPS, classes]``: answers of each class."""
    found: Floats = np.moveaxis(arm.events, -1, -2)[..., 2:]
    return found


def _of_rows(arm: ArmGroupCounts, rows: CheckRows) -> tuple[Floats, Floats]:
    """Events and requests of each row, ``[..., GROUPS, rows]``."""
    events, requests = (
        np.moveaxis(part, -1, -2)[..., 2:] for part in (arm.every.events, arm.every.requests)
    )
    lead = events.shape[:-1]
    found = np.zeros((2, *lead, rows.count))
    found[..., ERRORS] = arm.failed, arm.attempts
    found[0, ..., LATENCY], found[1, ..., LATENCY] = arm.slow, arm.timed
    if arm.labels is not None:
        found[..., QUALITY] = np.moveaxis(arm.labels, -3, 0)
    of_classes = ([events], [requests])
    if rows.count - CLASSES > events.shape[-1]:  # of three classes and more, each also falls
        of_classes = ([events, requests - events], [requests, requests])
    for part, classes in zip(found, of_classes, strict=True):
        part[..., CLASSES:] = np.concatenate(classes, axis=-1)
    return found[0], found[1]
