"""A rollout as the page shows it: stages, steps taken, checks, both arms, lines of history. Pure.

It draws ``rollout.view`` as values of the page's document, and says no more than that holds.
"""

from collections.abc import Iterable, Sequence

from contracts.endpoint import ModelEndpoint, Phase, Transition
from contracts.rollout import LOST, Outcome, RolloutState, SeriesPoint
from rollout import view
from rollout.series import gather
from stats.ui import document
from stats.ui.columns import round_value
from stats.ui.document import Check, HistoryLine, Points, Preparing, Rollout, Tone

_WITH_STEP = frozenset({Phase.SHADOW, Phase.CANARY})
_MOST_POINTS = 80


def rollout(endpoint: ModelEndpoint) -> Rollout | None:
    """The rollout that goes on, else the last one; None if there never was one."""
    state = endpoint.status.rollout or endpoint.status.last_rollout
    if state is None:
        return None
    seen = view.of_rollout(endpoint, state, view.FULL)
    return Rollout(
        version=state.candidate.version,
        against=state.stable.version,
        phase=seen.phase,
        reason=seen.reason,
        tone=tone(state),
        began=state.began,
        ended=state.ended_at,
        deadline=None if state.paused_at is not None else seen.deadline_at,
        paused=state.paused_at,
        stages=list(seen.stages),
        steps=_steps(seen.lines, state),
        checks=[
            Check(
                name=check.name,
                verdict=check.verdict.value,
                reason=check.reason,
                gate=check.gate,
                required=check.required,
                needs=check.needs,
            )
            for check in seen.checks
        ],
        points=_points(gather(state.series, _MOST_POINTS)),
        moments=[history_line(line) for line in seen.lines],
        next_version=seen.next_version or "",
    )


def coming(endpoint: ModelEndpoint) -> Preparing | None:
    """The version that is being prepared; None if none is."""
    candidate = endpoint.status.candidate
    if candidate is None or not view.is_preparing(candidate):
        return None
    seen = view.of_preparation(endpoint, candidate, view.FULL)
    return Preparing(candidate.version, candidate.reason, list(seen.stages))


def tone(state: RolloutState) -> Tone:
    """How much attention a rollout asks for."""
    if state.outcome is None:
        return Tone.WARN if state.paused_at is not None else Tone.BUSY
    if state.outcome is Outcome.EXPIRED:
        return Tone.WARN
    return Tone.BAD if state.outcome in LOST else Tone.QUIET


def history_line(line: Transition) -> HistoryLine:
    """A line of history."""
    percent = line.figures.get("percent")
    return HistoryLine(line.at, line.version, line.phase.value, line.reason, line.by, percent)


def _steps(lines: Iterable[Transition], state: RolloutState) -> list[document.StepView]:
    """What the candidate had, from when on; the end of the rollout is the last step."""
    taken = [
        document.StepView(line.at, line.figures.get("percent", 0.0), line.phase is Phase.SHADOW)
        for line in lines
        if line.phase in _WITH_STEP and "percent" in line.figures
    ]
    if state.promoted_at is not None:
        taken.append(document.StepView(state.promoted_at, 100.0, shadow=False))
    if state.ended_at is not None:
        kept = 100.0 if state.outcome is Outcome.SETTLED else 0.0
        taken.append(document.StepView(state.ended_at, kept, shadow=False))
    return taken


def _points(series: Sequence[SeriesPoint]) -> Points:
    return Points(
        at=[p.start for p in series],
        candidate_rate=[round_value(p.candidate_requests / max(1.0, p.seconds)) for p in series],
        stable_rate=[round_value(p.stable_requests / max(1.0, p.seconds)) for p in series],
        candidate_errors=[_share(p.candidate_errors, p.candidate_requests) for p in series],
        stable_errors=[_share(p.stable_errors, p.stable_requests) for p in series],
        candidate_slow=[_share(p.candidate_slow, p.candidate_requests) for p in series],
        stable_slow=[_share(p.stable_slow, p.stable_requests) for p in series],
    )


def _share(part: int, whole: int) -> float | None:
    return round_value(part / whole) if whole else None
