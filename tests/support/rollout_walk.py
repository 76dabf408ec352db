"""One endpoint on its walk, for tests of the machine: its status, clock, traffic and people.

The judge says what its windows say.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import evidence_windows

from contracts.endpoint import Arm, Candidate, EndpointStatus, Phase, Route
from contracts.model import ModelRef
from contracts.rollout import (
    CheckResult,
    Command,
    RolloutSpec,
    RolloutState,
    ShadowStep,
    Step,
    Verb,
    Verdict,
    WeightStep,
)
from contracts.windows import EndpointWindow, EvidenceCounts, WindowAggregate
from measures.counting import CountingState, CountingStatus
from rollout import steps
from rollout.context import Judge, Observation
from rollout.machine import advance
from rollout.steps import HISTORY_WINDOWS

SECONDS = 10


def ref(version: str, package: str = "") -> ModelRef:
    """A reference whose package id follows from the version."""
    return ModelRef(model="m", version=version, package=f"{package or int(version):0>64}")


def window(
    routes: Iterable[Route], start: int, *, verdict: str = "unknown", requests: int = 100
) -> EndpointWindow:
    """A window with traffic on each route; ``verdict`` is what ``FakeJudge`` will say of it."""
    counts = EvidenceCounts(requests=requests, labels={verdict: 1} if verdict else {})
    counted = [evidence_windows.aggregate(route.ref, route.arm, start, counts) for route in routes]
    return evidence_windows.window(start, *(counted if requests else ()), seconds=SECONDS)


class FakeJudge:
    """Says of the candidate what the newest window with traffic on its arm says.

    ``gate`` false makes it report only; silent, it has no check at all.
    """

    def __init__(self, *, gate: bool = True, silent: bool = False) -> None:
        self._gate = gate
        self._silent = silent

    def begin(
        self, spec: RolloutSpec, state: RolloutState, history: Sequence[EndpointWindow]
    ) -> RolloutState:
        """Counts the windows in which stable had traffic."""
        del spec
        known = sum(1 for item in history if _of(item, state.stable, Arm.STABLE))
        evidence: dict[str, Any] = {"history": known, "judged": 0}
        return state.model_copy(update={"evidence": evidence})

    def look(
        self, spec: RolloutSpec, state: RolloutState, windows: Sequence[EndpointWindow]
    ) -> RolloutState:
        """Takes the last word of the new windows."""
        stage = _stage(spec, state)
        verdict, evidence = None, dict(state.evidence)
        through = state.looked_through
        for item in windows:
            if item.start + item.seconds <= state.looked_through:
                continue
            through = max(through, item.start + item.seconds)
            if stage is Arm.SHADOW and _of(item, state.stable, Arm.STABLE):
                evidence["history"] += 1
            found = _of(item, state.candidate, stage)
            if found is not None:
                evidence["judged"] += 1
                verdict = Verdict(next(iter(found.evidence.labels), "unknown"))
        update: dict[str, Any] = {"evidence": evidence, "looked_through": through}
        if verdict is not None and not self._silent:
            figures = {"windows": float(evidence["judged"])}
            result = CheckResult(
                name="fake",
                verdict=verdict,
                reason=f"says {verdict}",
                figures=figures,
                gate=self._gate,
            )
            update["checks"] = (result,)
        return state.model_copy(update=update)

    def next_stage(self, spec: RolloutSpec, state: RolloutState) -> RolloutState:
        """Forgets the verdict."""
        del spec
        return state.model_copy(update={"checks": ()})

    def history_windows(self, state: RolloutState) -> int:
        known: int = state.evidence["history"]
        return known


class MemoryStatistics:
    """``controller.rollouts.Statistics`` that a test fills; ``away`` as while Kafka is."""

    def __init__(self) -> None:
        self.known: list[EndpointWindow] = []
        self.away = False
        self.asked: list[tuple[str, float | None]] = []

    def windows(
        self, endpoint: str, after: float, *, lateness_seconds: float | None = None
    ) -> tuple[EndpointWindow, ...] | None:
        self.asked.append((endpoint, lateness_seconds))
        return None if self.away else tuple(self.known)

    def closed_through(self, endpoint: str, lateness_seconds: float) -> float:
        ends = (each.start + each.seconds for each in self.known)
        return max(ends, default=0.0) - lateness_seconds

    def counting(self) -> CountingStatus:
        return CountingStatus(CountingState.UNKNOWN if self.away else CountingState.COUNTED)


def _stage(spec: RolloutSpec, state: RolloutState) -> Arm:
    if state.promoted_at is not None:
        return Arm.STABLE
    meets_callers = isinstance(steps.current(spec, state), WeightStep)
    return Arm.CANARY if meets_callers else Arm.SHADOW


def _of(item: EndpointWindow, of: ModelRef, arm: Arm) -> WindowAggregate | None:
    return next(
        (
            found
            for found in item.aggregates
            if found.package == of.package and found.arm is arm and found.evidence.requests
        ),
        None,
    )


ONE, TWO, THREE = ref("1"), ref("2"), ref("3")
# Said here, so that tests of how steps are walked do not change with the default.
STEPS: tuple[Step, ...] = (
    ShadowStep(shadow=100),
    *(WeightStep(weight=weight) for weight in (5, 25, 50)),
)
SPEC = RolloutSpec(steps=STEPS)
HOUR = 3600.0


def loaded_candidate(new: ModelRef = TWO, old: ModelRef = ONE) -> EndpointStatus:
    """An endpoint on which ``old`` serves and ``new`` waits for its rollout."""
    return EndpointStatus(
        generation=7,
        routes=(Route(arm=Arm.STABLE, ref=old, weight=100),),
        packages=(old, new),
        candidate=Candidate(version=new.version, phase=Phase.LOADED, ref=new, options="o2"),
    )


@dataclass
class Walk:
    """An endpoint, its clock and its traffic."""

    spec: RolloutSpec = SPEC
    status: EndpointStatus = field(default_factory=loaded_candidate)
    now: float = 10_000.0
    judge: Judge = field(default_factory=FakeJudge)
    observed: Observation = field(
        default_factory=lambda: Observation(loaded=frozenset({ONE, TWO}), target="2", windows=())
    )

    def step(self, seconds: float = 0.0) -> "Walk":
        """One pass, and once more: nothing new changes nothing."""
        self.now += seconds
        self.status = advance(self.spec, self.status, self.observed, self.now, self.judge)
        assert advance(self.spec, self.status, self.observed, self.now, self.judge) == self.status
        return self

    def traffic(self, verdict: str = "unknown", windows: int = 1, requests: int = 100) -> "Walk":
        """Windows of traffic on the routes as they are, with one pass after each."""
        for _ in range(windows):
            start = int(self.now // SECONDS) * SECONDS
            made = window(self.status.routes, start, verdict=verdict, requests=requests)
            self.observed = replace(self.observed, windows=(*(self.observed.windows or ()), made))
            self.step(SECONDS)
        return self

    def before(self, windows: int = HISTORY_WINDOWS) -> "Walk":
        """Traffic of the past, on stable alone."""
        first = int(self.now // SECONDS) * SECONDS - windows * SECONDS
        stable = (Route(arm=Arm.STABLE, ref=ONE, weight=100),)
        made = tuple(window(stable, first + index * SECONDS) for index in range(windows))
        self.observed = replace(self.observed, windows=made)
        return self

    def sees(self, *loaded: ModelRef) -> "Walk":
        """Other packages loaded."""
        self.observed = replace(self.observed, loaded=frozenset(loaded))
        return self

    def without_statistics(self) -> "Walk":
        """Windows that can't be read."""
        self.observed = replace(self.observed, windows=None)
        return self

    def wants(self, target: str | None) -> "Walk":
        """Another version that the spec wants."""
        self.observed = replace(self.observed, target=target)
        return self

    def told(self, verb: Verb, **more: Any) -> "Walk":
        """A person's command, and a pass."""
        number = len(self.observed.commands)
        command = Command(id=f"c{number}", verb=verb, by="ann", at=self.now, **more)
        self.observed = replace(self.observed, commands=(*self.observed.commands, command))
        return self.step()

    def through(self, count: int) -> "Walk":
        """That many steps passed."""
        self.before().step()
        for _ in range(count):
            self.traffic("pass")
        return self

    @property
    def said(self) -> tuple[bool, str]:
        """The last answer to a command."""
        answer = self.status.commands[-1]
        return answer.accepted, answer.said

    @property
    def state(self) -> RolloutState:
        assert self.status.rollout is not None
        return self.status.rollout

    @property
    def last(self) -> RolloutState:
        assert self.status.rollout is None
        assert self.status.last_rollout is not None
        return self.status.last_rollout

    @property
    def shares(self) -> dict[str, float]:
        """Weight by arm and version, e.g. ``canary 2``."""
        return {f"{r.arm.value} {r.ref.version}": r.weight for r in self.status.routes}

    @property
    def why(self) -> str:
        """What is shown of the candidate."""
        assert self.status.candidate is not None
        return self.status.candidate.reason
