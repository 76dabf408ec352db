"""Users' own statistics: their distribution, candidate against stable.

Only counts of one and the same declaration are compared; what a declaration does not allow is a
class of its own. A counter has no distribution, and is never known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from contracts.rollout import CheckResult, StatisticCheck, Verdict
from contracts.windows import OwnCounts, WindowAggregate
from measures.correlation import Floats
from rollout.checks import shift
from rollout.checks.shift import ShiftTest

Checked = Sequence[StatisticCheck]


@dataclass(frozen=True)
class OwnStatistics:
    """A test for each statistic that was seen, by its name."""

    tests: Mapping[str, ShiftTest] = field(default_factory=dict)

    def with_history(self, aggregate: WindowAggregate, checks: Checked) -> Self:
        """Returns a copy with a window of stable from before the rollout."""
        tests = dict(self.tests)
        for check in checks:
            if own := _of(aggregate, check.name):
                counts = histogram(own[0])
                tests[check.name] = self._test(check.name, counts).with_history(counts)
        return replace(self, tests=tests) if checks else self

    def after(
        self,
        candidate: WindowAggregate,
        stable: WindowAggregate,
        checks: Checked,
        alpha: float,
        *,
        before_canary: bool,
    ) -> Self:
        """Returns a copy with a window of both arms."""
        tests = dict(self.tests)
        for check in checks:
            twins = _of_one_declaration(_of(candidate, check.name), _of(stable, check.name))
            if twins is None:
                continue
            counts, others = histogram(twins[0]), histogram(twins[1])
            tests[check.name] = self._test(check.name, others).after(
                counts,
                others,
                shift.limits(check.distance, alpha),
                before_canary=before_canary,
            )
        return replace(self, tests=tests) if checks else self

    def next_stage(self) -> Self:
        """Returns a copy with the evidence to pass begun again."""
        return replace(self, tests={name: test.next_stage() for name, test in self.tests.items()})

    def with_checks(self, was: Checked, now: Checked) -> Self:
        """Takes the tests of an edited spec: those of another tolerance begin again."""
        distances = {check.name: check.distance for check in was}
        kept = {
            check.name: self.tests[check.name]
            for check in now
            if check.name in self.tests and distances.get(check.name) == check.distance
        }
        return replace(self, tests=kept)

    def results(self, checks: Checked, alpha: float) -> tuple[CheckResult, ...]:
        """What each test says."""
        return tuple(
            shift.result(
                self.tests.get(check.name),
                _check_name(check),
                f"values of {check.name}",
                shift.limits(check.distance, alpha),
                check,
            )
            for check in checks
        )

    def verdicts(self, checks: Checked) -> dict[str, Verdict]:
        """The word of each test."""
        return {_check_name(check): shift.verdict(self.tests.get(check.name)) for check in checks}

    def _test(self, name: str, counts: Floats) -> ShiftTest:
        """The test as it is, or a new one if the declaration has other bins by now."""
        test = self.tests.get(name)
        is_same = test is not None and len(test.past) == len(counts)
        return test if test is not None and is_same else ShiftTest.begin(len(counts))

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; ``of_json`` gives the same state back, bit by bit."""
        return {name: test.to_json() for name, test in sorted(self.tests.items())}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        """The state that ``to_json`` told; raises ``KeyError`` if a part is missing."""
        return cls({name: ShiftTest.of_json(test) for name, test in data.items()})


def _check_name(check: StatisticCheck) -> str:
    return f"statistic.{check.name}"


def histogram(own: OwnCounts) -> Floats:
    """Counts a bucket or category, and behind them what was unfit."""
    if own.spec.kind == "category":
        counts = [own.counts.get(value, 0) for value in own.spec.values]
    else:
        counts = [own.counts.get(str(bucket), 0) for bucket in range(len(own.spec.edges) + 1)]
    return np.array([*counts, own.unfit], dtype=np.float64)


def _of(aggregate: WindowAggregate, name: str) -> list[OwnCounts]:
    return [own for own in aggregate.own if own.spec.name == name and own.spec.kind != "counter"]


def _of_one_declaration(
    candidate: list[OwnCounts], stable: list[OwnCounts]
) -> tuple[OwnCounts, OwnCounts] | None:
    """Counts of both arms under one declaration; of the last such if one was edited."""
    for own in reversed(candidate):
        for twin in stable:
            if own.spec == twin.spec:
                return own, twin
    return None
