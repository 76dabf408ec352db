"""A judge that says what its windows say, and windows that say it: for tests of the machine."""

from collections.abc import Iterable, Sequence
from typing import Any

from contracts.endpoint import Arm, Route
from contracts.model import ModelRef
from contracts.rollout import CheckResult, RolloutSpec, RolloutState, Verdict, WeightStep
from contracts.windows import EndpointWindow, EvidenceCounts, WindowAggregate
from rollout import steps

SECONDS = 10


def ref(version: str, package: str = "") -> ModelRef:
    """A reference whose package id follows from the version."""
    return ModelRef(model="m", version=version, package=f"{package or int(version):0>64}")


def cell(
    of: ModelRef, arm: Arm, start: int, *, requests: int = 100, verdict: str = ""
) -> WindowAggregate:
    """Counts of one arm; ``verdict`` is what ``FakeJudge`` will say of it."""
    labels = {verdict: 1} if verdict else {}
    judged = EvidenceCounts(requests=requests, labels=labels)
    return WindowAggregate("e", of.version, of.package, arm, start, judged=judged)


def window(
    routes: Iterable[Route], start: int, *, verdict: str = "unknown", requests: int = 100
) -> EndpointWindow:
    """A window in which each route got traffic; the judged arm carries the verdict."""
    cells = [cell(r.ref, r.arm, start, requests=requests, verdict=verdict) for r in routes]
    return EndpointWindow("e", start, SECONDS, cells if requests else [])


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
                verdict = Verdict(next(iter(found.judged.labels), "unknown"))
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
        """As counted."""
        known: int = state.evidence["history"]
        return known


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
            if found.package == of.package and found.arm is arm and found.judged.requests
        ),
        None,
    )
