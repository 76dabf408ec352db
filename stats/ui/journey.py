"""A rollout as the page shows it: stages, steps taken, checks, both arms, lines of history. Pure.

Called by ``view.py``. It never says more than the stored status holds.
"""

from collections.abc import Iterable, Sequence

from contracts import way
from contracts.endpoint import EndpointSpec, EndpointStatus, Phase, Transition
from contracts.rollout import (
    Outcome,
    RolloutSpec,
    RolloutState,
    SeriesPoint,
    ShadowStep,
    Step,
)
from stats.ui import document
from stats.ui.columns import rounded
from stats.ui.document import Check, Moment, Points, Preparing, Rollout, Tone

ENDS = frozenset({Phase.REJECTED, Phase.ROLLED_BACK, Phase.SUPERSEDED, Phase.SETTLED})
_WITH_STEP = frozenset({Phase.SHADOW, Phase.CANARY})
_MOST_POINTS = 80


def rollout(spec: EndpointSpec, status: EndpointStatus) -> Rollout | None:
    """The rollout that goes on, else the last one; None where there never was one."""
    state = status.rollout or status.last_rollout
    if state is None:
        return None
    lines = _lines(status.history, state)
    candidate = status.candidate
    own = candidate is not None and candidate.version == state.candidate.version
    waiting = candidate.version if candidate is not None and not own and is_on(state) else ""
    reason = candidate.reason if candidate is not None and own and is_on(state) else state.reason
    return Rollout(
        version=state.candidate.version,
        against=state.stable.version,
        phase=_phase(spec.rollout, state),
        reason=reason,
        tone=tone(state),
        began=state.began,
        ended=state.ended_at,
        deadline=_deadline(spec.rollout, state),
        paused=state.paused_at,
        stages=list(way.rollout(spec.rollout, _WORDS, state)),
        steps=_steps(lines, state),
        checks=[
            Check(
                name=check.name,
                verdict=check.verdict.value,
                reason=check.reason,
                gate=check.gate,
                required=check.required,
                needs=check.needs,
            )
            for check in state.checks
        ],
        points=_points(state.series),
        moments=[moment(line) for line in lines],
        next_version=waiting,
    )


def coming(spec: EndpointSpec, status: EndpointStatus) -> Preparing | None:
    """The version that is being prepared; None where none is."""
    candidate = status.candidate
    if candidate is None or candidate.phase not in way.REACHED:
        return None
    at, is_first = way.REACHED[candidate.phase], status.stable is None
    stages = way.preparation(spec.rollout, _WORDS, at, way.Mark.NOW, is_first=is_first)
    return Preparing(candidate.version, candidate.reason, list(stages))


def is_on(state: RolloutState) -> bool:
    """Whether it goes on."""
    return state.outcome is None


def tone(state: RolloutState) -> Tone:
    """How much attention a rollout asks for."""
    if state.outcome is None:
        return Tone.WARN if state.paused_at is not None else Tone.BUSY
    return Tone.BAD if state.outcome in _LOST else Tone.QUIET


def moment(line: Transition) -> Moment:
    """A line of history."""
    percent = line.figures.get("percent")
    return Moment(line.at, line.version, line.phase.value, line.reason, line.by, percent)


_LOST = frozenset({Outcome.ROLLED_BACK, Outcome.REVERTED})


def _lines(history: Iterable[Transition], state: RolloutState) -> list[Transition]:
    """The candidate's lines of this rollout, its preparation included."""
    lines = [
        line
        for line in history
        if line.version == state.candidate.version
        and (state.ended_at is None or line.at <= state.ended_at + 1)
    ]
    before = [i for i, line in enumerate(lines) if line.phase in ENDS and line.at < state.began]
    return lines[before[-1] + 1 :] if before else lines


def _named(step: Step) -> str:
    return f"shadow {step.shadow:g} %" if isinstance(step, ShadowStep) else f"{step.weight:g} %"


_WORDS = way.Words(step=_named, promoted="bake")


def _phase(spec: RolloutSpec, state: RolloutState) -> str:
    if state.outcome is not None:
        return state.outcome.value
    if state.promoted_at is not None:
        return Phase.PROMOTED.value
    step = spec.step_at(state.step)
    return (Phase.SHADOW if isinstance(step, ShadowStep) else Phase.CANARY).value


def _deadline(spec: RolloutSpec, state: RolloutState) -> float | None:
    if not is_on(state) or state.promoted_at is not None or state.paused_at is not None:
        return None
    return state.began + state.paused_seconds + spec.deadline


def _steps(lines: Iterable[Transition], state: RolloutState) -> list[document.Step]:
    """What the candidate had, from when on; the end of the rollout is the last step."""
    taken = [
        document.Step(line.at, line.figures.get("percent", 0.0), line.phase is Phase.SHADOW)
        for line in lines
        if line.phase in _WITH_STEP and "percent" in line.figures
    ]
    if state.promoted_at is not None:
        taken.append(document.Step(state.promoted_at, 100.0, shadow=False))
    if state.ended_at is not None:
        kept = 100.0 if state.outcome is Outcome.SETTLED else 0.0
        taken.append(document.Step(state.ended_at, kept, shadow=False))
    return taken


def _points(series: Sequence[SeriesPoint]) -> Points:
    size = -(-len(series) // _MOST_POINTS) or 1
    groups = [series[first : first + size] for first in range(0, len(series), size)]
    return Points(
        at=[group[0].start for group in groups],
        candidate_rate=[_rate(g, [p.candidate_requests for p in g]) for g in groups],
        stable_rate=[_rate(g, [p.stable_requests for p in g]) for g in groups],
        candidate_errors=[
            _share([p.candidate_errors for p in g], [p.candidate_requests for p in g])
            for g in groups
        ],
        stable_errors=[
            _share([p.stable_errors for p in g], [p.stable_requests for p in g]) for g in groups
        ],
        candidate_slow=[
            _share([p.candidate_slow for p in g], [p.candidate_requests for p in g]) for g in groups
        ],
        stable_slow=[
            _share([p.stable_slow for p in g], [p.stable_requests for p in g]) for g in groups
        ],
    )


def _rate(group: Sequence[SeriesPoint], counts: Sequence[int]) -> float:
    return rounded(sum(counts) / max(1.0, sum(point.seconds for point in group)))


def _share(part: Sequence[int], whole: Sequence[int]) -> float | None:
    return rounded(sum(part) / sum(whole)) if sum(whole) else None
