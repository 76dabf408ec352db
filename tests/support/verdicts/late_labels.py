"""Worlds in which labels come late, or one caller labels otherwise, judged by ``rollout.judge``.

Labels are drawn answer by answer, with the time that each takes to come, and counted into windows
by when they came. Nothing is taken from the evidence's own arithmetic.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Arm
from contracts.model import ModelRef
from contracts.rollout import (
    Checks,
    Line,
    QualityCheck,
    RolloutSpec,
    RolloutState,
    Verdict,
    WeightStep,
)
from contracts.windows import (
    AGE_STRIDE,
    CALLER_GROUPS,
    EndpointWindow,
    EvidenceCounts,
    WindowAggregate,
    age_class,
)
from rollout.judge import Judge
from verdicts.findings import Finding, share

NEW = ModelRef(model="Sentiment", version="2", package="b" * 64)
OLD = ModelRef(model="Sentiment", version="1", package="a" * 64)
HISTORY = 40  # windows of stable that are known before
_LOOK = 4  # windows at once: their verdicts are the same as of one by one
_CALLERS = 40


@dataclass(frozen=True)
class World:
    """What is true of labels.

    Attributes:
        name: for people.
        wrong_after: mean seconds until a wrong answer is reported, exponential.
        right_after: until a right one is.
        share: of callers, that the candidate has.
        labels: an hour, of both arms.
        wrong: share of stable's answers that are wrong.
        candidate_wrong: of the candidate's; None: as stable's.
        hours: that the step lasts.
        seconds: of a window.
        named: whether callers have names, ``_CALLERS`` of them.
        strict: share of the labels of one more caller, in the candidate's arm, that say wrong: it
            has twice as many labels as all others in the arm have; None: there is no such caller.
        promoted_after: hours after which the candidate is promoted; None: it is not.
    """

    name: str
    wrong_after: float = 0.0
    right_after: float = 0.0
    share: float = 0.25
    labels: float = 7200.0
    wrong: float = 0.1
    candidate_wrong: float | None = None
    hours: float = 2.0
    seconds: int = 60
    named: bool = False
    strict: float | None = None
    promoted_after: float | None = None
    fail: Line | None = None


MINUTES, HOURS = 60.0, 3600.0
COMPLAINTS_AND_HOURS = World(
    "wrong answers are reported after 3 minutes, right ones after 3 hours",
    3 * MINUTES,
    3 * HOURS,
    hours=6.0,
)
COMPLAINTS_AND_MINUTES = World(
    "wrong answers are reported after 3 minutes, right ones after 30 minutes",
    3 * MINUTES,
    30 * MINUTES,
)
CONFIRMED_FIRST = World(
    "right answers are confirmed after 3 minutes, wrong ones are found after 30",
    30 * MINUTES,
    3 * MINUTES,
)
PROMOTED = World(
    "the first, promoted from half of the callers after an hour",
    3 * MINUTES,
    30 * MINUTES,
    share=0.5,
    hours=3.0,
    promoted_after=1.0,
)
CONFIRMED_FIRST_PROMOTED = World(
    "the third, promoted likewise",
    30 * MINUTES,
    3 * MINUTES,
    share=0.5,
    hours=3.0,
    promoted_after=1.0,
)
FEW_LABELS = World(
    "the second with 12 labels an hour in the arm",
    3 * MINUTES,
    30 * MINUTES,
    share=0.05,
    labels=240.0,
    hours=12.0,
    seconds=300,
)
CONFIRMED_FIRST_FEW = World(
    "the third with 12 labels an hour in the arm",
    30 * MINUTES,
    3 * MINUTES,
    share=0.05,
    labels=240.0,
    hours=12.0,
    seconds=300,
)
STRICT_CALLER = World(
    "one caller begins to label by a stricter rule",
    named=True,
    labels=3600.0,
    strict=0.6,
    hours=1.0,
)
IDENTICAL = (
    COMPLAINTS_AND_HOURS,
    COMPLAINTS_AND_MINUTES,
    CONFIRMED_FIRST,
    PROMOTED,
    CONFIRMED_FIRST_PROMOTED,
    FEW_LABELS,
    CONFIRMED_FIRST_FEW,
    STRICT_CALLER,
)


@dataclass(frozen=True)
class Ending:
    """How a rollout ended.

    Attributes:
        failed: by quality.
        passed: quality had passed at some look.
        labels: of the candidate, that had come until either; else until the end.
        reason: what quality said last.
    """

    failed: bool
    passed: bool
    labels: int
    reason: str


def rolled_out(world: World, seed: int, *, until_passed: bool = False) -> Ending:
    """One rollout."""
    rng = np.random.default_rng([35, seed])
    fail = {} if world.fail is None else {"fail": world.fail}
    checks = Checks(quality=QualityCheck(required=True, **fail))
    spec = RolloutSpec(steps=(WeightStep(weight=100 * world.share),), checks=checks)
    windows = list(_windows(world, rng))
    began = float(windows[HISTORY].start)
    state = RolloutState(
        id="r", candidate=NEW, stable=OLD, began=began, step_began=began, looked_through=began
    )
    judge = Judge()
    state = judge.begin(spec, state, windows[:HISTORY])
    promoted_at = _promoted_at(world, began)
    labels, passed = 0, False
    for at in range(HISTORY, len(windows), _LOOK):
        is_due = promoted_at is not None and windows[at].start >= promoted_at
        if is_due and state.promoted_at is None:
            update = {"promoted_at": promoted_at, "step_began": promoted_at}
            state = judge.next_stage(spec, state.model_copy(update=update))
        looked = windows[at : at + _LOOK]
        state = judge.look(spec, state, looked)
        labels += sum(
            each.evidence.feedback
            for window in looked
            for each in window.aggregates
            if each.package == NEW.package
        )
        quality = next(check for check in state.checks if check.name == "quality")
        passed = passed or quality.verdict is Verdict.PASS
        if quality.verdict is Verdict.FAIL or (passed and until_passed):
            break
    return Ending(quality.verdict is Verdict.FAIL, passed, labels, quality.reason)


def _promoted_at(world: World, began: float) -> float | None:
    return None if world.promoted_after is None else began + world.promoted_after * HOURS


def _windows(world: World, rng: np.random.Generator) -> Iterator[EndpointWindow]:
    """Stable's history and the step, oldest first."""
    seconds, hours = world.seconds, world.hours
    before = 3 * max(world.wrong_after, world.right_after) + HISTORY * seconds
    began = seconds * int(before // seconds + 1)
    end = began + int(hours * HOURS)
    count = rng.poisson(world.labels / HOURS * end)
    answered = np.sort(rng.uniform(0, end, count))
    has_begun = answered >= began
    caller = rng.integers(0, _CALLERS, count) if world.named else np.arange(count)
    place = rng.random(_CALLERS)[caller] if world.named else rng.random(count)
    group = rng.integers(0, CALLER_GROUPS, _CALLERS + 1)
    promoted_at = _promoted_at(world, float(began))
    is_bake = np.zeros(count, dtype=np.bool_)
    if promoted_at is not None:
        is_bake = answered >= promoted_at
    is_mine = has_begun & (place < np.where(is_bake, 0.95, world.share))
    of_mine = world.wrong if world.candidate_wrong is None else world.candidate_wrong
    is_wrong = rng.random(count) < np.where(is_mine, of_mine, world.wrong)
    if world.strict is not None:  # one more caller, with as many labels as all others of its arm
        is_strict = is_mine & (rng.random(count) < 0.5) & (answered > began + 600)
        is_wrong = np.where(is_strict, rng.random(count) < world.strict, is_wrong)
        caller = np.where(is_strict, _CALLERS, caller)
    delay = rng.exponential(1.0, count) * np.where(is_wrong, world.wrong_after, world.right_after)
    arms = np.where(is_mine, np.where(is_bake, 2, 1), np.where(is_bake, 3, 0))
    groups = group[caller] if world.named else np.full(count, CALLER_GROUPS)
    at = ((answered + delay) // seconds).astype(np.int64)
    order = np.argsort(at, kind="stable")
    bounds = np.searchsorted(at[order], np.arange(end // seconds + 1))
    slots = (
        (OLD, Arm.STABLE),
        (NEW, Arm.CANARY),
        (NEW, Arm.STABLE),
        (OLD, Arm.CONTROL),
    )
    for number in range(began // seconds - HISTORY, end // seconds):
        rows = order[bounds[number] : bounds[number + 1]]
        start = number * seconds
        in_bake = promoted_at is not None and start >= promoted_at
        asked = {0} if start < began else ({2, 3} if in_bake else {0, 1})
        aggregates = []
        for arm, (ref, of) in enumerate(slots):
            mine = rows[arms[rows] == arm]
            if arm not in asked and not len(mine):
                continue
            evidence = _evidence(groups[mine], delay[mine], is_wrong[mine])
            evidence.requests = 100 if arm in asked else 0
            aggregates.append(
                WindowAggregate("e", ref.version, ref.package, of, start, evidence=evidence)
            )
        yield EndpointWindow("e", start, seconds, aggregates)


def _evidence(
    groups: NDArray[np.int64], ages: NDArray[np.float64], is_wrong: NDArray[np.bool_]
) -> EvidenceCounts:
    aged: Counter[int] = Counter()
    wrong: Counter[int] = Counter()
    of_groups: Counter[int] = Counter()
    wrong_groups: Counter[int] = Counter()
    for group, age, is_bad in zip(groups.tolist(), ages.tolist(), is_wrong.tolist(), strict=True):
        key = age_class(age) * AGE_STRIDE + group
        aged[key] += 1
        wrong[key] += is_bad
        if group < CALLER_GROUPS:
            of_groups[group] += 1
            wrong_groups[group] += is_bad
    return EvidenceCounts(
        feedback=len(groups),
        feedback_wrong=int(is_wrong.sum()),
        aged_feedback=dict(aged),
        aged_wrong=dict(+wrong),
        group_feedback=dict(of_groups),
        group_wrong=dict(+wrong_groups),
    )


def wrongly_back(rollouts: int) -> list[Finding]:
    """How often identical versions go back, so many rollouts in each world."""
    found = []
    for world in IDENTICAL:
        failed = np.array([rolled_out(world, seed).failed for seed in range(rollouts)])
        found.append(share(world.name, "rolled back", failed, 0.05))
    return found
